// SPDX-License-Identifier: Apache-2.0
#include "game.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// All parts of a frame that a restart could get wrong.
struct FrameRecord {
  std::vector<std::uint8_t> bytes;
  std::int32_t reward;
  std::int32_t lives;
  bool game_over;
  bool operator==(const FrameRecord&) const = default;
};

FrameRecord Record(Ale& ale, std::int32_t reward, bool with_screen) {
  const auto ram = ale.Ram();
  FrameRecord record{{ram.begin(), ram.end()}, reward, ale.Lives(), ale.GameOver()};
  // the screen of the start state is left out
  if (with_screen) {
    const AleScreen screen = ale.screen();
    record.bytes.insert(record.bytes.end(), screen.pixels,
                        screen.pixels + screen.height * screen.width);
  }
  return record;
}

// Records the start state and the frames of a fixed sequence of actions after it.
std::vector<FrameRecord> RecordStart(Ale& ale, const std::vector<AleAction>& actions) {
  // the first two frames show both frame buffers completely; the others test the flags that are not
  // part of a saved state
  constexpr std::size_t kFrames = 12;
  std::vector<FrameRecord> records{Record(ale, 0, /*with_screen=*/false)};
  for (std::size_t i = 0; i < kFrames; ++i) {
    const std::int32_t reward = ale.Act(actions[i % actions.size()]);
    records.push_back(Record(ale, reward, /*with_screen=*/true));
  }
  return records;
}

void Play(Ale& ale, const std::vector<AleAction>& actions, std::int32_t num_frames) {
  for (std::int32_t i = 0; i < num_frames && !ale.GameOver(); ++i) {
    // repeats each action for some frames, so that games make progress
    ale.Act(actions[static_cast<std::size_t>(i / 7) % actions.size()]);
  }
}

void CheckListed(const std::string& rom_path, const char* option, std::int32_t value,
                 const std::vector<std::uint32_t>& available) {
  if (value == AtariGame::kDefault) return;
  const auto wanted = static_cast<std::uint32_t>(value);
  if (value >= 0 && std::find(available.begin(), available.end(), wanted) != available.end()) {
    return;
  }
  std::string list;
  for (const std::uint32_t each : available) list.append(" ").append(std::to_string(each));
  throw SpecError(std::string(option) + " is " + std::to_string(value) + ", expected -1 (the " +
                  "game's own) or one of" + list + " for " + rom_path);
}

}  // namespace

std::shared_ptr<const AtariGame> AtariGame::Get(const std::string& rom_path, std::int32_t mode,
                                                std::int32_t difficulty) {
  using Key = std::tuple<std::string, std::int32_t, std::int32_t>;
  // never destroyed: at exit, pools may still run and ale_py may be gone
  static auto& mutex = *new std::mutex;
  static auto& games = *new std::map<Key, std::shared_ptr<const AtariGame>>;  // guarded by mutex

  const std::lock_guard<std::mutex> lock(mutex);
  // made under the lock, so that environments of one game that start at once wait for one loading
  auto& game = games[Key{rom_path, mode, difficulty}];
  if (!game) game.reset(new AtariGame(rom_path, mode, difficulty));
  return game;
}

AtariGame::AtariGame(const std::string& rom_path, std::int32_t mode, std::int32_t difficulty)
    : rom_path_(rom_path), mode_(mode), difficulty_(difficulty) {
  AleLibrary::CheckRom(rom_path);
  std::unique_ptr<Ale> ale = LoadEmulator();
  // the same for all emulators of this game, so read once
  minimal_actions_ = ale->MinimalActions();
  legal_actions_ = ale->LegalActions();
  palette_ = ale->Palette();
  loading_frames_ = ale->CloneState()->CountFrames().all;

  // as in ale-py's vector environment, an episode starts after a second reset
  ale->ResetGame();
  const AleScreen screen = ale->screen();
  screen_height_ = screen.height;
  screen_width_ = screen.width;
  start_screen_.assign(screen.pixels, screen.pixels + screen.height * screen.width);
  start_state_ = ale->CloneState();
  start_frames_ = start_state_->CountFrames().of_episode;
  // kept for the first environment, because loading another emulator would take 70 ms
  spare_ = std::move(ale);
}

std::unique_ptr<Ale> AtariGame::NewEmulator() const {
  {
    // locked only for the move: a second emulator is loaded without the lock
    const std::lock_guard<std::mutex> lock(spare_mutex_);
    if (spare_) return std::move(spare_);
  }
  return LoadEmulator();
}

std::unique_ptr<Ale> AtariGame::LoadEmulator() const {
  auto ale = std::make_unique<Ale>();
  // randomness comes from the pool: ALE's generator must not matter
  ale->SetInt("random_seed", 0);
  ale->SetFloat("repeat_action_probability", 0.0f);
  // time limits are the pool's as well
  ale->SetInt("max_num_frames_per_episode", 0);
  // checked, because ALE ends the process for a ROM that is missing or invalid
  AleLibrary::CheckRom(rom_path_);
  ale->LoadRom(rom_path_);
  ChooseMode(*ale);
  return ale;
}

void AtariGame::ChooseMode(Ale& ale) const {
  CheckListed(rom_path_, "mode", mode_, ale.Modes());
  CheckListed(rom_path_, "difficulty", difficulty_, ale.Difficulties());
  if (mode_ != kDefault) ale.SetMode(static_cast<std::uint32_t>(mode_));
  if (difficulty_ != kDefault) ale.SetDifficulty(static_cast<std::uint32_t>(difficulty_));
}

void AtariGame::Restart(Ale& ale) const {
  // done by the first environment, while others wait: a game is checked once in a process
  std::call_once(restart_checked_, [&] {
    restarts_fast_ = FastRestartIsExact(ale);
  });
  if (restarts_fast_) {
    RestartFast(ale);
  } else {
    RestartExactly(ale);
  }
}

void AtariGame::RestartExactly(Ale& ale) const {
  // the reset restores frame buffers and flags; the saved state restores the memory and timer,
  // which a reset leaves unchanged
  ale.ResetGame();
  ale.RestoreState(*start_state_);
}

void AtariGame::RestartFast(Ale& ale) const { Resume(ale, *start_state_); }

void AtariGame::Resume(Ale& ale, const AleState& state) const {
  // a saved state lacks the TIA's frame buffers and its flag for an unfinished frame: both are
  // restored by two frames after the state
  ale.RestoreState(state);
  ale.Act(kAleNoop);
  ale.Act(kAleNoop);
  ale.RestoreState(state);
}

// Plays from the start state with and without fast restarts, after several games that leave the
// emulator in different conditions. An action may change the parts of older frames that the first
// frames keep, as FIRE does. FIRE usually is the second action, so the second order begins with it.
bool AtariGame::FastRestartIsExact(Ale& ale) const {
  std::array<std::vector<AleAction>, 2> orders{minimal_actions_, minimal_actions_};
  std::rotate(orders[1].begin(), orders[1].begin() + 1, orders[1].end());
  std::array<std::vector<FrameRecord>, 2> expected;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    RestartExactly(ale);
    expected[i] = RecordStart(ale, orders[i]);
  }
  for (const std::int32_t num_frames : {1, 2, 301, 600}) {
    Play(ale, minimal_actions_, num_frames);
    for (std::size_t i = 0; i < orders.size(); ++i) {
      RestartFast(ale);
      // one difference is enough to restart this game slowly for ever
      if (RecordStart(ale, orders[i]) != expected[i]) return false;
    }
  }
  return true;
}

}  // namespace rollouts
