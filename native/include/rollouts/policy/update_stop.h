// SPDX-License-Identifier: Apache-2.0
// Ends an update before all its steps are made, for example on Ctrl-C or at a time limit.
#pragma once

#include <functional>

namespace rollouts::policy {

// Functions that end an update; without them it makes all its steps.
struct UpdateStop {
  std::function<bool()> is_over;  // called now and then by each computing thread; does not throw
  std::function<void()> raise;    // throws, once the update is over; called by the caller's thread

  bool IsOver() const { return is_over && is_over(); }
  void Check() const {
    if (IsOver()) raise();
  }
};

}  // namespace rollouts::policy
