// SPDX-License-Identifier: Apache-2.0
// Looks up the symbols that the ale-py wheel exports.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "rollouts/support/errors.h"

namespace rollouts {

inline constexpr const char* kTestedAleVersions = ">=0.12,<0.13";

// The mangled name of libstdc++'s string, for GCC and Clang.
inline constexpr const char* kMangledText = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

inline std::string AleAdvice(const std::string& version) {
  return std::string("; ale-py ") + version + " is installed, rollouts was tested with " +
         kTestedAleVersions + ": pip install \"ale-py" + kTestedAleVersions + "\"";
}

// Looks symbols up and remembers which are missing.
class AleResolver {
 public:
  explicit AleResolver(void* handle) : handle_(handle) {}

  template <typename T>
  void operator()(T*& symbol, const std::string& name) {
    // the others are looked up too after a missing one, because the message counts the missing ones
    symbol = reinterpret_cast<T*>(dlsym(handle_, name.c_str()));
    if (!symbol) missing_.push_back(name);
  }

  // Throws EngineError unless all symbols were found.
  void CheckAllFound(const std::string& version) const {
    if (missing_.empty()) return;
    throw EngineError("ale_py does not export " + std::to_string(missing_.size()) +
                      " C++ symbols that rollouts needs, the first is " + missing_.front() +
                      AleAdvice(version));
  }

 private:
  void* handle_;
  std::vector<std::string> missing_;
};

}  // namespace rollouts
