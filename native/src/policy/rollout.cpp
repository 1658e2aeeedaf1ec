// SPDX-License-Identifier: Apache-2.0
#include "rollouts/policy/rollout.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "policy/rollout_part.h"
#include "rollouts/core/multi_agent.h"
#include "rollouts/support/errors.h"

namespace rollouts::policy {
namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(50);
// Light environments are stepped in blocks of 64. Engines are stepped in small chunks, so that
// threads find work to take over when one is late.
constexpr std::int32_t kLightChunk = 64;
constexpr std::int32_t kHeavyChunk = 16;
constexpr std::int32_t kHeavyNs = 2'000;
// The cost below which the caller makes a rollout alone, because waking threads costs more.
constexpr std::int64_t kAloneNs = 30'000;

// The number of environments in a chunk: not more than a thread's share, in whole groups of
// columns, so that 64 environments are work for two threads. Worlds of agents form whole groups by
// themselves.
std::int32_t ChunkOf(const EnvSpec& spec, std::int32_t num_envs, std::int32_t num_threads) {
  const std::int32_t share = (num_envs + num_threads - 1) / num_threads;
  if (spec.num_groups > 0) return std::min(kHeavyChunk, share);
  if (spec.step_cost_ns >= kHeavyNs) return kHeavyChunk;
  return std::min(kLightChunk, (share + kColumns - 1) / kColumns * kColumns);
}

// The rough cost of a rollout on one thread: a core computes some 16 products of a network in a
// nanosecond.
std::int64_t CostNs(const EnvSpec& spec, std::int32_t num_envs,
                    std::span<const PolicyRollout> parts) {
  std::int64_t of_step = std::int64_t{num_envs} * spec.step_cost_ns;
  for (const PolicyRollout& part : parts) {
    std::int64_t products = 0;
    for (const Instruction& step : part.policy.network->instructions()) {
      products += std::int64_t{step.size} * std::max(step.a_size, 1);
    }
    of_step += (part.arrays.rows + kColumns - 1) / kColumns * products;
  }
  return parts[0].arrays.steps * of_step;
}

std::int32_t MaskInfoOf(const EnvSpec& spec) {
  for (std::int32_t i = 0; i < spec.num_infos; ++i) {
    if (std::strcmp(spec.infos[i].name, "action_mask") == 0) return i;
  }
  return -1;
}

// Throws where infos do not have the action mask that a policy needs.
void CheckMasks(const EnvSpec& spec, const NativePolicy& policy) {
  const std::int32_t info = MaskInfoOf(spec);
  if (info < 0 || spec.num_groups > 0) {
    throw SpecError("the environments' infos have no action_mask, by which actions would be masked");
  }
  if (policy.head.kind != HeadKind::kCategorical &&
      policy.head.kind != HeadKind::kMultiCategorical) {
    throw SpecError("actions of a categorical or a multi_categorical head can be masked alone");
  }
  const std::int32_t size = policy.network->output_size(0);
  if (spec.infos[info].dtype != DType::kInt8 || spec.infos[info].size() != size) {
    throw SpecError("the environments' action_mask has " + std::to_string(spec.infos[info].size()) +
                    " values, expected int8 and one for each of the policy's " +
                    std::to_string(size) + " logits");
  }
}

// Throws where a policy, or the arrays that it writes, do not fit these rows.
void CheckPart(const PolicyRollout& part, std::int32_t steps, std::int64_t rows,
               const SpaceSpec& observation, const SpaceSpec& action) {
  const RolloutArrays& arrays = part.arrays;
  if (arrays.rows != rows || arrays.steps < 1) {
    throw SpecError("the arrays of the rollout are for " + std::to_string(arrays.rows) +
                    " rows, expected " + std::to_string(rows));
  }
  if (arrays.steps != steps) {
    throw SpecError("the arrays of the rollout are for " + std::to_string(arrays.steps) +
                    " steps, expected " + std::to_string(steps) + " as of the first group");
  }
  part.policy.CheckFits(observation, action);
}

void CheckParts(const EnvSpec& spec, std::int32_t num_envs, std::span<const PolicyRollout> parts) {
  const auto num_parts = static_cast<std::size_t>(std::max(spec.num_groups, 1));
  if (parts.size() != num_parts) {
    throw SpecError(std::to_string(parts.size()) + " policies collect, expected " +
                    std::to_string(num_parts) + ": one for each group of agents");
  }
  const std::int32_t steps = parts[0].arrays.steps;
  if (spec.num_groups == 0) {
    CheckPart(parts[0], steps, num_envs, spec.observation, spec.action);
    if (parts[0].arrays.action_mask) CheckMasks(spec, parts[0].policy);
    return;
  }
  for (std::size_t g = 0; g < num_parts; ++g) {
    const GroupSpec& group = spec.groups[g];
    try {
      CheckPart(parts[g], steps, std::int64_t{num_envs} * group.num_agents, group.observation,
                group.action);
    } catch (const SpecError& error) {
      throw SpecError("group '" + std::string(group.name) + "': " + error.what());
    }
  }
}

}  // namespace

Rollout::Rollout(const EnvSpec& spec, std::span<const PolicyRollout> parts, Settings settings)
    : spec_(spec),
      mask_info_(MaskInfoOf(spec)),
      settings_(std::move(settings)),
      kernels_(BestKernels()),
      thread_(std::this_thread::get_id()),
      next_poll_(Clock::now() + kPollEvery),
      outcome_(settings_.finisher ? std::make_unique<Outcome>(spec, settings_.num_envs) : nullptr),
      final_obs_(parts.size()) {
  Rows next;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    next.policy = &parts[i].policy;
    next.arrays = parts[i].arrays;
    next.observation = &spec.observation;
    next.action = &spec.action;
    if (spec.num_groups > 0) {
      const GroupSpec& group = spec.groups[i];
      next.group = &group;
      next.observation = &group.observation;
      next.action = &group.action;
      next.num_agents = group.num_agents;
      next.all_agents = NumAgents(spec);
      next.agent_action_bytes = ActionBytes(group.action);
    }
    rows_.push_back(next);
    next.first_agent += next.num_agents;
    next.first_action += next.agent_action_bytes * next.num_agents;
  }
}

