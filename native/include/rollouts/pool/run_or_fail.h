// SPDX-License-Identifier: Apache-2.0
// One environment's turn, whose exception ends its own episode and nothing else.
#pragma once

#include <cstdint>
#include <exception>

#include "rollouts/core/step.h"
#include "rollouts/pool/env_batch.h"

namespace rollouts {

// RunCommand of an environment that may throw: it fails then, and the others go on. In same-step
// mode the next episode begins in the failed row, as after any end. `take_row` may be called
// twice and returns the same row; `write_no_info` writes zeros.
template <typename EnvRef, typename TakeRow, typename WriteInfo, typename WriteNoInfo>
void RunOrFail(std::int32_t env, const Work& work, EnvRef& ref, EpisodeClock& clock,
               RowSource& source, TakeRow&& take_row, WriteInfo&& write_info,
               WriteNoInfo&& write_no_info) {
  using Action = typename EnvRef::Action;
  const bool step = IsStep(work.commands[env], clock);
  const auto fail = [&](const char* what) {
    const RowRef row = take_row();
    WriteFailure(row, clock);
    write_no_info(row);
    source.Fail(env, what);
    if (!step || work.rules.autoreset != AutoresetMode::kSameStep) return;
    try {
      BeginEpisode(ref, clock, /*forced=*/false);
      WriteObs(ref, row, /*final=*/false);
      WriteBegunInfos(ref, row);
    } catch (...) {
      WriteFailure(row, clock);  // it fails again, and its next step tries once more
    }
  };
  try {
    RunCommand(work.commands[env], work.rules, ref, clock,
               reinterpret_cast<const Action*>(work.actions + env * work.action_bytes), take_row,
               write_info);
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception that is not a std::exception");
  }
}

}  // namespace rollouts
