// SPDX-License-Identifier: Apache-2.0
// Observations of a grid: an image (as in minigrid/wrappers.py), then the agent's direction, then
// the mission's words.
#pragma once

#include "rollouts/envs/minigrid/config.h"
#include "rollouts/envs/minigrid/picture.h"
#include "rollouts/envs/minigrid/view.h"
#include "rollouts/envs/minigrid/words.h"

namespace rollouts::minigrid {

inline constexpr std::int32_t kOneHotValues = 20;  // 11 types, 6 colours, 3 states
inline constexpr std::int32_t kLetters = 28;       // a to z, space, comma
inline constexpr std::int32_t kMaxLetters = 96;    // letters of a mission

// Columns, rows and numbers of a cell; for pixels, rows, columns and colours.
struct ImageShape {
  std::int32_t length[3];
  ROLLOUTS_HD constexpr std::int32_t size() const { return length[0] * length[1] * length[2]; }
};
ROLLOUTS_HD constexpr ImageShape ShapeOf(const ShownConfig& config, std::int32_t width,
                                         std::int32_t height) {
  const std::int32_t side = config.agent_view_size, tile = config.tile_size;
  switch (config.observation) {
    case kFull: case kSymbolic: return {{width, height, 3}};
    case kOneHot: return {{side, side, kOneHotValues}};
    case kRgb: return {{height * tile, width * tile, 3}};
    case kRgbPartial: return {{side * tile, side * tile, 3}};
    default: return {{side, side, 3}};
  }
}

// `num_words`: the room for the mission.
ROLLOUTS_HD constexpr EnvSpec SpecOf(const ShownConfig& config, std::int32_t width,
                                     std::int32_t height, std::int32_t num_words,
                                     std::int32_t num_actions) {
  const ImageShape image = ShapeOf(config, width, height);
  EnvSpec spec;
  spec.observation.dtype = config.observation == kSymbolic ? DType::kInt64 : DType::kUint8;
  spec.observation.ndim = 1;
  spec.observation.low[0] = config.observation == kSymbolic ? -1 : 0;
  spec.observation.high[0] = 255;
  spec.action.dtype = DType::kInt64;
  spec.action.n = num_actions;
  // most of the cost of an image is writing it
  spec.step_cost_ns = 150 + (IsPicture(config) ? image.size() / 16 : 0);
  if (config.observation == kFlat) {
    spec.observation.shape[0] = image.size() + kLetters * kMaxLetters;
    return spec;
  }
  spec.observation.shape[0] = image.size() + 1 + num_words;
  spec.num_parts = 3;
  spec.parts[0] = {"image", 3, {image.length[0], image.length[1], image.length[2]}};
  spec.parts[1] = {"direction", 0, {}};
  spec.parts[2] = {"mission", 1, {num_words}};
  return spec;
}

ROLLOUTS_HD inline void WriteCell(Cell cell, std::uint8_t* to) {
  to[0] = static_cast<std::uint8_t>(cell);
  to[1] = static_cast<std::uint8_t>(cell >> 8);
  to[2] = static_cast<std::uint8_t>(cell >> 16);
}

// Writes the cells that the agent sees.
inline ROLLOUTS_NOINLINE void WriteView(const ShownConfig& config, const Grid& grid,
                                        const std::int32_t side, std::uint8_t* image) {
  View view;
  Look(grid, side, config.see_through_walls, view);
  if (config.observation != kOneHot) {
    for (std::int32_t i = 0; i < side * side; ++i) WriteCell(view.cells[i], image + 3 * i);
    return;
  }
  for (std::int32_t i = 0; i < side * side; ++i) {
    std::uint8_t* const values = image + kOneHotValues * i;
    for (std::int32_t v = 0; v < kOneHotValues; ++v) values[v] = 0;
    values[TypeOf(view.cells[i])] = 1;
    values[11 + ColorOf(view.cells[i])] = 1;
    values[17 + StateOf(view.cells[i])] = 1;
  }
}

// Writes the whole grid, column after column, with the agent in it.
inline ROLLOUTS_NOINLINE void WriteGrid(const Grid& grid, std::uint8_t* image) {
  for (std::int32_t i = 0; i < grid.width; ++i) {
    for (std::int32_t j = 0; j < grid.height; ++j) {
      WriteCell(grid.At(i, j) & kShown, image + 3 * (i * grid.height + j));
    }
  }
  const auto dir = static_cast<std::uint32_t>(grid.dir);
  WriteCell(MakeCell(kAgent, kRed, dir), image + 3 * (grid.x * grid.height + grid.y));
}

// Writes column, row and type of each cell, -1 where it is empty; then direction and words.
inline ROLLOUTS_NOINLINE void WriteSymbols(const Grid& grid, std::int32_t num_words,
                                           std::int64_t* to) {
  for (std::int32_t i = 0; i < grid.width; ++i) {
    for (std::int32_t j = 0; j < grid.height; ++j, to += 3) {
      const Cell cell = grid.At(i, j);
      const bool agent = i == grid.x && j == grid.y;
      to[0] = i;
      to[1] = j;
      to[2] = agent ? kAgent : (IsEmpty(cell) ? -1 : static_cast<std::int64_t>(TypeOf(cell)));
    }
  }
  *to++ = grid.dir;
  for (std::int32_t w = 0; w < num_words; ++w) to[w] = grid.words[w];
}

// Writes the letters of the mission, one-hot.
inline ROLLOUTS_NOINLINE void WriteLetters(const Grid& grid, std::uint8_t* to) {
  for (std::int32_t i = 0; i < kMaxLetters * kLetters; ++i) to[i] = 0;
  std::int32_t at = 0;
  for (std::int32_t w = 0; w < grid.num_words; ++w) {
    const char* text = TextOf(grid.words[w]);
    const bool spaced = w > 0 && *text != ',';
    if (spaced && at < kMaxLetters) to[at++ * kLetters + 26] = 1;
    for (; *text != 0 && at < kMaxLetters; ++text) {
      to[at++ * kLetters + (*text == ',' ? 27 : *text - 'a')] = 1;
    }
  }
}

inline ROLLOUTS_NOINLINE void Observe(const ShownConfig& config, const Grid& grid,
                                      const std::int32_t num_words, std::uint8_t* obs) {
  if (config.observation == kSymbolic) {
    // such rows have 64-bit numbers
    WriteSymbols(grid, num_words, reinterpret_cast<std::int64_t*>(obs));
    return;
  }
  if (IsPicture(config)) {
    // kernels do not support such options
    if constexpr (!kInKernel) DrawPicture(config, grid, obs);
  } else if (config.observation == kFull) {
    WriteGrid(grid, obs);
  } else if (config.agent_view_size == 7) {
    WriteView(config, grid, 7, obs);
  } else {
    WriteView(config, grid, config.agent_view_size, obs);
  }
  std::uint8_t* const rest = obs + ShapeOf(config, grid.width, grid.height).size();
  if (config.observation == kFlat) {
    WriteLetters(grid, rest);
    return;
  }
  rest[0] = static_cast<std::uint8_t>(grid.dir);
  CopyBytes(rest + 1, grid.words, static_cast<std::size_t>(num_words));
}

}  // namespace rollouts::minigrid
