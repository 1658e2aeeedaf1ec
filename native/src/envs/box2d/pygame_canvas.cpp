// SPDX-License-Identifier: Apache-2.0
#include "pygame_canvas.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/clones.h"

namespace rollouts::race {
namespace {

constexpr std::int32_t kLastX = Canvas::kWidth - 1;
constexpr std::int32_t kLastY = Canvas::kHeight - 1;

// The edges of the picture beyond which the point lies, as bits.
std::int32_t Beyond(Pixel at) {
  const std::int32_t across = at.x < 0 ? 1 : at.x > kLastX ? 2 : 0;
  const std::int32_t along = at.y < 0 ? 8 : at.y > kLastY ? 4 : 0;
  return across | along;
}

// gfxdraw's cover for a weight, for a colour without transparency.
std::uint32_t Cover(std::uint32_t weight) { return 255 * weight >> 8; }

// A quotient, rounded down. The half that is added exceeds the product's rounding error, and does not
// reach the next quotient.
std::int32_t Divide(std::int32_t number, double inverse_of_divisor) {
  return static_cast<std::int32_t>((number + 0.5) * inverse_of_divisor);
}

using Span = Canvas::Span;

// The column where a side crosses a row; for smooth shapes in 2^-16 of a pixel.
std::int32_t Crossing(const Canvas::Side& side, bool smooth, std::int32_t y) {
  const std::int32_t across = side.x2 - side.x1;
  if (smooth) return Divide(65536 * (y - side.y1), side.per_row) * across + 65536 * side.x1;
  return static_cast<std::int32_t>(static_cast<double>(y - side.y1) * across / (side.y2 - side.y1) +
                                   side.x1);
}

Span Between(std::int32_t left, std::int32_t right, bool smooth) {
  if (!smooth) return {left, right};
  // rounded, after both bounds were moved inside by 2^-16 of a pixel
  const auto round = [](std::int32_t x) { return (x >> 16) + ((x & 32768) >> 15); };
  const std::int32_t first = round(left + 1);
  const std::int32_t last = round(right - 1);
  return {std::min(first, last), std::max(first, last)};
}

// Rows from y on, downwards; in each, the pixels of the span `hidden` have their colour already.
struct Rows {
  std::int32_t y;
  std::span<PixelRow> rows;
  const Span* hidden;

