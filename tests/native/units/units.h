// SPDX-License-Identifier: Apache-2.0
// Tests of single headers of the core: see test_native_units.py, which compiles and runs them.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace rollouts::units {

using Body = void (*)();

// Tests by name, such as "SumTree.FindsTheWeight".
inline std::map<std::string, Body>& Tests() {
  static std::map<std::string, Body> tests;
  return tests;
}

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename A, typename B>
void CheckEqual(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  std::ostringstream out;
  out.precision(17);
  out << file << ":" << line << ": " << text << ": " << a << " and " << b;
  throw Failure(out.str());
}

// The message of the Error that `body` throws; a Failure where it throws none.
template <typename Error, typename F>
std::string MessageOf(F&& body) {
  try {
    std::forward<F>(body)();
  } catch (const Error& error) {
    return error.what();
  }
  throw Failure("nothing was thrown");
}

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace rollouts::units

#define TEST(suite, name)                                                              \
  void suite##name();                                                                  \
  const bool suite##name##IsKnown =                                                    \
      (rollouts::units::Tests()[#suite "." #name] = suite##name, true);                \
  void suite##name()

#define CHECK(condition)                                                               \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::ostringstream out;                                                          \
      out << __FILE__ << ":" << __LINE__ << ": not true: " << #condition;              \
      throw rollouts::units::Failure(out.str());                                       \
    }                                                                                  \
  } while (false)

#define CHECK_EQ(a, b) rollouts::units::CheckEqual((a), (b), #a " == " #b, __FILE__, __LINE__)
