// SPDX-License-Identifier: Apache-2.0
#include "envs/minigrid/tiles.h"

#include <mutex>

#include "envs/minigrid/tile_canvas.h"
#include "rollouts/envs/minigrid/config.h"

namespace rollouts::minigrid {
namespace {

constexpr Rgb kBlack = {0, 0, 0}, kRedRgb = {255, 0, 0}, kGreyRgb = {100, 100, 100};
// minigrid's colours, by number
constexpr Rgb kColorsRgb[kNumColors] = {kRedRgb,        {0, 255, 0},   {0, 0, 255},
                                        {112, 39, 195}, {255, 255, 0}, kGreyRgb};

void DrawDoor(TileCanvas& canvas, Rgb color, std::uint32_t state) {
  if (state == kOpen) {
    canvas.Fill(Rectangle{0.88, 1.00, 0.00, 1.00}, color);
    canvas.Fill(Rectangle{0.92, 0.96, 0.04, 0.96}, kBlack);
    return;
  }
  canvas.Fill(Rectangle{0.00, 1.00, 0.00, 1.00}, color);
  if (state == kLocked) {
    canvas.Fill(Rectangle{0.06, 0.94, 0.06, 0.94}, Darkened(color, 0.45));
    canvas.Fill(Rectangle{0.52, 0.75, 0.50, 0.56}, color);
    return;
  }
  canvas.Fill(Rectangle{0.04, 0.96, 0.04, 0.96}, kBlack);
  canvas.Fill(Rectangle{0.08, 0.92, 0.08, 0.92}, color);
  canvas.Fill(Rectangle{0.12, 0.88, 0.12, 0.88}, kBlack);
  canvas.Fill(Circle{0.75, 0.50, 0.08}, color);
}

void DrawKey(TileCanvas& canvas, Rgb color) {
  canvas.Fill(Rectangle{0.50, 0.63, 0.31, 0.88}, color);
  canvas.Fill(Rectangle{0.38, 0.50, 0.59, 0.66}, color);
  canvas.Fill(Rectangle{0.38, 0.50, 0.81, 0.88}, color);
  canvas.Fill(Circle{0.56, 0.28, 0.190}, color);
  canvas.Fill(Circle{0.56, 0.28, 0.064}, kBlack);
}

void DrawBox(TileCanvas& canvas, Rgb color) {
  canvas.Fill(Rectangle{0.12, 0.88, 0.12, 0.88}, color);
  canvas.Fill(Rectangle{0.18, 0.82, 0.18, 0.82}, kBlack);
  canvas.Fill(Rectangle{0.16, 0.84, 0.47, 0.53}, color);
}

void DrawLava(TileCanvas& canvas) {
  canvas.Fill(Rectangle{0, 1, 0, 1}, {255, 128, 0});
  for (int wave = 0; wave < 3; ++wave) {
    const double low = 0.3 + 0.2 * wave, high = 0.4 + 0.2 * wave;
    canvas.Fill(Line(0.1, low, 0.3, high, 0.03), kBlack);
    canvas.Fill(Line(0.3, high, 0.5, low, 0.03), kBlack);
    canvas.Fill(Line(0.5, low, 0.7, high, 0.03), kBlack);
    canvas.Fill(Line(0.7, high, 0.9, low, 0.03), kBlack);
  }
}

TileCanvas DrawCell(std::int32_t size, Cell cell) {
  TileCanvas canvas(size);
  // the grid's lines
  canvas.Fill(Rectangle{0, 0.031, 0, 1}, kGreyRgb);
  canvas.Fill(Rectangle{0, 1, 0, 0.031}, kGreyRgb);
  const Rgb color = kColorsRgb[ColorOf(cell)];
  switch (TypeOf(cell)) {
    case kWallType: case kGoalType: canvas.Fill(Rectangle{0, 1, 0, 1}, color); break;
    case kDoor: DrawDoor(canvas, color, StateOf(cell)); break;
    case kKey: DrawKey(canvas, color); break;
    case kBall: canvas.Fill(Circle{0.5, 0.5, 0.31}, color); break;
    case kBox: DrawBox(canvas, color); break;
    case kLavaType: DrawLava(canvas); break;
    default: break;
  }
  return canvas;
}

// All possible contents of a cell; the first is an empty one.
std::vector<Cell> ListCells() {
  std::vector<Cell> cells = {kEmpty, kWall, kGoal, kLava};
  for (std::uint32_t color = 0; color < kNumColors; ++color) {
    for (const std::uint32_t state : {kOpen, kClosed, kLocked}) {
      cells.push_back(MakeCell(kDoor, color, state));
    }
    for (const std::uint32_t type : {kKey, kBall, kBox}) cells.push_back(MakeCell(type, color));
  }
  return cells;
}

struct Slot {
  std::once_flag drawn;
  const Tiles* tiles = nullptr;
};

}  // namespace

const Tiles& Tiles::Of(std::int32_t size) {
  // never freed: threads of a pool that was not closed may draw until the process ends
  static Slot slots[kMaxTile + 1];
  Slot& slot = slots[size];
  std::call_once(slot.drawn, [&] { slot.tiles = new Tiles(size); });
  return *slot.tiles;
}

Tiles::Tiles(std::int32_t size) : bytes_(std::size_t{3} * size * size) {
  const std::vector<Cell> cells = ListCells();
  pixels_.resize(Number(cells.size(), -1, false) * bytes_);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    number_[Shown(cells[i])] = static_cast<std::uint8_t>(i);
    const TileCanvas bare = DrawCell(size, cells[i]);
    for (std::int32_t facing = -1; facing < 4; ++facing) {
      TileCanvas canvas = bare;
      if (facing >= 0) canvas.Fill(AgentTriangle(facing), kRedRgb);
      for (const bool lit : {false, true}) {
        canvas.Write(lit, pixels_.data() + Number(i, facing, lit) * bytes_);
      }
    }
  }
}

}  // namespace rollouts::minigrid
