// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/env_ledger.h"

#include <algorithm>

#include "rollouts/support/errors.h"

namespace rollouts {

EnvLedger::EnvLedger(std::int32_t num_envs, std::int32_t env_id_offset)
    : env_id_offset_(env_id_offset), started_(num_envs, 0), in_flight_(num_envs, 0) {}

void EnvLedger::CheckSendAll(std::span<const std::int32_t> all_envs, EnvBatch* ends) {
  // if the whole pool is at rest, no environment has to be checked
  if (num_in_flight_ == 0 && all_started_ && !ends) return;
  CheckSend(all_envs, ends);
}

void EnvLedger::CheckSend(std::span<const std::int32_t> envs, EnvBatch* ends) {
  std::size_t marked = 0;
  std::string problem;
  for (; marked < envs.size(); ++marked) {
    const std::int32_t env = envs[marked];
    // the usual case first, which makes no string
    const bool good = env >= 0 && env < num_envs() && !InFlight(env) && started_[env] &&
                      !(ends && ends->clock(env).ended);
    if (!good) {
      problem = WhyNotSend(env, marked);
      break;
    }
    in_flight_[env] = 1;  // finds ids listed twice
  }
  // the marks were only for finding duplicates; MarkSent sets them again
  for (const std::int32_t env : envs.first(marked)) in_flight_[env] = 0;
  if (!problem.empty()) throw ProtocolError(problem);
}

// Explains why CheckSend refuses an environment.
std::string EnvLedger::WhyNotSend(std::int32_t env, std::size_t row) const {
  const std::string name = Describe(env);
  const std::string in_row = " in row " + std::to_string(row);
  // checked first, because the pool keeps no state of an environment that it does not have
  if (env < 0 || env >= num_envs()) {
    return name + in_row + " is not in this pool: its ids are " + std::to_string(env_id_offset_) +
           " to " + std::to_string(env_id_offset_ + num_envs() - 1);
  }
  if (InFlight(env)) {
    return name + in_row + " was sent already and not received since; call recv first";
  }
  // the environment is at rest if this is reached
  if (!started_[env]) return name + " was never reset; call reset() or async_reset() first";
  return name + in_row +
         " has ended its episode and autoreset is disabled; reset it with "
         "reset(options={'reset_mask': mask})";
}

void EnvLedger::CheckReset(const std::uint8_t* mask) const {
  if (num_in_flight_ != 0) {
    throw ProtocolError(std::to_string(num_in_flight_) +
                        " environments are in flight; call recv before you reset");
  }
  for (std::int32_t env = 0; mask && env < num_envs(); ++env) {
    // an environment that is left out shows its observation again, so it must have one
    if (!mask[env] && !started_[env]) {
      throw ProtocolError(Describe(env) + " was never reset, so reset_mask may not leave it out");
    }
  }
}

void EnvLedger::CheckIdle(std::int32_t env, const char* purpose) const {
  if (!InFlight(env)) return;
  throw ProtocolError(Describe(env) + " is in flight; call recv before you " + purpose);
}

void EnvLedger::CheckStarted(std::int32_t env, const char* lack) const {
  if (!started_[env]) throw ProtocolError(Describe(env) + " was never reset" + lack);
}

void EnvLedger::CheckReceived(std::span<const std::int32_t> envs) const {
  for (const std::int32_t env : envs) {
    if (InFlight(env)) {
      // received rows stay at rest until the next send, which only another thread can have made
      throw ProtocolError(Describe(env) + " is in flight: another thread sent it before the one "
                          "that received it was done");
    }
  }
}

void EnvLedger::CheckLoad(std::span<const std::int32_t> envs) const {
  std::vector<std::uint8_t> listed(started_.size(), 0);
  for (const std::int32_t env : envs) {
    CheckIdle(env, "set its state");
    // the first of two states could not be put back after a failure
    if (listed[env]) throw ProtocolError(Describe(env) + " is listed twice");
    listed[env] = 1;
  }
}

void EnvLedger::MarkSent(std::span<const std::int32_t> envs) {
  for (const std::int32_t env : envs) in_flight_[env] = 1;
  num_in_flight_ += static_cast<std::int32_t>(envs.size());
}

void EnvLedger::MarkAllSent() {
  all_in_flight_ = true;
  num_in_flight_ = num_envs();
}

void EnvLedger::MarkReceived(std::span<const std::int32_t> env_ids) {
  num_in_flight_ -= static_cast<std::int32_t>(env_ids.size());
  // a whole round sets no marks, and is received as a whole
  if (!all_in_flight_) {
    for (const std::int32_t id : env_ids) in_flight_[id - env_id_offset_] = 0;
  }
  all_in_flight_ = false;
}

void EnvLedger::ForgetSent() {
  std::fill(in_flight_.begin(), in_flight_.end(), 0);
  num_in_flight_ = 0;
  all_in_flight_ = false;
}

void EnvLedger::MarkStarted(std::span<const std::int32_t> envs) {
  for (const std::int32_t env : envs) started_[env] = 1;
  // computed once here, so that sends need not search
  all_started_ = std::find(started_.begin(), started_.end(), 0) == started_.end();
}

void EnvLedger::MarkAllStarted() {
  std::fill(started_.begin(), started_.end(), 1);
  all_started_ = true;
}

void EnvLedger::MarkNotStarted(std::span<const std::int32_t> envs) {
  for (const std::int32_t env : envs) started_[env] = 0;
  if (!envs.empty()) all_started_ = false;
}

std::string EnvLedger::Describe(std::int32_t env) const {
  return "env_id " + std::to_string(env + env_id_offset_);
}

}  // namespace rollouts
