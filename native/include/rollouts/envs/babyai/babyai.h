// SPDX-License-Identifier: Apache-2.0
// BabyAI (Chevalier-Boisvert et al., "BabyAI: a platform to study the sample efficiency of grounded
// language learning", ICLR 2019), by the rules of minigrid 3.2: grids and instructions about them.
// One environment, whose options choose the level. Its ids are in envs.cmake.
#pragma once

#include "rollouts/envs/babyai/levels.h"
#include "rollouts/envs/minigrid/observe.h"
#include "rollouts/envs/minigrid/saved_grid.h"

namespace rollouts {

struct BabyAI {
  using Config = babyai::BabyAIConfig;
  using Level = babyai::Level;
  using enum babyai::Level;
  struct State {
    minigrid::Grid grid;
    babyai::Task task;
  };
  // 0 left, 1 right, 2 forward, 3 pick up, 4 drop, 5 toggle, 6 done
  using Action = std::int32_t;
  using Obs = std::uint8_t;  // int64 where observation is 'symbolic'

  static constexpr std::int32_t kNumWords = minigrid::kMaxWords;
  static constexpr std::int32_t kMostGrids = 10'000;  // attempts to draw a level

  ROLLOUTS_HD static constexpr EnvSpec MakeSpec(const Config& config) {
    const std::int32_t side = config.room_size - 1;
    return minigrid::SpecOf(config.shown, side * config.num_cols + 1, side * config.num_rows + 1,
                            kNumWords, 7);
  }
  static constexpr EnvSpec kSpec = minigrid::SpecOf({}, 22, 22, kNumWords, 7);

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    minigrid::VisitShown(config.shown, visit);
    babyai::VisitLevel(config, visit);
  }
  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    minigrid::CheckShown(config.shown, check);
    babyai::CheckLevel(config, check);
  }

  static constexpr const char* HostOnly(const Config& config) {
    return minigrid::HostOnlyOf(config.shown);
  }

  ROLLOUTS_NOINLINE static void Reset(const Config& config, State& state, Rng& rng) {
    babyai::Drawing drawing = {config, state.grid, state.task, rng, {}, -1};
    for (std::int32_t i = 0; i < kMostGrids; ++i) {
      if (DrawLevel(drawing)) break;
    }
    babyai::SayTask(state.grid, drawing.rooms, state.task);
    babyai::MarkObjects(state.grid, drawing.rooms, state.task);
    const std::int32_t limit = MaxSteps(config);
    state.grid.max_steps = limit > 0 ? limit : LimitOf(config, state.task);
    if (config.level != Level::kPutNext || !config.start_carrying) return;
    for (std::int32_t at = 0; at < state.grid.width * state.grid.height; ++at) {
      if (!(minigrid::MarksOf(state.grid.cells[at]) & 1)) continue;
      state.grid.carrying = state.grid.cells[at];
      state.grid.cells[at] = minigrid::kEmpty;
    }
  }

  ROLLOUTS_NOINLINE static StepResult Step(const Config&, State& state, const Action* action,
                                           Rng&) {
    StepResult result = minigrid::DoAction(state.grid, *action);
    if (*action == minigrid::kDrop) babyai::NotePlaces(state.grid, state.task);
    const babyai::Verdict verdict = babyai::LookAt(state.grid, state.task, *action);
    if (verdict != babyai::Verdict::kGoesOn) {
      result.terminated = true;
      result.reward = verdict == babyai::Verdict::kSuccess ? state.grid.Reward() : 0;
    }
    result.score = result.reward;
    return result;
  }

  ROLLOUTS_HD static void Observe(const Config& config, const State& state, Obs* obs) {
    minigrid::Observe(config.shown, state.grid, kNumWords, obs);
  }

  // The numbers of the task need no check, because they are only compared.
  ROLLOUTS_HD static const char* CheckState(const Config& config, const State& state) {
    const std::int32_t side = config.room_size - 1;
    return minigrid::IsGrid(state.grid, side * config.num_cols + 1, side * config.num_rows + 1)
               ? nullptr
               : kNoSuchState;
  }

 private:
  // The time limit, which is proportional to the number of instructions; to put an object somewhere
  // counts twice.
  ROLLOUTS_HD static std::int32_t LimitOf(const Config& config, const babyai::Task& task) {
    std::int32_t ways = 0;
    for (std::int32_t part = 0; part < babyai::Task::kMaxParts; ++part) {
      if (babyai::HasPart(task, part)) ways += task.parts[part].kind == babyai::kPutNext ? 2 : 1;
    }
    return ways * config.room_size * config.room_size * config.num_rows * config.num_cols;
  }

  // Draws a level with sensible instructions; false: the attempt failed.
  ROLLOUTS_NOINLINE static bool DrawLevel(babyai::Drawing& drawing) {
    const Config& config = drawing.config;
    const std::int32_t side = config.room_size - 1;
    minigrid::Clear(drawing.grid, side * config.num_cols + 1, side * config.num_rows + 1);
    drawing.task = {};
    drawing.locked_room = -1;
    MakeRooms(drawing.grid, drawing.rooms, config.room_size, config.num_cols, config.num_rows,
              drawing.rng);
    if (!FillRooms(drawing)) return false;
    for (std::int32_t part = 0; part < babyai::Task::kMaxParts; ++part) {
      if (!babyai::HasPart(drawing.task, part)) continue;
      if (!babyai::IsSensible(drawing, drawing.task.parts[part])) return false;
    }
    return true;
  }

  ROLLOUTS_NOINLINE static bool FillRooms(babyai::Drawing& drawing) {
    switch (drawing.config.level) {
      case Level::kGoToRedBallGrey: case Level::kGoToRedBall: case Level::kGoToRedBlueBall:
        return babyai::MakeGoToRedBall(drawing);
      case Level::kGoToObj: return babyai::MakeGoToObj(drawing);
      case Level::kGoToLocal: return babyai::MakeGoToLocal(drawing);
      case Level::kGoTo: return babyai::MakeGoTo(drawing);
      case Level::kGoToImpUnlock: case Level::kUnlock: return babyai::MakeBehindLock(drawing);
      case Level::kGoToDoor: case Level::kGoToObjDoor: case Level::kActionObjDoor:
        return babyai::MakeDoors(drawing);
      case Level::kOpen: return babyai::MakeOpen(drawing);
      case Level::kOpenRedDoor: return MakeOpenRedDoor(drawing);
      case Level::kOpenDoor: return babyai::MakeOpenDoor(drawing);
      case Level::kOpenTwoDoors: case Level::kOpenDoorsOrder:
        return babyai::MakeOpenDoors(drawing);
      case Level::kPickup: case Level::kUnblockPickup: return babyai::MakePickup(drawing);
      case Level::kPickupDist: return babyai::MakePickupDist(drawing);
      case Level::kPickupAbove: return babyai::MakePickupAbove(drawing);
      case Level::kPutNextLocal: return babyai::MakePutNextLocal(drawing);
      case Level::kPutNext: case Level::kMoveTwoAcross: return babyai::MakePutNext(drawing);
      case Level::kUnlockLocal: case Level::kKeyInBox: return babyai::MakeUnlockLocal(drawing);
      case Level::kUnlockPickup: case Level::kBlockedUnlockPickup:
        return babyai::MakeUnlockPickup(drawing);
      case Level::kUnlockToUnlock: return babyai::MakeUnlockToUnlock(drawing);
      case Level::kFindObj: return babyai::MakeFindObj(drawing);
      case Level::kKeyCorridor: return babyai::MakeKeyCorridor(drawing);
      case Level::kOneRoom: return babyai::MakeOneRoom(drawing);
      default: return babyai::MakeAnySentence(drawing);
    }
  }

  ROLLOUTS_HD static bool MakeOpenRedDoor(babyai::Drawing& drawing) {
    AddDoor(drawing.grid, drawing.rooms, 0, 0, minigrid::kRed, /*locked=*/false);
    return babyai::PutAgent(drawing, 0) &&
           babyai::Tell(drawing, babyai::kOpenIt,
                        babyai::Like(minigrid::MakeCell(minigrid::kDoor, minigrid::kRed)));
  }
};

}  // namespace rollouts
