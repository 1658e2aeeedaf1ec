// SPDX-License-Identifier: Apache-2.0
// Gradient steps on minibatches, for any loss, in place in the parameters' own memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rollouts/policy/gradients.h"
#include "rollouts/policy/optimizers.h"
#include "rollouts/replay/worker_threads.h"

namespace rollouts::policy {

// The place of an operation's parameter in an array of the module: element (i, j) is number start +
// i * strides[0] + j * strides[1].
struct ParamView {
  std::int32_t source = 0;
  std::int64_t start = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;

  std::int64_t num_elements() const;
  // Tells if the elements lie one after the other, in order.
  bool is_dense() const;
  // Tells if the elements are dense and are the whole array.
  bool is_whole(std::int64_t source_size) const;
};

// An array of the module, and what the optimiser keeps for it: `squares` (the momentum buffer with
// kSgd; null where the array is not trained), and with Adam `means`.
struct Source {
  float* weights = nullptr;
  std::int64_t size = 0;
  float* means = nullptr;
  float* squares = nullptr;
  StepRule rule;           // step_size and root_scale are computed from `steps`
  std::int64_t steps = 0;  // made before this one
};

// The numbers to which a limit of gradients applies.
enum class ClipBy {
  kAll,      // the norm of all together
  kEach,     // the norm of each array's gradient
  kElement,  // the absolute value of each number
};

// Replaces numbers by their mean over the processes that train together, or throws. The thread that
// makes the update calls it, between the gradients and the step of each minibatch. Null: the
// process trains alone.
using MeanOverProcesses = std::function<void(std::span<float> numbers)>;

// One caller at a time; the object's own threads compute. The bits are the same for any number of
// threads.
class GradientSteps {
 public:
  // The number of parts of a minibatch does not depend on the number of threads, and the parts'
  // sums are added in a fixed order.
  static constexpr std::int32_t kMostParts = 8;

  GradientSteps(const Program& program, std::vector<ParamView> views,
                const std::vector<bool>& trained, std::int32_t num_threads);

  const Network& network() const { return gradients_.network(); }

  // Computes the gradients of rows or sequences [0, count) with the weights of `sources`. `before`:
  // the number of steps that this object has made since these were read. `loss` writes the
  // gradients of the outputs. One thread computes each part, and calls Begin before the part's
  // first rows. Returns the number of parts. Throws SpecError where a parameter is not finite, and
  // what `stop` raises.
  using Begin = std::function<void(std::size_t part)>;
  using PartLoss = std::function<void(std::size_t part, const ChunkOutputs& outputs)>;
  std::size_t Compute(std::span<const Source> sources, std::size_t before, std::int64_t count,
                      const Sequences& sequences, const Gradients::Load& load, const Begin& begin,
                      const PartLoss& loss, const UpdateStop& stop = {});
  // Runs the forward pass alone; `use` gets the outputs.
  void RunForward(std::span<const Source> sources, std::int64_t count, const Sequences& sequences,
                  const Gradients::Load& load, const Begin& begin, const PartLoss& use,
                  const UpdateStop& stop = {});
  // Replaces the gradients of all trained sources, and `others`, by their mean over the processes.
  void Average(std::span<const Source> sources, std::span<float> others,
               const MeanOverProcesses& mean);
  // The norm of the gradients of all trained sources.
  double FindNorm(std::span<const Source> sources) const;
  // Throws SpecError where the norm is not finite.
  void CheckNorm(double norm, std::size_t minibatch) const;
  // Throws SpecError for a number, named `what`, that is not finite.
  [[noreturn]] static void Refuse(std::size_t minibatch, const std::string& what);
  // Changes the weights by the gradients, which `max_norm` limits. `before`: the number of steps
  // made since the sources were read.
  void Step(std::span<const Source> sources, std::size_t before, double norm,
            const std::optional<double>& max_norm, ClipBy by = ClipBy::kAll);
  // Steps made by this object. Thread-safe.
  std::int64_t num_steps() const { return num_steps_; }

 private:
  struct Part {
    std::int64_t first, last;
    std::vector<float> sums;
    Gradients::Room room;
  };
  // Cuts rows [0, count) into parts and calls `run` for each, by several threads.
  void ForEachPart(std::int64_t count, std::int32_t num_steps, const UpdateStop& stop,
                   const std::function<void(std::size_t)>& run);
  void ForEachSource(std::size_t num_sources, const std::function<void(std::size_t)>& use);
  void Clip(std::span<const Source> sources, double limit, ClipBy by);
  void ReadParams(std::span<const Source> sources, bool are_finite);
  void SortBySource(std::size_t num_sources);
  void AddParts(std::int64_t begin, std::int64_t end);
  void FindGradient(std::size_t source);
  void FindRules(std::span<const Source> sources, std::size_t before);

  const Gradients gradients_;
  const std::vector<ParamView> views_;
  replay::WorkerThreads threads_;
  Gradients::Weights weights_;
  std::vector<std::vector<std::size_t>> params_of_, sums_of_;  // by source
  std::vector<std::vector<float>> gathered_;  // params that are not dense
  std::vector<std::span<float>> of_sources_;      // gradients: in the first part's sums or in kept_
  std::vector<std::vector<float>> kept_;          // by source
  std::vector<double> squares_;                 // sums of their squares, before the limit
  std::vector<std::uint8_t> are_finite_;        // by source: its weights, after the last step
  std::vector<StepRule> rules_;                 // settings of the present step
  std::vector<float> averaged_;                 // numbers that are averaged over the processes
  std::vector<std::vector<float>> of_params_;   // gradients of params that are not whole arrays
  std::vector<Part> parts_;
  std::size_t num_parts_ = 0;  // in the last minibatch
  std::atomic<std::int64_t> num_steps_{0};
};

}  // namespace rollouts::policy
