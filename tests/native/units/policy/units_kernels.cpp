// SPDX-License-Identifier: Apache-2.0
// policy/kernels.h: what a network computes, against loops that a reader can follow.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "rollouts/support/errors.h"
#include "units.h"
#include "units_policy.h"

namespace rollouts::policy {
namespace {

using units::Contains;
using units::MessageOf;

// Numbers between -1 and 1 whose sums are rounded.
class Numbers {
 public:
  explicit Numbers(std::uint32_t seed) : random_(seed) {}
  float One() { return static_cast<float>(random_()) * 0x1p-31f - 1; }
  std::vector<float> Many(std::int64_t count) {
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (float& number : numbers) number = One();
    return numbers;
  }

 private:
  std::mt19937 random_;
};

// The columns of an observation of several features: each its own.
struct Observed {
  Observed(std::int32_t size, std::uint32_t seed) : values(Numbers(seed).Many(size * kColumns)) {}
  float operator()(std::int32_t k, std::int32_t column) const {
    return values[static_cast<std::size_t>(k * kColumns + column)];
  }
  std::vector<float> values;
};

void LayerIsItsLoop(std::int32_t inputs, std::int32_t outputs, bool with_bias) {
  Program program{.obs_size = inputs,
                  .ops = {MakeOp(OpKind::kLinear, {0}, outputs, {0})},
                  .params = {{"w", std::int64_t{inputs} * outputs}},
                  .outputs = {1}};
  Numbers numbers(static_cast<std::uint32_t>(100 * inputs + outputs));
  Arrays arrays{numbers.Many(std::int64_t{inputs} * outputs)};
  if (with_bias) {
    program.ops[0].params.push_back(1);
    program.params.push_back({"b", outputs});
    arrays.push_back(numbers.Many(outputs));
  }
  const Observed obs(inputs, 7);
  const Network network(program);
  Ran ran(network, arrays, obs);
  for (std::int32_t o = 0; o < outputs; ++o) {
    for (std::int32_t c = 0; c < kColumns; ++c) {
      // each product rounded with its sum, in the order of the inputs: the same bits everywhere
      float sum = with_bias ? arrays[1][static_cast<std::size_t>(o)] : 0;
      double exact = sum;
      for (std::int32_t k = 0; k < inputs; ++k) {
        const float weight = arrays[0][static_cast<std::size_t>(o * inputs + k)];
        sum = std::fma(weight, obs(k, c), sum);
        exact += static_cast<double>(weight) * static_cast<double>(obs(k, c));
      }
      CHECK_EQ(ran.At(0, o, c), sum);
      // a rounding of half a unit for each of at most 40 sums below 41
      CHECK(std::abs(static_cast<double>(sum) - exact) < 41 * 41 * 0x1p-24);
    }
  }
}

TEST(Kernels, ALayerOfEveryWidthIsTheLoopOverItsInputs) {
  for (std::int32_t outputs = 1; outputs <= 40; ++outputs) {
    for (const std::int32_t inputs : {1, 2, 5, 16, 40}) LayerIsItsLoop(inputs, outputs, true);
    LayerIsItsLoop(3, outputs, false);
  }
}

TEST(Kernels, FewColumnsHaveTheBitsOfAll) {
  const Program program{.obs_size = 3,
                        .ops = {MakeOp(OpKind::kLinear, {0}, 21, {0}), MakeOp(OpKind::kTanh, {1}, 21),
                                MakeOp(OpKind::kLayerNorm, {2}, 21, {}, {1e-5f}),
                                MakeOp(OpKind::kAdd, {2, 3}, 21)},
                        .params = {{"w", 3 * 21}},
                        .outputs = {4}};
  const Arrays arrays{Numbers(5).Many(3 * 21)};
  const Observed obs(3, 6);
  const Network network(program);
  Ran all(network, arrays, obs);
  for (std::int32_t columns = 1; columns <= kColumns; ++columns) {
    Ran few(network, arrays, obs, columns);
    for (std::int32_t k = 0; k < 21; ++k) {
      for (std::int32_t c = 0; c < columns; ++c) CHECK_EQ(few.At(0, k, c), all.At(0, k, c));
    }
  }
}

TEST(Kernels, PaddingOfALayerIsNotStored) {
  for (std::int32_t outputs = 1; outputs <= 20; ++outputs) {
    const Network network({.obs_size = 2,
                           .ops = {MakeOp(OpKind::kLinear, {0}, outputs, {0})},
                           .params = {{"w", 2 * std::int64_t{outputs}}},
                           .outputs = {1}});
    // numbers behind the layer, where the padding would go
    std::vector<float> rows(static_cast<std::size_t>(network.num_rows() + 20) * kColumns, 9.0f);
    const std::vector<float> params = Packed(network, {Numbers(3).Many(2 * outputs)});
    const auto steps = network.instructions();
    BestKernels().forward(steps.data(), 1, params.data(), rows.data(), kColumns);
    for (std::size_t i = static_cast<std::size_t>(2 + outputs) * kColumns; i < rows.size(); ++i) {
      CHECK_EQ(rows[i], 9.0f);
    }
  }
}

// The result of one operation on features (a) or (a, b) for column 0 of a group.
float Computed(OpKind kind, std::vector<float> numbers, float a, float b = 0) {
  const bool binary = kind >= OpKind::kAdd && kind <= OpKind::kEqual;
  Program program{.obs_size = 2,
                  .ops = {MakeOp(OpKind::kSlice, {0}, 1, {}, {0}), MakeOp(OpKind::kSlice, {0}, 1, {}, {1}),
                          MakeOp(kind, {1}, 1, {}, std::move(numbers))},
                  .params = {},
                  .outputs = {3}};
  if (binary) program.ops[2].inputs.push_back(2);
  const Network network(program);
  Ran ran(network, {}, [&](std::int32_t k, std::int32_t) { return k == 0 ? a : b; });
  for (std::int32_t c = 1; c < kColumns; ++c) {
    const float here = ran.At(0, 0, c), first = ran.At(0, 0, 0);
    CHECK(here == first || (std::isnan(here) && std::isnan(first)));
  }
  return ran.At(0, 0, 0);
}

struct Unary {
  const char* name;
  OpKind kind;
  std::vector<float> numbers;
  double (*function)(double);
  bool positive = false;
};

const std::vector<Unary>& Unaries() {
  static const std::vector<Unary> all{
      {"tanh", OpKind::kTanh, {}, [](double x) { return std::tanh(x); }},
      {"relu", OpKind::kRelu, {}, [](double x) { return x > 0 ? x : 0; }},
      {"sigmoid", OpKind::kSigmoid, {}, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"silu", OpKind::kSilu, {}, [](double x) { return x / (1 + std::exp(-x)); }},
      {"gelu", OpKind::kGelu, {}, [](double x) { return x / 2 * (1 + std::erf(x * std::sqrt(0.5))); }},
      {"gelu_tanh", OpKind::kGeluTanh, {}, [](double x) {
         return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       }},
      {"elu", OpKind::kElu, {1.5f}, [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); }},
      {"leaky_relu", OpKind::kLeakyRelu, {0.25f}, [](double x) { return x > 0 ? x : 0.25 * x; }},
      {"softplus", OpKind::kSoftplus, {}, [](double x) { return std::log1p(std::exp(x)); }},
      {"exp", OpKind::kExp, {}, [](double x) { return std::exp(x); }},
      {"log", OpKind::kLog, {}, [](double x) { return std::log(x); }, true},
      {"sqrt", OpKind::kSqrt, {}, [](double x) { return std::sqrt(x); }, true},
      {"square", OpKind::kSquare, {}, [](double x) { return x * x; }},
      {"clamp", OpKind::kClamp, {-1, 2}, [](double x) { return x < -1 ? -1 : x > 2 ? 2 : x; }},
      {"scale", OpKind::kScale, {3, -0.5f}, [](double x) { return 3 * x - 0.5; }},
  };
  return all;
}

TEST(Kernels, EachFunctionOfAFeatureIsItsFormula) {
  for (const Unary& each : Unaries()) {
    for (float x = -6; x <= 6; x += 0.375f) {
      if (each.positive && x <= 0) continue;
      const auto found = static_cast<double>(Computed(each.kind, each.numbers, x));
      const double expected = each.function(static_cast<double>(x));
      // a few roundings of numbers of the size of x: gelu subtracts from 1
      const double allowed = 4e-7 * (std::abs(expected) + std::abs(static_cast<double>(x)) + 0.1);
      if (std::abs(found - expected) <= allowed) continue;
      throw units::Failure(std::string(each.name) + " of " + std::to_string(x) + " is " +
                           std::to_string(found) + ", expected " + std::to_string(expected));
    }
  }
}

TEST(Kernels, NotANumberGoesThroughEveryFunction) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Unary& each : Unaries()) {
    const float found = Computed(each.kind, each.numbers, nan);
    if (!std::isnan(found)) {
      throw units::Failure(std::string(each.name) + " of nan is " + std::to_string(found));
    }
  }
}

