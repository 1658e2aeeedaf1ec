// SPDX-License-Identifier: Apache-2.0
// core/step.h: time limits and autoreset of one environment; its info columns and spaces.
#include "rollouts/core/step.h"
#include "rollouts/pool/spec_difference.h"
#include "units.h"

namespace rollouts {
namespace {

constexpr EnvSpec CounterSpec() {
  EnvSpec spec;
  spec.observation.dtype = DType::kInt32;
  spec.num_infos = 3;
  spec.infos[0] = {"half", DType::kFloat64};
  spec.infos[1] = {"pair", DType::kInt32, 2};
  spec.infos[2] = {"sign", DType::kInt8};
  spec.reset_infos = true;
  return spec;
}

// Counts up by its action from a number that it draws; ends above 100, marks an end at 50.
struct Counter {
  struct Config {};
  struct State {
    std::int32_t count;
  };
  using Action = std::int32_t;
  using Obs = std::int32_t;
  static constexpr EnvSpec kSpec = CounterSpec();
  static void Reset(const Config&, State& state, Rng& rng) {
    state.count = static_cast<std::int32_t>(rng.Below(10));
  }
  static StepResult Step(const Config&, State& state, const Action* action, Rng& rng) {
    rng.NextWord();
    state.count += *action;
    StepResult result = StepResult::Of(*action, state.count > 100);
    result.score = 2 * result.reward;
    result.marks_end = state.count == 50;
    return result;
  }
  static void Observe(const Config&, const State& state, Obs* obs) { *obs = state.count; }
  static void WriteInfo(const Config&, const State& state, double* values) {
    values[0] = state.count / 2.0;
    values[1] = state.count;
    values[2] = -state.count;
    values[3] = state.count > 50 ? 1 : -1;
  }
};

// One environment and a batch of one row.
struct World {
  explicit World(AutoresetMode mode, std::int32_t limit = 0) : rules{mode, limit} {
    clock.env_id = 7;
    clock.Seed(3);
    view.obs = reinterpret_cast<std::uint8_t*>(&obs);
    if (mode == AutoresetMode::kSameStep) {
      view.final_obs = reinterpret_cast<std::uint8_t*>(&final_obs);
      view.begun_infos[0] = &begun_half, view.begun_infos[1] = begun_pair;
      view.begun_infos[2] = &begun_sign;
    }
    view.obs_bytes = 4;
    view.reward = &reward, view.episode_return = &episode_return;
    view.terminated = &terminated, view.truncated = &truncated;
    view.env_id = &env_id, view.episode_length = &episode_length;
    view.infos[0] = &half, view.infos[1] = pair, view.infos[2] = &sign;
  }

  void Run(Command command, std::int32_t action = 0) {
    LightEnv<Counter> env{config, state};
    final_obs = -1;
    begun_half = -1;
    RunCommand(
        command, rules, env, clock, &action, [&] { return RowRef{view, 0}; },
        [&](const RowRef& out) { env.WriteInfoRow(out.view.infos, out.row); });
  }
  void Step(std::int32_t action) { Run(Command::kStep, action); }
  bool Is(bool is_terminated, bool is_truncated) const {
    return terminated == is_terminated && truncated == is_truncated;
  }