Rollout::~Rollout() = default;

std::int64_t Rollout::Run(EnvBatch& envs, const Work& work, std::uint8_t* actions,
                          EnvRange range) {
  try {
    const std::int32_t chunk = settings_.chunk;
    const std::int32_t end = range.first + range.count;
    std::unique_ptr<Part> part = TakePart();
    std::unique_ptr<Outcome> own;
    if (!outcome_) own = std::make_unique<Outcome>(spec_, chunk);
    std::int64_t steps = 0;
    for (std::int32_t first = range.first; first < end; first += chunk) {
      const EnvRange some{first, std::min(chunk, end - first)};
      steps += own ? part->Run(envs, work, actions, some, *own)
                   : part->Advance(t_, envs, work, actions, some, *outcome_, *settings_.finisher);
    }
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(part));
    return steps;
  } catch (...) {
    // stored, because nobody could catch it on a thread of the pool
    Fail(std::current_exception());
    return 0;
  }
}

// Takes a part that an earlier step has left, because its memory is large enough, or makes one.
std::unique_ptr<Rollout::Part> Rollout::TakePart() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Part> part = std::move(idle_.back());
      idle_.pop_back();
      return part;
    }
  }
  return std::make_unique<Part>(*this);
}

bool Rollout::Next(std::span<const Command> commands) {
  const RolloutArrays& arrays = rows_[0].arrays;
  if (stopped() || t_ == arrays.steps) return false;
  ++t_;
  BatchView view = outcome_->rows.view();
  view.obs = arrays.obs + std::int64_t{t_} * arrays.rows * view.obs_bytes;
  settings_.finisher->Count(view, 0, arrays.rows, commands);
  return true;
}

// Polls if it is time. Only one thread polls, and seldom, because it may wait for the GIL. It
// checks the time, because a claim may take less than the interval.
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
    // only the first error is kept, because others most often follow from it
    if (!error_) error_ = std::move(error);
  }
  Stop();
}

void Rollout::ThrowIfFailed() const {
  if (error_) std::rethrow_exception(error_);
}

// Keeps a final observation. One list for all threads is enough, because ends are rare.
void Rollout::KeepFinal(std::size_t part, std::int32_t t, std::int32_t row,
                        std::span<const std::uint8_t> obs) {
  const std::lock_guard lock(mutex_);
  final_obs_[part].push_back({t, row, {obs.begin(), obs.end()}});
}

std::vector<std::vector<FinalObs>> Rollout::TakeFinalObs() {
  // sorted, because threads find them in any order
  for (std::vector<FinalObs>& kept : final_obs_) {
    std::sort(kept.begin(), kept.end(), [](const FinalObs& a, const FinalObs& b) {
      return std::pair(a.t, a.row) < std::pair(b.t, b.row);
    });
  }
  return std::move(final_obs_);
}

void CheckCollects(const CpuPool& pool) {
  if (pool.options().rules.autoreset != AutoresetMode::kSameStep) {
    throw SpecError("rollouts are collected from pools that autoreset in the same step: call "
                    "make_vec(..., autoreset_mode=\"same_step\")");
  }
}

std::vector<std::vector<FinalObs>> Collect(CpuPool& pool, std::span<const PolicyRollout> parts,
                                           const CollectOptions& options) {
  const PoolOptions& settings = pool.options();
  const EnvSpec& spec = pool.spec();
  CheckCollects(pool);
  CheckParts(spec, settings.num_envs, parts);
  BatchFinisher* const own = pool.Finisher();
  if (options.finisher && (own || spec.num_groups > 0)) {
    throw SpecError("the pool updates statistics of its own, or has several agents: nothing else "
                    "can count its steps");
  }
  BatchFinisher* const finisher = own ? own : options.finisher;
  const std::int32_t chunk = ChunkOf(spec, settings.num_envs, settings.num_threads);
  // with a finisher, work is shared out step by step
  const std::int64_t shared_ns = CostNs(spec, settings.num_envs, parts) /
                                 (finisher ? parts[0].arrays.steps : 1);
  Rollout rollout(spec, parts,
                  {.chunk = chunk,
                   .env_id_offset = settings.env_id_offset,
                   .rules = options.rules,
                   .poll =
                       [&] {
                         if (pool.closed()) {
                           throw ClosedError("the pool was closed while it collected");
                         }
                         if (options.poll) options.poll();
                       },
                   .fail = [&](std::int32_t env,
                               const std::string& message) { pool.AddFailure(env, message); },
                   .stop_at_failure = settings.on_env_error == OnEnvError::kRaise,
                   .finisher = finisher,
                   .num_envs = settings.num_envs});
  std::function<bool(std::span<const Command>)> again;
  if (finisher) again = [&](std::span<const Command> commands) { return rollout.Next(commands); };
  pool.ForAllEnvs(
      [&](EnvBatch& envs, const Work& work, std::uint8_t* actions, EnvRange range) {
        return rollout.Run(envs, work, actions, range);
      },
      {.chunk = chunk,
       .alone = shared_ns < kAloneNs,
       .poll = [&] { rollout.Poll(); },
       .again = again,
       .finisher = own});
  rollout.ThrowIfFailed();
  return rollout.TakeFinalObs();
}

}  // namespace rollouts::policy
