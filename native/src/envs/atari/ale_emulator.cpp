// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "emulator.h"
#include "engines/ale_abi.h"

namespace rollouts {
namespace {

class AleEmulator final : public AtariEmulator {
 public:
  explicit AleEmulator(std::shared_ptr<const AtariGame> game)
      : game_(std::move(game)), ale_(game_->NewEmulator()) {}

  void Restart() override {
    game_->Restart(*ale_);
    at_start_ = true;
  }

  std::int32_t Act(const AtariPress& press) override {
    // a game that is over at its start stays in its start state
    at_start_ = at_start_ && ale_->GameOver();
    return ale_->Act(press.action, press.strength);
  }
  bool GameOver() const override { return ale_->GameOver(); }
  std::int32_t Lives() const override { return ale_->Lives(); }

  // After a restart ALE's own screen is out of date. Between Resume and the next Act it is two
  // frames ahead, because ALE saves no screen.
  const std::uint8_t* Screen() const override {
    return at_start_ ? game_->start_screen().data() : ale_->screen().pixels;
  }
  std::span<const std::uint8_t, 128> Ram() const override { return ale_->Ram(); }

  void Save(std::vector<std::uint8_t>& out) const override {
    // ALE's own bytes, with the state of its generator
    const std::string bytes = ale_->CloneState()->Serialize();
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  std::unique_ptr<Saved> Read(std::span<const std::uint8_t> bytes) const override {
    return std::make_unique<SavedAle>(std::string(bytes.begin(), bytes.end()));
  }
  void Resume(const Saved& saved) override {
    game_->Resume(*ale_, static_cast<const SavedAle&>(saved).state);
    at_start_ = false;
  }

 private:
  struct SavedAle final : Saved {
    explicit SavedAle(const std::string& bytes) : state(bytes) {}
    const AleState state;
  };

  const std::shared_ptr<const AtariGame> game_;
  const std::unique_ptr<Ale> ale_;
  bool at_start_ = false;  // this game has emulated nothing: show its start screen
};

}  // namespace

std::unique_ptr<AtariEmulator> NewAleEmulator(std::shared_ptr<const AtariGame> game) {
  return std::make_unique<AleEmulator>(std::move(game));
}

}  // namespace rollouts
