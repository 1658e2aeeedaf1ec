// SPDX-License-Identifier: Apache-2.0
// The end of an update before all its steps are made, such as Ctrl-C or a time limit.
#pragma once

#include <functional>

namespace rollouts::policy {

// Ways of ending an update; without functions it goes on to its end.
struct UpdateStop {
  std::function<bool()> is_over;  // asked now and then by each thread that computes; does not throw
  std::function<void()> raise;    // throws, once it is over; by the caller's thread

  bool IsOver() const { return is_over && is_over(); }
  void Check() const {
    if (IsOver()) raise();
  }
};

}  // namespace rollouts::policy