  std::int32_t last_y() const { return y + static_cast<std::int32_t>(rows.size()) - 1; }
  void Dot(std::int32_t x, std::int32_t at, Lanes color, std::uint32_t weight) const {
    const Span span = hidden[at - y];
    if (x < span.first || x > span.last) rows[at - y].Dot(x, color, Cover(weight));
  }
  void Fill(Span pixels, std::int32_t at, Lanes color) const {
    if (at < y || at > last_y()) return;
    const Span span = hidden[at - y];
    if (pixels.first >= span.first && pixels.last <= span.last) return;
    rows[at - y].Fill(pixels.first, pixels.last, color);
  }
};

void PaintSteepLine(const Canvas::Line& line, Lanes color, const Rows& rows) {
  const std::int32_t end = std::min(line.last_y - 1, rows.last_y());
  for (std::int32_t y = std::max(line.y + 1, rows.y); y <= end; ++y) {
    const std::uint32_t across = line.slope * (y - line.y);
    const std::int32_t x = line.x + line.direction * static_cast<std::int32_t>(across >> 16);
    const std::uint32_t weight = across >> 8 & 255;
    rows.Dot(x, y, color, 255 - weight);
    rows.Dot(x + line.direction, y, color, weight);
  }
}

void PaintFlatLine(const Canvas::Line& line, Lanes color, const Rows& rows) {
  // the first step that reaches this row
  const auto step = [&](std::int32_t y) {
    const std::int32_t down = y - line.y;
    if (down <= 0) return std::int32_t{1};
    const auto slope = static_cast<std::int32_t>(line.slope);
    return std::min(Divide((down << 16) + slope - 1, line.per_step), line.length);
  };
  const std::int32_t end = step(rows.last_y() + 1);
  for (std::int32_t k = step(rows.y - 1); k < end; ++k) {
    const std::uint32_t along = line.slope * k;
    const std::int32_t y = line.y + static_cast<std::int32_t>(along >> 16);
    const std::int32_t x = line.x + line.direction * k;
    const std::uint32_t weight = along >> 8 & 255;
    if (y >= rows.y) rows.Dot(x, y, color, 255 - weight);
    if (y < rows.last_y()) rows.Dot(x, y + 1, color, weight);
  }
}

void PaintLine(const Canvas::Line& line, Lanes color, const Rows& rows) {
  if (line.last_y < rows.y || line.y > rows.last_y()) return;
  if (line.slope != 0) {
    rows.Fill({line.end.x, line.end.x}, line.end.y, color);
    return line.steep ? PaintSteepLine(line, color, rows) : PaintFlatLine(line, color, rows);
  }
  // level or upright lines have both ends drawn
  const std::int32_t other = line.steep ? line.x : line.x + line.direction * line.length;
  const std::int32_t end = std::min(line.last_y, rows.last_y());
  for (std::int32_t y = std::max(line.y, rows.y); y <= end; ++y) {
    rows.Fill({std::min(line.x, other), std::max(line.x, other)}, y, color);
  }
}

// Paints a row of a shape that has no spans.
void PaintAny(const Canvas::Shape& shape, std::int32_t y, PixelRow& row) {
  constexpr Span kNothing = {1, 0};
  for (const Canvas::Line& line : std::span(shape.lines).first(shape.num_lines)) {
    PaintLine(line, shape.color, {y, {&row, 1}, &kNothing});
  }
  std::array<std::int32_t, Canvas::kMaxCorners> crossings;
  std::int32_t count = 0;
  const bool is_level = shape.first_y == shape.last_y;
  for (const Canvas::Side& side : std::span(shape.sides).first(shape.num_sides)) {
    if (side.y1 == side.y2) {
      // as in pygame.draw: a polygon of one row is a line, and level sides inside it are drawn
      if (side.y1 == y && (is_level || (y > shape.first_y && y < shape.last_y))) {
        row.Fill(std::min(side.x1, side.x2), std::max(side.x1, side.x2), shape.color);
      }
      continue;
    }
    if (!(y >= side.y1 && y < side.y2) && !(y == shape.last_y && y == side.y2)) continue;
    crossings[count++] = Crossing(side, shape.smooth, y);
  }
  std::sort(crossings.begin(), crossings.begin() + count);
  for (std::int32_t i = 0; i + 1 < count; i += 2) {
    const Span span = Between(crossings[i], crossings[i + 1], shape.smooth);
    row.Fill(span.first, span.last, shape.color);
  }
}

// `spans`: those of the shape's rows.
void PaintSmooth(const Canvas::Shape& shape, const Span* spans, std::int32_t y,
                 std::span<PixelRow> rows) {
  const std::int32_t first = std::max(shape.first_y, y);
  const std::int32_t last = std::min(shape.last_y, y + static_cast<std::int32_t>(rows.size()) - 1);
  const Rows here = {first, rows.subspan(first - y, last - first + 1),
                     spans + (first - shape.first_row)};
  for (std::int32_t at = first; at <= last; ++at) {
    const Span span = here.hidden[at - first];
    here.rows[at - first].Fill(span.first, span.last, shape.color);
  }
  for (const Canvas::Line& line : std::span(shape.lines).first(shape.num_lines)) {
    PaintLine(line, shape.color, here);
  }
}

ROLLOUTS_CLONES void PaintShapes(std::span<const Canvas::Shape> shapes, const Span* spans,
                                 Lanes ground, std::int32_t y, std::span<PixelRow> rows) {
  const auto num_rows = static_cast<std::int32_t>(rows.size());
  for (PixelRow& row : rows) row.Clear(ground);
  for (const Canvas::Shape& shape : shapes) {
    if (shape.first_y >= y + num_rows || shape.last_y < y) continue;
    if (shape.spans >= 0) {
      PaintSmooth(shape, spans + shape.spans, y, rows);
      continue;
    }
    const std::int32_t last = std::min(shape.last_y, y + num_rows - 1);
    for (std::int32_t at = std::max(shape.first_y, y); at <= last; ++at) {
      PaintAny(shape, at, rows[at - y]);
    }
  }
}

// Intersects the rows from y on with a side of a smooth shape: widens each row's span to include
// the crossing, and counts crossings.
ROLLOUTS_CLONES void Cross(const Canvas::Side& side, std::int32_t y, std::int32_t num_rows,
                           std::int32_t* __restrict left, std::int32_t* __restrict right,
                           std::int32_t* __restrict count) {
  for (std::int32_t i = 0; i < num_rows; ++i) {
    const std::int32_t at = Crossing(side, /*smooth=*/true, y + i);
    left[i] = std::min(left[i], at);
    right[i] = std::max(right[i], at);
    ++count[i];
  }
}

ROLLOUTS_CLONES void RoundAll(const std::int32_t* left, const std::int32_t* right,
                              std::int32_t num_rows, Span* __restrict spans) {
  for (std::int32_t i = 0; i < num_rows; ++i) {
    spans[i] = Between(left[i], right[i], /*smooth=*/true);
  }
}

// Tells if a polygon of at most four corners covers all of the picture and some pixels around it,
// so that rounding does not show.
bool HidesAll(std::span<const Pixel> corners) {
  constexpr std::int64_t kAround = 8;
  bool has_left = false;
  bool has_right = false;
  Pixel before = corners.back();
  for (const Pixel at : corners) {
    for (const std::int64_t x : {-kAround, kLastX + kAround}) {
      for (const std::int64_t y : {-kAround, kLastY + kAround}) {
        const std::int64_t side =
            (at.x - before.x) * (y - before.y) - (at.y - before.y) * (x - before.x);
        has_left = has_left || side >= 0;
        has_right = has_right || side <= 0;
      }
    }
    before = at;
  }
  return has_left != has_right;
}

}  // namespace

void Canvas::Clear() {
  shapes_.clear();
  spans_.clear();
  ground_ = 0;
}

void Canvas::AddSmooth(std::span<const Pixel> corners, Lanes color) { Add(corners, color, true); }
void Canvas::AddPlain(std::span<const Pixel> corners, Lanes color) { Add(corners, color, false); }

void Canvas::Add(std::span<const Pixel> corners, Lanes color, bool smooth) {
  const auto [left, right] = std::ranges::minmax(corners, {}, &Pixel::x);
  const auto [top, bottom] = std::ranges::minmax(corners, {}, &Pixel::y);
  if (right.x < 0 || left.x > kLastX || bottom.y < 0 || top.y > kLastY) return;

  if (smooth && HidesAll(corners)) {
    shapes_.clear();
    ground_ = color;
    return;
  }
  Shape& shape = shapes_.emplace_back();
  shape.smooth = smooth;
  shape.color = color;
  shape.first_y = top.y;
  shape.last_y = bottom.y;
  shape.first_row = std::max(top.y, 0);
  Pixel before = corners.back();
  for (const Pixel at : corners) {
    // plain polygons keep level sides, which the neighbouring sides may leave out
    const bool is_down = before.y < at.y;
    const Pixel upper = is_down ? before : at;
    const Pixel lower = is_down ? at : before;
    if (before.y != at.y || !smooth) {
      shape.sides[shape.num_sides++] = {upper.x, upper.y, lower.x, lower.y,
                                        1.0 / (lower.y - upper.y)};
    }
    before = at;
  }
  if (!smooth) return;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    AddLine(shape, corners[i], corners[(i + 1) % corners.size()]);
  }
  AddSpans(shape);
}

