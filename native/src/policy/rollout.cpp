// SPDX-License-Identifier: Apache-2.0
#include "rollouts/policy/rollout.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "policy/rollout_part.h"
#include "rollouts/support/errors.h"

namespace rollouts::policy {
namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(50);
// Light environments are stepped in blocks of 64; engines in few, so that threads find work to
// share when one is late.
constexpr std::int32_t kLightChunk = 64;
constexpr std::int32_t kHeavyChunk = 16;
constexpr std::int32_t kHeavyNs = 2'000;
// A rollout cheaper than this is the caller's own: waking threads costs more.
constexpr std::int64_t kAloneNs = 30'000;

// No larger than a thread's share, in whole groups of columns: 64 environments are work for two.
std::int32_t ChunkOf(const EnvSpec& spec, std::int32_t num_envs, std::int32_t num_threads) {
  if (spec.step_cost_ns >= kHeavyNs) return kHeavyChunk;
  const std::int32_t share = (num_envs + num_threads - 1) / num_threads;
  return std::min(kLightChunk, (share + kColumns - 1) / kColumns * kColumns);
}

// What a rollout takes on one thread, roughly: a core makes some 16 products of a network in a
// nanosecond.
std::int64_t CostNs(const EnvSpec& spec, const NativePolicy& policy, const RolloutArrays& arrays) {
  std::int64_t products = 0;
  for (const Instruction& step : policy.network->instructions()) {
    products += std::int64_t{step.size} * std::max(step.a_size, 1);
  }
  const std::int64_t groups = (arrays.envs + kColumns - 1) / kColumns;
  return arrays.steps * (groups * products + std::int64_t{arrays.envs} * spec.step_cost_ns);
}

}  // namespace

Rollout::Rollout(const EnvSpec& spec, const NativePolicy& policy, const RolloutArrays& arrays,
                 Settings settings)
    : spec_(spec),
      policy_(policy),
      arrays_(arrays),
      settings_(std::move(settings)),
      kernels_(BestKernels()),
      thread_(std::this_thread::get_id()),
      next_poll_(Clock::now() + kPollEvery) {}

std::int64_t Rollout::Run(EnvBatch& envs, const Work& work, std::uint8_t* actions,
                          EnvRange range) {
  try {
    Part part(*this);
    std::int64_t steps = 0;
    const std::int32_t chunk = settings_.chunk;
    const std::int32_t end = range.first + range.count;
    for (std::int32_t first = range.first; first < end; first += chunk) {
      steps += part.Run(envs, work, actions, {first, std::min(chunk, end - first)});
    }
    return steps;
  } catch (...) {
    // on a thread of the pool there is nobody to catch it
    Fail(std::current_exception());
    return 0;
  }
}

// One thread alone polls, and seldom: it may wait for the GIL. Its claims may be shorter than that.
bool Rollout::PollIfDue() {
  if (thread_ == std::this_thread::get_id() && Clock::now() >= next_poll_) {
    Poll();
    next_poll_ = Clock::now() + kPollEvery;
  }
  return stopped();
}

void Rollout::Poll() {
  if (!stopped() && settings_.poll) {
    try {
      settings_.poll();
    } catch (...) {
      Fail(std::current_exception());
    }
  }
}

void Rollout::Fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    // others most often follow from the first
    if (!error_) error_ = std::move(error);
  }
  Stop();
}

void Rollout::ThrowIfFailed() const {
  if (error_) std::rethrow_exception(error_);
}

void CheckCollects(const CpuPool& pool) {
  if (pool.options().rules.autoreset != AutoresetMode::kSameStep) {
    throw SpecError("rollouts are collected from pools that autoreset in the same step: call "
                    "make_vec(..., autoreset_mode=\"same_step\")");
  }
}

std::vector<FinalObs> Collect(CpuPool& pool, const NativePolicy& policy,
                              const RolloutArrays& arrays, const CollectOptions& options) {
  const PoolOptions& settings = pool.options();
  CheckCollects(pool);
  if (arrays.envs != settings.num_envs || arrays.steps < 1) {
    throw SpecError("the arrays of the rollout are for " + std::to_string(arrays.envs) +
                    " environments, expected " + std::to_string(settings.num_envs));
  }
  policy.CheckFits(pool.spec());
  const std::int32_t chunk = ChunkOf(pool.spec(), settings.num_envs, settings.num_threads);
  Rollout rollout(pool.spec(), policy, arrays,
                  {.chunk = chunk,
                   .env_id_offset = settings.env_id_offset,
                   .keep_final_obs = options.keep_final_obs,
                   .poll =
                       [&] {
                         if (pool.closed()) {
                           throw ClosedError("the pool was closed while it collected");
                         }
                         if (options.poll) options.poll();
                       },
                   .fail = [&](std::int32_t env,
                               const std::string& message) { pool.AddFailure(env, message); },
                   .stop_at_failure = settings.on_env_error == OnEnvError::kRaise});
  pool.ForAllEnvs(
      [&](EnvBatch& envs, const Work& work, std::uint8_t* actions, EnvRange range) {
        return rollout.Run(envs, work, actions, range);
      },
      {.chunk = chunk,
       .alone = CostNs(pool.spec(), policy, arrays) < kAloneNs,
       .poll = [&] { rollout.Poll(); }});
  rollout.ThrowIfFailed();
  auto& kept = rollout.final_obs();
  // threads find them in any order
  std::sort(kept.begin(), kept.end(), [](const FinalObs& a, const FinalObs& b) {
    return std::pair(a.t, a.env) < std::pair(b.t, b.env);
  });
  return std::move(kept);
}

}  // namespace rollouts::policy
