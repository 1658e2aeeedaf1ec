// SPDX-License-Identifier: Apache-2.0
// Gradient steps of random networks by several threads under a sanitizer. Their weights are those of
// one thread, bit for bit.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "rollouts/policy/ppo_learner.h"

namespace rollouts::policy {
namespace {

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition);    \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (false)

using Random = std::mt19937;

std::int32_t Between(Random& random, std::int32_t low, std::int32_t high) {
  return std::uniform_int_distribution<std::int32_t>(low, high)(random);
}

std::vector<float> Normals(Random& random, std::size_t count, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> found(count);
  for (float& each : found) each = normal(random);
  return found;
}

// Parameters of a module, as an optimiser has them.
struct Module {
  Program program;
  std::vector<ParamView> views;
  std::vector<std::vector<float>> weights, means, squares;

  std::int32_t AddParam(Random& random, std::int32_t rows, std::int32_t columns) {
    const auto size = static_cast<std::size_t>(rows) * columns;
    weights.push_back(Normals(random, size, 0.3f));
    means.emplace_back(size);
    squares.emplace_back(size);
    program.params.push_back({"param" + std::to_string(views.size()), std::int64_t(size)});
    views.push_back({.source = static_cast<std::int32_t>(views.size()),
                     .start = 0,
                     .shape = {rows, columns},
                     .strides = {columns, 1}});
    return static_cast<std::int32_t>(views.size()) - 1;
  }

  // Register of a layer on `input`.
  std::int32_t AddLinear(Random& random, std::int32_t input, std::int32_t inputs,
                         std::int32_t size) {
    const std::int32_t matrix = AddParam(random, size, inputs), bias = AddParam(random, size, 1);
    return AddOp(OpKind::kLinear, {input}, size, {matrix, bias});
  }

  std::int32_t AddOp(OpKind kind, std::vector<std::int32_t> inputs, std::int32_t size,
                     std::vector<std::int32_t> params = {}, std::vector<float> numbers = {}) {
    program.ops.push_back({kind, std::move(inputs), std::move(params), std::move(numbers), size});
    return static_cast<std::int32_t>(program.ops.size());
  }

  std::vector<Source> Sources(std::int64_t steps, OptimizerKind kind) {
    std::vector<Source> found;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      found.push_back({.weights = weights[i].data(),
                       .size = static_cast<std::int64_t>(weights[i].size()),
                       .means = means[i].data(),
                       .squares = squares[i].data(),
                       .rule = {.kind = kind, .lr = 1e-3f},
                       .steps = steps});
    }
    return found;
  }
};

// A trunk that policy and value share; a head of `actions` logits, or of means and deviations. With
// memory, a cell of `state_size` features behind the observation.
Module MakeModule(Random& random, std::int32_t obs_size, std::int32_t actions, bool is_box,
                  std::int32_t state_size) {
  Module module;
  module.program.obs_size = obs_size;
  std::int32_t features = 0, size = obs_size;
  if (state_size > 0) {
    module.program.states = {state_size};
    const std::int32_t obs = module.AddOp(OpKind::kSlice, {0}, obs_size, {}, {0.0f});
    const auto first = static_cast<float>(obs_size);
    const std::int32_t state = module.AddOp(OpKind::kSlice, {0}, state_size, {}, {first});
    const std::int32_t parts[] = {module.AddLinear(random, obs, obs_size, state_size),
                                  module.AddLinear(random, state, state_size, state_size)};
    features = module.AddOp(OpKind::kAdd, {parts[0], parts[1]}, state_size);
    features = module.AddOp(OpKind::kTanh, {features}, state_size);
    size = state_size;
  }
  const std::int32_t state = features;
  const OpKind activations[] = {OpKind::kTanh, OpKind::kRelu, OpKind::kSilu, OpKind::kGelu};
  for (std::int32_t layer = Between(random, 0, 3); layer > 0; --layer) {
    const std::int32_t next = Between(random, 1, 70);
    features = module.AddLinear(random, features, size, next);
    if (Between(random, 0, 2) == 0) {
      const std::int32_t gamma = module.AddParam(random, next, 1);
      const std::int32_t beta = module.AddParam(random, next, 1);
      features = module.AddOp(OpKind::kLayerNorm, {features}, next, {gamma, beta}, {1e-5f});
    }
    features = module.AddOp(activations[Between(random, 0, 3)], {features}, next);
    size = next;
  }
  module.program.outputs.push_back(module.AddLinear(random, features, size, actions));
  if (is_box) {
    const std::int32_t deviation = module.AddParam(random, actions, 1);
    module.program.outputs.push_back(module.AddOp(OpKind::kConstant, {}, actions, {deviation}));
  }
  module.program.outputs.push_back(module.AddLinear(random, features, size, 1));
  if (state_size > 0) module.program.outputs.push_back(state);
  return module;
}

