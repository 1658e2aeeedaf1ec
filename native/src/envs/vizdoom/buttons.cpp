// SPDX-License-Identifier: Apache-2.0
#include "buttons.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "rollouts/support/errors.h"

namespace rollouts {

DoomActions::DoomActions(const DoomFacts& facts, std::int32_t max_pressed)
    : num_deltas_(static_cast<std::int32_t>(facts.delta_buttons.size())),
      num_binary_(static_cast<std::int32_t>(facts.binary_buttons.size())),
      max_pressed_(std::min(max_pressed, num_binary_)) {
  if (num_deltas_ + num_binary_ == 0) {
    throw SpecError("the config file has no available_buttons: an agent needs one");
  }
  if (num_deltas_ == 0 && max_pressed_ > 0) AddCombinations(0, 0, max_pressed_);
}

// Follows itertools.product((0, 1), repeat=num_binary): the first button changes last.
void DoomActions::AddCombinations(std::uint64_t pressed, std::int32_t next, std::int32_t left) {
  constexpr std::size_t kMost = 1 << 20;
  if (next == num_binary_) {
    if (combinations_.size() == kMost) {
      throw SpecError("max_buttons_pressed is " + std::to_string(max_pressed_) + ", which of " +
                      std::to_string(num_binary_) + " buttons gives more than " +
                      std::to_string(kMost) + " combinations: expected less, or 0");
    }
    combinations_.push_back(pressed);
    return;
  }
  AddCombinations(pressed, next + 1, left);
  if (left > 0) AddCombinations(pressed | std::uint64_t{1} << next, next + 1, left - 1);
}

SpaceSpec DoomActions::space() const {
  if (!combinations_.empty()) {
    return {.dtype = DType::kInt64, .n = static_cast<std::int32_t>(combinations_.size())};
  }
  SpaceSpec space{.dtype = DType::kInt32, .ndim = 1, .shape = {num_deltas_ + num_binary_}};
  space.elementwise = true;
  if (num_deltas_ == 0) {
    space.multi_discrete = true;
    std::fill_n(space.high, num_binary_, 1.0);
    return space;
  }
  space.dtype = DType::kFloat32;
  for (std::int32_t i = 0; i < num_deltas_ + num_binary_; ++i) {
    const bool amount = i < num_deltas_;
    space.low[i] = amount ? std::numeric_limits<float>::lowest() : 0;
    space.high[i] = amount ? std::numeric_limits<float>::max() : 1;
  }
  return space;
}

bool DoomActions::Read(const std::uint8_t* action, std::vector<double>& buttons) const {
  buttons.assign(num_deltas_ + num_binary_, 0);
  if (!combinations_.empty()) {
    std::int32_t index;
    std::memcpy(&index, action, sizeof(index));
    if (index < 0 || index >= static_cast<std::int32_t>(combinations_.size())) return false;
    for (std::int32_t i = 0; i < num_binary_; ++i) buttons[i] = combinations_[index] >> i & 1;
    return true;
  }
  if (num_deltas_ == 0) {
    for (std::int32_t i = 0; i < num_binary_; ++i) {
      std::int32_t pressed;
      std::memcpy(&pressed, action + i * sizeof(pressed), sizeof(pressed));
      if (pressed != 0 && pressed != 1) return false;
      buttons[i] = pressed;
    }
    return true;
  }
  std::vector<float> numbers(buttons.size());
  std::memcpy(numbers.data(), action, numbers.size() * sizeof(float));
  if (!std::ranges::all_of(numbers, [](float x) { return std::isfinite(x); })) return false;
  std::copy_n(numbers.begin(), num_deltas_, buttons.begin());
  PressLargest(numbers, buttons);
  return true;
}

void DoomActions::PressLargest(const std::vector<float>& numbers,
                               std::vector<double>& buttons) const {
  constexpr float kPressed = 0.5f;
  std::vector<std::int32_t> wanted;
  for (std::int32_t i = num_deltas_; i < num_deltas_ + num_binary_; ++i) {
    if (numbers[i] > kPressed) wanted.push_back(i);
  }
  // 0: no limit; of equal numbers the first one counts
  std::ranges::stable_sort(wanted, [&](auto a, auto b) { return numbers[a] > numbers[b]; });
  if (max_pressed_ > 0 && wanted.size() > static_cast<std::size_t>(max_pressed_)) {
    wanted.resize(max_pressed_);
  }
  for (const std::int32_t i : wanted) buttons[i] = 1;
}

}  // namespace rollouts
