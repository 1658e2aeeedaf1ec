// SPDX-License-Identifier: Apache-2.0
// Waits for a pool in a call of Python: without the GIL, and so that Ctrl-C interrupts the wait.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "bindings/gil.h"
#include "bindings/interrupts.h"
#include "rollouts/pool/cpu_pool.h"
#include "rollouts/support/errors.h"

namespace rollouts {

// Calls `attempt(deadline)` without the GIL until it returns true, checking for signals now and
// then. Throws TimeoutError, whose message begins with `what`, when timeout_s passed; None waits
// for ever. `interrupted`: Ctrl-C ended this wait or the one before it, and the work waited for
// goes on.
template <typename Attempt>
void WaitForPool(const CpuPool& pool, std::optional<double> timeout_s, const char* what,
                 bool& interrupted, Attempt&& attempt) {
  using Clock = CpuPool::Clock;
  // the time between two checks for signals (Ctrl-C) while a call waits
  constexpr std::chrono::milliseconds kSignalInterval{50};
  if (timeout_s && !(*timeout_s >= 0)) {
    throw SpecError("timeout_s must be None or a number >= 0, got " + std::to_string(*timeout_s));
  }
  // more than a century counts as for ever, and must not overflow the clock
  const bool bounded = timeout_s && *timeout_s < 3e9;
  const auto start = Clock::now();
  InterruptWatch::Renew(start);
  const auto end = bounded ? start + std::chrono::duration_cast<Clock::duration>(
                                         std::chrono::duration<double>(*timeout_s))
                           : Clock::time_point::max();
  while (true) {
    bool finished;
    {
      const ReleaseGil release;
      // in short attempts, because signals are handled by the thread that has the GIL
      finished = attempt(std::min(end, Clock::now() + kSignalInterval));
    }
    // a batch that arrived together with Ctrl-C is not lost: the caller gets it first
    if (finished) {
      interrupted = false;
      return;
    }
    if (PyErr_CheckSignals() != 0) {
      interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0;
      throw pybind11::error_already_set();
    }
    if (Clock::now() >= end) {
      const std::string message =
          std::string(what) + ": not ready within " + std::to_string(*timeout_s) + " s; " +
          std::to_string(pool.num_in_flight()) + " environments are in flight";
      PyErr_SetString(PyExc_TimeoutError, message.c_str());
      throw pybind11::error_already_set();
    }
  }
}

}  // namespace rollouts
