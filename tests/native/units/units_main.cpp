// SPDX-License-Identifier: Apache-2.0
// Runs every test and prints a line for each: "ok NAME" or "failed NAME what".
#include <cstdio>

#include "units.h"

int main() {
  for (const auto& [name, body] : rollouts::units::Tests()) {
    try {
      body();
      std::printf("ok %s\n", name.c_str());
    } catch (const std::exception& error) {
      std::printf("failed %s %s\n", name.c_str(), error.what());
    }
    // what comes after a crash is known to be missing
    std::fflush(stdout);
  }
  return 0;
}
