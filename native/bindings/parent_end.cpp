// SPDX-License-Identifier: Apache-2.0
// Ends a process that hangs after its parent process has ended.
//
// The kernel sends the signal also when only the *thread* ends that started this process. A process
// that hangs in native code never calls a Python handler: hence a handler in C.
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "bindings/bindings.h"
#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace py = pybind11;

namespace rollouts {
namespace {

std::atomic<pid_t> g_parent{0};
std::atomic<unsigned> g_grace_s{0};

#ifdef __linux__
// Calls only functions that are safe in a handler.
void OnParentEnd(int) {
  if (getppid() == g_parent.load(std::memory_order_relaxed)) return;
  std::signal(SIGALRM, SIG_DFL);
  alarm(g_grace_s.load(std::memory_order_relaxed));
}
#endif

// Returns whether this system supports it.
bool EndAfterParent(unsigned grace_s) {
#ifdef __linux__
  g_parent = getppid();
  g_grace_s = grace_s;
  const int number = SIGRTMAX;
  struct sigaction action = {};
  action.sa_handler = OnParentEnd;
  action.sa_flags = SA_RESTART;
  return sigaction(number, &action, nullptr) == 0 && prctl(PR_SET_PDEATHSIG, number) == 0;
#else
  static_cast<void>(grace_s);
  return false;
#endif
}

}  // namespace

void BindParentEnd(py::module_& module) {
  module.def("end_after_parent", &EndAfterParent, py::arg("grace_s"),
             "Ends this process `grace_s` seconds, at least 1, after the process that started it,\n"
             "whatever it is doing then; returns whether this system can.");
}

}  // namespace rollouts
