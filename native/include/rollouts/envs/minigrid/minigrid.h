// SPDX-License-Identifier: Apache-2.0
// MiniGrid (Chevalier-Boisvert et al., "Minigrid & Miniworld", NeurIPS 2023), by the rules of
// minigrid 3.2: one environment, whose options choose the level. Its ids are in envs.cmake.
#pragma once

#include "rollouts/envs/minigrid/config.h"
#include "rollouts/envs/minigrid/goal_levels.h"
#include "rollouts/envs/minigrid/object_levels.h"
#include "rollouts/envs/minigrid/observe.h"
#include "rollouts/envs/minigrid/room_levels.h"
#include "rollouts/envs/minigrid/saved_grid.h"
#include "rollouts/envs/minigrid/wall_levels.h"

namespace rollouts {

// `kNumActions`: 7, or 3 (left, right, forward) with obstacles that move.
template <std::int32_t kNumActions>
struct MiniGridOf {
  using Config = minigrid::MiniGridConfig;
  using Level = minigrid::Level;
  using enum minigrid::Level;
  using State = minigrid::Grid;
  // 0 left, 1 right, 2 forward, 3 pick up, 4 drop, 5 toggle, 6 done
  using Action = std::int32_t;
  using Obs = std::uint8_t;  // int64 where observation is 'symbolic'

  static constexpr std::int32_t kNumWords = 20;  // room for a mission
  static constexpr std::int32_t kMostGrids = 100;  // attempts to draw a grid

