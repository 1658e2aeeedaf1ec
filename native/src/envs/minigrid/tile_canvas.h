// SPDX-License-Identifier: Apache-2.0
// Shapes in a tile, computed as in minigrid (minigrid/utils/rendering.py): in double, or in float
// where NumPy uses float32. Coordinates go from 0 to 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rollouts::minigrid {

struct Rgb {
  std::uint8_t part[3];
};

// Each part times `factor`, rounded down.
inline Rgb Darkened(Rgb color, double factor) {
  for (std::uint8_t& part : color.part) part = static_cast<std::uint8_t>(factor * part);
  return color;
}

// A rectangle that includes its edges, as do the shapes below.
struct Rectangle {
  double left, right, top, bottom;
  bool Has(double x, double y) const { return x >= left && x <= right && y >= top && y <= bottom; }
};

struct Circle {
  double x, y, radius;
  bool Has(double px, double py) const {
    return (px - x) * (px - x) + (py - y) * (py - y) <= radius * radius;
  }
};

// Points at most `radius` away from a line between two points, in the bounding box of the line.
class Line {
 public:
  Line(double x0, double y0, double x1, double y1, double radius)
      : box_{std::min(x0, x1) - radius, std::max(x0, x1) + radius, std::min(y0, y1) - radius,
             std::max(y0, y1) + radius},
        x_(static_cast<float>(x0)),
        y_(static_cast<float>(y0)),
        radius_(radius) {
    const float dx = static_cast<float>(x1) - x_, dy = static_cast<float>(y1) - y_;
    length_ = std::sqrt(dx * dx + dy * dy);
    dx_ = dx / length_;
    dy_ = dy / length_;
  }

  bool Has(double x, double y) const {
    if (!box_.Has(x, y)) return false;
    const double along = std::clamp((x - x_) * dx_ + (y - y_) * dy_, 0.0, double{length_});
    const double to_x = x - (x_ + along * dx_), to_y = y - (y_ + along * dy_);
    return std::sqrt(to_x * to_x + to_y * to_y) <= radius_;
  }

 private:
  Rectangle box_;
  float x_, y_, dx_, dy_, length_;
  double radius_;
};

// The agent: a triangle that points in its direction.
class AgentTriangle {
 public:
  explicit AgentTriangle(std::int32_t facing)
      : cos_(std::cos(-(kQuarter * facing))), sin_(std::sin(-(kQuarter * facing))) {}

  bool Has(double x, double y) const {
    const double from_x = x - 0.5, from_y = y - 0.5;
    const double px = 0.5 + from_x * cos_ - from_y * sin_ - kA[0];
    const double py = 0.5 + from_y * cos_ + from_x * sin_ - kA[1];
    // barycentric coordinates
    const float v0[] = {kC[0] - kA[0], kC[1] - kA[1]}, v1[] = {kB[0] - kA[0], kB[1] - kA[1]};
    const float dot00 = v0[0] * v0[0] + v0[1] * v0[1];
    const float dot01 = v0[0] * v1[0] + v0[1] * v1[1];
    const float dot11 = v1[0] * v1[0] + v1[1] * v1[1];
    const double dot02 = v0[0] * px + v0[1] * py, dot12 = v1[0] * px + v1[1] * py;
    const float scale = 1 / (dot00 * dot11 - dot01 * dot01);
    const double u = (dot11 * dot02 - dot01 * dot12) * scale;
    const double v = (dot00 * dot12 - dot01 * dot02) * scale;
    return u >= 0 && v >= 0 && u + v < 1;
  }

 private:
  static constexpr double kQuarter = 0.5 * 3.141592653589793;  // a quarter turn
  static constexpr float kA[] = {0.12f, 0.19f}, kB[] = {0.87f, 0.50f}, kC[] = {0.12f, 0.81f};
  const double cos_, sin_;
};

// A tile, kept three times as large until it is written.
class TileCanvas {
 public:
  explicit TileCanvas(std::int32_t size)
      : size_(size), side_(kTimes * size), pixels_(std::size_t{3} * side_ * side_) {}

  template <typename Shape>
  void Fill(const Shape& shape, Rgb color) {
    std::uint8_t* pixel = pixels_.data();
    for (std::int32_t j = 0; j < side_; ++j) {
      for (std::int32_t i = 0; i < side_; ++i, pixel += 3) {
        if (shape.Has((i + 0.5) / side_, (j + 0.5) / side_)) std::copy_n(color.part, 3, pixel);
      }
    }
  }

  // Writes rows of 3 * size bytes. `lit`: makes them lighter.
  void Write(bool lit, std::uint8_t* to) const {
    for (std::int32_t j = 0; j < size_; ++j) {
      for (std::int32_t i = 0; i < size_; ++i) {
        for (std::int32_t part = 0; part < 3; ++part) *to++ = Mean(i, j, part, lit);
      }
    }
  }

 private:
  static constexpr std::int32_t kTimes = 3;

  // Averages along rows first, in NumPy's order, because both divisions may round down.
  std::uint8_t Mean(std::int32_t i, std::int32_t j, std::int32_t part, bool lit) const {
    double sum = 0;
    for (std::int32_t y = kTimes * j; y < kTimes * (j + 1); ++y) {
      double row = 0;
      for (std::int32_t x = kTimes * i; x < kTimes * (i + 1); ++x) {
        const std::uint8_t value = pixels_[(std::size_t{3} * y * side_) + 3 * x + part];
        row += lit ? static_cast<std::uint8_t>(value + 0.30 * (255 - value)) : value;
      }
      sum += row / kTimes;
    }
    return static_cast<std::uint8_t>(sum / kTimes);
  }

  std::int32_t size_, side_;
  std::vector<std::uint8_t> pixels_;
};

}  // namespace rollouts::minigrid
