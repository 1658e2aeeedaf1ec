// SPDX-License-Identifier: Apache-2.0
#include "race_picture.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "pygame_canvas.h"
#include "race_digits.h"
#include "race_shrink.h"
#include "rollouts/core/math.h"

namespace rollouts::race {
namespace {

// names and values of car_racing.py
constexpr double kZoom = 2.7;
constexpr double kGrassDim = kPlayfield / 20.0;
constexpr double kRootOfTwo = 1.4142135623730951;
constexpr double kMaxShapeDim = kGrassDim * kRootOfTwo * kZoom * kScale;
constexpr double kHullRed = 204;
constexpr double kWheelGrey = 77;
constexpr double kUnit = Canvas::kWidth / 40.0;    // a column of the panel
constexpr double kHeight = Canvas::kHeight / 40.0;  // a row of the panel
constexpr std::int32_t kPanelTop = 700;             // row
constexpr Lanes kBlack = 0;
constexpr Lanes kWhite = LanesOf(255, 255, 255);
constexpr Lanes kRed = LanesOf(255, 0, 0);

// A rectangle of the panel, with its last row and column.
struct Bar {
  std::int32_t left, top, right, bottom;
  Lanes color;
};

Lanes Cut(const Color& color, double brighter = 0) {
  const auto one = [&](std::size_t i) { return static_cast<std::uint32_t>(color[i] + brighter); };
  return LanesOf(one(0), one(1), one(2));
}

double Sign(double value) { return (value > 0) - (value < 0); }

// Maps the world to the picture, whose rows go upwards.
class Camera {
 public:
  explicit Camera(const Scene& scene) {
    zoom_ = 0.1 * kScale * std::max(1 - scene.seconds, 0.0) +
            kZoom * kScale * std::min(scene.seconds, 1.0);
    SetTurn(-double{scene.hull.angle});
    const Point middle =
        Turn({-double{scene.hull.position.x} * zoom_, -double{scene.hull.position.y} * zoom_});
    shift_ = {Canvas::kWidth / 2.0 + middle.x, Canvas::kHeight / 4.0 + middle.y};
  }

  Point At(Point of) const {
    const Point turned = Turn(of);
    return {turned.x * zoom_ + shift_.x, turned.y * zoom_ + shift_.y};
  }

 private:
  // Sets a rotation; multiples of a right angle are exact, as in pygame.
  void SetTurn(double angle) {
    constexpr double kEpsilon = 1e-6;
    angle = std::fmod(angle, 2 * kPi);
    if (angle < 0) angle += 2 * kPi;
    if (std::fmod(angle + kEpsilon, kPi / 2) < 2 * kEpsilon) {
      constexpr double kQuarters[] = {1, 0, -1, 0};
      const auto quarter = static_cast<std::int32_t>((angle + kEpsilon) / (kPi / 2));
      cosine_ = kQuarters[quarter % 4];
      sine_ = kQuarters[(quarter + 3) % 4];
      return;
    }
    sine_ = std::sin(angle);
    cosine_ = std::cos(angle);
  }
  Point Turn(Point of) const {
    return {cosine_ * of.x - sine_ * of.y, sine_ * of.x + cosine_ * of.y};
  }

  double zoom_;
  double sine_;
  double cosine_;
  Point shift_;
};

class Painter {
 public:
  explicit Painter(Canvas& canvas) : canvas_(canvas) { canvas_.Clear(); }

  void PaintField(const Camera& camera, const Colors& colors) {
    const double p = kPlayfield;
    AddSmooth(camera, {{{p, p}, {p, -p}, {-p, -p}, {-p, p}}}, Cut(colors.field), /*cull=*/false);
    const Lanes grass = Cut(colors.grass);
    for (std::int32_t x = -20; x < 20; x += 2) {
      for (std::int32_t y = -20; y < 20; y += 2) {
        const double left = kGrassDim * x;
        const double low = kGrassDim * y;
        AddSmooth(camera,
                  {{{left + kGrassDim, low},
                    {left, low},
                    {left, low + kGrassDim},
                    {left + kGrassDim, low + kGrassDim}}},
                  grass);
      }
    }
  }

