// SPDX-License-Identifier: Apache-2.0
// policy/rollout.h: rollouts of environments that count, against a loop over one after the other.
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "rollouts/policy/rollout.h"
#include "rollouts/support/errors.h"
#include "units.h"
#include "units_counting.h"
#include "policy/units_policy.h"

namespace rollouts::policy {
namespace {

using units::CountingEnv;
using units::InSameStep;
using units::MakeCounting;
using units::MessageOf;

// Takes action 0 at steps 0 and 1 of an episode, 1 at steps 2 and 3, 2 at step 4; the value is
// 7 times the environment's number, plus the step.
const Program kProgram{.obs_size = 2,
                       .ops = {MakeOp(OpKind::kLinear, {0}, 3, {0, 1}),
                               MakeOp(OpKind::kLinear, {0}, 1, {2})},
                       .params = {{"logits", 6}, {"bias", 3}, {"value", 2}},
                       .outputs = {1, 2}};
constexpr float kBias[] = {0, -1.5f, -5};
std::int64_t ActionAt(std::int32_t step) { return step / 2; }
float ValueOf(std::int32_t number, std::int32_t step) { return static_cast<float>(7 * number + step); }

double LogProbAt(std::int32_t step) {
  double sum = 0;
  for (int a = 0; a < 3; ++a) sum += std::exp(a * step + static_cast<double>(kBias[a]));
  const auto action = static_cast<double>(ActionAt(step));
  return action * step + static_cast<double>(kBias[ActionAt(step)]) - std::log(sum);
}

NativePolicy CountingPolicy() {
  const auto network = std::make_shared<const Network>(kProgram);
  return {network, Packed(*network, {{0, 0, 0, 1, 0, 2}, {kBias, kBias + 3}, {7, 1}}),
          {.kind = HeadKind::kCategorical, .deterministic = true}};
}

// Counts the steps of an episode from 7 on, and passes on what it began with; values by both.
NativePolicy RememberingPolicy() {
  const Program program{.obs_size = 2,
                        .ops = {MakeOp(OpKind::kSlice, {0}, 1, {}, {2}),
                                MakeOp(OpKind::kScale, {1}, 1, {}, {1, 1}),
                                MakeOp(OpKind::kSlice, {0}, 1, {}, {3}),
                                MakeOp(OpKind::kAdd, {1, 3}, 1),
                                MakeOp(OpKind::kLiteral, {}, 3, {}, {0, 1, 0})},
                        .params = {},
                        .outputs = {5, 4, 2, 3},
                        .states = {1, 1}};
  const auto network = std::make_shared<const Network>(program);
  return {network, Packed(*network, {}), {.deterministic = true}, {7, 100}};
}

// Outputs that are the same whatever is observed.
NativePolicy PolicySaying(HeadKind kind, const std::vector<std::vector<float>>& outputs) {
  Program program{.obs_size = 2, .ops = {}, .params = {}, .outputs = {}};
  for (const std::vector<float>& numbers : outputs) {
    const auto size = static_cast<std::int32_t>(numbers.size());
    program.ops.push_back(MakeOp(OpKind::kLiteral, {}, size, {}, numbers));
    program.outputs.push_back(static_cast<std::int32_t>(program.ops.size()));
  }
  const auto network = std::make_shared<const Network>(program);
  return {network, Packed(*network, {}), {.kind = kind, .deterministic = true}};
}

std::vector<FinalObs> CollectInto(CpuPool& pool, const NativePolicy& policy,
                                  const RolloutArrays& arrays,
                                  const CollectOptions& options = {}) {
  const std::array parts{PolicyRollout{policy, arrays}};
  return policy::Collect(pool, parts, options)[0];
}

// The arrays of a rollout; what is not written stays -1.
struct Collected {
  Collected(CpuPool& given, std::int32_t num_steps, std::size_t action_bytes = 8)
      : pool(given), steps(num_steps), envs(given.options().num_envs) {
    const auto cells = static_cast<std::size_t>(steps * envs);
    obs.assign((cells + static_cast<std::size_t>(envs)) * 2, -1);
    action.assign(cells * action_bytes, 0xFF);
    for (auto* floats : {&log_prob, &value, &reward, &bootstrap}) floats->assign(cells, -1);
    terminated.assign(cells, 9), truncated.assign(cells, 9);
    episode_return.assign(cells, -1), episode_length.assign(cells, -1);
    last_value.assign(static_cast<std::size_t>(envs), -1);
    pool.SendReset(nullptr);
    const auto received = pool.Recv(units::Later());
    std::memcpy(obs.data(), received.buffer->view().obs, static_cast<std::size_t>(envs) * 8);
    pool.Release(received.buffer.get());
  }

