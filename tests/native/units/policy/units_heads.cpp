// SPDX-License-Identifier: Apache-2.0
// policy/heads.h by numbers worked out by hand, and what policies and environments must agree on.
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "rollouts/core/rng.h"
#include "rollouts/policy/native_policy.h"
#include "rollouts/support/errors.h"
#include "units.h"
#include "units_policy.h"

namespace rollouts::policy {
namespace {

using units::MessageOf;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const double kLogTwoPi = std::log(2 * std::numbers::pi);

// Within the rounding of a few float operations on numbers of this size.
bool IsNear(float found, double expected) {
  return std::abs(static_cast<double>(found) - expected) <= 2e-6 * (1 + std::abs(expected));
}

using Feature = std::function<float(std::int32_t k, std::int32_t column)>;

// A head's choices for one group of columns.
struct Chosen {
  Chosen(const Head& head, const NoiseKeys& keys, std::int32_t size, const Feature& first,
         std::int32_t second_size = 0, const Feature& second = {},
         const std::vector<float>& bounds = {})
      : one(std::int64_t{size} * kColumns),
        two(std::int64_t{second_size} * kColumns),
        box(std::int64_t{size} * kColumns) {
    for (std::int32_t c = 0; c < kColumns; ++c) {
      for (std::int32_t k = 0; k < size; ++k) one.data()[k * kColumns + c] = first(k, c);
      for (std::int32_t k = 0; k < second_size; ++k) two.data()[k * kColumns + c] = second(k, c);
    }
    out.box = box.data();
    HeadInputs inputs{
        .first = one.data(), .second = two.data(), .size = size, .second_size = second_size};
    if (!bounds.empty()) inputs.bounds = bounds.data();
    BestKernels().act(head, inputs, keys, out);
  }
  float At(std::int32_t k, std::int32_t column) { return box.data()[k * kColumns + column]; }

