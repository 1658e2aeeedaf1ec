// SPDX-License-Identifier: Apache-2.0
// Scenarios of pool_stress.cpp in which the pool's threads collect rollouts with a policy.
#include <array>
#include <mutex>

#include "pool_stress.h"
#include "rollouts/policy/rollout.h"

namespace rollouts {
namespace {

// A rollout's arrays, and a policy of one hidden layer, which it remembers, for them.
struct World {
  World(CpuPool& given, std::int32_t num_steps) : pool(given), steps(num_steps) {
    const auto cells = static_cast<std::size_t>(steps) * envs();
    obs.resize((cells + envs()) * 4);
    action.resize(cells);
    for (auto* floats : {&log_prob, &value, &reward, &bootstrap, &advantage, &target}) {
      floats->resize(cells);
    }
    terminated.resize(cells);
    truncated.resize(cells);
    episode_return.resize(cells);
    episode_length.resize(cells);
    last_value.resize(envs());
    state.resize(9 * envs());
    policy_state.resize(9 * cells);
    begins.resize(envs(), 1);
    digest.resize(envs());
    largest_reward.resize(envs());
    is_obs_finite.resize(envs());
    action_bytes.resize(cells);
    num_chosen.resize(envs());
    SetWeights(0.1f);
  }

  std::size_t envs() const { return static_cast<std::size_t>(pool.options().num_envs); }

  void SetWeights(float scale) {
    policy::Program program{
        .obs_size = 4,
        .ops = {{.kind = policy::OpKind::kLinear, .inputs = {0}, .params = {0, 1}, .numbers = {}, .size = 9},
                {.kind = policy::OpKind::kTanh, .inputs = {1}, .params = {}, .numbers = {}, .size = 9},
                {.kind = policy::OpKind::kLinear, .inputs = {2}, .params = {2}, .numbers = {}, .size = 2},
                {.kind = policy::OpKind::kLinear, .inputs = {2}, .params = {3}, .numbers = {}, .size = 1}},
        .params = {{"w", 117}, {"b", 9}, {"logits", 18}, {"value", 9}},
        .outputs = {3, 4, 2},
        .states = {9}};
    std::vector<std::vector<float>> arrays;
    std::vector<std::span<const float>> spans;
    for (const policy::Param& param : program.params) {
      std::vector<float>& array = arrays.emplace_back(static_cast<std::size_t>(param.size));
      for (std::size_t i = 0; i < array.size(); ++i) array[i] = scale * static_cast<float>(i % 5) - 0.2f;
    }
    for (const auto& array : arrays) spans.emplace_back(array);
    const auto network = std::make_shared<const policy::Network>(program);
    auto made = std::make_shared<const policy::NativePolicy>(
        policy::NativePolicy{network, network->Pack(spans), {}, std::vector<float>(9, 0.5f)});
    const std::lock_guard lock(mutex);
    current = std::move(made);
  }

  std::shared_ptr<const policy::NativePolicy> Policy() const {
    const std::lock_guard lock(mutex);
    return current;
  }

  std::vector<policy::FinalObs> Collect(std::function<void()> poll = {}) {
    const policy::RolloutArrays arrays{
        .steps = steps,
        .rows = pool.options().num_envs,
        .obs = reinterpret_cast<std::uint8_t*>(obs.data()),
        .action = reinterpret_cast<std::uint8_t*>(action.data()),
        .log_prob = log_prob.data(),
        .value = value.data(),
        .reward = reward.data(),
        .terminated = terminated.data(),
        .truncated = truncated.data(),
        .bootstrap_value = bootstrap.data(),
        .episode_return = episode_return.data(),
        .episode_length = episode_length.data(),
        .last_value = last_value.data(),
        .advantage = advantage.data(),
        .target = target.data(),
        .digests = {.digest = digest.data(),
                    .largest_reward = largest_reward.data(),
                    .is_obs_finite = is_obs_finite.data()},
        .action_bytes = action_bytes.data(),
        .num_chosen = num_chosen.data(),
        .state = state.data(),
        .begins = begins.data(),
        .policy_state = policy_state.data(),
        .kept_states = steps};
    // the policy may be replaced while this goes on with its own
    const auto policy = Policy();
    const std::array parts{policy::PolicyRollout{*policy, arrays}};
    const policy::CollectOptions options{
        .rules = {.keep_final_obs = true,
                  .returns = {.gamma = 0.99, .gae_lambda = 0.95, .n = num_steps_of_returns}},
        .poll = std::move(poll),
        .finisher = finisher};
    return policy::Collect(pool, parts, options)[0];
  }

  // Writes the first row of observations, as a reset shows them.
  void Reset() {
    SendReset(pool);
    const Received received = pool.Recv(Later());
    std::memcpy(obs.data(), received.buffer->view().obs, envs() * 4 * sizeof(float));
    pool.Release(received.buffer.get());
  }

