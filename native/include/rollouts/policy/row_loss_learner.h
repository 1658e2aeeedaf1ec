// SPDX-License-Identifier: Apache-2.0
// Gradient steps on a loss that the program itself computes: the mean of its first output over
// rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rollouts/policy/gradient_steps.h"

namespace rollouts::policy {

struct RowLossReport {
  float loss = 0;  // mean over rows
  float norm = 0;  // for all gradients together, before the limit
};

// Makes steps as GradientSteps does. The gradients of several learners may be computed before the
// first is applied.
class RowLossLearner {
 public:
  // Throws SpecError where the first output is not one number for each row.
  RowLossLearner(const Program& program, std::vector<ParamView> views,
                 const std::vector<bool>& trained, std::int32_t num_threads);

  const Network& network() const { return steps_.network(); }
  // The number of values in all outputs of a row.
  std::int64_t num_outputs() const { return num_outputs_; }

  // Computes the gradients of rows (count, input_size), with which `Apply` makes a step. `outputs`
  // (count, num_outputs) gets the outputs of the present weights. Throws SpecError where the loss,
  // a gradient or a parameter is not finite.
  RowLossReport Compute(std::span<const Source> sources, const float* rows, std::int64_t count,
                        float* outputs, const UpdateStop& stop = {},
                        const MeanOverProcesses& mean = {});
  // Makes a gradient step, once for each `Compute`. Throws SpecError where there are no gradients.
  void Apply(std::span<const Source> sources, const std::optional<double>& max_norm, ClipBy by);
  std::int64_t num_steps() const { return steps_.num_steps(); }

 private:
  void WriteOutputs(const ChunkOutputs& chunk, float* outputs) const;

  GradientSteps steps_;
  std::int64_t num_outputs_ = 0;
  std::optional<double> norm_;  // for gradients that were computed and not applied
};

// Moves `to` towards `from`: it becomes share * from + (1 - share) * to (Polyak and Juditsky 1992).
void MoveTowards(std::int64_t size, const float* from, float share, float* to);

}  // namespace rollouts::policy
