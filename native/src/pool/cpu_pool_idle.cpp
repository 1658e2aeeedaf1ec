// SPDX-License-Identifier: Apache-2.0
// Calls for environments of a CpuPool at rest, except saving and loading: see cpu_pool_state.cpp.
#include <cstring>
#include <memory>
#include <utility>

#include "rollouts/pool/cpu_pool.h"
#include "rollouts/support/errors.h"

namespace rollouts {

// The rows of a buffer that is not one of the pool's, one after the other.
class CpuPool::IdleRows final : public RowSource {
 public:
  IdleRows(CpuPool& pool, BatchBuffer& buffer) : pool_(pool), buffer_(buffer) {}

  RowSource::Rows Take(std::int32_t count) override {
    const RowSource::Rows rows{buffer_.view(), next_, count, &buffer_};
    next_ += count;
    return rows;
  }
  void Finish(const RowSource::Rows&) override {}
  void Fail(std::int32_t env, const std::string& message) override {
    pool_.AddFailure(env, message);
  }

 private:
  CpuPool& pool_;
  BatchBuffer& buffer_;
  std::int64_t next_ = 0;
};

void CpuPool::Seed(std::int32_t env, std::uint64_t seed) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckIdle(env, "seed it");
  envs_->clock(env).Seed(seed);
}

CpuPool::Stream CpuPool::StreamOf(std::int32_t env) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckIdle(env, "tell its random stream");
  const EpisodeClock& clock = envs_->clock(env);
  return {clock.seed, clock.stream_id, clock.next_episode};
}

void CpuPool::Seek(std::int32_t env, const Stream& stream) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckIdle(env, "move its random stream");
  EpisodeClock& clock = envs_->clock(env);
  clock.seed = stream.seed;
  clock.stream_id = stream.stream_id;
  clock.next_episode = stream.next_episode;
}

std::span<std::uint8_t> CpuPool::StateBytes(std::int32_t env) {
  const OpenLock lock(*this, send_mutex_);
  // a participant may be writing the state of an environment in flight
  if (env < 0 || env >= options_.num_envs || ledger_.InFlight(env)) {
    throw ProtocolError(ledger_.Describe(env) + " is unknown or in flight");
  }
  return envs_->StateBytes(env);
}

void CpuPool::ReadActions(std::span<const std::int32_t> envs, std::uint8_t* out) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckReceived(envs);
  for (const std::int32_t env : envs) {
    std::memcpy(out, ActionRow(env), static_cast<std::size_t>(action_bytes_));
    out += action_bytes_;
  }
}

Frame CpuPool::Render(std::int32_t env) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckIdle(env, "render it");
  ledger_.CheckStarted(env, " and shows nothing: call reset first");
  return envs_->Render(env);
}

WorldArrays CpuPool::ReadWorld(std::int32_t env, bool first) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckIdle(env, "render it");
  ledger_.CheckStarted(env, " and shows nothing: call reset first");
  return envs_->ReadWorld(env, first);
}

EngineChoice CpuPool::EngineOf(std::int32_t env) {
  const OpenLock lock(*this, send_mutex_);
  return envs_->EngineOf(env);
}

Options CpuPool::OptionsOf(std::int32_t env) {
  const OpenLock lock(*this, send_mutex_);
  return envs_->OptionsOf(env);
}

ModelArray CpuPool::ReadModel(std::int32_t env, const std::string& field, bool of_file) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckIdle(env, "read its model");
  return envs_->ReadModel(env, field, of_file);
}

std::vector<std::string> CpuPool::ModelFields(std::int32_t env) {
  const OpenLock lock(*this, send_mutex_);
  return envs_->ModelFields(env);
}

void CpuPool::Change(const std::uint8_t* mask, const EnvChanges& changes) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckReset(mask);
  // no mask means all environments, as in SendReset
  std::vector<std::int32_t> envs;
  for (std::int32_t env = 0; env < options_.num_envs; ++env) {
    if (!mask || mask[env]) envs.push_back(env);
  }
  // all that can fail is done first, with copies; what follows cannot fail
  const auto put_in_place = envs_->Prepare(envs, changes, /*first_row=*/0);
  put_in_place();
  // a rebuilt engine has no episode to step
  ledger_.MarkNotStarted(envs);
}

void CpuPool::EndSteps(std::span<const std::int32_t> envs, const double* reward,
                       const std::uint8_t* terminated) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckReceived(envs);
  for (std::size_t i = 0; i < envs.size(); ++i) {
    EpisodeClock& clock = envs_->clock(envs[i]);
    // as if the step had ended the episode: the autoreset mode does the rest with the next send
    clock.episode_return += reward[i];
    if (terminated[i]) clock.ended = true;
  }
}

RunningMoments& CpuPool::StatisticsIn(StatisticsOf of) {
  if (RunningMoments* const found = envs_->Statistics(of)) return *found;
  const bool rewards = of == StatisticsOf::kReward;
  throw SpecError(std::string("there are no statistics of ") +
                  (rewards ? "rewards: make_vec(..., normalize_reward=True) keeps them"
                           : "observations: make_vec(..., normalize_observation=True) keeps them"));
}

Moments CpuPool::ReadStatistics(StatisticsOf of) {
  const OpenLock lock(*this, recv_mutex_);
  return StatisticsIn(of).all();
}

Moments CpuPool::TakeNewStatistics(StatisticsOf of) {
  const OpenLock lock(*this, recv_mutex_);
  return StatisticsIn(of).TakeNew();
}

void CpuPool::SetStatistics(StatisticsOf of, Moments moments) {
  const OpenLock recv_lock(*this, recv_mutex_);
  RunningMoments& statistics = StatisticsIn(of);
  const MutexLock lock(send_mutex_);
  if (!envs_->updates_statistics() && ledger_.num_in_flight() != 0) {
    throw ProtocolError("environments in flight read the frozen statistics; call recv or drain "
                        "before you set them");
  }
  statistics.Set(std::move(moments));
  envs_->RefreshStatistics();
}

bool CpuPool::updates_statistics() {
  const OpenLock lock(*this, send_mutex_);
  return envs_->updates_statistics();
}

void CpuPool::UpdateStatistics(bool updates) {
  const OpenLock recv_lock(*this, recv_mutex_);
  const MutexLock lock(send_mutex_);
  if (ledger_.num_in_flight() != 0) {
    throw ProtocolError(std::to_string(ledger_.num_in_flight()) +
                        " environments are in flight; call recv or drain before statistics are "
                        "frozen or updated again");
  }
  envs_->UpdateStatistics(updates);
}

CpuPool::Received CpuPool::ShowIdle(std::span<const std::int32_t> envs, bool begin) {
  const OpenLock lock(*this, send_mutex_);
  ledger_.CheckReceived(envs);
  const auto rows = static_cast<std::int32_t>(envs.size());
  const bool final_obs = options_.rules.autoreset == AutoresetMode::kSameStep;
  // separate memory, because the pool's buffers are for rows in flight
  const auto buffer = std::make_shared<BatchBuffer>(
      spec_, BatchLayout{.rows = rows, .with_final_obs = final_obs});
  // the step command begins the next episode of an environment whose episode is over
  for (const std::int32_t env : envs) {
    commands_[env] = begin && envs_->clock(env).ended ? Command::kStep : Command::kObserve;
  }
  // runs on this thread, under the send lock, so that no other thread steps these environments
  // meanwhile
  IdleRows shown(*this, *buffer);
  envs_->Run(envs, CurrentWork(), shown);
  return {buffer, 0, rows, /*pooled=*/false};
}

}  // namespace rollouts