  CpuPool& pool;
  std::int32_t steps;
  BatchFinisher* finisher = nullptr;  // called for each step
  std::int64_t num_steps_of_returns = 0;
  mutable std::mutex mutex;                             // as the interpreter's lock is for Python
  std::shared_ptr<const policy::NativePolicy> current;  // guarded by mutex
  std::vector<float> advantage, target, obs, log_prob, value, reward, bootstrap, last_value, state, policy_state;
  std::vector<float> largest_reward;
  std::vector<std::uint64_t> digest;
  std::vector<std::int64_t> action;
  std::vector<std::uint8_t> terminated, truncated, begins, is_obs_finite, action_bytes;
  std::vector<double> episode_return;
  std::vector<std::int32_t> episode_length, num_chosen;
};

// Several threads write what one alone does, whatever they steal from each other.
void RolloutsEqualThoseOfOneThread() {
  const auto one_thread = MakeCartPoles(MakeOptions(150, 150, 1));
  const auto many = MakeCartPoles(MakeOptions(150, 150, 4));
  World expected(*one_thread, 40), found(*many, 40);
  expected.Reset();
  found.Reset();
  for (int rollout = 0; rollout < 30; ++rollout) {
    const auto final_obs = expected.Collect();
    CHECK(found.Collect().size() == final_obs.size());
    CHECK(found.obs == expected.obs && found.action == expected.action);
    CHECK(found.log_prob == expected.log_prob && found.bootstrap == expected.bootstrap);
    CHECK(found.episode_return == expected.episode_return);
    CHECK(found.advantage == expected.advantage && found.target == expected.target);
    CHECK(found.digest == expected.digest && found.largest_reward == expected.largest_reward);
    CHECK(found.is_obs_finite == std::vector<std::uint8_t>(150, 1));
    CHECK(std::equal(found.action.begin(), found.action.end(), found.action_bytes.begin(),
                     found.action_bytes.end()));
    CHECK(found.num_chosen == std::vector<std::int32_t>(150, 40));
    found.num_steps_of_returns = expected.num_steps_of_returns = rollout % 4;
    for (World* world : {&expected, &found}) {
      std::copy(world->obs.end() - 600, world->obs.end(), world->obs.begin());
    }
  }
}

// Scales rewards and observations by how many rows have been counted.
class RowCounter final : public BatchFinisher {
 public:
  void Count(const BatchView&, std::int64_t, std::int32_t count, std::span<const Command>) override {
    rows_ += count;
  }
  void Scale(const BatchView& view, std::int64_t first, std::int32_t count) const override {
    const auto factor = 1 + 1e-3 * static_cast<double>(rows_ % 512);
    for (std::int64_t row = first; row < first + count; ++row) {
      view.reward[row] *= factor;
      for (int i = 0; i < 4; ++i) view.ObsRow<float>(row)[i] *= static_cast<float>(factor);
    }
  }
  std::int64_t rows() const { return rows_; }

