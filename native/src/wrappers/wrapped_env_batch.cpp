// SPDX-License-Identifier: Apache-2.0
#include "rollouts/wrappers/wrapped_env_batch.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// Returns `array` such that its row `first` is where `rows` begins.
std::uint8_t* RowsFrom(std::vector<std::uint8_t>& rows, std::int64_t first, std::int64_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(rows.data());
  return reinterpret_cast<std::uint8_t*>(address - static_cast<std::uintptr_t>(first * bytes));
}

std::optional<Frames> MakeFrames(const EnvSpec& spec, const Wrappers& wrappers,
                                 std::int32_t num_envs) {
  if (!Frames::Needed(wrappers)) return std::nullopt;
  return Frames(spec.observation, wrappers, num_envs);
}

EnvSpec MakeSpec(EnvSpec spec, const Wrappers& wrappers, const std::optional<Frames>& frames) {
  if (frames) {
    spec.observation = frames->space();
    spec.num_parts = 0;
  }
  if (wrappers.rescale_action) {
    spec.action.elementwise = true;
    std::copy(wrappers.rescale_action->low.begin(), wrappers.rescale_action->low.end(),
              spec.action.low);
    std::copy(wrappers.rescale_action->high.begin(), wrappers.rescale_action->high.end(),
              spec.action.high);
  }
  if (wrappers.clip_action) {
    spec.action.elementwise = false;
    spec.action.low[0] = -std::numeric_limits<double>::infinity();
    spec.action.high[0] = std::numeric_limits<double>::infinity();
  }
  return spec;
}

}  // namespace

// Rows of one Run. Environments write their observations to other memory if callers see different
// ones.
class WrappedEnvBatch::Rows final : public RowSource {
 public:
  Rows(WrappedEnvBatch& batch, std::span<const std::int32_t> envs, const Work& work,
       RowSource& source)
      : batch_(batch), envs_(envs), work_(work), source_(source) {}

  RowSource::Rows Take(std::int32_t count) override {
    taken_ = source_.Take(count);
    RowSource::Rows shown = taken_;
    if (!batch_.frames_) return shown;
    // per thread, and kept for its next chunk
    thread_local std::vector<std::uint8_t> obs, final_obs;
    const std::int64_t bytes = batch_.envs_->spec().observation.bytes();
    const auto needed = static_cast<std::size_t>(bytes * taken_.count);
    obs.resize(std::max(obs.size(), needed));
    shown.view.obs_bytes = bytes;
    shown.view.obs = RowsFrom(obs, taken_.first, bytes);
    if (shown.view.final_obs) {
      final_obs.resize(std::max(final_obs.size(), needed));
      shown.view.final_obs = RowsFrom(final_obs, taken_.first, bytes);
    }
    return shown;
  }

  // Rows are taken and finished in parts, in the order of the environments.
  void Finish(const RowSource::Rows& shown) override {
    const auto count = static_cast<std::size_t>(shown.count);
    batch_.FinishRows(envs_.first(count), work_, shown.view, taken_);
    envs_ = envs_.subspan(count);
    source_.Finish(taken_);
  }

  void Fail(std::int32_t env, const std::string& message) override { source_.Fail(env, message); }

 private:
  WrappedEnvBatch& batch_;
  std::span<const std::int32_t> envs_;  // environments whose rows are not finished
  const Work& work_;
  RowSource& source_;
  RowSource::Rows taken_;
};

WrappedEnvBatch::WrappedEnvBatch(std::unique_ptr<EnvBatch> envs, Wrappers wrappers,
                                 std::int32_t num_envs)
    : wrappers_(std::move(wrappers)),
      envs_(std::move(envs)),
      frames_(MakeFrames(envs_->spec(), wrappers_, num_envs)),
      spec_(MakeSpec(envs_->spec(), wrappers_, frames_)),
      normalizer_(wrappers_, spec_.observation, num_envs) {
  if (ChangesActions()) {
    actions_.resize(static_cast<std::size_t>(num_envs * spec_.action.size()));
  }
}

void WrappedEnvBatch::Run(std::span<const std::int32_t> envs, const Work& work,
                          RowSource& source) {
  Work own = work;
  if (ChangesActions()) own.actions = ChangeActions(envs, work);
  Rows rows(*this, envs, own, source);
  envs_->Run(envs, own, rows);
}

const std::uint8_t* WrappedEnvBatch::ChangeActions(std::span<const std::int32_t> envs,
                                                   const Work& work) {
  const std::int64_t size = spec_.action.size();
  const auto& clip = wrappers_.clip_action;
  const auto& rescale = wrappers_.rescale_action;
  for (const std::int32_t env : envs) {
    const auto* given = reinterpret_cast<const float*>(work.actions + env * work.action_bytes);
    float* const own = actions_.data() + env * size;
    std::copy_n(given, size, own);
    for (std::int64_t i = 0; clip && i < size; ++i) {
      own[i] = std::min(std::max(own[i], clip->low[i]), clip->high[i]);
    }
    for (std::int64_t i = 0; rescale && i < size; ++i) {
      own[i] = (own[i] - rescale->intercept[i]) / rescale->gradient[i];
    }
  }
  return reinterpret_cast<const std::uint8_t*>(actions_.data());
}