TEST(Kernels, InfiniteBoundsBindNothing) {
  CHECK_EQ(Computed(OpKind::kClamp, {-kInfinity, 1}, -1e30f), -1e30f);
  CHECK_EQ(Computed(OpKind::kClamp, {-1, kInfinity}, 1e30f), 1e30f);
  CHECK_EQ(Computed(OpKind::kClamp, {-1, 1}, kInfinity), 1.0f);
}

TEST(Kernels, TwoFeaturesMeetInTheirOrder) {
  CHECK_EQ(Computed(OpKind::kAdd, {}, 6, -4), 2.0f);
  CHECK_EQ(Computed(OpKind::kSub, {}, 6, -4), 10.0f);
  CHECK_EQ(Computed(OpKind::kMul, {}, 6, -4), -24.0f);
  CHECK_EQ(Computed(OpKind::kDiv, {}, 6, -4), -1.5f);
  CHECK_EQ(Computed(OpKind::kMinimum, {}, 6, -4), -4.0f);
  CHECK_EQ(Computed(OpKind::kMinimum, {}, -4, 6), -4.0f);
  CHECK_EQ(Computed(OpKind::kMaximum, {}, 6, -4), 6.0f);
  CHECK_EQ(Computed(OpKind::kMaximum, {}, -4, 6), 6.0f);
}