void Canvas::AddSpans(Shape& shape) {
  std::array<std::int32_t, kHeight> left;
  std::array<std::int32_t, kHeight> right;
  std::array<std::int32_t, kHeight> count;
  const std::int32_t num_rows = std::min(shape.last_y, kLastY) - shape.first_row + 1;
  std::fill_n(left.begin(), num_rows, std::numeric_limits<std::int32_t>::max());
  std::fill_n(right.begin(), num_rows, std::numeric_limits<std::int32_t>::min());
  std::fill_n(count.begin(), num_rows, 0);
  for (const Side& side : std::span(shape.sides).first(shape.num_sides)) {
    // a side's last row is also the first of the next side, except for the shape's last row
    const std::int32_t last = std::min(side.y2 == shape.last_y ? side.y2 : side.y2 - 1, kLastY);
    const std::int32_t first = std::max(side.y1, shape.first_row);
    if (first > last) continue;
    const std::int32_t at = first - shape.first_row;
    Cross(side, first, last - first + 1, &left[at], &right[at], &count[at]);
  }
  // a polygon that crosses itself has rows of two spans
  if (std::any_of(count.begin(), count.begin() + num_rows, [](auto n) { return n != 2; })) return;
  shape.spans = static_cast<std::int32_t>(spans_.size());
  spans_.resize(spans_.size() + num_rows);
  RoundAll(left.data(), right.data(), num_rows, &spans_[shape.spans]);
}

