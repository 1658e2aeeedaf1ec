// SPDX-License-Identifier: Apache-2.0
// The effect of Ctrl-C while the main thread is in native code.
//
// Python's handler of SIGINT only sets a flag, which is read when native code returns. A step of a
// user's environment that does not end never returns, so nothing would end the process. While a
// pool exists, SIGINT therefore has a handler in C in front of Python's: it passes the signal on,
// and ends the process at a second one in the same native call.
//
// Only Python's default handler is replaced: programs that handle SIGINT themselves keep theirs.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <cstdint>

namespace rollouts {

// One native call of this thread, from its beginning to its end. Only calls of the main thread
// count, which is the one that Python interrupts.
class NativeCall {
 public:
  // `interrupted`: Ctrl-C has ended the call before, and this one waits for the same steps.
  explicit NativeCall(bool interrupted = false) noexcept;
  ~NativeCall();
  NativeCall(const NativeCall&) = delete;
  NativeCall& operator=(const NativeCall&) = delete;

 private:
  const std::uint64_t outer_;
};

// Python code within a native call: Ctrl-C interrupts it as it does all Python code.
class PythonInCall {
 public:
  PythonInCall() noexcept;
  ~PythonInCall();
  PythonInCall(const PythonInCall&) = delete;
  PythonInCall& operator=(const PythonInCall&) = delete;

 private:
  const std::uint64_t call_;
};

// A handler that replaces Python's default one for SIGINT while an InterruptWatch exists. Made,
// renewed and destroyed by threads that have the GIL.
class InterruptWatch {
 public:
  using Clock = std::chrono::steady_clock;

  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // Installs the handler again where Python's default one was set meanwhile. Calls that may last
  // long begin with this; it checks only now and then, because a step may take a microsecond.
  static void Renew(Clock::time_point now);
};

void BindInterrupts(pybind11::module_& module);

}  // namespace rollouts
