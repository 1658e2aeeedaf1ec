// SPDX-License-Identifier: Apache-2.0
// data/: returns of more environments than a block of columns has, and nothing written beside them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "rollouts/data/gae.h"
#include "rollouts/data/nstep.h"
#include "rollouts/data/vtrace.h"
#include "units.h"

namespace rollouts {
namespace {

constexpr double kGamma = 0.9;
constexpr float kUntouched = -77;

// A random fragment, and results with room before and behind them.
struct Estimated {
  Estimated(std::int64_t num_steps, std::int64_t num_envs) : steps(num_steps), envs(num_envs) {
    std::mt19937 random(static_cast<std::uint32_t>(100 * steps + envs));
    const auto cells = static_cast<std::size_t>(steps * envs);
    for (auto* array : {&reward, &value, &bootstrap, &behaviour, &target_log_prob}) {
      for (std::size_t i = 0; i < cells; ++i) array->push_back(static_cast<float>(random() % 64) / 16 - 2);
    }
    for (std::size_t i = 0; i < cells; ++i) {
      terminated.push_back(random() % 5 == 0), truncated.push_back(random() % 5 == 0);
    }
    for (std::int64_t b = 0; b < envs; ++b) last_value.push_back(static_cast<float>(random() % 8));
    advantage.assign(cells + 2 * kColumnBlock, kUntouched), target = advantage;
  }

  Fragment<float> In() const {
    return {steps, envs, reward.data(), value.data(), terminated.data(), truncated.data(),
            bootstrap.data(), last_value.data()};
  }
  Returns Out() { return {advantage.data() + kColumnBlock, target.data() + kColumnBlock}; }

  std::size_t Cell(std::int64_t t, std::int64_t b) const { return static_cast<std::size_t>(t * envs + b); }
  bool Ended(std::size_t i) const { return terminated[i] || truncated[i]; }
  // The value of what follows row t of column b.
  double Next(std::int64_t t, std::int64_t b) const {
    const std::size_t i = Cell(t, b);
    if (terminated[i]) return 0;
    if (truncated[i]) return static_cast<double>(bootstrap[i]);
    return static_cast<double>(t + 1 < steps ? value[Cell(t + 1, b)] : last_value[static_cast<std::size_t>(b)]);
  }
  double Reward(std::int64_t t, std::int64_t b) const { return static_cast<double>(reward[Cell(t, b)]); }
  double Value(std::int64_t t, std::int64_t b) const { return static_cast<double>(value[Cell(t, b)]); }

  using Formula = std::function<double(std::int64_t t, std::int64_t b)>;
  void Check(const Formula& expected_advantage, const Formula& expected_target) const {
    for (std::int64_t t = 0; t < steps; ++t) {
      for (std::int64_t b = 0; b < envs; ++b) {
        const std::size_t i = Cell(t, b) + kColumnBlock;
        // float32 results of sums in double
        const double off = std::abs(static_cast<double>(advantage[i]) - expected_advantage(t, b)) +
                           std::abs(static_cast<double>(target[i]) - expected_target(t, b));
        CHECK(off < 1e-4);
      }
    }
    for (const auto* array : {&advantage, &target}) {
      for (std::int64_t i = 0; i < kColumnBlock; ++i) {
        CHECK_EQ((*array)[static_cast<std::size_t>(i)], kUntouched);
        CHECK_EQ((*array)[array->size() - 1 - static_cast<std::size_t>(i)], kUntouched);
      }
    }
  }