 private:
  std::int64_t rows_ = 0;
};

// The same where all wait for each step, which one thread counts.
void CountedRolloutsEqualThoseOfOneThread() {
  const auto one_thread = MakeCartPoles(MakeOptions(150, 150, 1));
  const auto many = MakeCartPoles(MakeOptions(150, 150, 4));
  World expected(*one_thread, 40), found(*many, 40);
  RowCounter alone, together;
  expected.finisher = &alone;
  found.finisher = &together;
  expected.Reset();
  found.Reset();
  for (int rollout = 0; rollout < 30; ++rollout) {
    CHECK(found.Collect().size() == expected.Collect().size());
    CHECK(found.obs == expected.obs && found.reward == expected.reward);
    CHECK(found.action == expected.action && found.advantage == expected.advantage);
    CHECK(found.policy_state == expected.policy_state && found.state == expected.state);
    CHECK(found.digest == expected.digest);
    CHECK(together.rows() == (rollout + 1) * 40 * 150 && alone.rows() == together.rows());
    for (World* world : {&expected, &found}) {
      std::copy(world->obs.end() - 600, world->obs.end(), world->obs.begin());
    }
  }
}

// Calls that need environments at rest are refused meanwhile; those that do not are answered.
void RolloutsBesideOtherCalls() {
  const auto pool = MakeCartPoles(MakeOptions(64, 64, 3));
  World world(*pool, 100);
  world.Reset();
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  const auto until_stopped = [&](const std::function<void()>& body) {
    others.emplace_back([&stop, body] {
      while (!stop) {
        try {
          body();
        } catch (const ProtocolError&) {
        }
      }
    });
  };
  until_stopped([&] { CHECK(pool->stats().env_steps >= 0 && pool->num_in_flight() <= 64); });
  until_stopped([&] { pool->Seed(5, 1); });
  until_stopped([&] { CHECK(!pool->SaveState(3).empty()); });
  for (int rollout = 0; rollout < 200; ++rollout) {
    world.Collect();
    // new weights hold from the next rollout
    world.SetWeights(0.01f * static_cast<float>(rollout % 7));
  }
  stop = true;
  for (std::thread& other : others) other.join();
}

// A learner that publishes as fast as it can: each rollout is of one policy, from its first row on.
void WeightsChangeWhileCollecting() {
  const auto pool = MakeCartPoles(MakeOptions(64, 64, 3));
  World world(*pool, 60);
  world.Reset();
  std::atomic<bool> stop{false};
  std::thread learner([&] {
    for (int update = 0; !stop; ++update) world.SetWeights(0.01f * static_cast<float>(update % 9));
  });
  for (int rollout = 0; rollout < 150; ++rollout) world.Collect();
  stop = true;
  learner.join();
}

// A rollout that a thread of its own collects, as where the caller gave up waiting: the caller asks
// it to end at its next poll, starts another, reads what goes on, and closes the pool under the last.
void RolloutsThatNobodyWaitsFor() {
  struct Dropped {};
  for (int round = 0; round < 20; ++round) {
    const auto pool = MakeCartPoles(MakeOptions(64, 64, 1 + round % 4));
    // seconds long; memory for more would take longer than all else
    World world(*pool, 5'000);
    for (int rollout = 0; rollout < 3; ++rollout) {
      world.Reset();
      std::atomic<bool> drop{false};
      std::latch begun(1);
      std::thread collector([&] {
        begun.count_down();
        try {
          world.Collect([&] {
            if (drop) throw Dropped();
          });
        } catch (const Dropped&) {
        } catch (const ClosedError&) {
          CHECK(rollout == 2);
        }
      });
      begun.wait();
      CHECK(pool->stats().env_steps >= 0);
      world.SetWeights(0.1f);
      drop = rollout < 2;
      if (rollout == 2) pool->Close();
      collector.join();
    }
  }
}

void CloseWhileCollecting() {
  for (int round = 0; round < 30; ++round) {
    const auto pool = MakeCartPoles(MakeOptions(64, 64, 1 + round % 4));
    World world(*pool, 5'000);
    world.Reset();
    std::latch collecting(1);
    std::thread collector([&] {
      collecting.count_down();
      UntilClosed([&] { world.Collect(); });
    });
    collecting.wait();
    pool->Close();
    collector.join();
  }
}

// Engines that fail end the rollout, or their row alone; what is thrown is not lost.
void FailuresWhileCollecting() {
  SetGate(true);
  for (const OnEnvError rule : {OnEnvError::kRaise, OnEnvError::kReset}) {
    PoolOptions options = MakeOptions(40, 40, 3);
    options.on_env_error = rule;
    const auto pool = MakeGates(options, /*throws=*/true);
    World world(*pool, 20);
    int thrown = 0;
    for (int rollout = 0; rollout < 100; ++rollout) {
      try {
        world.Reset();
        world.Collect();
      } catch (const EnvError&) {
        CHECK(pool->Drain(Later()));
        ++thrown;
      }
    }
    CHECK((thrown > 0) == (rule == OnEnvError::kRaise));
    CHECK(pool->stats().env_errors > 0);
  }
}

// An exception of the caller's thread, such as Ctrl-C, ends the rollout of all threads.
void PollsThatThrowEndRollouts() {
  struct Interrupt {};
  for (int round = 0; round < 10; ++round) {
    const auto pool = MakeCartPoles(MakeOptions(64, 64, 1 + round % 3));
    World world(*pool, 20'000);
    world.Reset();
    bool ended = false;
    try {
      while (true) world.Collect([] { throw Interrupt(); });
    } catch (const Interrupt&) {
      ended = true;
    }
    CHECK(ended && pool->num_in_flight() == 0);
  }
}

}  // namespace

Scenarios RolloutScenarios() {
  return {
      {"close_while_collecting", CloseWhileCollecting},
      {"counted_rollouts_equal_those_of_one_thread", CountedRolloutsEqualThoseOfOneThread},
      {"failures_while_collecting", FailuresWhileCollecting},
      {"polls_that_throw_end_rollouts", PollsThatThrowEndRollouts},
      {"rollouts_beside_other_calls", RolloutsBesideOtherCalls},
      {"rollouts_equal_those_of_one_thread", RolloutsEqualThoseOfOneThread},
      {"rollouts_that_nobody_waits_for", RolloutsThatNobodyWaitsFor},
      {"weights_change_while_collecting", WeightsChangeWhileCollecting},
  };
}

}  // namespace rollouts
