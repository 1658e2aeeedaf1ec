// SPDX-License-Identifier: Apache-2.0
// The arrays of a module that learners change in place, and a lock that lets one learner do so at a
// time.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rollouts/policy/gradient_steps.h"

namespace rollouts {

// Throws SpecError where there is not one entry for each parameter.
std::vector<bool> CheckTrained(const policy::Program& program, const std::vector<bool>& trained);

// The memory of a C-contiguous float32 array; throws SpecError for any other array.
float* MutableFloats(const pybind11::handle& array);

// Throws SpecError for another name than "all", "each" or "element".
policy::ClipBy ClipByOf(const std::string& name);

// Makes a MeanOverProcesses from `average`: None, or a callable that changes an array (n,) of
// float32 in place. The caller keeps it while the function is called, which takes the GIL; an
// exception of the callable is thrown.
policy::MeanOverProcesses MeanBy(const pybind11::object& average);

// Views are read and written by pointer, so their sizes are checked.
class TrainedSources {
 public:
  // `views`: (source, start, shape, strides) of each parameter of the program.
  TrainedSources(const pybind11::list& views, const policy::Program& program);

  const std::vector<policy::ParamView>& views() const { return views_; }

  // `sources`: (weights, kept) of each array of the module; `kept` is (means, squares, steps made,
  // settings), or None where the array is not trained. Needs the GIL; the caller keeps the arrays.
  std::vector<policy::Source> Read(const pybind11::list& sources) const;

 private:
  void Check(const std::vector<policy::Source>& sources) const;

  const std::vector<policy::ParamView> views_;
  std::vector<std::string> names_;
};

// Ctrl-C and a time limit, which end an update. Made and destroyed with the GIL.
class UpdateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws SpecError for a time below 0.
  explicit UpdateLimit(const std::optional<double>& timeout_s);

  // Raises KeyboardInterrupt, or what another handler of a signal raises, and TimeoutError.
  policy::UpdateStop stop() {
    return {[this] { return IsOver(); }, [this] { Raise(); }};
  }

 private:
  // Thread-safe, without the GIL. The thread that made the limit checks for signals.
  bool IsOver();
  [[noreturn]] void Raise() const;

  const std::optional<double> timeout_s_;
  std::optional<Clock::time_point> end_;
  const std::thread::id caller_ = std::this_thread::get_id();
  Clock::time_point next_look_;     // when to check for signals; for the caller's thread
  std::exception_ptr interrupted_;  // what Python raised; the caller writes it before is_over_
  std::atomic<bool> is_over_{false};
};

// One update at a time, without the GIL.
class LearnerLock {
 public:
  // Throws ProtocolError in a forked child whose parent was in an update, and what `stop` raises
  // while another thread's update goes on. Needs the GIL.
  void Run(const policy::UpdateStop& stop, const std::function<void()>& update);

 private:
  void CheckFork();

  std::timed_mutex mutex_;  // held by the thread whose update runs
  pid_t pid_ = getpid();  // the process whose threads take the mutex; guarded by the GIL
};

void BindRowLosses(pybind11::module_& module);

}  // namespace rollouts