// Moves ends that lie outside of the picture to its edge. False: the line does not enter the
// picture.
bool Canvas::Clip(Pixel& from, Pixel& to) {
  while (true) {
    std::int32_t code = Beyond(from);
    const std::int32_t other = Beyond(to);
    if ((code | other) == 0) return true;
    if ((code & other) != 0) return false;
    if (code == 0) {
      std::swap(from, to);
      code = other;
    }
    // computed in float, as in gfxdraw
    const float slope = to.x != from.x ? static_cast<float>(to.y - from.y) /
                                             static_cast<float>(to.x - from.x)
                                       : 1.0F;
    if ((code & 3) != 0) {
      const std::int32_t edge = (code & 1) != 0 ? 0 : kLastX;
      from.y += static_cast<std::int32_t>(static_cast<float>(edge - from.x) * slope);
      from.x = edge;
      continue;
    }
    const std::int32_t edge = (code & 4) != 0 ? kLastY : 0;
    if (to.x != from.x) {
      from.x += static_cast<std::int32_t>(static_cast<float>(edge - from.y) / slope);
    }
    from.y = edge;
  }
}

void Canvas::AddLine(Shape& shape, Pixel from, Pixel to) {
  if (!Clip(from, to)) return;
  const Pixel end = from;
  if (from.y > to.y) std::swap(from, to);
  const std::int32_t across = std::abs(to.x - from.x);
  const std::int32_t along = to.y - from.y;
  Line& line = shape.lines[shape.num_lines++];
  line = {.x = from.x,
          .y = from.y,
          .last_y = to.y,
          .length = std::max(across, along),
          .direction = to.x < from.x ? -1 : 1,
          .steep = along > across,
          .slope = 0,
          .per_step = 0,
          .end = end};
  const std::int32_t minor = std::min(across, along);
  // the slope is in steps of 2^-16, as in gfxdraw
  if (minor == 0) return;
  line.slope = static_cast<std::uint32_t>((minor << 16) / line.length);
  line.per_step = 1.0 / line.slope;
}

void Canvas::PaintRows(std::int32_t y, std::span<PixelRow> rows) const {
  PaintShapes(shapes_, spans_.data(), ground_, y, rows);
}

}  // namespace rollouts::race
