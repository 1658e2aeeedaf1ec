// SPDX-License-Identifier: Apache-2.0
#include "rollouts/policy/rollout.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "policy/columns.h"
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

// What one thread needs to take some environments through a rollout.
class Rollout::Part final : private RowSource {
 public:
  explicit Part(Rollout& rollout)
      : rollout_(rollout),
        spec_(rollout.spec_),
        policy_(rollout.policy_),
        arrays_(rollout.arrays_),
        obs_bytes_(spec_.observation.bytes()),
        box_size_(IsDiscrete(policy_.head.kind) ? 1 : spec_.action.size()),
        outcome_(spec_, {.rows = rollout.settings_.chunk, .with_final_obs = true, .out_of_order = false}),
        rows_(std::int64_t{policy_.network->num_rows()} * kColumns),
        box_(std::int64_t{policy_.network->output_size(0)} * kColumns),
        failed_(static_cast<std::size_t>(rollout.settings_.chunk), 0) {
    outputs_.with_entropy = false;
    outputs_.box = box_.data();
  }

  std::int64_t Run(EnvBatch& envs, const Work& work, std::uint8_t* actions, EnvRange range) {
    envs_ = &envs;
    range_ = range;
    // neighbours: their rows of every array lie together
    ids_.resize(static_cast<std::size_t>(range.count));
    std::iota(ids_.begin(), ids_.end(), range.first);
    std::int64_t steps = 0;
    for (std::int32_t t = 0; t < arrays_.steps; ++t) {
      if (rollout_.PollIfDue()) return steps;
      Choose(t, actions + range.first * work.action_bytes, work.action_bytes);
      Step(t, work);
      steps += range.count;
    }
    ValueLast();
    return steps;
  }

 private:
  // Rows of `outcome_` in the order of the environments, as they are stepped in order.
  RowSource::Rows Take(std::int32_t count) override {
    const RowSource::Rows rows{view_, taken_, count, nullptr};
    taken_ += count;
    return rows;
  }
  void Finish(const RowSource::Rows&) override {}
  void Fail(std::int32_t env, const std::string& message) override {
    failed_[static_cast<std::size_t>(env - range_.first)] = 1;
    rollout_.settings_.fail(env, message);
    // the pool raises: nobody gets the rest of the rollout
    if (rollout_.settings_.stop_at_failure) rollout_.Stop();
  }

  // The place of row t of this part's first environment in arrays (T, B).
  std::int64_t At(std::int32_t t) const {
    return std::int64_t{t} * arrays_.envs + range_.first;
  }
  std::uint8_t* ObsAt(std::int32_t t) const { return arrays_.obs + At(t) * obs_bytes_; }

  // Runs the network on rows of observations, at most one group.
  void Forward(const std::uint8_t* obs, std::int32_t count) {
    Gather(spec_.observation, obs, count, rows_.data());
    const auto steps = policy_.network->instructions();
    rollout_.kernels_.forward(steps.data(), static_cast<std::int32_t>(steps.size()),
                              policy_.params.data(), rows_.data());
  }

  // The values that Forward computed.
  void TakeValues(std::int32_t count, float* to) {
    if (!policy_.has_value()) {
      std::fill_n(to, count, 0.0f);
      return;
    }
    const float* value =
        OutputRows(*policy_.network, NumHeadInputs(policy_.head.kind), rows_.data());
    for (std::int32_t i = 0; i < count; ++i) to[i] = value[i];
  }

