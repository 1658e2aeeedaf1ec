// SPDX-License-Identifier: Apache-2.0
// The only places where native code gives the GIL away and takes it back.
//
// A daemon thread may still be in a call when the interpreter ends. CPython up to 3.13 then ends a
// thread that takes the GIL with pthread_exit, which unwinds its stack; at the first destructor the
// C++ run-time aborts the process, so that a good run seems to have crashed. 3.14 lets such a
// thread hang. These guards let it hang in every version: it holds nothing that the exit waits for.
// pybind11's own guards do not, hence these.
#pragma once

#include <Python.h>

#include "bindings/interrupts.h"

namespace rollouts {

// Gives the GIL away for a scope of a thread that holds it.
class ReleaseGil {
 public:
  // `interrupted`: see NativeCall.
  explicit ReleaseGil(bool interrupted = false) noexcept;
  ~ReleaseGil();
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  const NativeCall call_;
  PyThreadState* const state_;
};

// Takes the GIL for a scope, in any thread: inside ReleaseGil, in Python, or unknown to Python.
class AcquireGil {
 public:
  AcquireGil() noexcept;
  ~AcquireGil();
  AcquireGil(const AcquireGil&) = delete;
  AcquireGil& operator=(const AcquireGil&) = delete;

 private:
  const PythonInCall in_call_;
  PyThreadState* const released_;  // saved by the enclosing ReleaseGil; null if there is none
  PyGILState_STATE state_ = PyGILState_UNLOCKED;
};

}  // namespace rollouts
