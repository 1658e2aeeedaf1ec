// SPDX-License-Identifier: Apache-2.0
#include "pygame_canvas.h"

#include <algorithm>
#include <cmath>

namespace rollouts::race {
namespace {

constexpr std::int32_t kLastX = Canvas::kWidth - 1;
constexpr std::int32_t kLastY = Canvas::kHeight - 1;

// What a rejected or clipped end lies beyond.
std::int32_t Beyond(Pixel at) {
  const std::int32_t across = at.x < 0 ? 1 : at.x > kLastX ? 2 : 0;
  const std::int32_t along = at.y < 0 ? 8 : at.y > kLastY ? 4 : 0;
  return across | along;
}

// What gfxdraw makes of a weight, for a colour that covers all.
std::int32_t Cover(std::uint32_t weight) { return static_cast<std::int32_t>(255 * weight >> 8); }

}  // namespace

void Canvas::Clear() {
  shapes_.clear();
  waiting_.clear();
  active_.clear();
  sorted_ = false;
}

void Canvas::AddSmooth(std::span<const Pixel> corners, Lanes color) { Add(corners, color, true); }
void Canvas::AddPlain(std::span<const Pixel> corners, Lanes color) { Add(corners, color, false); }

void Canvas::Add(std::span<const Pixel> corners, Lanes color, bool smooth) {
  const auto [left, right] = std::ranges::minmax(corners, {}, &Pixel::x);
  const auto [top, bottom] = std::ranges::minmax(corners, {}, &Pixel::y);
  if (right.x < 0 || left.x > kLastX || bottom.y < 0 || top.y > kLastY) return;

  Shape& shape = shapes_.emplace_back();
  shape.smooth = smooth;
  shape.color = color;
  shape.first_y = top.y;
  shape.last_y = bottom.y;
  Pixel before = corners.back();
  for (const Pixel at : corners) {
    // level sides count where a plain polygon has one that its sides would leave out
    const bool is_down = before.y < at.y;
    const Pixel upper = is_down ? before : at;
    const Pixel lower = is_down ? at : before;
    if (before.y != at.y || !smooth) {
      shape.sides[shape.num_sides++] = {upper.x, upper.y, lower.x, lower.y};
    }
    before = at;
  }
  if (!smooth) return;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    AddLine(shape, corners[i], corners[(i + 1) % corners.size()]);
  }
}

// Both ends move to where the line enters the picture. False: it does not.
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
    // in float, as gfxdraw has it
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
          .end = end};
  const std::int32_t minor = std::min(across, along);
  // in steps of 2^-16, as gfxdraw has it
  if (minor > 0) line.slope = static_cast<std::uint64_t>((minor << 16) / line.length) << 16;
}

std::int32_t Canvas::Spans(const Shape& shape, std::int32_t y, std::span<Span> spans) {
  std::array<std::int32_t, kMaxCorners> crossings;
  std::int32_t count = 0;
  std::int32_t num_spans = 0;
  const bool is_level = shape.first_y == shape.last_y;
  for (std::int32_t i = 0; i < shape.num_sides; ++i) {
    const Side& side = shape.sides[i];
    if (side.y1 == side.y2) {
      // pygame.draw: one row high it is a line, and inside it has its level sides
      if (side.y1 == y && (is_level || (y > shape.first_y && y < shape.last_y))) {
        spans[num_spans++] = {std::min(side.x1, side.x2), std::max(side.x1, side.x2)};
      }
      continue;
    }
    if (!(y >= side.y1 && y < side.y2) && !(y == shape.last_y && y == side.y2)) continue;
    if (shape.smooth) {
      crossings[count++] = 65536 * (y - side.y1) / (side.y2 - side.y1) * (side.x2 - side.x1) +
                           65536 * side.x1;
    } else {
      crossings[count++] = static_cast<std::int32_t>(
          static_cast<double>(y - side.y1) * (side.x2 - side.x1) / (side.y2 - side.y1) + side.x1);
    }
  }
  if (count == 2) {
    if (crossings[0] > crossings[1]) std::swap(crossings[0], crossings[1]);
  } else {
    std::sort(crossings.begin(), crossings.begin() + count);
  }
  for (std::int32_t i = 0; i + 1 < count; i += 2) {
    Span span{crossings[i], crossings[i + 1]};
    if (shape.smooth) {
      // rounded, half a pixel and a bit further in
      const auto round = [](std::int32_t x) { return (x >> 16) + ((x & 32768) >> 15); };
      span = {round(span.first + 1), round(span.last - 1)};
      if (span.first > span.last) std::swap(span.first, span.last);
    }
    spans[num_spans++] = span;
  }
  return num_spans;
}

