// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/minigrid/picture.h"

#include <cstring>

#include "envs/minigrid/tiles.h"

namespace rollouts::minigrid {
namespace {

// Writes a row of tiles, pixel row by pixel row, and returns its end. `kRow`: bytes of a tile's row
// if known at compile time, else 0.
template <std::size_t kRow>
std::uint8_t* CopyTiles(const std::uint8_t* const* tiles, std::int32_t columns, std::int32_t size,
                        std::uint8_t* to) {
  const std::size_t row = kRow ? kRow : std::size_t{3} * size;
  for (std::size_t from = 0; from < row * size; from += row) {
    for (std::int32_t i = 0; i < columns; ++i, to += row) std::memcpy(to, tiles[i] + from, row);
  }
  return to;
}

// Writes rows of tiles; `tile_of(column, row)` returns a tile's pixels.
template <typename TileOf>
void WriteTiles(std::int32_t columns, std::int32_t rows, std::int32_t size, TileOf&& tile_of,
                std::uint8_t* to) {
  const std::uint8_t* tiles[kMaxSide];
  for (std::int32_t j = 0; j < rows; ++j) {
    for (std::int32_t i = 0; i < columns; ++i) tiles[i] = tile_of(i, j);
    to = size == 8 ? CopyTiles<24>(tiles, columns, size, to)
                   : CopyTiles<0>(tiles, columns, size, to);
  }
}

// The cells of the grid that the agent sees: a bit for each column.
struct Seen {
  std::uint32_t row[kMaxSide] = {};
};

Seen SeenOf(const ShownConfig& config, const Grid& grid) {
  const std::int32_t side = config.agent_view_size;
  View view;
  Look(grid, side, config.see_through_walls, view);
  const std::int32_t dx = StepX(grid.dir), dy = StepY(grid.dir);
  Seen seen;
  for (std::int32_t row = 0; row < side; ++row) {
    for (std::int32_t column = 0; column < side; ++column) {
      const std::int32_t ahead = side - 1 - row, across = column - side / 2;
      const std::int32_t x = grid.x + dx * ahead - dy * across;
      const std::int32_t y = grid.y + dy * ahead + dx * across;
      if (x < 0 || x >= grid.width || y < 0 || y >= grid.height) continue;
      seen.row[y] |= (view.seen[row] >> column & 1) << x;
    }
  }
  return seen;
}

void DrawGrid(const ShownConfig& config, const Grid& grid, const Tiles& tiles,
              std::uint8_t* image) {
  const Seen seen = config.highlight ? SeenOf(config, grid) : Seen{};
  const auto tile_of = [&](std::int32_t i, std::int32_t j) {
    const bool agent = i == grid.x && j == grid.y;
    return tiles.At(grid.At(i, j), agent ? grid.dir & 3 : -1, seen.row[j] >> i & 1);
  };
  WriteTiles(grid.width, grid.height, config.tile_size, tile_of, image);
}

// Draws the agent's view, in which the agent faces up; its visible cells are always lighter.
void DrawView(const ShownConfig& config, const Grid& grid, const Tiles& tiles,
              std::uint8_t* image) {
  const std::int32_t side = config.agent_view_size;
  View view;
  Look(grid, side, config.see_through_walls, view);
  const auto tile_of = [&](std::int32_t i, std::int32_t j) {
    const Cell cell = view.cells[i * side + j];
    const bool agent = i == side / 2 && j == side - 1;
    return tiles.At(cell, agent ? 3 : -1, TypeOf(cell) != kUnseen);
  };
  WriteTiles(side, side, config.tile_size, tile_of, image);
}

}  // namespace

void DrawPicture(const ShownConfig& config, const Grid& grid, std::uint8_t* image) {
  const Tiles& tiles = Tiles::Of(config.tile_size);
  (config.observation == kRgb ? DrawGrid : DrawView)(config, grid, tiles, image);
}

}  // namespace rollouts::minigrid
