// SPDX-License-Identifier: Apache-2.0
// A time limit for calls into a game: without it, a caller would wait for ever for a game that
// hangs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace rollouts {

// Makes a thread end the game when the time is over, while this object exists. The waiting call
// then fails as for any game that has ended.
class CallLimit {
 public:
  // `folder`: the game's folder, in which its guardian has written a process id; empty: there is no
  // game yet. Throws EngineError where no thread can start.
  CallLimit(const std::string& folder, std::chrono::seconds limit);
  ~CallLimit();
  CallLimit(const CallLimit&) = delete;
  CallLimit& operator=(const CallLimit&) = delete;

  // Tells if the game was ended because the time was over.
  bool expired() const;

 private:
  std::int64_t call_ = 0;  // 0: no game, no limit
};

// Seconds that a call may take in addition to the frames that it requests: ROLLOUTS_GAME_TIMEOUT_S,
// else 60.
std::chrono::seconds GameTimeout();

}  // namespace rollouts
