// SPDX-License-Identifier: Apache-2.0
// Spaces of MPE's agents, and their observations written element by element.
#pragma once

#include "rollouts/envs/mpe/particles.h"

namespace rollouts {

// The action space of an agent that may move (`moves`) and says one of `words` words (0: it is
// silent). With both, a Discrete action is move + 5 * word.
constexpr SpaceSpec ParticleAction(bool continuous, bool moves, std::int32_t words) {
  const std::int32_t num_moves = moves ? Particles::kMoves : 0;
  if (continuous) return {.ndim = 1, .shape = {num_moves + words}, .low = {0}, .high = {1}};
  return {.dtype = DType::kInt64, .n = (moves ? num_moves : 1) * (words > 0 ? words : 1)};
}

// Adds a group to a spec, if it has agents.
constexpr void AddParticles(EnvSpec& spec, const char* name, std::int32_t num_agents,
                            std::int32_t observation, const SpaceSpec& action) {
  if (num_agents == 0) return;
  AddGroup(spec, {name,
                  num_agents,
                  {.ndim = 1, .shape = {observation}, .low = {-kInfinity}, .high = {kInfinity}},
                  action});
}

// Stores what an agent said in `said`: the word of a Discrete action, or the elements of a Box.
ROLLOUTS_HD inline void Say(std::int32_t word, std::int32_t num_words, float* said) {
  for (std::int32_t k = 0; k < num_words; ++k) said[k] = k == word;
}
ROLLOUTS_HD inline void Say(const float* words, std::int32_t num_words, float* said) {
  for (std::int32_t k = 0; k < num_words; ++k) said[k] = Clip(words[k], 0.0f, 1.0f);
}

// Writes an observation from its first element on, rounded to 32 bits.
class ParticleObs {
 public:
  ROLLOUTS_HD explicit ParticleObs(float* obs) : next_(obs) {}

  ROLLOUTS_HD void Put(double value) { *next_++ = static_cast<float>(value); }
  ROLLOUTS_HD void Put(Vec2 value) {
    next_[0] = static_cast<float>(value.x);
    next_[1] = static_cast<float>(value.y);
    next_ += 2;
  }
  ROLLOUTS_HD void Put(const float* values, std::int32_t count) {
    for (std::int32_t k = 0; k < count; ++k) *next_++ = values[k];
  }
  ROLLOUTS_HD void PutZeros(std::int32_t count) {
    for (std::int32_t k = 0; k < count; ++k) *next_++ = 0;
  }
  // Writes a colour of `count` components: component `at` is `value`, the others are `rest`.
  ROLLOUTS_HD void PutColor(std::int32_t at, double value, double rest, std::int32_t count) {
    for (std::int32_t k = 0; k < count; ++k) Put(k == at ? value : rest);
  }

  // Writes positions relative to `from`.
  ROLLOUTS_HD void PutSeen(Vec2 from, const Vec2* positions, std::int32_t count) {
    for (std::int32_t k = 0; k < count; ++k) Put(positions[k] - from);
  }
  // Writes the positions of all agents but `i`.
  ROLLOUTS_HD void PutOthers(const Vec2* positions, std::int32_t num_agents, std::int32_t i) {
    const Vec2 from = positions[i];
    PutSeen(from, positions, i);
    PutSeen(from, positions + i + 1, num_agents - i - 1);
  }

 private:
  float* next_;
};

}  // namespace rollouts
