// SPDX-License-Identifier: Apache-2.0
// One environment's turn; an exception in it ends that environment's episode and nothing else.
#pragma once

#include <cstdint>
#include <exception>

#include "rollouts/core/step.h"
#include "rollouts/pool/env_batch.h"

namespace rollouts {

// Begins the next episode in the row of the step that ended the last one.
template <typename EnvRef>
void BeginInRow(EnvRef& ref, EpisodeClock& clock, const RowRef& row) {
  BeginEpisode(ref, clock, /*forced=*/false);
  WriteObs(ref, row, /*final=*/false);
  WriteBegunInfos(ref, row);
}

// The same in a row that has failed already.
template <typename EnvRef>
void BeginInFailedRow(EnvRef& ref, EpisodeClock& clock, const RowRef& row) {
  try {
    BeginInRow(ref, clock, row);
  } catch (...) {
    WriteFailure(row, clock);  // it fails again, and its next step tries once more
  }
}

// Runs `turn`. Where it throws, the environment's row becomes a failed one, which also shows the
// start of the next episode where `begins_next`; returns false then.
template <typename EnvRef, typename Turn, typename TakeRow, typename WriteNoInfo>
bool TurnOrFail(std::int32_t env, bool begins_next, EnvRef& ref, EpisodeClock& clock, RowSource& source,
                Turn&& turn, TakeRow&& take_row, WriteNoInfo&& write_no_info) {
  const auto fail = [&](const char* what) {
    const RowRef row = take_row();
    WriteFailure(row, clock);
    write_no_info(row);
    source.Fail(env, what);
    if (begins_next) BeginInFailedRow(ref, clock, row);
    return false;
  };
  try {
    turn();
    return true;
  } catch (const std::exception& error) {
    return fail(error.what());
  } catch (...) {
    return fail("an exception that is not a std::exception");
  }
}

// RunCommand of an environment that may throw: where it throws, this environment fails and the
// others go on. In same-step mode the next episode begins in the failed row, as after any end.
// `take_row` may be called twice and returns the same row; `write_no_info` writes zeros. True when
// it did not fail.
template <typename EnvRef, typename TakeRow, typename WriteInfo, typename WriteNoInfo>
bool RunOrFail(std::int32_t env, const Work& work, EnvRef& ref, EpisodeClock& clock,
               RowSource& source, TakeRow&& take_row, WriteInfo&& write_info,
               WriteNoInfo&& write_no_info) {
  using Action = typename EnvRef::Action;
  const bool begins_next =
      IsStep(work.commands[env], clock) && work.rules.autoreset == AutoresetMode::kSameStep;
  const auto turn = [&] {
    RunCommand(work.commands[env], work.rules, ref, clock,
               reinterpret_cast<const Action*>(work.actions + env * work.action_bytes), take_row,
               write_info);
  };
  return TurnOrFail(env, begins_next, ref, clock, source, turn, take_row, write_no_info);
}

}  // namespace rollouts
