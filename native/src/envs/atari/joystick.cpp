// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/atari/joystick.h"

#include <algorithm>
#include <cmath>

namespace rollouts {
namespace {

// The ale::Action for [left, centre, right][down, centre, up][without and with FIRE].
constexpr std::int32_t kActions[3][3][2] = {
    {{9, 17}, {4, 12}, {7, 15}},
    {{5, 13}, {0, 1}, {2, 10}},
    {{8, 16}, {3, 11}, {6, 14}},
};

// 0, 1 or 2: below -threshold, between, above threshold.
int SideOf(float value, float threshold) {
  return 1 + static_cast<int>(value > threshold) - static_cast<int>(value < -threshold);
}

}  // namespace

AtariPress PressOf(const float* axes, float threshold) {
  const float radius = axes[0];
  // the nearest floats; ale-py uses NumPy's functions, whose last bit depends on the machine
  const float x = radius * static_cast<float>(std::cos(static_cast<double>(axes[1])));
  const float y = radius * static_cast<float>(std::sin(static_cast<double>(axes[1])));
  // a button has no direction: only values above the threshold count
  const bool fires = axes[2] > threshold;
  return {kActions[SideOf(x, threshold)][SideOf(y, threshold)][fires],
          std::min(std::abs(radius), kMaxStrength)};
}

}  // namespace rollouts
