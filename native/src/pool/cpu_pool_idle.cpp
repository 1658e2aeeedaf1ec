// SPDX-License-Identifier: Apache-2.0
// What the caller of a CpuPool does to environments at rest, where part of their rules is its own.
#include <memory>

#include "rollouts/pool/cpu_pool.h"

namespace rollouts {

// Rows of a buffer that the pool knows nothing of, one after the other.
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

void CpuPool::AddFailure(std::int32_t env, const std::string& message) {
  stats_.AddError();
  const std::lock_guard lock(failure_mutex_);
  failures_.push_back({env + options_.env_id_offset, message});
  failed_.store(true, std::memory_order_release);
}

// Called with send_mutex_ held.
void CpuPool::CheckIdle(std::span<const std::int32_t> envs) const {
  for (const std::int32_t env : envs) {
    if (InFlight(env)) {
      // received rows are at rest until the next send, which only another thread can have made
      throw ProtocolError(Describe(env) + " is in flight: another thread sent it before the one "
                          "that received it was done");
    }
  }
}

void CpuPool::EndSteps(std::span<const std::int32_t> envs, const double* reward,
                       const std::uint8_t* terminated) {
  const auto lock = LockOpen(send_mutex_);
  CheckIdle(envs);
  for (std::size_t i = 0; i < envs.size(); ++i) {
    EpisodeClock& clock = envs_->clock(envs[i]);
    // as if the step had said so: the autoreset mode does the rest with the next send
    clock.episode_return += reward[i];
    if (terminated[i]) clock.ended = true;
  }
}

CpuPool::Received CpuPool::ShowIdle(std::span<const std::int32_t> envs, bool begin) {
  const auto lock = LockOpen(send_mutex_);
  CheckIdle(envs);
  const auto rows = static_cast<std::int32_t>(envs.size());
  const bool final_obs = options_.rules.autoreset == AutoresetMode::kSameStep;
  // memory of its own: the pool's buffers are for rows in flight
  const auto buffer = std::make_shared<BatchBuffer>(
      spec_, BatchLayout{.rows = rows, .with_final_obs = final_obs});
  // a step of an environment whose episode is over begins the next one
  for (const std::int32_t env : envs) {
    commands_[env] = begin && envs_->clock(env).ended ? Command::kStep : Command::kObserve;
  }
  // on this thread, under the send lock: nobody else may step them meanwhile
  IdleRows shown(*this, *buffer);
  envs_->Run(envs, CurrentWork(), shown);
  return {buffer, 0, rows, /*pooled=*/false};
}

}  // namespace rollouts