  StepRules rules;
  Counter::Config config;
  Counter::State state{};
  EpisodeClock clock;
  BatchView view;
  std::int32_t obs = -1, final_obs = -1, env_id = -1, episode_length = -1;
  double reward = -1, episode_return = -1, half = -1, begun_half = -1;
  std::uint8_t terminated = 9, truncated = 9;
  std::int32_t pair[2] = {}, begun_pair[2] = {};
  std::int8_t sign = 0, begun_sign = 0;
};

constexpr AutoresetMode kModes[] = {AutoresetMode::kNextStep, AutoresetMode::kSameStep,
                                    AutoresetMode::kDisabled};

TEST(Step, AResetBeginsAnEpisodeOfNoSteps) {
  for (const AutoresetMode mode : kModes) {
    World world(mode);
    world.Run(Command::kReset);
    CHECK_EQ(world.obs, static_cast<std::int32_t>(Rng(3, 7, 0).Below(10)));
    CHECK(world.Is(false, false));
    CHECK_EQ(world.reward + world.episode_return + world.episode_length, 0.0);
    CHECK_EQ(world.env_id, 7);
    CHECK_EQ(world.half, world.obs / 2.0);
  }
}

TEST(Step, RewardsAreAddedUpAsScores) {
  World world(AutoresetMode::kNextStep);
  world.Run(Command::kReset);
  const std::int32_t first = world.obs;
  world.Step(5);
  world.Step(6);
  CHECK_EQ(world.obs, first + 11);
  CHECK_EQ(world.reward, 6.0);
  CHECK_EQ(world.episode_return, 22.0);
  CHECK_EQ(world.episode_length, 2);
}

TEST(Step, NextStepAutoresetBeginsAnewWithTheStepAfterTheEnd) {
  World world(AutoresetMode::kNextStep);
  world.Run(Command::kReset);
  world.Step(200);
  CHECK(world.Is(true, false));
  CHECK(world.obs >= 200);  // what ended the episode is shown
  CHECK_EQ(world.episode_length, 1);
  world.Step(3);  // counts for nothing
  CHECK(world.Is(false, false));
  CHECK_EQ(world.obs, static_cast<std::int32_t>(Rng(3, 7, 1).Below(10)));
  CHECK_EQ(world.reward + world.episode_return + world.episode_length, 0.0);
  world.Step(3);
  CHECK_EQ(world.episode_length, 1);
}

TEST(Step, SameStepAutoresetShowsBothEpisodes) {
  World world(AutoresetMode::kSameStep);
  world.Run(Command::kReset);
  const std::int32_t first = world.obs;
  world.Step(200);
  CHECK(world.Is(true, false));
  CHECK_EQ(world.final_obs, first + 200);
  CHECK_EQ(world.obs, static_cast<std::int32_t>(Rng(3, 7, 1).Below(10)));
  CHECK_EQ(world.reward, 200.0);
  CHECK_EQ(world.episode_return, 400.0);
  CHECK_EQ(world.episode_length, 1);
  // infos of the step that ended, and beside them those of the episode that began
  CHECK_EQ(world.half, (first + 200) / 2.0);
  CHECK_EQ(world.begun_half, world.obs / 2.0);
  CHECK_EQ(world.begun_pair[1], -world.obs);
  world.Step(1);
  CHECK_EQ(world.episode_length, 1);
  CHECK_EQ(world.final_obs, -1);
  CHECK_EQ(world.begun_half, -1.0);
}

TEST(Step, ALimitTruncatesAndMayComeWithAnEnd) {
  for (const AutoresetMode mode : kModes) {
    World world(mode, 2);
    world.Run(Command::kReset);
    world.Step(1);
    CHECK(world.Is(false, false));
    world.Step(1);
    CHECK(world.Is(false, true));
    CHECK_EQ(world.episode_length, 2);
    world.Run(Command::kReset);
    world.Step(1);
    world.Step(200);
    CHECK(world.Is(true, true));
  }
}

TEST(Step, WithoutAutoresetAStepAfterTheEndBeginsNothingByItself) {
  World world(AutoresetMode::kDisabled);
  world.Run(Command::kReset);
  world.Step(200);
  CHECK(world.clock.ended);
  CHECK(!IsStep(Command::kStep, world.clock));
  world.Run(Command::kReset);
  CHECK(!world.clock.ended);
  CHECK(IsStep(Command::kStep, world.clock));
  CHECK(!IsStep(Command::kReset, world.clock));
}

TEST(Step, AMarkedEndSaysTerminatedOfAnEpisodeThatGoesOn) {
  for (const AutoresetMode mode : kModes) {
    World world(mode);
    world.Run(Command::kReset);
    world.Step(50 - world.obs);
    CHECK(world.Is(true, false));
    CHECK(!world.clock.ended);
    CHECK_EQ(world.obs, 50);
    // the next step goes on from what it shows
    if (mode == AutoresetMode::kSameStep) CHECK_EQ(world.final_obs, 50);
    world.Step(1);
    CHECK_EQ(world.obs, 51);
    CHECK_EQ(world.episode_length, 2);
    CHECK(world.Is(false, false));
  }
}

TEST(Step, ObservingMovesNothing) {
  World world(AutoresetMode::kSameStep, 9);
  world.Run(Command::kReset);
  world.Step(5);
  const EpisodeClock before = world.clock;
  const std::int32_t shown = world.obs;
  world.obs = -1;
  world.Run(Command::kObserve);
  CHECK_EQ(world.obs, shown);
  CHECK_EQ(world.reward, 0.0);
  CHECK_EQ(world.episode_return, 10.0);
  CHECK_EQ(world.episode_length, 1);
  CHECK(world.clock.draws == before.draws && world.clock.next_episode == before.next_episode);
}

TEST(Step, ARandomStreamGoesOnThroughItsEpisode) {
  World world(AutoresetMode::kNextStep);
  world.Run(Command::kReset);
  Rng rng(3, 7, 0);
  rng.Below(10);
  for (int i = 0; i < 5; ++i) {
    CHECK_EQ(world.clock.draws, rng.draws());
    rng.NextWord();
    world.Step(1);
  }
  world.clock.Seed(4);
  world.Run(Command::kReset);
  CHECK_EQ(world.clock.next_episode, 1u);
  CHECK_EQ(world.obs, static_cast<std::int32_t>(Rng(4, 7, 0).Below(10)));
}

TEST(Step, AFailureIsARowOfZerosThatEndsTheEpisode) {
  for (const AutoresetMode mode : {AutoresetMode::kNextStep, AutoresetMode::kSameStep}) {
    World world(mode);
    world.Run(Command::kReset);
    world.Step(5);
    WriteFailure({world.view, 0}, world.clock);
    CHECK(world.Is(false, true));
    CHECK_EQ(world.obs, 0);
    CHECK_EQ(world.reward, 0.0);
    CHECK_EQ(world.episode_return, 10.0);  // the return of what came before
    if (mode == AutoresetMode::kSameStep) CHECK_EQ(world.final_obs, 0);
    CHECK(world.clock.ended);
    world.Step(3);
    CHECK_EQ(world.episode_length, 0);
  }
}

TEST(InfoColumns, NumbersBecomeValuesOfTheirColumns) {
  CHECK_EQ(NumInfoValues<Counter>(), 4);
  double half[3] = {};
  std::int32_t pair[6] = {};
  std::int8_t sign[3] = {};
  void* const columns[] = {half, pair, sign};
  const double values[] = {2.5, 7, -8, -1};
  StoreInfos<Counter>(values, columns, 1);
  CHECK((half[0] == 0 && half[1] == 2.5 && half[2] == 0));
  CHECK((pair[1] == 0 && pair[2] == 7 && pair[3] == -8 && pair[4] == 0));
  CHECK((sign[0] == 0 && sign[1] == -1 && sign[2] == 0));
}

TEST(SpecDifference, NamesTheFirstThingThatDiffers) {
  const EnvSpec spec = Counter::kSpec;
  CHECK_EQ(SpecDifference(spec, spec), "");
  EnvSpec other = spec;
  other.step_cost_ns = 99;  // is nobody's business
  CHECK_EQ(SpecDifference(spec, other), "");
  other.infos[2].dtype = DType::kInt32;
  CHECK_EQ(SpecDifference(spec, other), "info columns");
  other.action.n = 3;
  CHECK_EQ(SpecDifference(spec, other), "action space");
  other.observation.high[0] = 1;
  CHECK_EQ(SpecDifference(spec, other), "observation space");
  void (*const changes[])(EnvSpec&) = {
      [](EnvSpec& changed) { changed.num_infos = 2; },
      [](EnvSpec& changed) { changed.reset_infos = false; },
      [](EnvSpec& changed) { changed.infos[0].name = "whole"; },
      [](EnvSpec& changed) { changed.infos[1].length = 3; }};
  for (const auto change : changes) {
    other = spec;
    change(other);
    CHECK_EQ(SpecDifference(spec, other), "info columns");
  }
}

}  // namespace
}  // namespace rollouts