  void PaintRoad(const Camera& camera, const Scene& scene) {
    for (const Piece& piece : scene.road.pieces) {
      // tiles that were not touched have three shades
      const double brighter = scene.was_touched[piece.tile] ? 0 : 0.01 * (piece.tile % 3) * 255;
      const Lanes kerb = piece.tile % 2 == 0 ? kWhite : kRed;
      AddSmooth(camera, piece.corners, piece.kerb ? kerb : Cut(scene.colors.road, brighter));
    }
  }

  void PaintCar(const Camera& camera, const Scene& scene) {
    for (const Scene::Turning& wheel : scene.wheels) {
      AddPart(camera, wheel.motion, kWheelPart, kBlack);
      AddStripe(camera, wheel);
    }
    for (const Part& part : kHullParts) {
      AddPart(camera, scene.hull, part, LanesOf(static_cast<std::uint32_t>(kHullRed), 0, 0));
    }
  }

 private:
  static Pixel Cut(Point at) {
    return {static_cast<std::int32_t>(at.x), static_cast<std::int32_t>(at.y)};
  }
  static Lanes Cut(const Color& color, double brighter = 0) {
    return race::Cut(color, brighter);
  }

  // True near the picture. Objects farther away are left out, although some would show at the edge.
  static bool IsNear(Point at) {
    return -kMaxShapeDim <= at.x && at.x <= Canvas::kWidth + kMaxShapeDim &&
           -kMaxShapeDim <= at.y && at.y <= Canvas::kHeight + kMaxShapeDim;
  }
  void AddSmooth(const Camera& camera, const Quad& quad, Lanes color, bool cull = true) {
    std::array<Pixel, 4> corners;
    bool is_near = !cull;
    for (std::size_t i = 0; i < quad.size(); ++i) {
      const Point at = camera.At(quad[i]);
      is_near = is_near || IsNear(at);
      corners[i] = Cut(at);
    }
    if (is_near) canvas_.AddSmooth(corners, color);
  }

  // Adds a part of a body, computed in Box2D's float32.
  void AddPart(const Camera& camera, const PlanarMotion& body, const Part& part, Lanes color) {
    std::array<Pixel, 8> corners;
    for (std::int32_t i = 0; i < part.num_corners; ++i) {
      const PlanarPoint in(part.corners[i].x * kSize, part.corners[i].y * kSize);
      const float x = (body.right.x * in.x - body.right.y * in.y) + body.position.x;
      const float y = (body.right.y * in.x + body.right.x * in.y) + body.position.y;
      corners[i] = Cut(camera.At({x, y}));
    }
    canvas_.AddPlain(std::span(corners).first(part.num_corners), color);
  }
  // Adds a stripe that shows the rotation of a wheel.
  void AddStripe(const Camera& camera, const Scene::Turning& wheel) {
    const double s1 = std::sin(wheel.phase);
    const double s2 = std::sin(wheel.phase + 1.2);
    double c1 = std::cos(wheel.phase);
    double c2 = std::cos(wheel.phase + 1.2);
    if (s1 > 0 && s2 > 0) return;
    if (s1 > 0) c1 = Sign(c1);
    if (s2 > 0) c2 = Sign(c2);
    const Part stripe = {4,
                         {{{-kWheelW, kWheelR * c1},
                           {kWheelW, kWheelR * c1},
                           {kWheelW, kWheelR * c2},
                           {-kWheelW, kWheelR * c2}}}};
    const auto grey = static_cast<std::uint32_t>(kWheelGrey);
    AddPart(camera, wheel.motion, stripe, LanesOf(grey, grey, grey));
  }