  // Chooses the actions of step t: writes them to the rollout, and to the pool's rows.
  void Choose(std::int32_t t, std::uint8_t* actions, std::int64_t action_bytes) {
    for (std::int32_t first = 0; first < range_.count; first += kColumns) {
      const std::int32_t count = std::min(kColumns, range_.count - first);
      Forward(ObsAt(t) + first * obs_bytes_, count);
      // by episode and step, so that neither threads nor chunks change an action
      NoiseKeys keys;
      for (std::int32_t i = 0; i < count; ++i) {
        const EpisodeClock& clock = envs_->clock(range_.first + first + i);
        keys.env_id[i] = clock.env_id;
        keys.episode[i] = clock.next_episode - 1;
        keys.step[i] = static_cast<std::uint32_t>(clock.elapsed_steps);
      }
      rollout_.kernels_.act(policy_.head, HeadInputsOf(policy_, rows_.data()), keys, outputs_);
      const std::int64_t at = At(t) + first;
      TakeValues(count, arrays_.value + at);
      // before anything is written that an environment would be stepped with
      CheckFinite(count, arrays_.value + at, range_.first + first);
      std::copy_n(outputs_.log_prob, count, arrays_.log_prob + at);
      if (arrays_.inputs) TakeInputs(count, at);
      WriteActions(count, at, actions + first * action_bytes, action_bytes);
    }
  }

  // What the head read: logits, or mean and log_std, one after the other.
  void TakeInputs(std::int32_t count, std::int64_t at) {
    const HeadInputs inputs = HeadInputsOf(policy_, rows_.data());
    float* to = arrays_.inputs + at * (inputs.size + inputs.second_size);
    for (std::int32_t i = 0; i < count; ++i) {
      for (std::int32_t k = 0; k < inputs.size; ++k) *to++ = inputs.first[k * kColumns + i];
      for (std::int32_t k = 0; k < inputs.second_size; ++k) *to++ = inputs.second[k * kColumns + i];
    }
  }

  // Throws before an environment is stepped with what came of nan.
  void CheckFinite(std::int32_t count, const float* value, std::int32_t first_env) const {
    for (std::int32_t i = 0; i < count; ++i) {
      const bool good = std::isfinite(value[i]) && std::isfinite(outputs_.log_prob[i]);
      if (good) [[likely]] continue;
      const bool is_value = !std::isfinite(value[i]);
      const float seen = is_value ? value[i] : outputs_.log_prob[i];
      throw SpecError(std::string("the policy returned a ") + (is_value ? "value" : "log_prob") +
                      " of " + std::to_string(seen) + " for env_id " +
                      std::to_string(first_env + i + rollout_.settings_.env_id_offset) +
                      ", expected a finite number: look at its weights and at the observation");
    }
  }

  void WriteActions(std::int32_t count, std::int64_t at, std::uint8_t* actions,
                    std::int64_t action_bytes) const {
    if (IsDiscrete(policy_.head.kind)) {
      auto* chosen = reinterpret_cast<std::int64_t*>(arrays_.action) + at;
      // int64 as Python has actions, int32 as environments take them
      for (std::int32_t i = 0; i < count; ++i) {
        chosen[i] = outputs_.index[i];
        std::memcpy(actions + i * action_bytes, &outputs_.index[i], sizeof(std::int32_t));
      }
    } else if (spec_.action.dtype == DType::kFloat32) {
      WriteBox<float>(count, at, actions);
    } else {
      WriteBox<double>(count, at, actions);
    }
  }

  // As sampled to the rollout, clipped to the bounds of the space to the pool.
  template <typename Real>
  void WriteBox(std::int32_t count, std::int64_t at, std::uint8_t* actions) const {
    const SpaceSpec& space = spec_.action;
    auto* sampled = reinterpret_cast<Real*>(arrays_.action) + at * box_size_;
    auto* stored = reinterpret_cast<Real*>(actions);
    for (std::int32_t i = 0; i < count; ++i) {
      for (std::int64_t d = 0; d < box_size_; ++d) {
        const auto action = static_cast<Real>(outputs_.box[d * kColumns + i]);
        const std::int64_t bound = space.elementwise ? d : 0;
        *sampled++ = action;
        *stored++ = std::clamp(action, static_cast<Real>(space.low[bound]),
                               static_cast<Real>(space.high[bound]));
      }
    }
  }