  ROLLOUTS_HD static constexpr EnvSpec MakeSpec(const Config& config) {
    return minigrid::SpecOf(config.shown, WidthOf(config), HeightOf(config), kNumWords, kNumActions);
  }
  static constexpr EnvSpec kSpec = minigrid::SpecOf({}, 8, 8, kNumWords, kNumActions);

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    minigrid::VisitShown(config.shown, visit);
    minigrid::VisitLevel(config, visit);
  }
  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    minigrid::CheckShown(config.shown, check);
    minigrid::CheckLevel(config, check);
  }

  static constexpr const char* HostOnly(const Config& config) {
    return minigrid::HostOnlyOf(config.shown);
  }

  ROLLOUTS_NOINLINE static void Reset(const Config& config, State& state, Rng& rng) {
    for (std::int32_t i = 0; i < kMostGrids; ++i) {
      minigrid::Clear(state, WidthOf(config), HeightOf(config));
      if (Make(config, state, rng)) break;
    }
    state.max_steps = MaxSteps(config);
  }

  ROLLOUTS_NOINLINE static StepResult Step(const Config& config, State& state, const Action* action,
                                           Rng& rng) {
    StepResult result =
        config.level == Level::kObstacles ? StepAmongObstacles(state, *action, rng)
                                          : StepLevel(config.level, state, *action);
    result.score = result.reward;
    return result;
  }

  ROLLOUTS_HD static void Observe(const Config& config, const State& state, Obs* obs) {
    minigrid::Observe(config.shown, state, kNumWords, obs);
  }

  ROLLOUTS_HD static const char* CheckState(const Config& config, const State& state) {
    const bool fits = minigrid::IsGrid(state, WidthOf(config), HeightOf(config));
    return fits && AreItems(config.level, state) ? nullptr : kNoSuchState;
  }

 private:
  // Tells if the items are valid for the level's steps: each is a cell of the grid, and holds a
  // ball where items are obstacles.
  ROLLOUTS_HD static bool AreItems(Level level, const State& grid) {
    // the first item of these levels is the sought object and not a cell
    const bool object = level == Level::kFetch || level == Level::kPutNear;
    for (std::int32_t i = object; i < minigrid::kMaxItems; ++i) {
      const std::int32_t at = grid.items[i];
      if (!IsWithin(at, 0, grid.width * grid.height - 1)) return false;
      const bool moves = level == Level::kObstacles && i < grid.num_items;
      if (moves && minigrid::TypeOf(grid.cells[at]) != minigrid::kBall) return false;
    }
    return true;
  }

  // Draws a grid; false: the attempt failed.
  ROLLOUTS_HD static bool Make(const Config& config, State& grid, Rng& rng) {
    switch (config.level) {
      case Level::kEmpty: return minigrid::MakeEmpty(config, grid, rng);
      case Level::kDoorKey: return minigrid::MakeDoorKey(config, grid, rng);
      case Level::kFourRooms: return minigrid::MakeFourRooms(config, grid, rng);
      case Level::kCrossing: return minigrid::MakeCrossing(config, grid, rng);
      case Level::kLavaGap: return minigrid::MakeLavaGap(config, grid, rng);
      case Level::kDistShift: return minigrid::MakeDistShift(config, grid, rng);
      case Level::kMultiRoom: return minigrid::MakeMultiRoom(config, grid, rng);
      case Level::kLockedRoom: return minigrid::MakeLockedRoom(config, grid, rng);
      case Level::kMemory: return minigrid::MakeMemory(config, grid, rng);
      case Level::kRedBlueDoors: return minigrid::MakeRedBlueDoors(config, grid, rng);
      case Level::kPlayground: return minigrid::MakePlayground(config, grid, rng);
      case Level::kObstacles: return minigrid::MakeObstacles(config, grid, rng);
      case Level::kFetch: return minigrid::MakeFetch(config, grid, rng);
      case Level::kGoToDoor: return minigrid::MakeGoToDoor(config, grid, rng);
      case Level::kGoToObject: return minigrid::MakeGoToObject(config, grid, rng);
      case Level::kPutNear: return minigrid::MakePutNear(config, grid, rng);
      case Level::kUnlock: case Level::kUnlockPickup: case Level::kBlockedUnlockPickup:
        return minigrid::MakeUnlock(config, grid, rng);
      case Level::kKeyCorridor: return minigrid::MakeKeyCorridor(config, grid, rng);
      default: return minigrid::MakeMaze(config, grid, rng);
    }
  }

  // Makes a step, and ends the episode by the level's own rules.
  ROLLOUTS_HD static StepResult StepLevel(Level level, State& grid, std::int32_t action) {
    using minigrid::IsOpenDoor;
    const bool memory = level == Level::kMemory, doors = level == Level::kRedBlueDoors;
    const bool red = doors && IsOpenDoor(grid.cells[grid.items[0]]);
    const bool blue = doors && IsOpenDoor(grid.cells[grid.items[1]]);
    const minigrid::Cell carried = grid.carrying;
    const bool takes = memory && action == minigrid::kPickUp;
    StepResult result = minigrid::DoAction(grid, takes ? minigrid::kToggle : action);
    switch (level) {
      case Level::kMemory: minigrid::EndMemory(grid, result); break;
      case Level::kRedBlueDoors: minigrid::EndRedBlueDoors(grid, red, blue, result); break;
      case Level::kFetch: minigrid::EndFetch(grid, result); break;
      case Level::kGoToDoor: case Level::kGoToObject:
        minigrid::EndGoTo(grid, action, result);
        break;
      case Level::kPutNear: minigrid::EndPutNear(grid, action, carried, result); break;
      case Level::kUnlock: minigrid::EndUnlock(grid, action, result); break;
      case Level::kUnlockPickup: case Level::kBlockedUnlockPickup: case Level::kKeyCorridor:
      case Level::kMaze1Dl: case Level::kMaze: case Level::kMazeV1:
        minigrid::EndPickUp(grid, action, result);
        break;
      default: break;
    }
    return result;
  }

  // Obstacles move first. An agent that walks to a cell that was occupied before they moved has
  // collided.
  ROLLOUTS_HD static StepResult StepAmongObstacles(State& grid, std::int32_t action, Rng& rng) {
    const std::uint32_t front = minigrid::TypeOf(grid.cells[grid.Front()]);
    const bool clear = front == minigrid::kNothing || front == minigrid::kGoalType;
    minigrid::MoveObstacles(grid, rng);
    StepResult result = minigrid::DoAction(grid, action);
    if (action == minigrid::kForward && !clear) {
      result.reward = -1;
      result.terminated = true;
    }
    return result;
  }
};

using MiniGrid = MiniGridOf<7>;
using MiniGridObstacles = MiniGridOf<3>;

}  // namespace rollouts
