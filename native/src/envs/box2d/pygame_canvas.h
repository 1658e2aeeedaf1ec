// SPDX-License-Identifier: Apache-2.0
// Draws polygons with exactly the pixels that pygame 2 draws; paints some rows of the picture at a
// time.
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

  // A side of a polygon, from its upper end to its lower.
  struct Side {
    std::int32_t x1, y1, x2, y2;
    double per_row;  // 1 / (y2 - y1), unless the side is level
  };
  // Pixels from first to last.
  struct Span {
    std::int32_t first, last;
  };
  // A smooth line: except at its ends, each of its points is shared by two adjacent pixels.
  struct Line {
    std::int32_t x, y;        // its upper end, from which it is drawn
    std::int32_t last_y;
    std::int32_t length;      // in steps
    std::int32_t direction;   // the sign of x
    bool steep;               // a step goes to the next row; otherwise to the next column
    std::uint32_t slope;      // per step, in 2^-16 of a pixel
    double per_step;          // 1 / slope, where that is not 0
    Pixel end;                // the end that gets a pixel
  };
  struct Shape {
    bool smooth;
    Lanes color;
    std::int32_t first_y, last_y;
    std::int32_t first_row;   // the shape's first row on the picture
    std::int32_t spans = -1;  // index of the first span; -1: it is plain, or a row has several
    std::int32_t num_sides = 0;
    std::int32_t num_lines = 0;
    std::array<Side, kMaxCorners> sides;
    std::array<Line, kMaxCorners> lines;
  };

  void Clear();
  // Draws as gfxdraw.aapolygon and then gfxdraw.filled_polygon: 3 or 4 corners.
  void AddSmooth(std::span<const Pixel> corners, Lanes color);
  // Draws as pygame.draw.polygon: 3 to 8 corners.
  void AddPlain(std::span<const Pixel> corners, Lanes color);
  // Paints the rows from y on, downwards.
  void PaintRows(std::int32_t y, std::span<PixelRow> rows) const;

 private:
  void Add(std::span<const Pixel> corners, Lanes color, bool smooth);
  static void AddLine(Shape& shape, Pixel from, Pixel to);
  static bool Clip(Pixel& from, Pixel& to);
  void AddSpans(Shape& shape);

  Lanes ground_ = 0;  // the colour below all shapes
  std::vector<Span> spans_;    // for smooth shapes, one for each row
  std::vector<Shape> shapes_;  // in drawing order
};

}  // namespace rollouts::race
