// SPDX-License-Identifier: Apache-2.0
// Wrappers around the environments of a pool: changes to actions, observations and rewards that
// Gymnasium has as wrappers. Python has checked them; rollouts/envs/wrappers.py explains them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace rollouts {

// Actions that callers give without bounds are limited to these, element by element.
struct ClipAction {
  std::vector<float> low;
  std::vector<float> high;
};

// The environment gets (action - intercept) / gradient, element by element.
struct RescaleAction {
  std::vector<float> gradient;
  std::vector<float> intercept;
  std::vector<double> low;  // bounds of the actions that callers give
  std::vector<double> high;
};

struct ClipReward {
  double low = 0;
  double high = 0;
};

// Elapsed steps as a last element of the observation.
struct TimeAware {
  bool fraction = false;  // the share of the time limit, else the number of steps
  std::vector<std::int32_t> limits;  // each environment's; positive
};

struct NormalizeObservation {
  double epsilon = 0;
  double clip = 0;
  bool to_float32 = false;  // rounds results to float32, whatever the observations' dtype
};

struct NormalizeReward {
  double gamma = 0;
  double epsilon = 0;
  // True, as in Stable-Baselines3: rewards are rounded to 32 bits, and each episode's return begins
  // at 0. False, as in Gymnasium: the last reward of an episode is the first of the next one's
  // return.
  bool of_episodes = false;
  bool scales = true;  // false: rewards are only counted
};

// Wrappers in the order in which they change an environment's inputs, and then its outputs.
struct Wrappers {
  std::optional<ClipAction> clip_action;
  std::optional<RescaleAction> rescale_action;
  std::optional<TimeAware> time_aware;
  std::int32_t frame_stack = 0;  // 0: observations are not stacked
  std::optional<NormalizeObservation> normalize_observation;
  std::optional<NormalizeReward> normalize_reward;
  std::optional<ClipReward> clip_reward;

  bool any() const {
    return clip_action || rescale_action || time_aware || frame_stack > 0 || normalize_observation ||
           normalize_reward || clip_reward;
  }
};

}  // namespace rollouts
