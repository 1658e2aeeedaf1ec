// SPDX-License-Identifier: Apache-2.0
// policy/network.h: registers share memory where their values are not needed at the same time.
#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "units.h"
#include "units_policy.h"

namespace rollouts::policy {
namespace {

// A program of random operations that are exact on small whole numbers, and what its registers hold
// where each has memory of its own.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint32_t seed) : random_(seed) {
    program_.obs_size = 3;
    registers_ = {{1, -2, 3}};
    for (int i = 0; i < 14; ++i) AddOperation();
    for (int i = 0; i < 4; ++i) program_.outputs.push_back(AnyRegister());
  }

  void Check() {
    const Network network(program_);
    Ran ran(network, {}, [&](std::int32_t k, std::int32_t c) {
      return c == 6 ? registers_[0][static_cast<std::size_t>(k)] : static_cast<float>(c);
    });
    for (std::size_t o = 0; o < program_.outputs.size(); ++o) {
      const std::vector<float>& expected = registers_[static_cast<std::size_t>(program_.outputs[o])];
      CHECK_EQ(static_cast<std::size_t>(network.output_size(o)), expected.size());
      for (std::size_t k = 0; k < expected.size(); ++k) {
        CHECK_EQ(ran.At(o, static_cast<std::int32_t>(k), 6), expected[k]);
      }
    }
  }

 private:
  std::int32_t Below(std::size_t n) { return static_cast<std::int32_t>(random_() % n); }
  // recent ones more often, so that there are chains
  std::int32_t AnyRegister() {
    const auto size = static_cast<std::int32_t>(registers_.size());
    return random_() % 2 ? size - 1 : Below(registers_.size());
  }
  std::int32_t SizeOf(std::int32_t at) {
    return static_cast<std::int32_t>(registers_[static_cast<std::size_t>(at)].size());
  }

  void AddOperation() {
    const std::int32_t a = AnyRegister(), b = AnyRegister();
    const std::vector<float> x = registers_[static_cast<std::size_t>(a)];
    const std::vector<float> y = registers_[static_cast<std::size_t>(b)];
    std::vector<float> made;
    const auto kind = Below(4);
    if (kind == 0 && SizeOf(a) > 1) {
      const std::int32_t start = Below(x.size() - 1) + 1;
      made.assign(x.begin() + start, x.end());
      Add(MakeOp(OpKind::kSlice, {a}, 0, {}, {static_cast<float>(start)}), made);
    } else if (kind == 1 && SizeOf(a) + SizeOf(b) < 12) {
      made = x;
      made.insert(made.end(), y.begin(), y.end());
      Add(MakeOp(OpKind::kConcat, {a, b}, 0), made);
    } else if (kind == 2 && (SizeOf(a) == SizeOf(b) || SizeOf(a) == 1 || SizeOf(b) == 1)) {
      for (std::size_t k = 0; k < std::max(x.size(), y.size()); ++k) {
        made.push_back(x[x.size() == 1 ? 0 : k] - y[y.size() == 1 ? 0 : k]);
      }
      Add(MakeOp(OpKind::kSub, {a, b}, 0), made);
    } else {
      for (const float each : x) made.push_back(1 - each);
      Add(MakeOp(OpKind::kScale, {a}, 0, {}, {-1, 1}), made);
    }
  }

  void Add(Op op, std::vector<float> made) {
    op.size = static_cast<std::int32_t>(made.size());
    program_.ops.push_back(std::move(op));
    registers_.push_back(std::move(made));
  }

  std::mt19937 random_;
  Program program_;
  std::vector<std::vector<float>> registers_;
};

TEST(Kernels, NoRegisterIsWrittenOverWhileItIsRead) {
  for (std::uint32_t seed = 0; seed < 3000; ++seed) RandomProgram(seed).Check();
}

}  // namespace
}  // namespace rollouts::policy