  Canvas& canvas_;
};

// The panel's bars, drawn on black in this order.
std::vector<Bar> Panel(const Scene& scene) {
  std::vector<Bar> bars;
  const auto add = [&](double value, double left, double top, double right, double bottom,
                       Lanes color) {
    if (!(std::abs(value) > 1e-4)) return;
    // limits numbers far outside of the picture, which look the same
    const auto cut = [](double at) {
      return static_cast<std::int32_t>(std::clamp(at, -2.0e9, 2.0e9));
    };
    const auto [first_x, last_x] = std::minmax({cut(left), cut(right)});
    const auto [first_y, last_y] = std::minmax({cut(top), cut(bottom)});
    bars.push_back({first_x, first_y, last_x, last_y, color});
  };
  constexpr double kBottom = Canvas::kHeight;
  const auto upright = [&](double value, std::int32_t place, double height, Lanes color) {
    add(value, place * kUnit, kBottom - (kHeight + kHeight * height), (place + 1) * kUnit,
        kBottom - kHeight, color);
  };
  const auto level = [&](double value, std::int32_t place, double width, Lanes color) {
    add(value, place * kUnit, kBottom - 4 * kHeight, (place + width) * kUnit,
        kBottom - 2 * kHeight, color);
  };
  const double speed_x = scene.hull.velocity.x;
  const double speed_y = scene.hull.velocity.y;
  const double speed = std::sqrt(speed_x * speed_x + speed_y * speed_y);
  upright(speed, 5, 0.02 * speed, kWhite);
  for (std::int32_t i = 0; i < kNumWheels; ++i) {
    const double omega = scene.wheels[i].omega;
    upright(omega, 7 + i, 0.01 * omega, LanesOf(i < 2 ? 0 : 51, 0, 255));
  }
  level(scene.steering, 20, -10.0 * scene.steering, LanesOf(0, 255, 0));
  const double turning = scene.hull.angular_velocity;
  level(turning, 30, -0.8 * turning, kRed);
  return bars;
}

// The memory in which a frame is painted, kept from frame to frame.
class Sheet {
 public:
  Sheet(std::int32_t width, std::int32_t height)
      : shrink_(Canvas::kHeight, width, height), rows_(kRows, PixelRow(shrink_.columns())) {}

  Canvas& canvas() { return canvas_; }
  bool IsOf(std::int32_t width, std::int32_t height) const {
    return shrink_.width() == width && shrink_.height() == height;
  }

  void Draw(const std::vector<Bar>& bars, const Digits& digits, std::uint8_t* rgb) {
    shrink_.Begin(rgb);
    DrawWorld(bars);
    DrawPanel(bars, digits);
  }

 private:
  // painted together, because a shape's rows are alike; this many fit into a core's first-level
  // cache
  static constexpr std::int32_t kRows = 28;
  static_assert(kPanelTop % kRows == 0);

  void DrawWorld(const std::vector<Bar>& bars) {
    std::int32_t bars_top = kPanelTop;
    for (const Bar& bar : bars) bars_top = std::min(bars_top, bar.top);
    for (std::int32_t y = 0; y < kPanelTop; y += kRows) {
      // the world is drawn with its rows upwards
      canvas_.PaintRows(Canvas::kHeight - y - kRows, rows_);
      for (std::int32_t i = 0; i < kRows; ++i) {
        PixelRow& row = rows_[kRows - 1 - i];
        // some bars are higher than the panel
        if (y + i >= bars_top) PaintBars(bars, y + i, row);
        shrink_.TakeRow(row);
      }
    }
  }
  void DrawPanel(const std::vector<Bar>& bars, const Digits& digits) {
    PixelRow& row = rows_[0];
    for (std::int32_t y = kPanelTop; y < Canvas::kHeight; ++y) {
      if (y > kPanelTop && !Changes(bars, y)) {
        shrink_.TakeSameRow();
        continue;
      }
      row.Clear(kBlack);
      PaintBars(bars, y, row);
      digits.PaintRow(y, row);
      shrink_.TakeRow(row);
    }
  }
  static void PaintBars(const std::vector<Bar>& bars, std::int32_t y, PixelRow& row) {
    for (const Bar& bar : bars) {
      if (y >= bar.top && y <= bar.bottom) row.Fill(bar.left, bar.right, bar.color);
    }
  }
  // Tells if a row of the panel differs from the one above it.
  static bool Changes(const std::vector<Bar>& bars, std::int32_t y) {
    return Digits::Changes(y) || std::ranges::any_of(bars, [&](const Bar& bar) {
             return y == bar.top || y - 1 == bar.bottom;
           });
  }

  Canvas canvas_;
  Shrink shrink_;
  std::vector<PixelRow> rows_;
};

}  // namespace

void DrawScene(const Scene& scene, std::int32_t width, std::int32_t height, std::uint8_t* rgb) {
  thread_local std::unique_ptr<Sheet> sheet;
  if (!sheet || !sheet->IsOf(width, height)) sheet = std::make_unique<Sheet>(width, height);
  const Camera camera(scene);
  Painter painter(sheet->canvas());
  painter.PaintField(camera, scene.colors);
  painter.PaintRoad(camera, scene);
  painter.PaintCar(camera, scene);
  sheet->Draw(Panel(scene), Digits(scene.score), rgb);
}

}  // namespace rollouts::race
