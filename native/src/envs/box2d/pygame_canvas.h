// SPDX-License-Identifier: Apache-2.0
// Polygons on a picture, with the pixels that pygame 2 gives them; rows are painted one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "pixel_row.h"

namespace rollouts::race {

struct Pixel {
  std::int32_t x;
  std::int32_t y;
};

class Canvas {
 public:
  static constexpr std::int32_t kWidth = PixelRow::kWidth;
  static constexpr std::int32_t kHeight = 800;
  static constexpr std::size_t kMaxCorners = 8;

  void Clear();
  // As gfxdraw.aapolygon and then gfxdraw.filled_polygon: 3 to 8 corners.
  void AddSmooth(std::span<const Pixel> corners, Lanes color);
  // As pygame.draw.polygon.
  void AddPlain(std::span<const Pixel> corners, Lanes color);
  // Each row is to be painted once, the last row first.
  void PaintRow(std::int32_t y, PixelRow& row);

 private:
  // A side of a polygon, from above to below.
  struct Side {
    std::int32_t x1, y1, x2, y2;
  };
  // A smooth line: what is not at its ends lies between two pixels, beside or below each other.
  struct Line {
    std::int32_t x, y;        // where it begins, above
    std::int32_t last_y;
    std::int32_t length;      // in steps
    std::int32_t direction;   // of x
    bool steep;               // a step is a row, else a column
    std::uint64_t slope;      // per step, in 2^-32 of a pixel
    Pixel end;                // the end that is drawn
  };
  struct Shape {
    bool smooth;
    Lanes color;
    std::int32_t first_y, last_y;
    std::int32_t num_sides = 0;
    std::int32_t num_lines = 0;
    std::array<Side, kMaxCorners> sides;
    std::array<Line, kMaxCorners> lines;
  };
  // Pixels from first to last.
  struct Span {
    std::int32_t first, last;
  };

  void Add(std::span<const Pixel> corners, Lanes color, bool smooth);
  static void AddLine(Shape& shape, Pixel from, Pixel to);
  static bool Clip(Pixel& from, Pixel& to);
  static std::int32_t Spans(const Shape& shape, std::int32_t y, std::span<Span> spans);
  static void PaintLine(const Line& line, std::int32_t y, Lanes color, Span hidden,
                        PixelRow& row);
  static void Paint(const Shape& shape, std::int32_t y, PixelRow& row);

  std::vector<Shape> shapes_;           // in the order they are drawn
  std::vector<std::int32_t> waiting_;   // for the row they begin in, the last row first
  std::vector<std::int32_t> active_;    // in the order they are drawn
  bool sorted_ = false;
};

}  // namespace rollouts::race
