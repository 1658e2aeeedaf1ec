// SPDX-License-Identifier: Apache-2.0
#include "call_limit.h"

#include <signal.h>

#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

using Clock = std::chrono::steady_clock;

// All calls into games in this process, and the thread that ends games whose calls take too long.
class Watch {
 public:
  // Never destroyed, because pools may run when the process ends.
  static Watch& Of() {
    static auto& watch = *new Watch;
    return watch;
  }

  std::int64_t Begin(const std::string& folder, Clock::time_point deadline) {
    const std::lock_guard lock(mutex_);
    if (!running_) Run();
    calls_[++last_] = {folder, deadline, false};
    // notified at most once in a second, because calls are frequent, and waking a thread costs more
    // than most calls
    if (idle_) begun_.notify_one();
    idle_ = false;
    return last_;
  }
  void End(std::int64_t call) {
    const std::lock_guard lock(mutex_);
    calls_.erase(call);
  }
  bool HasExpired(std::int64_t call) {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(call);
    return found != calls_.end() && found->second.expired;
  }

 private:
  struct Call {
    std::string folder;
    Clock::time_point deadline;
    bool expired = false;
  };

  // Runs with the mutex held.
  void Run() {
    try {
      std::thread([this] { Loop(); }).detach();
    } catch (const std::system_error& error) {
      throw EngineError(std::string("no thread can start that watches over games: ") + error.what());
    }
    running_ = true;
  }

  void Loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      idle_ = calls_.empty();
      if (idle_) {
        begun_.wait(lock);
      } else {
        begun_.wait_for(lock, std::chrono::seconds(1));
      }
      for (auto& [number, call] : calls_) {
        if (call.expired || call.deadline > Clock::now()) continue;
        call.expired = true;
        EndGame(call.folder);
      }
    }
  }

  // Sends a signal to the guardian, which kills the game and ends.
  static void EndGame(const std::string& folder) {
    std::ifstream file(folder + "/pid");
    pid_t guardian = 0;
    if (file >> guardian && guardian > 1) kill(guardian, SIGTERM);
  }

  std::mutex mutex_;  // guards the following
  std::condition_variable begun_;
  bool idle_ = false;  // the thread waits for a call to begin
  std::map<std::int64_t, Call> calls_;
  std::int64_t last_ = 0;
  bool running_ = false;
};

}  // namespace

CallLimit::CallLimit(const std::string& folder, std::chrono::seconds limit) {
  if (!folder.empty()) call_ = Watch::Of().Begin(folder, Clock::now() + limit);
}

CallLimit::~CallLimit() {
  if (call_ != 0) Watch::Of().End(call_);
}

bool CallLimit::expired() const { return call_ != 0 && Watch::Of().HasExpired(call_); }

std::chrono::seconds GameTimeout() {
  constexpr std::int64_t kUsual = 60;
  const char* const text = std::getenv("ROLLOUTS_GAME_TIMEOUT_S");
  if (!text) return std::chrono::seconds(kUsual);
  char* end = nullptr;
  const long seconds = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || seconds < 1 || seconds > 1'000'000) {
    throw SpecError("ROLLOUTS_GAME_TIMEOUT_S is '" + std::string(text) +
                    "', expected a whole number of seconds, 1 or more");
  }
  return std::chrono::seconds(seconds);
}

}  // namespace rollouts
