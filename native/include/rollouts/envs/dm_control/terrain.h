// SPDX-License-Identifier: Apache-2.0
// The bowl that dm_control's quadruped escapes from.
#pragma once

#include <cstdint>
#include <span>

#include "rollouts/core/rng.h"

namespace rollouts::dmc {

// Draws a ring-shaped hill with random smooth bumps: heights of about [0, 1] for num_rows x
// num_rows points on metres x metres. Bumps are two metres apart, and interpolated by cubic
// splines, as by SciPy's ndimage.zoom. Throws EngineError, before anything is drawn, unless there
// is room for three bumps and there are as many rows as bumps.
void DrawTerrain(Rng& rng, std::int32_t num_rows, double metres, std::span<float> heights);

}  // namespace rollouts::dmc
