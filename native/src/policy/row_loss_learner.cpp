// SPDX-License-Identifier: Apache-2.0
#include "rollouts/policy/row_loss_learner.h"

#include <cmath>

#include "policy/columns.h"
#include "rollouts/policy/kernels.h"
#include "rollouts/support/errors.h"

namespace rollouts::policy {

RowLossLearner::RowLossLearner(const Program& program, std::vector<ParamView> views,
                               const std::vector<bool>& trained, std::int32_t num_threads)
    : steps_(program, std::move(views), trained, num_threads) {
  const std::size_t count = network().num_outputs();
  for (std::size_t o = 0; o < count; ++o) num_outputs_ += network().output_size(o);
  if (count > 0 && network().output_size(0) == 1) return;
  throw SpecError("the first output is no loss: expected one number for each row");
}

void RowLossLearner::WriteOutputs(const ChunkOutputs& chunk, float* outputs) const {
  for (std::int32_t i = 0; i < chunk.columns; ++i) {
    float* to = outputs + (chunk.first + i) * num_outputs_;
    for (std::size_t o = 0; o < network().num_outputs(); ++o) {
      const float* from = chunk.output(o) + i;
      for (std::int32_t k = 0; k < network().output_size(o); ++k) *to++ = from[k * kColumns];
    }
  }
}

RowLossReport RowLossLearner::Compute(std::span<const Source> sources, const float* rows,
                                      std::int64_t count, float* outputs,
                                      const UpdateStop& stop, const MeanOverProcesses& mean) {
  norm_.reset();
  const std::int64_t size = network().input_size();
  const float share = 1.0f / static_cast<float>(count);
  const auto load = [&](std::int64_t first, std::int32_t columns, std::int32_t, float* to) {
    GatherColumns(rows + first * size, columns, size, to);
  };
  const auto loss = [&](std::size_t, const ChunkOutputs& chunk) {
    WriteOutputs(chunk, outputs);
    float* gradient = chunk.gradient(0);
    for (std::int32_t i = 0; i < chunk.columns; ++i) gradient[i] += share;
  };
  steps_.Compute(sources, 0, count, {}, load, [](std::size_t) {}, loss, stop);
  double sum = 0;
  for (std::int64_t row = 0; row < count; ++row) sum += outputs[row * num_outputs_];
  auto found = static_cast<float>(sum / static_cast<double>(count));
  if (mean) steps_.Average(sources, {&found, 1}, mean);
  if (!std::isfinite(found)) GradientSteps::Refuse(0, "a loss");
  const double norm = steps_.FindNorm(sources);
  steps_.CheckNorm(norm, 0);
  norm_ = norm;
  return {.loss = found, .norm = static_cast<float>(norm)};
}

void RowLossLearner::Apply(std::span<const Source> sources, const std::optional<double>& max_norm,
                           ClipBy by) {
  if (!norm_) throw SpecError("there are no gradients, which are computed before each step");
  steps_.Step(sources, 0, *norm_, max_norm, by);
  norm_.reset();
}

void MoveTowards(std::int64_t size, const float* from, float share, float* to) {
  BestKernels().move(size, from, share, to);
}

}  // namespace rollouts::policy