// Pixels of `hidden` are painted later.
void Canvas::PaintLine(const Line& line, std::int32_t y, Lanes color, Span hidden,
                       PixelRow& row) {
  const auto dot = [&](std::int32_t x, std::uint32_t weight) {
    if (x >= hidden.first && x <= hidden.last) return;
    row.Dot(x, color, Cover(weight));
  };
  const auto solid = [&](std::int32_t first, std::int32_t last) {
    if (first < hidden.first || last > hidden.last) row.Fill(first, last, color);
  };
  const std::int32_t down = y - line.y;
  if (line.slope == 0) {
    // level or upright: both ends are drawn
    const std::int32_t other = line.steep ? line.x : line.x + line.direction * line.length;
    solid(std::min(line.x, other), std::max(line.x, other));
    return;
  }
  if (y == line.end.y) solid(line.end.x, line.end.x);
  if (line.steep) {
    if (down == 0 || down == line.length) return;
    const std::uint64_t across = line.slope * down;
    const std::int32_t x = line.x + line.direction * static_cast<std::int32_t>(across >> 32);
    const std::uint32_t weight = static_cast<std::uint32_t>(across) >> 24;
    dot(x, 255 - weight);
    dot(x + line.direction, weight);
    return;
  }
  // the columns in which it is this far down, and those in which it is one less
  const auto column = [&](std::int32_t rows) {
    if (rows <= 0) return std::int32_t{1};
    const std::uint64_t whole = static_cast<std::uint64_t>(rows) << 32;
    const std::uint64_t at = (whole + line.slope - 1) / line.slope;
    return static_cast<std::int32_t>(std::min<std::uint64_t>(at, line.length));
  };
  const std::int32_t here = column(down);
  for (std::int32_t k = column(down - 1); k < here && down > 0; ++k) {
    dot(line.x + line.direction * k, static_cast<std::uint32_t>(line.slope * k) >> 24);
  }
  const std::int32_t next = column(down + 1);
  for (std::int32_t k = here; k < next; ++k) {
    dot(line.x + line.direction * k, 255 - (static_cast<std::uint32_t>(line.slope * k) >> 24));
  }
}

void Canvas::Paint(const Shape& shape, std::int32_t y, PixelRow& row) {
  std::array<Span, 2 * kMaxCorners> spans;
  const std::int32_t num_spans = Spans(shape, y, spans);
  const Span hidden = num_spans > 0 ? spans[0] : Span{1, 0};
  for (std::int32_t i = 0; i < shape.num_lines; ++i) {
    const Line& line = shape.lines[i];
    if (y >= line.y && y <= line.last_y) PaintLine(line, y, shape.color, hidden, row);
  }
  for (const Span& span : std::span(spans).first(num_spans)) {
    row.Fill(span.first, span.last, shape.color);
  }
}

void Canvas::PaintRow(std::int32_t y, PixelRow& row) {
  if (!sorted_) {
    waiting_.resize(shapes_.size());
    for (std::size_t i = 0; i < waiting_.size(); ++i) waiting_[i] = static_cast<std::int32_t>(i);
    std::ranges::sort(waiting_, {}, [&](std::int32_t i) { return shapes_[i].last_y; });
    sorted_ = true;
  }
  std::erase_if(active_, [&](std::int32_t i) { return shapes_[i].first_y > y; });
  while (!waiting_.empty() && shapes_[waiting_.back()].last_y >= y) {
    const std::int32_t next = waiting_.back();
    waiting_.pop_back();
    if (shapes_[next].first_y <= y) active_.insert(std::ranges::upper_bound(active_, next), next);
  }
  row.Fill(0, kLastX, Lanes{0});
  for (const std::int32_t i : active_) Paint(shapes_[i], y, row);
}

}  // namespace rollouts::race