// Done by the thread that stepped the rows, before they are read.
void WrappedEnvBatch::FinishRows(std::span<const std::int32_t> envs, const Work& work,
                                 const BatchView& shown, const RowSource::Rows& rows) {
  std::int64_t row = rows.first;
  if (frames_) {
    for (const std::int32_t env : envs) {
      WriteFrames(env, work.commands[env], shown, {rows.view, row++});
    }
  }
  if (Counts()) return;
  row = rows.first;
  if (wrappers_.normalize_reward) {
    for (const std::int32_t env : envs) {
      if (work.commands[env] == Command::kStep) {
        normalizer_.AddReward(env, rows.view.reward[row], rows.view.terminated[row] != 0);
      }
      ++row;
    }
  }
  normalizer_.Scale(rows.view, rows.first, rows.count);
}

void WrappedEnvBatch::WriteFrames(std::int32_t env, Command command, const BatchView& shown,
                                  const RowRef& out) {
  const auto* const obs = shown.ObsRow<std::uint8_t>(out.row);
  auto* const to = out.view.ObsRow<std::uint8_t>(out.row);
  const std::int32_t elapsed = envs_->clock(env).elapsed_steps;
  if (command == Command::kObserve) return frames_->Repeat(env, obs, elapsed, to);
  const bool ended = out.view.terminated[out.row] || out.view.truncated[out.row];
  if (out.view.final_obs && ended) {
    // the length of the episode that ended, even where the next one has begun
    const auto* const last = shown.FinalObsRow<std::uint8_t>(out.row);
    auto* const final = out.view.FinalObsRow<std::uint8_t>(out.row);
    frames_->GoOn(env, last, out.view.episode_length[out.row], final);
    // after an end that is only reported, or a failure, the last observation is shown again
    if (elapsed > 0) return frames_->Repeat(env, obs, elapsed, to);
  }
  if (elapsed == 0) {
    frames_->Begin(env, obs, to);
  } else {
    frames_->GoOn(env, obs, elapsed, to);
  }
}

void WrappedEnvBatch::Count(const BatchView& view, std::int64_t first, std::int32_t count,
                            std::span<const Command> commands) {
  normalizer_.Count(view, first, count, commands, envs_->clock(0).env_id);
}

RunningMoments* WrappedEnvBatch::Statistics(StatisticsOf of) {
  return of == StatisticsOf::kObservation ? normalizer_.observation() : normalizer_.reward();
}

std::int64_t WrappedEnvBatch::kept_bytes() const {
  const std::int64_t stack = frames_ ? frames_->stack_bytes() : 0;
  return stack + (normalizer_.Kept(0) ? static_cast<std::int64_t>(sizeof(double)) : 0);
}

void WrappedEnvBatch::SaveState(std::int32_t env, std::vector<std::uint8_t>& out) const {
  envs_->SaveState(env, out);
  if (frames_) {
    const std::span<const std::uint8_t> stack = frames_->Kept(env);
    out.insert(out.end(), stack.begin(), stack.end());
  }
  if (const double* const kept = normalizer_.Kept(env)) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(kept);
    out.insert(out.end(), bytes, bytes + sizeof(double));
  }
}

void WrappedEnvBatch::CheckState(std::int32_t env, std::span<const std::uint8_t> state) const {
  const auto kept = static_cast<std::size_t>(kept_bytes());
  if (state.size() < kept) throw SpecError("is shorter than its parts");
  envs_->CheckState(env, state.first(state.size() - kept));
}

void WrappedEnvBatch::LoadState(std::int32_t env, std::span<const std::uint8_t> state) {
  const std::size_t own = state.size() - static_cast<std::size_t>(kept_bytes());
  envs_->LoadState(env, state.first(own));
  const std::uint8_t* kept = state.data() + own;
  if (frames_) {
    frames_->SetKept(env, kept);
    kept += frames_->stack_bytes();
  }
  if (normalizer_.Kept(env)) {
    double sum;
    std::memcpy(&sum, kept, sizeof(double));
    normalizer_.SetKept(env, sum);
  }
}

Options WrappedEnvBatch::OptionsOf(std::int32_t env) const {
  Options options = envs_->OptionsOf(env);
  if (wrappers_.frame_stack > 0) {
    options["frame_stack"] = std::int64_t{wrappers_.frame_stack};
    if (wrappers_.time_aware) options["time_aware"] = wrappers_.time_aware->fraction;
  }
  if (wrappers_.normalize_reward) options["normalize_reward"] = true;
  return options;
}

}  // namespace rollouts