TEST(Kernels, ComparisonsAreOneOrZero) {
  const float nan = std::nanf("");
  for (const auto& [kind, less, same, more] : {std::tuple(OpKind::kGreater, 0.0f, 0.0f, 1.0f),
                                               std::tuple(OpKind::kGreaterEqual, 0.0f, 1.0f, 1.0f),
                                               std::tuple(OpKind::kEqual, 0.0f, 1.0f, 0.0f)}) {
    CHECK_EQ(Computed(kind, {}, -4, 6), less);
    CHECK_EQ(Computed(kind, {}, 0.0f, -0.0f), same);
    CHECK_EQ(Computed(kind, {}, kInfinity, 6), more);
    CHECK_EQ(Computed(kind, {}, nan, nan), 0.0f);
  }
}

TEST(Kernels, OneOfTwoIsChosenWhereANumberIsNotZero) {
  const Observed obs(9, 13);
  const auto condition = [](std::int32_t k, std::int32_t c) { return (k + c) % 3; };
  const auto seen = [&](std::int32_t k, std::int32_t c) {
    return k < 3 ? static_cast<float>(condition(k, c)) : obs(k, c);
  };
  // three features of each, or one of the second
  const auto part = [](std::int32_t size, float start) {
    return MakeOp(OpKind::kSlice, {0}, size, {}, {start});
  };
  for (const std::int32_t size : {1, 3}) {
    const Network network({.obs_size = 9,
                           .ops = {part(3, 0), part(size, 3), part(3, 6),
                                   MakeOp(OpKind::kWhere, {1, 2, 3}, 3)},
                           .params = {},
                           .outputs = {4}});
    Ran ran(network, {}, seen);
    for (std::int32_t k = 0; k < 3; ++k) {
      for (std::int32_t c = 0; c < kColumns; ++c) {
        const bool holds = condition(k, c) != 0;
        CHECK_EQ(ran.At(0, k, c), holds ? obs(size == 1 ? 3 : 3 + k, c) : obs(6 + k, c));
      }
    }
  }
}

TEST(Kernels, OneFeatureMeetsEachOfTheOthers) {
  const Observed obs(5, 11);
  for (const bool one_first : {false, true}) {
    const Network network({.obs_size = 5,
                           .ops = {MakeOp(OpKind::kSlice, {0}, 1, {}, {3}),
                                   MakeOp(OpKind::kSub, one_first ? std::vector{1, 0} : std::vector{0, 1}, 5)},
                           .params = {},
                           .outputs = {2}});
    Ran ran(network, {}, obs);
    for (std::int32_t k = 0; k < 5; ++k) {
      for (std::int32_t c = 0; c < kColumns; ++c) {
        const float one = obs(3, c), each = obs(k, c);
        CHECK_EQ(ran.At(0, k, c), one_first ? one - each : each - one);
      }
    }
  }
}