struct Batch {
  std::int32_t num_steps;
  std::vector<float> obs, box, log_prob, advantage, target, value, states, initial;
  std::vector<std::int64_t> index, order;
  std::vector<std::uint8_t> ended, counts, mask;

  // `sequences` of `steps`, with `state_size` numbers of memory.
  Batch(Random& random, std::int64_t sequences, std::int32_t steps, std::int32_t obs_size,
        std::int32_t actions, std::int32_t state_size)
      : Batch(random, sequences * steps, obs_size, actions, steps) {
    states = Normals(random, sequences * state_size);
    initial = Normals(random, state_size);
  }

  Batch(Random& random, std::int64_t count, std::int32_t obs_size, std::int32_t actions,
        std::int32_t steps)
      : num_steps(steps),
        obs(Normals(random, count * obs_size)),
        box(Normals(random, count * actions)),
        log_prob(count, -1.0f),
        advantage(Normals(random, count)),
        target(Normals(random, count)),
        value(Normals(random, count)) {
    const std::int64_t sequences = count / num_steps;
    for (std::int64_t i = 0; i < count; ++i) {
      index.push_back(Between(random, 0, actions - 1));
      ended.push_back(Between(random, 0, 5) == 0);
      // the last step of each sequence does
      counts.push_back(i / sequences == num_steps - 1 || Between(random, 0, 3) > 0);
      for (std::int32_t a = 0; a < actions; ++a) {
        mask.push_back(a == index.back() || Between(random, 0, 1) == 1);
      }
    }
    // two epochs
    order.resize(2 * sequences);
    std::iota(order.begin(), order.begin() + sequences, 0);
    std::iota(order.begin() + sequences, order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
  }

  ActedRows Rows(bool is_box) const {
    return {.count = static_cast<std::int64_t>(log_prob.size()),
            .num_steps = num_steps,
            .burn_in = num_steps / 4,
            .states = states.data(),
            .initial = initial.data(),
            .ended = ended.data(),
            .obs = obs.data(),
            .index = is_box ? nullptr : index.data(),
            .box = is_box ? box.data() : nullptr,
            .mask = is_box ? nullptr : mask.data(),
            .log_prob = log_prob.data(),
            .advantage = advantage.data(),
            .target = target.data(),
            .value = value.data(),
            .counts = num_steps > 1 ? counts.data() : nullptr};
  }
};

// Weights after updates of one network, by so many threads.
std::vector<std::vector<float>> Train(unsigned seed, std::int32_t num_threads) {
  Random random(seed);
  const std::int32_t obs_size = Between(random, 1, 30), actions = Between(random, 2, 20);
  const bool is_box = Between(random, 0, 1) == 1;
  const std::int32_t state_size = seed % 2 == 0 ? 0 : Between(random, 1, 40);
  Module module = MakeModule(random, obs_size, actions, is_box, state_size);
  const Head head{.kind = is_box ? HeadKind::kGaussian : HeadKind::kCategorical};
  const std::vector<bool> trained(module.views.size(), true);
  PpoLearner learner(module.program, module.views, trained, head, {}, num_threads);
  const auto kind = static_cast<OptimizerKind>(Between(random, 0, 3));
  for (std::int64_t steps = 0; steps < 16;) {
    const std::int64_t count = Between(random, 1, state_size > 0 ? 80 : 600);
    const std::int32_t num_steps = state_size > 0 ? Between(random, 1, 12) : 1;
    const Batch batch(random, count, num_steps, obs_size, actions, state_size);
    const std::vector<Source> sources = module.Sources(steps, kind);
    PpoSettings settings;
    settings.rule.entropy_weight = 0.01f;
    settings.max_norm = 0.5;
    steps += static_cast<std::int64_t>(
        learner
            .Update(sources, batch.Rows(is_box), batch.order, Between(random, 1, 512), settings)
            .size());
  }
  return module.weights;
}

void ThreadsGiveTheBitsOfOne() {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const auto expected = Train(seed, 1);
    for (const std::int32_t num_threads : {2, 4, 8}) CHECK(Train(seed, num_threads) == expected);
  }
}

