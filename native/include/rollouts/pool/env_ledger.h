// SPDX-License-Identifier: Apache-2.0
// Records which environments of a pool were reset or are in flight, and checks what may be done
// with them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rollouts/pool/env_batch.h"

namespace rollouts {

// One entry per environment, by index. Not thread-safe: the pool's send lock guards it. The checks
// throw ProtocolError, which names the environment, and change nothing.
class EnvLedger {
 public:
  EnvLedger(std::int32_t num_envs, std::int32_t env_id_offset);

  // Environments sent and not yet received.
  std::int32_t num_in_flight() const { return num_in_flight_; }
  bool InFlight(std::int32_t env) const { return all_in_flight_ || in_flight_[env] != 0; }

  // Checks that environments to be stepped are known, idle, started and listed once. `ends`: the
  // environments, whose clocks tell which episodes are over, if these may not be stepped; else
  // null.
  void CheckSend(std::span<const std::int32_t> envs, EnvBatch* ends);
  // The same for all of them; costs nothing where no environment has to be examined.
  void CheckSendAll(std::span<const std::int32_t> all_envs, EnvBatch* ends);

  // Checks that nothing is in flight, and that every environment left out was started before (null:
  // none is left out).
  void CheckReset(const std::uint8_t* mask) const;

  // `purpose`, such as "seed it", and `lack`, such as " and has no state", end the message.
  void CheckIdle(std::int32_t env, const char* purpose) const;
  void CheckStarted(std::int32_t env, const char* lack) const;
  // Checks that the rows of these environments were received and that they were not sent since.
  void CheckReceived(std::span<const std::int32_t> envs) const;
  // Checks that environments that are to take other states are idle and listed once.
  void CheckLoad(std::span<const std::int32_t> envs) const;

  void MarkSent(std::span<const std::int32_t> envs);
  // Marks a round of the whole pool, with no mark per environment until a part of it is received.
  void MarkAllSent();
  void MarkReceived(std::span<const std::int32_t> env_ids);
  void ForgetSent();

  void MarkStarted(std::span<const std::int32_t> envs);
  void MarkAllStarted();
  void MarkNotStarted(std::span<const std::int32_t> envs);

  // The name of an environment in messages.
  std::string Describe(std::int32_t env) const;

 private:
  std::int32_t num_envs() const { return static_cast<std::int32_t>(started_.size()); }
  std::string WhyNotSend(std::int32_t env, std::size_t row) const;

  const std::int32_t env_id_offset_;
  std::vector<std::uint8_t> started_;
  std::vector<std::uint8_t> in_flight_;
  std::int32_t num_in_flight_ = 0;
  bool all_started_ = false;
  bool all_in_flight_ = false;
};

}  // namespace rollouts