  Scratch one, two, box;
  HeadOutputs out;
};

NoiseKeys Keys(std::uint32_t episode = 3, std::uint32_t step = 9) {
  NoiseKeys keys;
  for (std::uint32_t c = 0; c < kColumns; ++c) {
    keys.env_id[c] = 1000 + c;
    keys.episode[c] = episode + c;
    keys.step[c] = step + 2 * c;
  }
  return keys;
}

constexpr std::uint64_t kSeed = 0x123456789ABCDEFu;

// Word `w` of a block of a column's noise.
std::uint32_t WordOf(const NoiseKeys& keys, std::int32_t c, std::uint32_t block, int w) {
  const PhiloxBlock drawn = Philox4x32({{block, keys.env_id[c], keys.episode[c], keys.step[c]}},
                                       static_cast<std::uint32_t>(kSeed), kSeed >> 32);
  return drawn.word[w];
}

double UniformOfWord(std::uint32_t word) { return (word >> 8) * 0x1p-24; }

// Number `d` of a column's normally distributed ones: four of each block, two of two words.
double NormalOf(const NoiseKeys& keys, std::int32_t c, std::int32_t d) {
  const int pair = d % 4 / 2 * 2;
  const auto block = static_cast<std::uint32_t>(d / 4);
  const double radius =
      std::sqrt(-2 * std::log(1 - UniformOfWord(WordOf(keys, c, block, pair))));
  const double turn = 2 * std::numbers::pi * UniformOfWord(WordOf(keys, c, block, pair + 1));
  return radius * (d % 2 == 0 ? std::cos(turn) : std::sin(turn));
}

TEST(CategoricalHead, TakesTheFirstOfTheLikeliestWhereItIsDeterministic) {
  const Head head{.kind = HeadKind::kCategorical, .deterministic = true};
  Chosen all(head, {}, 4, [](std::int32_t k, std::int32_t c) { return k == c % 4 ? 2.0f : 0.0f; });
  for (std::int32_t c = 0; c < kColumns; ++c) CHECK_EQ(all.out.index[c], c % 4);
  Chosen equal(head, {}, 4, [](std::int32_t k, std::int32_t) { return k == 0 ? -1.0f : 5.0f; });
  CHECK_EQ(equal.out.index[0], 1);
}

TEST(CategoricalHead, SaysProbabilityAndEntropyOfItsLogits) {
  // shares 1, 2 and 5 of 8, however large the logits are
  for (const float more : {0.0f, 1000.0f, -1000.0f}) {
    Chosen chosen({.kind = HeadKind::kCategorical, .deterministic = true}, {}, 3,
                  [&](std::int32_t k, std::int32_t) {
                    return more + std::log(k == 0 ? 1.0f : k == 1 ? 2.0f : 5.0f);
                  });
    const double entropy =
        -(std::log(1.0 / 8) + 2 * std::log(2.0 / 8) + 5 * std::log(5.0 / 8)) / 8;
    // at 1000 a float has 14 bits behind the point
    const double allowed = more == 0 ? 1e-6 : 1e-4;
    for (std::int32_t c = 0; c < kColumns; ++c) {
      CHECK(std::abs(static_cast<double>(chosen.out.log_prob[c]) - std::log(5.0 / 8)) < allowed);
      CHECK(std::abs(static_cast<double>(chosen.out.entropy[c]) - entropy) < allowed);
    }
  }
}

TEST(CategoricalHead, DrawsByTheFirstWordOfItsNoise) {
  const std::vector<double> shares{0.125, 0.5, 0.25, 0.125};
  std::set<std::int32_t> seen;
  for (std::uint32_t step = 0; step < 200; ++step) {
    const NoiseKeys keys = Keys(3, step);
    Chosen chosen({.kind = HeadKind::kCategorical, .seed = kSeed}, keys, 4,
                  [&](std::int32_t k, std::int32_t) {
                    return static_cast<float>(std::log(shares[static_cast<std::size_t>(k)]));
                  });
    for (std::int32_t c = 0; c < kColumns; ++c) {
      double rest = UniformOfWord(WordOf(keys, c, 0, 0));
      std::int32_t action = 0;
      // where rounding decides there is nothing to compare
      bool is_close = false;
      for (double cumulated = 0; action < 4; ++action) {
        cumulated += shares[static_cast<std::size_t>(action)];
        is_close |= std::abs(cumulated - rest) < 1e-6;
        if (cumulated > rest) break;
      }
      if (is_close) continue;
      CHECK_EQ(chosen.out.index[c], action);
      CHECK(IsNear(chosen.out.log_prob[c], std::log(shares[static_cast<std::size_t>(action)])));
      seen.insert(action);
    }
  }
  CHECK_EQ(seen.size(), std::size_t{4});
}

TEST(CategoricalHead, NeverTakesWhatHasNoProbability) {
  // the first, one in between and the last
  for (std::uint32_t step = 0; step < 300; ++step) {
    Chosen chosen({.kind = HeadKind::kCategorical, .seed = kSeed}, Keys(0, step), 5,
                  [](std::int32_t k, std::int32_t) { return k % 2 == 0 ? -kInfinity : 0.0f; });
    for (std::int32_t c = 0; c < kColumns; ++c) {
      CHECK_EQ(chosen.out.index[c] % 2, 1);
      CHECK(IsNear(chosen.out.log_prob[c], -std::log(2.0)));
      CHECK(IsNear(chosen.out.entropy[c], std::log(2.0)));
    }
  }
}

TEST(CategoricalHead, HasOneActionOfProbabilityOne) {
  Chosen chosen({.kind = HeadKind::kCategorical, .seed = 1}, Keys(), 1,
                [](std::int32_t, std::int32_t c) { return static_cast<float>(c); });
  for (std::int32_t c = 0; c < kColumns; ++c) {
    CHECK_EQ(chosen.out.index[c], 0);
    CHECK_EQ(chosen.out.log_prob[c], 0.0f);
    CHECK_EQ(chosen.out.entropy[c], 0.0f);
  }
}

TEST(GaussianHead, IsAtItsMeanWhereItIsDeterministic) {
  Chosen chosen({.kind = HeadKind::kGaussian, .deterministic = true}, Keys(), 3,
                [](std::int32_t k, std::int32_t c) { return static_cast<float>(10 * k - c); }, 3,
                [](std::int32_t k, std::int32_t) { return -0.5f * static_cast<float>(k); });
  for (std::int32_t c = 0; c < kColumns; ++c) {
    for (std::int32_t k = 0; k < 3; ++k) CHECK_EQ(chosen.At(k, c), static_cast<float>(10 * k - c));
    // deviations e^0, e^-0.5 and e^-1
    CHECK(IsNear(chosen.out.log_prob[c], 1.5 - 1.5 * kLogTwoPi));
    CHECK(IsNear(chosen.out.entropy[c], -1.5 + 1.5 * (1 + kLogTwoPi)));
  }
}

// A block of words is enough for four dimensions.
void SamplesAreMeanAndNoise(std::int32_t size, std::int32_t num_log_stds) {
  const NoiseKeys keys = Keys();
  const auto log_std = [&](std::int32_t k) {
    return num_log_stds == 1 ? 0.25f : 0.25f * static_cast<float>(k) - 0.5f;
  };
  Chosen chosen({.kind = HeadKind::kGaussian, .seed = kSeed}, keys, size,
                [](std::int32_t k, std::int32_t c) { return static_cast<float>(k) - 0.5f * static_cast<float>(c); },
                num_log_stds, [&](std::int32_t k, std::int32_t) { return log_std(k); });
  for (std::int32_t c = 0; c < kColumns; ++c) {
    double log_prob = 0, entropy = 0;
    for (std::int32_t k = 0; k < size; ++k) {
      const double noise = NormalOf(keys, c, k), log = static_cast<double>(log_std(k));
      CHECK(IsNear(chosen.At(k, c), k - 0.5 * c + std::exp(log) * noise));
      log_prob += -0.5 * noise * noise - log - 0.5 * kLogTwoPi;
      entropy += log + 0.5 * (1 + kLogTwoPi);
    }
    CHECK(IsNear(chosen.out.log_prob[c], log_prob));
    CHECK(IsNear(chosen.out.entropy[c], entropy));
  }
}

TEST(GaussianHead, SamplesAreMeanPlusDeviationTimesNoise) {
  for (const std::int32_t size : {1, 2, 3, 4, 5, 7, 9}) SamplesAreMeanAndNoise(size, size);
}

TEST(GaussianHead, OneDeviationServesAllDimensions) { SamplesAreMeanAndNoise(5, 1); }

TEST(TanhGaussianHead, DensityIsOfTheSquashedSample) {
  const NoiseKeys keys = Keys(0, 1);
  Chosen chosen({.kind = HeadKind::kTanhGaussian, .seed = kSeed}, keys, 2,
                [](std::int32_t k, std::int32_t) { return 0.25f * static_cast<float>(k); }, 2,
                [](std::int32_t, std::int32_t) { return -0.5f; });
  for (std::int32_t c = 0; c < kColumns; ++c) {
    double log_prob = 0;
    for (std::int32_t k = 0; k < 2; ++k) {
      const double noise = NormalOf(keys, c, k);
      const double action = std::tanh(0.25 * k + std::exp(-0.5) * noise);
      CHECK(IsNear(chosen.At(k, c), action));
      log_prob += -0.5 * noise * noise + 0.5 - 0.5 * kLogTwoPi - std::log(1 - action * action);
    }
    CHECK(std::abs(static_cast<double>(chosen.out.log_prob[c]) - log_prob) < 1e-5);
    // that of the Gaussian below
    CHECK(IsNear(chosen.out.entropy[c], -1.0 + 1 + kLogTwoPi));
  }
}

TEST(TanhGaussianHead, FarSamplesKeepAFiniteDensity) {
  for (const float mean : {40.0f, -40.0f}) {
    Chosen chosen({.kind = HeadKind::kTanhGaussian, .deterministic = true}, {}, 1,
                  [&](std::int32_t, std::int32_t) { return mean; }, 1,
                  [](std::int32_t, std::int32_t) { return 0.0f; });
    CHECK_EQ(chosen.At(0, 0), mean > 0 ? 1.0f : -1.0f);
    // log(1 - tanh(x)^2) is 2 (log 2 - |x|) there
    CHECK(IsNear(chosen.out.log_prob[0], -0.5 * kLogTwoPi - 2 * (std::log(2.0) - 40)));
  }
}

TEST(TanhGaussianHead, IsScaledToItsBounds) {
  const std::vector<float> low{-3.0f, 0.5f}, high{1.0f, 0.75f};
  const NoiseKeys keys = Keys(0, 1);
  const auto choose = [&](const std::vector<float>& bounds) {
    return Chosen({.kind = HeadKind::kTanhGaussian, .seed = kSeed}, keys, 2,
                  [](std::int32_t k, std::int32_t c) { return static_cast<float>(4 * k - c); }, 1,
                  [](std::int32_t, std::int32_t) { return 0.25f; }, bounds);
  };
  Chosen unit = choose({}), scaled = choose(SquashingBounds(low, high));
  for (std::int32_t c = 0; c < kColumns; ++c) {
    CHECK(IsNear(scaled.At(0, c), -1 + 2 * static_cast<double>(unit.At(0, c))));
    CHECK(IsNear(scaled.At(1, c), 0.625 + 0.125 * static_cast<double>(unit.At(1, c))));
    CHECK(scaled.At(0, c) >= low[0] && scaled.At(0, c) <= high[0]);
    CHECK(scaled.At(1, c) >= low[1] && scaled.At(1, c) <= high[1]);
    const double wider = std::log(2.0) + std::log(0.125);
    CHECK(IsNear(scaled.out.log_prob[c], static_cast<double>(unit.out.log_prob[c]) - wider));
    CHECK_EQ(scaled.out.entropy[c], unit.out.entropy[c]);
  }
}

TEST(EpsilonGreedyHead, TakesTheFirstBestWithoutEpsilon) {
  for (const bool deterministic : {false, true}) {
    const Head head{.kind = HeadKind::kEpsilonGreedy,
                    .deterministic = deterministic,
                    .epsilon = deterministic ? 1.0f : 0.0f,
                    .seed = kSeed};
    Chosen chosen(head, Keys(), 3,
                  [](std::int32_t k, std::int32_t c) { return k >= c % 3 ? 1.0f : 0.0f; });
    for (std::int32_t c = 0; c < kColumns; ++c) {
      CHECK_EQ(chosen.out.index[c], c % 3);
      CHECK_EQ(chosen.out.log_prob[c], 0.0f);
      CHECK_EQ(chosen.out.entropy[c], 0.0f);
    }
  }
}

TEST(EpsilonGreedyHead, OneWordSaysWhetherAndTheNextWhich) {
  int explored = 0;
  for (std::uint32_t step = 0; step < 100; ++step) {
    const NoiseKeys keys = Keys(7, step);
    Chosen chosen({.kind = HeadKind::kEpsilonGreedy, .epsilon = 0.375f, .seed = kSeed}, keys, 5,
                  [](std::int32_t k, std::int32_t) { return k == 2 ? 1.0f : 0.0f; });
    for (std::int32_t c = 0; c < kColumns; ++c) {
      const bool explores = UniformOfWord(WordOf(keys, c, 0, 0)) < 0.375;
      const auto any = static_cast<std::int32_t>(5 * UniformOfWord(WordOf(keys, c, 0, 1)));
      CHECK_EQ(chosen.out.index[c], explores ? any : 2);
      explored += explores;
    }
  }
  // 600 expected of 1600 draws, with a deviation of 19
  CHECK(explored > 500 && explored < 700);
}

// -- a policy and its environments -------------------------------------------------------------

// Outputs of these sizes for observations of six numbers.
NativePolicy PolicyOf(HeadKind kind, const std::vector<std::int32_t>& sizes) {
  Program program{.obs_size = 6, .ops = {}, .params = {}, .outputs = {}};
  for (const std::int32_t size : sizes) {
    const std::vector<float> zeros(static_cast<std::size_t>(size), 0.0f);
    program.ops.push_back(MakeOp(OpKind::kLiteral, {}, size, {}, zeros));
    program.outputs.push_back(static_cast<std::int32_t>(program.ops.size()));
  }
  const auto network = std::make_shared<const Network>(program);
  return {network, Packed(*network, {}), {.kind = kind}};
}

EnvSpec SpecOf(std::int32_t num_actions, std::int32_t box_size = 0,
               DType dtype = DType::kFloat32) {
  EnvSpec spec;
  spec.observation.ndim = 2;
  spec.observation.shape[0] = 2, spec.observation.shape[1] = 3;
  spec.action.n = num_actions;
  spec.action.dtype = dtype;
  if (box_size > 0) spec.action.ndim = 1, spec.action.shape[0] = box_size;
  return spec;
}

void CheckFits(const NativePolicy& policy, const EnvSpec& spec) {
  policy.CheckFits(spec.observation, spec.action);
}

std::string Said(const NativePolicy& policy, const EnvSpec& spec) {
  return MessageOf<SpecError>([&] { CheckFits(policy, spec); });
}

TEST(NativePolicy, KnowsWhetherItHasAValue) {
  CHECK(!PolicyOf(HeadKind::kCategorical, {3}).has_value());
  CHECK(PolicyOf(HeadKind::kEpsilonGreedy, {3, 1}).has_value());
  CHECK(!PolicyOf(HeadKind::kGaussian, {3, 3}).has_value());
  CHECK(PolicyOf(HeadKind::kTanhGaussian, {3, 1, 1}).has_value());
}

TEST(NativePolicy, FitsItsEnvironments) {
  CheckFits(PolicyOf(HeadKind::kCategorical, {3}), SpecOf(3));
  CheckFits(PolicyOf(HeadKind::kEpsilonGreedy, {3, 1}), SpecOf(3));
  CheckFits(PolicyOf(HeadKind::kGaussian, {2, 2, 1}), SpecOf(0, 2));
  CheckFits(PolicyOf(HeadKind::kTanhGaussian, {2, 1}), SpecOf(0, 2, DType::kFloat64));
}

TEST(NativePolicy, ChoosesTheElementsThatItsEnvironmentsHave) {
  NativePolicy policy = PolicyOf(HeadKind::kMultiCategorical, {5});
  policy.nvec = {2, 3};
  EnvSpec spec = SpecOf(0, 2, DType::kInt32);
  spec.action.multi_discrete = spec.action.elementwise = true;
  spec.action.high[0] = 1, spec.action.high[1] = 2;
  CheckFits(policy, spec);
  const std::string message =
      "the policy chooses 2 numbers of a MultiDiscrete action, and the environments' are not of "
      "these";
  spec.action.high[1] = 3;
  CHECK_EQ(Said(policy, spec), message);
  CHECK_EQ(Said(policy, SpecOf(5)), message);
}

TEST(NativePolicy, SaysWhatDoesNotFit) {
  EnvSpec other = SpecOf(3);
  other.observation.shape[1] = 4;
  CHECK_EQ(Said(PolicyOf(HeadKind::kCategorical, {3}), other),
           "the policy reads observations of 6 numbers, and those of the environments have 8");
  CHECK_EQ(Said(PolicyOf(HeadKind::kCategorical, {3}), SpecOf(0, 3)),
           "the policy chooses one of several actions, and the environments' are a Box");
  CHECK_EQ(Said(PolicyOf(HeadKind::kGaussian, {3, 3}), SpecOf(3)),
           "the policy's actions are a Box, and the environments' are not");
  CHECK_EQ(Said(PolicyOf(HeadKind::kGaussian, {3, 3}), SpecOf(0, 3, DType::kInt32)),
           "the policy's actions are floats, and the environments' are not");
  CHECK_EQ(Said(PolicyOf(HeadKind::kCategorical, {4}), SpecOf(3)),
           "the policy's network says 4 numbers of an action, expected 3");
  CHECK_EQ(Said(PolicyOf(HeadKind::kGaussian, {2, 2}), SpecOf(0, 3)),
           "the policy's network says 2 numbers of an action, expected 3");
  CHECK_EQ(Said(PolicyOf(HeadKind::kGaussian, {3, 2}), SpecOf(0, 3)),
           "the policy's network gives 2 standard deviations, expected 3 or 1");
  CHECK_EQ(Said(PolicyOf(HeadKind::kEpsilonGreedy, {3, 2}), SpecOf(3)),
           "the policy's network gives 2 values for an observation, expected 1");
  CHECK_EQ(Said(PolicyOf(HeadKind::kGaussian, {3, 3, 3}), SpecOf(0, 3)),
           "the policy's network gives 3 values for an observation, expected 1");
}

}  // namespace
}  // namespace rollouts::policy