void LearnersWorkBesideEachOther() {
  std::vector<std::vector<float>> found[4];
  {
    std::vector<std::jthread> threads;
    for (auto& each : found) threads.emplace_back([&each] { each = Train(9, 3); });
  }
  for (const auto& each : found) CHECK(each == found[0]);
}

void ManyAreMadeAndForgotten() {
  for (unsigned seed = 100; seed < 160; ++seed) {
    Random random(seed);
    Module module = MakeModule(random, 4, 2, seed % 2 == 0, seed % 3);
    const Head head{.kind = seed % 2 == 0 ? HeadKind::kGaussian : HeadKind::kCategorical};
    const std::vector<bool> trained(module.views.size(), true);
    const PpoLearner learner(module.program, module.views, trained, head, {}, 4);
    CHECK(learner.num_steps() == 0);
  }
}

// Some updates end early, at any chunk of any thread. What they leave are whole steps.
void StoppedUpdatesLeaveWholeSteps() {
  for (const std::int64_t asked : {0, 1, 7, 20, 40}) {
    Random random(17);
    Module module = MakeModule(random, 5, 3, false, 8), other = module;
    const Head head{.kind = HeadKind::kCategorical};
    const std::vector<bool> trained(module.views.size(), true);
    PpoLearner learner(module.program, module.views, trained, head, {}, 4);
    const Batch batch(random, 700, 6, 5, 3, 8);
    std::atomic<std::int64_t> left{asked};
    const UpdateStop stop{[&] { return --left < 0; }, [] { throw std::runtime_error("over"); }};
    const auto kind = OptimizerKind::kAdam;
    bool was_stopped = false;
    try {
      learner.Update(module.Sources(0, kind), batch.Rows(false), batch.order, 300, {}, stop);
    } catch (const std::runtime_error&) {
      was_stopped = true;
    }
    CHECK(was_stopped);
    PpoLearner alone(other.program, other.views, trained, head, {}, 1);
    const std::span<const std::int64_t> made(batch.order.data(), 300 * learner.num_steps());
    alone.Update(other.Sources(0, kind), batch.Rows(false), made, 300, {});
    CHECK(module.weights == other.weights);
  }
}

struct Scenario {
  const char* name;
  void (*run)();
};

constexpr Scenario kScenarios[] = {
    {"learners_beside_each_other", LearnersWorkBesideEachOther},
    {"many_are_made", ManyAreMadeAndForgotten},
    {"stopped_updates", StoppedUpdatesLeaveWholeSteps},
    {"threads_give_the_bits_of_one", ThreadsGiveTheBitsOfOne},
};

}  // namespace
}  // namespace rollouts::policy

int main(int argc, char** argv) {
  for (const auto& [name, run] : rollouts::policy::kScenarios) {
    if (argc < 2) std::printf("%s\n", name);
    if (argc == 2 && std::strcmp(argv[1], name) == 0) return run(), 0;
  }
  return argc < 2 ? 0 : 2;
}
