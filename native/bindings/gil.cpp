// SPDX-License-Identifier: Apache-2.0
#include "bindings/gil.h"

#include <chrono>
#include <thread>

namespace rollouts {
namespace {

// The state that this thread's innermost ReleaseGil saved; null while the thread has the GIL, or
// where it never had it.
thread_local PyThreadState* t_released = nullptr;

// Blocks a thread that can never have the GIL again: code after this would run without it.
[[noreturn]] void Park() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(24));
}

bool IsFinalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// Calls `take`, which takes the GIL. pthread_exit arrives here as an exception that no object
// describes; it must not leave the handler.
template <typename Take>
auto TakeOrPark(const Take& take) noexcept {
  try {
    return take();
  } catch (...) {
    Park();
  }
}

// Stored per thread, so that code called later can take the GIL back without knowing who gave it.
PyThreadState* Give() noexcept { return t_released = PyEval_SaveThread(); }

void TakeBack(PyThreadState* state) noexcept {
  // safe when the interpreter is gone: CPython checks for that before it reads `state`
  TakeOrPark([state] { PyEval_RestoreThread(state); });
  t_released = nullptr;
}

}  // namespace

ReleaseGil::ReleaseGil(bool interrupted) noexcept : call_(interrupted), state_(Give()) {}

ReleaseGil::~ReleaseGil() { TakeBack(state_); }

AcquireGil::AcquireGil() noexcept : released_(t_released) {
  // this thread gave the GIL away in an outer call: it takes the same state back
  if (released_) {
    TakeBack(released_);
    return;
  }
  // an interpreter that is ending makes no state for a thread that is new to Python
  if (IsFinalizing() && !PyGILState_GetThisThreadState()) Park();
  state_ = TakeOrPark([] { return PyGILState_Ensure(); });
}

AcquireGil::~AcquireGil() {
  if (released_) {
    Give();
  } else {
    PyGILState_Release(state_);
  }
}

}  // namespace rollouts
