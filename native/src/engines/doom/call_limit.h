// SPDX-License-Identifier: Apache-2.0
// An end for calls into a game: who waits for one that says nothing any more would wait for ever.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace rollouts {

// Ends the game from a thread, while it lives, when the time is over. The call that waits
// for it then fails as for any game that has ended.
class CallLimit {
 public:
  // `folder`: the game's, in which its guardian says who it is; empty: there is no game yet.
  // Throws EngineError where no thread can start.
  CallLimit(const std::string& folder, std::chrono::seconds limit);
  ~CallLimit();
  CallLimit(const CallLimit&) = delete;
  CallLimit& operator=(const CallLimit&) = delete;

  // Whether the time is over, and the game has been ended for it.
  bool expired() const;

 private:
  std::int64_t call_ = 0;  // 0: no game, no limit
};

// Seconds that a call may take beside the frames that it asks for: ROLLOUTS_GAME_TIMEOUT_S, else 60.
std::chrono::seconds GameTimeout();

}  // namespace rollouts
