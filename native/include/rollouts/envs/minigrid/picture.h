// SPDX-License-Identifier: Apache-2.0
// Observations in pixels (minigrid's RGBImgObsWrapper and RGBImgPartialObsWrapper), only on the
// host: src/envs/minigrid/ has the tiles, which all environments of the process share.
#pragma once

#include "rollouts/envs/minigrid/config.h"

namespace rollouts::minigrid {

// Writes the grid or the view as rows of pixels, 3 bytes each. Thread-safe. The first call for a
// tile size draws the tiles while other calls wait, and may throw std::bad_alloc.
ROLLOUTS_HD void DrawPicture(const ShownConfig& config, const Grid& grid, std::uint8_t* image);

}  // namespace rollouts::minigrid
