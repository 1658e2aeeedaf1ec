// SPDX-License-Identifier: Apache-2.0
// Data that all environments of one game share: facts about the game, and the one state that every
// episode starts from.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engines/ale_abi.h"

namespace rollouts {

class AtariGame {
 public:
  static constexpr std::int32_t kDefault = -1;  // mode or difficulty: the default of the game

  // The game of a ROM, examined once per process (about 70 ms) and then shared. Thread-safe. Throws
  // EngineError for a ROM that cannot be played, and SpecError for a mode or difficulty that the
  // game does not have.
  static std::shared_ptr<const AtariGame> Get(const std::string& rom_path, std::int32_t mode,
                                              std::int32_t difficulty);

  // An emulator with the game loaded; it must be restarted before use. Takes 70 ms, except for the
  // first one. Thread-safe.
  std::unique_ptr<Ale> NewEmulator() const;

  // Puts an emulator of this game into the start state, whatever was played on it before, so that
  // an episode never depends on the one before it. Its screen() is out of date until the next Act:
  // use start_screen(). Takes 0.1 ms, or 4 ms in games that need a slow restart. The first call
  // finds out if this game does: it takes 0.1 s, and other threads wait for it.
  void Restart(Ale& ale) const;

  // Continues from a saved state. screen() is out of date until the next Act.
  void Resume(Ale& ale, const AleState& state) const;

  const std::vector<AleAction>& minimal_actions() const { return minimal_actions_; }
  const std::vector<AleAction>& legal_actions() const { return legal_actions_; }
  const AlePalette& palette() const { return palette_; }
  const std::vector<std::uint8_t>& start_screen() const { return start_screen_; }
  const std::string& rom_path() const { return rom_path_; }
  std::int32_t mode() const { return mode_; }
  std::int32_t difficulty() const { return difficulty_; }
  // The number of frames that ALE counts before an episode begins, because some games need actions
  // to start. Loading a game starts it, too.
  std::int32_t start_frames() const { return start_frames_; }
  std::int32_t loading_frames() const { return loading_frames_; }
  std::int32_t screen_height() const { return screen_height_; }
  std::int32_t screen_width() const { return screen_width_; }

 private:
  AtariGame(const std::string& rom_path, std::int32_t mode, std::int32_t difficulty);
  std::unique_ptr<Ale> LoadEmulator() const;
  void ChooseMode(Ale& ale) const;
  void RestartExactly(Ale& ale) const;
  void RestartFast(Ale& ale) const;
  bool FastRestartIsExact(Ale& ale) const;

  const std::string rom_path_;
  const std::int32_t mode_;
  const std::int32_t difficulty_;
  std::vector<AleAction> minimal_actions_;
  std::vector<AleAction> legal_actions_;
  AlePalette palette_{};
  std::vector<std::uint8_t> start_screen_;
  std::int32_t start_frames_ = 0;
  std::int32_t loading_frames_ = 0;
  std::int32_t screen_height_ = 0;
  std::int32_t screen_width_ = 0;
  std::unique_ptr<const AleState> start_state_;

  mutable std::once_flag restart_checked_;
  mutable bool restarts_fast_ = false;  // written once, under restart_checked_
  mutable std::mutex spare_mutex_;
  mutable std::unique_ptr<Ale> spare_;  // the emulator with which the game was examined; guarded
};

}  // namespace rollouts