TEST(Kernels, ANormalisationIsOfEachColumnAlone) {
  for (const std::size_t num_params : {0u, 1u, 2u}) {
    std::vector<std::int32_t> params;
    for (std::size_t i = 0; i < num_params; ++i) params.push_back(static_cast<std::int32_t>(i));
    const Network network({.obs_size = 4,
                           .ops = {MakeOp(OpKind::kLayerNorm, {0}, 4, params, {0.75f})},
                           .params = {{"gain", 4}, {"bias", 4}},
                           .outputs = {1}});
    // 1, 2, 3, 4 times the column's number, and 5 more: the variance is 1.25 times its square
    Ran ran(network, {{1, 2, 3, 4}, {10, 20, 30, 40}}, [](std::int32_t k, std::int32_t c) {
      return static_cast<float>((k + 1) * c + 5);
    });
    for (std::int32_t k = 0; k < 4; ++k) {
      for (std::int32_t c = 0; c < kColumns; ++c) {
        double expected = (k - 1.5) * c / std::sqrt(1.25 * c * c + 0.75);
        if (num_params > 0) expected *= k + 1;
        if (num_params > 1) expected += 10 * (k + 1);
        // roundings of numbers up to 70
        CHECK(std::abs(static_cast<double>(ran.At(0, k, c)) - expected) < 1e-5);
      }
    }
  }
}

TEST(Kernels, ANormalisationOfEqualFeaturesIsTheBias) {
  const Network network({.obs_size = 3,
                         .ops = {MakeOp(OpKind::kLayerNorm, {0}, 3, {0, 1}, {1e-5f})},
                         .params = {{"gain", 3}, {"bias", 3}},
                         .outputs = {1}});
  Ran ran(network, {{7, 7, 7}, {1, 2, 3}},
          [](std::int32_t, std::int32_t c) { return static_cast<float>(c * 64); });
  for (std::int32_t k = 0; k < 3; ++k) CHECK_EQ(ran.At(0, k, 5), static_cast<float>(k + 1));
}

TEST(Kernels, AnIndexPicksARowAndOneOutOfRangeTheFirst) {
  const Network network({.obs_size = 1,
                         .ops = {MakeOp(OpKind::kEmbedding, {0}, 3, {0})},
                         .params = {{"table", 15}},
                         .outputs = {1}});
  std::vector<float> table(15);
  for (std::size_t i = 0; i < 15; ++i) table[i] = static_cast<float>(i);
  Ran ran(network, {table},
          [](std::int32_t, std::int32_t c) { return static_cast<float>(c - 4); });
  for (std::int32_t c = 0; c < kColumns; ++c) {
    const std::int32_t index = c - 4;
    const std::int32_t row = index < 0 || index > 4 ? 0 : index;
    for (std::int32_t k = 0; k < 3; ++k) CHECK_EQ(ran.At(0, k, c), static_cast<float>(3 * row + k));
  }
}

TEST(Kernels, ConstantsAndLiteralsStandInEveryColumn) {
  const Network network({.obs_size = 1,
                         .ops = {MakeOp(OpKind::kLiteral, {}, 18, {}, std::vector<float>(18, 2.5f)),
                                 MakeOp(OpKind::kConstant, {}, 2, {0}),
                                 MakeOp(OpKind::kConcat, {2, 1}, 20)},
                         .params = {{"a", 2}},
                         .outputs = {3, 2}});
  Ran ran(network, {{-1, -2}}, [](std::int32_t, std::int32_t) { return 0.0f; });
  for (std::int32_t c = 0; c < kColumns; ++c) {
    CHECK_EQ(ran.At(1, 1, c), -2.0f);
    CHECK_EQ(ran.At(0, 0, c), -1.0f);
    CHECK_EQ(ran.At(0, 1, c), -2.0f);
    for (std::int32_t k = 2; k < 20; ++k) CHECK_EQ(ran.At(0, k, c), 2.5f);
  }
}

TEST(Kernels, UnknownOnesAreAnErrorThatNamesThoseOfThisMachine) {
  const std::vector<std::string> names = KernelNames();
  CHECK(!names.empty());
  for (const std::string& name : names) CHECK_EQ(KernelsOf(name).name, name);
  const std::string said = MessageOf<SpecError>([] { KernelsOf("sse9"); });
  CHECK(Contains(said, "kernels are 'sse9', and this machine can run: " + names[0]));
}

}  // namespace
}  // namespace rollouts::policy
