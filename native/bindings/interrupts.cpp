// SPDX-License-Identifier: Apache-2.0
#include "bindings/interrupts.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <optional>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "engines/shared_library.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using SignalHandler = void (*)(int);

constexpr char kSentence[] =
    "\nrollouts: Ctrl-C came twice during one native call, which did not return (a step of an "
    "environment that does not end?); the process ends here.\n";
// Two signals within this time count as one: launchers pass a signal on to programs that have
// received it from the terminal already.
constexpr std::int64_t kApartNs = 200'000'000;
constexpr std::chrono::milliseconds kRenewEvery{10};

// The number of the main thread's native call; 0 while the thread is in Python. Numbers are never
// used again.
std::atomic<std::uint64_t> g_call{0};
std::atomic<std::uint64_t> g_last_call{0};
// The last call in which a first SIGINT came, and the time at which it came.
std::atomic<std::uint64_t> g_heard_call{0};
std::atomic<std::int64_t> g_heard_ns{0};
// Python's own handler, which this one calls.
std::atomic<SignalHandler> g_pythons{nullptr};

// Read and written only with the GIL.
int g_num_watches = 0;
InterruptWatch::Clock::time_point g_next_renewal;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

bool IsMainThread() {
#ifdef __linux__
  return static_cast<pid_t>(syscall(SYS_gettid)) == getpid();
#else
  return pthread_main_np() != 0;
#endif
}

// Computed once for each thread, as it takes a system call.
bool& InMainThread() {
  static thread_local bool is_main = IsMainThread();
  return is_main;
}

std::int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

// Calls only functions that are safe in a handler; returns where Python should handle the signal.
void OnInterrupt(int number) {
  const int error = errno;
  const std::uint64_t call = g_call.load(std::memory_order_relaxed);
  const std::int64_t now = NowNs();
  if (call != 0 && g_heard_call.load(std::memory_order_relaxed) != call) {
    g_heard_call.store(call, std::memory_order_relaxed);
    g_heard_ns.store(now, std::memory_order_relaxed);
  } else if (call != 0 && now - g_heard_ns.load(std::memory_order_relaxed) >= kApartNs) {
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kSentence, sizeof(kSentence) - 1);
    // the signal ends the process as soon as this handler returns, with the exit status of a
    // process that a signal ended
    std::signal(number, SIG_DFL);
    kill(getpid(), number);
    return;
  }
  if (const SignalHandler pythons = g_pythons.load(std::memory_order_relaxed)) pythons(number);
  errno = error;
}

bool IsOfPython(SignalHandler handler) {
  return AreOfOneLibrary(reinterpret_cast<void*>(handler),
                         reinterpret_cast<void*>(&PyErr_CheckSignals));
}

// True if Python's handler of SIGINT is the default one, which raises KeyboardInterrupt.
bool IsDefaultInPython() {
  try {
    const py::module_ module = py::module_::import("signal");
    return module.attr("getsignal")(SIGINT).is(module.attr("default_int_handler"));
  } catch (py::error_already_set&) {
    return false;  // the interpreter is ending
  }
}

void Install() {
  struct sigaction action;
  if (sigaction(SIGINT, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) != 0 ||
      action.sa_handler == OnInterrupt || !IsOfPython(action.sa_handler) || !IsDefaultInPython()) {
    return;
  }
  // a forked child has one thread, which is in Python and its main thread
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    g_call.store(0, std::memory_order_relaxed);
    InMainThread() = true;
  });
  static_cast<void>(registered);
  g_pythons.store(action.sa_handler, std::memory_order_relaxed);
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
}

void Uninstall() {
  struct sigaction action;
  if (sigaction(SIGINT, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) != 0 ||
      action.sa_handler != OnInterrupt) {
    return;
  }
  action.sa_handler = g_pythons.load(std::memory_order_relaxed);
  sigaction(SIGINT, &action, nullptr);
}

// NativeCall for native code that Python calls by ctypes.
class PyNativeCall {
 public:
  void Enter() {
    watch_.emplace();
    call_.emplace();
  }
  void Exit() {
    call_.reset();
    watch_.reset();
  }

 private:
  std::optional<InterruptWatch> watch_;
  std::optional<NativeCall> call_;
};

}  // namespace

NativeCall::NativeCall(bool interrupted) noexcept : outer_(g_call.load(std::memory_order_relaxed)) {
  if (!InMainThread()) return;
  const std::uint64_t call = g_last_call.load(std::memory_order_relaxed) + 1;
  g_last_call.store(call, std::memory_order_relaxed);
  if (interrupted) {
    // as if a first signal had come long ago, so that the next one counts as the second
    g_heard_ns.store(0, std::memory_order_relaxed);
    g_heard_call.store(call, std::memory_order_relaxed);
  }
  g_call.store(call, std::memory_order_relaxed);
}

NativeCall::~NativeCall() {
  if (InMainThread()) g_call.store(outer_, std::memory_order_relaxed);
}

PythonInCall::PythonInCall() noexcept : call_(g_call.load(std::memory_order_relaxed)) {
  if (InMainThread()) g_call.store(0, std::memory_order_relaxed);
}

PythonInCall::~PythonInCall() {
  if (InMainThread()) g_call.store(call_, std::memory_order_relaxed);
}

InterruptWatch::InterruptWatch() {
  ++g_num_watches;
  Install();
}

InterruptWatch::~InterruptWatch() {
  if (--g_num_watches == 0) Uninstall();
}

void InterruptWatch::Renew(Clock::time_point now) {
  if (g_num_watches == 0 || now < g_next_renewal) return;
  g_next_renewal = now + kRenewEvery;
  Install();
}

void BindInterrupts(py::module_& module) {
  py::class_<PyNativeCall>(module, "NativeCall",
                           "A block in which Python calls native code that may not end: a second\n"
                           "Ctrl-C in it ends the process.")
      .def(py::init<>())
      .def("__enter__", &PyNativeCall::Enter)
      .def("__exit__", [](PyNativeCall& self, const py::args&) { self.Exit(); });
}

}  // namespace rollouts