  std::vector<FinalObs> Collect(const NativePolicy& policy, const CollectOptions& options = {}) {
    return CollectInto(pool, policy, Arrays(), options);
  }

  RolloutArrays Arrays() {
    return {.steps = steps,
            .rows = envs,
            .obs = reinterpret_cast<std::uint8_t*>(obs.data()),
            .action = action.data(),
            .log_prob = log_prob.data(),
            .value = value.data(),
            .reward = reward.data(),
            .terminated = terminated.data(),
            .truncated = truncated.data(),
            .bootstrap_value = bootstrap.data(),
            .episode_return = episode_return.data(),
            .episode_length = episode_length.data(),
            .last_value = last_value.data()};
  }

  template <typename T>
  T ActionAs(std::size_t index) const {
    T value;
    std::memcpy(&value, action.data() + index * sizeof(T), sizeof(T));
    return value;
  }

  CpuPool& pool;
  std::int32_t steps, envs;
  std::vector<float> obs, log_prob, value, reward, bootstrap, last_value;
  std::vector<std::uint8_t> action, terminated, truncated;
  std::vector<double> episode_return;
  std::vector<std::int32_t> episode_length;
};

// Environment `number` alone, step by step; its final observations by t.
void CheckEnv(const Collected& found, std::int32_t number, std::vector<std::int32_t>& ends) {
  const auto width = static_cast<std::size_t>(found.envs);
  const auto env = static_cast<std::size_t>(number);
  const std::int32_t length = std::min(5, CountingEnv::Length(number));
  double total = 0;
  for (std::int32_t t = 0; t < found.steps; ++t) {
    const std::size_t i = static_cast<std::size_t>(t) * width + env;
    const std::int32_t step = t % length;
    const double reward = 100 * number + 10 * (step + 1) + static_cast<double>(ActionAt(step));
    total = step == 0 ? reward : total + reward;
    const bool is_end = step + 1 == length;
    const bool terminates = is_end && CountingEnv::Length(number) <= 5;
    const bool is_cut = is_end && length == 5;
    CHECK_EQ(found.obs[2 * i], static_cast<float>(number));
    CHECK_EQ(found.obs[2 * i + 1], static_cast<float>(step));
    CHECK_EQ(found.ActionAs<std::int64_t>(i), ActionAt(step));
    // a few roundings of numbers below 10
    CHECK(std::abs(static_cast<double>(found.log_prob[i]) - LogProbAt(step)) < 1e-5);
    CHECK_EQ(found.value[i], ValueOf(number, step));
    CHECK_EQ(static_cast<double>(found.reward[i]), reward);
    CHECK_EQ(int{found.terminated[i]}, int{terminates});
    CHECK_EQ(int{found.truncated[i]}, int{is_cut});
    CHECK_EQ(found.bootstrap[i], is_cut && !terminates ? ValueOf(number, 5) : 0.0f);
    CHECK_EQ(found.episode_return[i], total);
    CHECK_EQ(found.episode_length[i], step + 1);
    if (is_end) ends.push_back(t);
  }
  CHECK_EQ(found.last_value[env], ValueOf(number, found.steps % length));
}

template <typename Env = units::CountingEnv>
void RolloutIsTheLoop(std::int32_t num_envs, std::int32_t num_threads, std::int32_t step_cost_ns) {
  constexpr std::int32_t kSteps = 13;
  const auto pool =
      MakeCounting<Env>(num_envs, num_threads, {.step_cost_ns = step_cost_ns}, InSameStep());
  Collected found(*pool, kSteps);
  const std::vector<FinalObs> final_obs = found.Collect(CountingPolicy(), {.rules = {.keep_final_obs = true}, .poll = {}});
  std::vector<std::vector<std::int32_t>> ends(static_cast<std::size_t>(num_envs));
  std::size_t num_ends = 0;
  for (std::int32_t env = 0; env < num_envs; ++env) {
    CheckEnv(found, env, ends[static_cast<std::size_t>(env)]);
    num_ends += ends[static_cast<std::size_t>(env)].size();
  }
  CHECK_EQ(final_obs.size(), num_ends);
  std::pair<std::int32_t, std::int32_t> before{-1, -1};
  for (const FinalObs& each : final_obs) {
    CHECK(before < std::pair(each.t, each.row));  // in order
    before = {each.t, each.row};
    float shown[2];
    CHECK_EQ(each.obs.size(), sizeof(shown));
    std::memcpy(shown, each.obs.data(), sizeof(shown));
    CHECK_EQ(shown[0], static_cast<float>(each.row));
    CHECK_EQ(shown[1], static_cast<float>(std::min(5, CountingEnv::Length(each.row))));
  }
  CHECK_EQ(pool->stats().env_steps, std::int64_t{kSteps} * num_envs);
  CHECK_EQ(pool->num_in_flight(), 0);
}

TEST(Rollout, HeavyEnvironmentsOfEveryChunkAreTheLoop) {
  for (const std::int32_t num_envs : {1, 15, 16, 17, 33, 64, 65}) {
    for (const std::int32_t threads : {1, 3}) RolloutIsTheLoop(num_envs, threads, 5'000);
  }
}

TEST(Rollout, EpisodesThatEndInAStepBeginTogether) {
  using units::StartingEnv;
  StartingEnv::most_together = StartingEnv::num_alone = 0;
  for (const std::int32_t num_envs : {1, 15, 17, 64, 130}) {
    for (const std::int32_t threads : {1, 3}) RolloutIsTheLoop<StartingEnv>(num_envs, threads, 5'000);
  }
  CHECK_EQ(StartingEnv::num_alone.load(), 0);
  CHECK(StartingEnv::most_together > 2);
}

TEST(Rollout, LightEnvironmentsOfEveryChunkAreTheLoop) {
  for (const std::int32_t num_envs : {1, 16, 63, 64, 65, 130}) {
    for (const std::int32_t threads : {1, 3}) RolloutIsTheLoop(num_envs, threads, 500);
  }
}

TEST(Rollout, GoesOnWhereTheLastOneEnded) {
  const auto one = MakeCounting(20, 1, {}, InSameStep()), two = MakeCounting(20, 1, {}, InSameStep());
  Collected whole(*one, 12), half(*two, 6);
  whole.Collect(CountingPolicy());
  half.Collect(CountingPolicy());
  // a value behind the last step is that of the first of the next
  const std::vector<float> last_value = half.last_value;
  std::copy(half.obs.end() - 40, half.obs.end(), half.obs.begin());
  half.Collect(CountingPolicy());
  CHECK(std::equal(half.reward.begin(), half.reward.end(), whole.reward.begin() + 120));
  CHECK(std::equal(half.episode_return.begin(), half.episode_return.end(),
                   whole.episode_return.begin() + 120));
  CHECK(std::equal(last_value.begin(), last_value.end(), half.value.begin()));
  CHECK(half.last_value == whole.last_value);
}

TEST(Rollout, FinalObservationsAreKeptOnDemandAlone) {
  const auto pool = MakeCounting(4, 1, {}, InSameStep());
  CHECK(Collected(*pool, 9).Collect(CountingPolicy()).empty());
}

TEST(Rollout, APolicyWithoutAValueWritesZeros) {
  const auto pool = MakeCounting(17, 1, {}, InSameStep());
  Collected found(*pool, 6);
  found.Collect(PolicySaying(HeadKind::kCategorical, {{0, 1, 0}}));
  for (const auto* floats : {&found.value, &found.bootstrap, &found.last_value}) {
    for (const float value : *floats) CHECK_EQ(value, 0.0f);
  }
  CHECK_EQ(found.ActionAs<std::int64_t>(5), 1);
}

TEST(Rollout, ABoxIsKeptAsItWasChosenAndPlayedWithinItsBounds) {
  const auto pool = MakeCounting<units::BoxEnv>(18, 1, {}, InSameStep());
  Collected found(*pool, 3, 16);
  found.Collect(PolicySaying(HeadKind::kGaussian, {{-3.5f, 4}, {0}, {2}}));
  for (std::size_t i = 0; i < 54; ++i) {
    CHECK_EQ(found.ActionAs<double>(2 * i), -3.5);
    CHECK_EQ(found.ActionAs<double>(2 * i + 1), 4.0);
    CHECK_EQ(found.reward[i], -1 + 10 * 2.0f);  // clipped, each by its own bounds
    CHECK_EQ(found.value[i], 2.0f);
  }
}

TEST(Rollout, SeveralNumbersOfAnActionReachTheEnvironment) {
  const auto pool = MakeCounting<units::PairEnv>(18, 1, {}, InSameStep());
  Collected found(*pool, 3);
  NativePolicy policy = PolicySaying(HeadKind::kMultiCategorical, {{0, 0, 0, 1, 0, 5, 0}, {2}});
  policy.nvec = {4, 3};
  found.Collect(policy);
  for (std::size_t i = 0; i < 54; ++i) {
    CHECK_EQ(found.ActionAs<std::int32_t>(2 * i), 3);
    CHECK_EQ(found.ActionAs<std::int32_t>(2 * i + 1), 1);
    CHECK_EQ(found.reward[i], 13.0f);
  }
}

// Each value tells the step of the episode, over all rollouts; so do the kept states.
void StatesAreTheLoops(std::int32_t num_envs, std::int32_t num_threads, std::int32_t kept) {
  constexpr std::int32_t kSteps = 7;
  const auto pool = MakeCounting(num_envs, num_threads, {.step_cost_ns = 500}, InSameStep());
  Collected found(*pool, kSteps);
  const auto width = static_cast<std::size_t>(num_envs);
  std::vector<float> state(2 * width, -1), policy_state(2 * width * static_cast<std::size_t>(kept));
  std::vector<std::uint8_t> begins(width, 1);
  RolloutArrays arrays = found.Arrays();
  arrays.state = state.data(), arrays.begins = begins.data();
  arrays.policy_state = policy_state.data(), arrays.kept_states = kept;
  for (std::int32_t first = 0; first < 4 * kSteps; first += kSteps) {
    CollectInto(*pool, RememberingPolicy(), arrays);
    for (std::int32_t t = 0; t < kSteps; ++t) {
      for (std::size_t env = 0; env < width; ++env) {
        const std::int32_t length = std::min(5, CountingEnv::Length(static_cast<std::int32_t>(env)));
        const std::size_t i = static_cast<std::size_t>(t) * width + env;
        const auto step = static_cast<float>((first + t) % length);
        CHECK_EQ(found.value[i], 107 + step);
        if (t < kept) CHECK_EQ(policy_state[2 * i], 7 + step);
        // valued with what the episode that was cut off left
        if (found.bootstrap[i] != 0.0f) CHECK_EQ(found.bootstrap[i], 112.0f);
        CHECK_EQ(found.bootstrap[i] != 0.0f, found.truncated[i] > found.terminated[i]);
        const bool is_last = t + 1 == kSteps;
        const auto next = static_cast<float>((first + t + 1) % length);
        if (is_last) CHECK_EQ(found.last_value[env], 107 + next);
        if (is_last) CHECK_EQ(int{begins[env]}, int{next == 0.0f});
      }
    }
  }
}

TEST(Rollout, WhatIsRememberedGoesOnUntilTheEpisodeEnds) {
  for (const std::int32_t num_envs : {1, 16, 65, 130}) {
    for (const std::int32_t threads : {1, 3}) StatesAreTheLoops(num_envs, threads, 1);
  }
  StatesAreTheLoops(33, 2, 7);
}

template <typename Env>
void FailuresAreCutOff() {
  const auto pool = MakeCounting<Env>(3, 1, {.fails_at = 2}, InSameStep(OnEnvError::kReset));
  Collected found(*pool, 4);
  const std::vector<FinalObs> final_obs = found.Collect(CountingPolicy(), {.rules = {.keep_final_obs = true}, .poll = {}});
  for (std::size_t env = 0; env < 3; ++env) {
    const std::size_t i = 2 * 3 + env;  // the third step of each
    CHECK_EQ(int{found.truncated[i]} - found.terminated[i], 1);
    CHECK_EQ(found.reward[i] + found.bootstrap[i], 0.0f);
    // what it showed before it failed stands for what it would have shown
    float shown[2];
    std::memcpy(shown, final_obs[env].obs.data(), sizeof(shown));
    CHECK_EQ(shown[0], static_cast<float>(env));
    CHECK_EQ(shown[1], 2.0f);
    // and its row shows the episode that it began
    CHECK_EQ(found.obs[2 * (i + 3)], static_cast<float>(env));
    CHECK_EQ(found.obs[2 * (i + 3) + 1], 0.0f);
    CHECK_EQ(found.obs[2 * (i + 6) + 1], 1.0f);
  }
  CHECK_EQ(final_obs.size(), std::size_t{3});
}

TEST(Rollout, AnEnvironmentThatFailsIsCutOffWithoutAValue) {
  FailuresAreCutOff<units::CountingEnv>();
  FailuresAreCutOff<units::StartingEnv>();
}

TEST(Rollout, AFailureThatRaisesEndsItForAll) {
  const auto pool = MakeCounting(40, 1, {.fails_at = 0}, InSameStep());
  Collected found(*pool, 100);
  const std::string said = MessageOf<EnvError>([&] { found.Collect(CountingPolicy()); });
  CHECK(units::Contains(said, "it broke"));
  // the first chunk stopped after its step
  CHECK_EQ(found.value[40], -1.0f);
  CHECK_EQ(pool->num_in_flight(), 0);
}

TEST(Rollout, WhatIsNotFiniteIsNamedBeforeAnEnvironmentIsStepped) {
  const auto pool = MakeCounting(20, 1, {}, InSameStep());
  Collected found(*pool, 3);
  const std::string said = MessageOf<SpecError>(
      [&] { found.Collect(PolicySaying(HeadKind::kCategorical, {{0, 1, 0}, {-kInfinity}})); });
  CHECK(units::Contains(said, "the policy returned a value of -inf for env_id 1000, expected"));
  const float nan = std::nanf("");
  const std::string other = MessageOf<SpecError>(
      [&] { found.Collect(PolicySaying(HeadKind::kCategorical, {{nan, nan, nan}, {0}})); });
  CHECK(units::Contains(other, "the policy returned a log_prob of"));
  CHECK_EQ(found.reward[0], -1.0f);
  // the pool is as it was
  found.Collect(CountingPolicy());
  std::vector<std::int32_t> ends;
  CheckEnv(found, 19, ends);
}

TEST(Rollout, ArraysForOthersAreRefused) {
  const auto pool = MakeCounting(4, 1, {}, InSameStep());
  Collected found(*pool, 3);
  RolloutArrays arrays = found.Arrays();
  arrays.rows = 5;
  CHECK_EQ(MessageOf<SpecError>([&] { CollectInto(*pool, CountingPolicy(), arrays); }),
           "the arrays of the rollout are for 5 rows, expected 4");
}

TEST(Rollout, OtherAutoresetModesAreRefused) {
  for (const AutoresetMode mode : {AutoresetMode::kNextStep, AutoresetMode::kDisabled}) {
    PoolOptions options;
    options.rules.autoreset = mode;
    const auto pool = MakeCounting(2, 1, {}, options);
    Collected found(*pool, 3);
    const std::string said = MessageOf<SpecError>([&] { found.Collect(CountingPolicy()); });
    CHECK(units::Contains(said, "autoreset in the same step"));
  }
}

TEST(Rollout, APollThatThrowsEndsItAndIsRethrown) {
  const auto pool = MakeCounting(4, 1, {}, InSameStep());
  // long enough for a poll: it ends by what that throws
  Collected found(*pool, 1'000'000);
  struct Interrupted : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  int polls = 0;
  const CollectOptions options{.rules = {}, .poll = [&] {
    if (++polls == 2) throw Interrupted("ctrl-c");
  }};
  CHECK_EQ(MessageOf<Interrupted>([&] { found.Collect(CountingPolicy(), options); }), "ctrl-c");
  CHECK_EQ(polls, 2);
  CHECK_EQ(pool->num_in_flight(), 0);
}

}  // namespace
}  // namespace rollouts::policy
