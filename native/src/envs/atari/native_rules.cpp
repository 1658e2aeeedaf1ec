// SPDX-License-Identifier: Apache-2.0
#include "native_rules.h"

#include <cstring>
#include <string>
#include <type_traits>

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

using atari2600::RulesState;
static_assert(std::is_trivially_copyable_v<RulesState>);

}  // namespace

NativeRules NativeRules::Start(const AtariGame& game, const char* name,
                               std::span<const std::uint8_t> rom, const Memory& memory) {
  NativeRules rules(memory);
  rules.ours_ = atari2600::FindRules(name);
  if (rules.ours_) {
    rules.state_ = atari2600::StartRules(*rules.ours_, game.mode());
  } else {
    rules.ales_ = std::make_unique<AleRules>(game.rom_path(), rom, memory);
    // two steps stand for the frames of the reset: the first one takes the score for a reward
    rules.Step();
  }
  // a reset ends with one more reading of the memory
  rules.Step();
  return rules;
}

NativeRules::NativeRules(const NativeRules& other, const Memory& memory)
    : memory_(memory), ours_(other.ours_), state_(other.state_) {
  if (other.ales_) ales_ = std::make_unique<AleRules>(*other.ales_, memory);
}

void NativeRules::Step() {
  if (ours_) return atari2600::StepRules(*ours_, memory_.ram, state_);
  ales_->Step();
}

std::int32_t NativeRules::Reward() const { return ours_ ? state_.reward : ales_->Reward(); }
std::int32_t NativeRules::Lives() const {
  return ours_ ? atari2600::LivesOf(state_) : ales_->Lives();
}
bool NativeRules::GameOver() const { return ours_ ? state_.over != 0 : ales_->GameOver(); }

void NativeRules::Save(std::vector<std::uint8_t>& out) const {
  if (ours_) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&state_);
    out.insert(out.end(), bytes, bytes + sizeof(state_));
    return;
  }
  const std::string saved = ales_->Save();
  out.insert(out.end(), saved.begin(), saved.end());
}

void NativeRules::Restore(std::span<const std::uint8_t> saved) {
  if (!ours_) return ales_->Restore(std::string(saved.begin(), saved.end()));
  if (saved.size() != sizeof(state_)) throw SpecError("has no score of this game");
  std::memcpy(&state_, saved.data(), sizeof(state_));
}

}  // namespace rollouts