  std::int64_t steps, envs;
  std::vector<float> reward, value, bootstrap, behaviour, target_log_prob, last_value, advantage, target;
  std::vector<std::uint8_t> terminated, truncated;
};

// Fragments whose columns are less than a block, one, and some with a rest.
const std::vector<std::pair<std::int64_t, std::int64_t>> kShapes{
    {1, 1}, {1, 65}, {7, 63}, {7, 64}, {7, 65}, {20, 3}, {5, 129}};

TEST(Gae, EveryColumnOfEveryBlockIsTheSum) {
  for (const auto& [steps, envs] : kShapes) {
    for (const double lambda : {0.0, 0.8, 1.0}) {
      Estimated world(steps, envs);
      Gae(world.In(), kGamma, lambda, world.Out());
      const auto advantage = [&](std::int64_t t, std::int64_t b) {
        double sum = 0, weight = 1;
        for (std::int64_t k = t; k < world.steps; ++k, weight *= kGamma * lambda) {
          sum += weight * (world.Reward(k, b) + kGamma * world.Next(k, b) - world.Value(k, b));
          if (world.Ended(world.Cell(k, b))) break;
        }
        return sum;
      };
      world.Check(advantage, [&](std::int64_t t, std::int64_t b) {
        return advantage(t, b) + world.Value(t, b);
      });
    }
  }
}

TEST(Nstep, EveryColumnOfEveryBlockIsTheSum) {
  for (const auto& [steps, envs] : kShapes) {
    for (const std::int64_t n : {1, 3, 1000}) {
      Estimated world(steps, envs);
      Nstep(world.In(), kGamma, n, world.Out());
      const auto target = [&](std::int64_t t, std::int64_t b) {
        double sum = 0, weight = 1;
        for (std::int64_t k = t;; ++k) {
          sum += weight * world.Reward(k, b);
          weight *= kGamma;
          const bool is_last = k + 1 == world.steps || k + 1 == t + n;
          if (is_last || world.Ended(world.Cell(k, b))) return sum + weight * world.Next(k, b);
        }
      };
      world.Check([&](std::int64_t t, std::int64_t b) { return target(t, b) - world.Value(t, b); },
                  target);
    }
  }
}

TEST(Vtrace, EveryColumnOfEveryBlockIsTheRecursion) {
  const VtraceOptions options{.gamma = kGamma, .lambda = 0.8, .rho_bar = 1.5, .c_bar = 0.75};
  for (const auto& [steps, envs] : kShapes) {
    Estimated world(steps, envs);
    Vtrace(world.In(), world.behaviour.data(), world.target_log_prob.data(), options, world.Out());
    const auto ratio = [&](std::int64_t t, std::int64_t b) {
      const std::size_t i = world.Cell(t, b);
      return std::exp(static_cast<double>(world.target_log_prob[i]) - static_cast<double>(world.behaviour[i]));
    };
    const auto rho = [&](std::int64_t t, std::int64_t b) { return std::min(1.5, ratio(t, b)); };
    const Estimated::Formula target = [&](std::int64_t t, std::int64_t b) -> double {
      const double next = world.Next(t, b);
      const double delta = rho(t, b) * (world.Reward(t, b) + kGamma * next - world.Value(t, b));
      const bool goes_on = !world.Ended(world.Cell(t, b)) && t + 1 < world.steps;
      const double later = goes_on ? target(t + 1, b) - next : 0;
      return world.Value(t, b) + delta + kGamma * 0.8 * std::min(0.75, ratio(t, b)) * later;
    };
    world.Check(
        [&](std::int64_t t, std::int64_t b) {
          const bool goes_on = !world.Ended(world.Cell(t, b)) && t + 1 < world.steps;
          const double next = goes_on ? target(t + 1, b) : world.Next(t, b);
          return rho(t, b) * (world.Reward(t, b) + kGamma * next - world.Value(t, b));
        },
        target);
  }
}

// Some of the columns of wider arrays: the bits that they have there, and not a cell beside them.
TEST(Fragment, ColumnsOfWiderArraysAreEstimatedAlone) {
  constexpr std::int64_t kFirst = 3;
  const VtraceOptions options{.gamma = kGamma, .lambda = 0.8, .rho_bar = 1.5, .c_bar = 0.75};
  for (const std::int64_t count : {1, 64, 70}) {
    for (int kind = 0; kind < 4; ++kind) {
      Estimated whole(9, 90), part(9, 90);
      const auto estimate = [&](Estimated& world, std::int64_t first, std::int64_t envs) {
        Fragment<float> in = world.In();
        const Returns out{world.Out().advantage + first, world.Out().target + first};
        in = {in.steps, envs, in.reward + first, in.value + first, in.terminated + first,
              in.truncated + first, in.bootstrap_value + first, in.last_value + first, in.envs};
        if (kind == 0) Gae(in, kGamma, 0.9, out);
        if (kind == 1) Nstep(in, kGamma, 2, out);
        if (kind == 2) Nstep(in, kGamma, 1000, out);
        if (kind == 3) {
          Vtrace(in, world.behaviour.data() + first, world.target_log_prob.data() + first, options, out);
        }
      };
      estimate(whole, 0, 90);
      estimate(part, kFirst, count);
      for (std::int64_t t = 0; t < 9; ++t) {
        for (std::int64_t b = 0; b < 90; ++b) {
          const std::size_t i = whole.Cell(t, b) + kColumnBlock;
          const bool inside = b >= kFirst && b < kFirst + count;
          CHECK_EQ(part.advantage[i], inside ? whole.advantage[i] : kUntouched);
          CHECK_EQ(part.target[i], inside ? whole.target[i] : kUntouched);
        }
      }
    }
  }
}

}  // namespace
}  // namespace rollouts