  void Step(std::int32_t t, const Work& work) {
    std::fill_n(failed_.begin(), range_.count, std::uint8_t{0});
    view_ = outcome_.view();
    // observations go where the next step reads them, without a copy
    view_.obs = ObsAt(t + 1);
    taken_ = 0;
    envs_->Run(ids_, work, *this);

    const std::int64_t at = At(t);
    cut_.clear();
    for (std::int32_t i = 0; i < range_.count; ++i) {
      arrays_.reward[at + i] = static_cast<float>(view_.reward[i]);
      arrays_.terminated[at + i] = view_.terminated[i];
      arrays_.truncated[at + i] = view_.truncated[i];
      arrays_.bootstrap_value[at + i] = 0;
      arrays_.episode_return[at + i] = view_.episode_return[i];
      arrays_.episode_length[at + i] = view_.episode_length[i];
      if (view_.terminated[i] | view_.truncated[i]) [[unlikely]] SeeEnd(t, i);
    }
    if (!cut_.empty() && policy_.has_value()) BootstrapCut(at);
  }

  void SeeEnd(std::int32_t t, std::int32_t i) {
    // a failed environment has no final observation
    const bool failed = failed_[static_cast<std::size_t>(i)] != 0;
    if (view_.truncated[i] && !view_.terminated[i] && !failed) cut_.push_back(i);
    if (!rollout_.settings_.keep_final_obs) return;
    const std::uint8_t* obs = (failed ? ObsAt(t) : view_.final_obs) + i * obs_bytes_;
    // one list for all threads: ends are rare
    const std::lock_guard lock(rollout_.mutex_);
    rollout_.final_obs_.push_back({t, range_.first + i, {obs, obs + obs_bytes_}});
  }

  // Values what the policy would have seen next where an episode was cut off.
  void BootstrapCut(std::int64_t at) {
    std::vector<std::uint8_t> obs(static_cast<std::size_t>(kColumns * obs_bytes_));
    for (std::size_t first = 0; first < cut_.size(); first += kColumns) {
      const auto count =
          static_cast<std::int32_t>(std::min<std::size_t>(kColumns, cut_.size() - first));
      // side by side, as Forward reads them: they lie anywhere among the rows
      for (std::int32_t i = 0; i < count; ++i) {
        std::memcpy(obs.data() + i * obs_bytes_, view_.final_obs + cut_[first + i] * obs_bytes_,
                    static_cast<std::size_t>(obs_bytes_));
      }
      Forward(obs.data(), count);
      float value[kColumns];
      TakeValues(count, value);
      for (std::int32_t i = 0; i < count; ++i) {
        arrays_.bootstrap_value[at + cut_[first + i]] = value[i];
      }
    }
  }

  // The values behind the last step, from which the returns of open episodes go on.
  void ValueLast() {
    if (!policy_.has_value()) {
      std::fill_n(arrays_.last_value + range_.first, range_.count, 0.0f);
      return;
    }
    for (std::int32_t first = 0; first < range_.count; first += kColumns) {
      const std::int32_t count = std::min(kColumns, range_.count - first);
      Forward(ObsAt(arrays_.steps) + first * obs_bytes_, count);
      TakeValues(count, arrays_.last_value + range_.first + first);
    }
  }

  Rollout& rollout_;
  const EnvSpec& spec_;
  const NativePolicy& policy_;
  const RolloutArrays& arrays_;
  const std::int64_t obs_bytes_;
  const std::int64_t box_size_;
  BatchBuffer outcome_;  // rows of one step; observations go to the rollout
  Scratch rows_;
  Scratch box_;
  HeadOutputs outputs_;
  std::vector<std::uint8_t> failed_;

  // of the environments in hand
  EnvBatch* envs_ = nullptr;
  EnvRange range_;
  std::vector<std::int32_t> ids_;
  BatchView view_;
  std::int64_t taken_ = 0;
  std::vector<std::int32_t> cut_;
};

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
