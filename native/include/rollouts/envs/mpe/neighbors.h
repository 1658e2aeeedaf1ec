// SPDX-License-Identifier: Apache-2.0
// Partial observability in MPE: an agent sees the nearest few others, nearest first, and zeros
// where there are fewer.
#pragma once

#include "rollouts/envs/mpe/spaces.h"

namespace rollouts {

// The number of places in the observation of an agent that sees `limit` of `all`; 0: all of them.
ROLLOUTS_HD constexpr std::int32_t NumSeen(std::int32_t limit, std::int32_t all) {
  return limit > 0 ? limit : all;
}

// Calls see(index) for the `count` positions nearest to `from` except `skipped`, nearest first, and
// at equal distances the first position first. Returns how many there were.
template <typename See>
ROLLOUTS_HD inline std::int32_t SeeNearest(Vec2 from, const Vec2* positions, std::int32_t all,
                                           std::int32_t skipped, std::int32_t count, See&& see) {
  double last_distance = -1;
  std::int32_t last = -1;
  std::int32_t seen = 0;
  for (; seen < count; ++seen) {
    // the nearest of those farther away than the last one seen
    std::int32_t nearest = -1;
    double least = kInfinity;
    for (std::int32_t k = 0; k < all; ++k) {
      if (k == skipped) continue;
      const double distance = Length(positions[k] - from);
      const bool behind = distance > last_distance || (distance == last_distance && k > last);
      if (!behind || distance >= least) continue;
      least = distance;
      nearest = k;
    }
    if (nearest < 0) break;
    see(nearest);
    last_distance = least;
    last = nearest;
  }
  return seen;
}

// Writes the positions of landmarks; `limit` 0: of all.
ROLLOUTS_HD inline void PutLandmarks(ParticleObs& obs, Vec2 from, const Vec2* landmarks,
                                     std::int32_t all, std::int32_t limit) {
  if (limit == 0) {
    obs.PutSeen(from, landmarks, all);
    return;
  }
  const std::int32_t seen = SeeNearest(from, landmarks, all, -1, limit,
                                       [&](std::int32_t k) { obs.Put(landmarks[k] - from); });
  obs.PutZeros(2 * (limit - seen));
}

// Writes the positions of all agents but `i` in the same way.
ROLLOUTS_HD inline void PutNeighbors(ParticleObs& obs, const Vec2* positions,
                                     std::int32_t num_agents, std::int32_t i, std::int32_t limit) {
  if (limit == 0) {
    obs.PutOthers(positions, num_agents, i);
    return;
  }
  const Vec2 from = positions[i];
  const std::int32_t seen = SeeNearest(from, positions, num_agents, i, limit,
                                       [&](std::int32_t k) { obs.Put(positions[k] - from); });
  obs.PutZeros(2 * (limit - seen));
}

}  // namespace rollouts
