// SPDX-License-Identifier: Apache-2.0
// Gradients of a network's parameters, of batches of rows: a reverse pass over its program.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "rollouts/policy/backward.h"
#include "rollouts/policy/network.h"

namespace rollouts::policy {

// Some rows of a batch as columns: what the network gave for them, and where a loss writes the
// gradients of that. Column i of output o is at `output(o)[k * kColumns + i]`, i < columns.
struct ChunkOutputs {
  const Network* network;
  const float* values;
  float* gradients;
  std::int64_t first;    // row of the batch
  std::int32_t columns;  // at most kColumns

  const float* output(std::size_t index) const {
    return values + network->output_row(index) * kColumns;
  }
  // 0 at first; several outputs may be one register, so a loss adds.
  float* gradient(std::size_t index) const {
    return gradients + network->output_row(index) * kColumns;
  }
};

// Immutable; any number of threads may compute with it.
class Gradients {
 public:
  // Throws SpecError as Network does. `trained`: for each of program.params, whether its gradient is
  // wanted.
  Gradients(const Program& program, const std::vector<bool>& trained);

  const Network& network() const { return network_; }

  // Parameters as both passes read them.
  struct Weights {
    std::vector<float> packed;
    std::vector<float> matrices;
  };
  // Throws SpecError where a parameter is not finite.
  void Pack(std::span<const std::span<const float>> params, Weights& weights) const;

  // Memory of one thread.
  struct Room {
    std::vector<float> values, gradients, transposed;
  };

  // Runs rows [first, last) of a batch forward, `loss` on each group of them, and backward. Adds to
  // `sums` (num_sums). `load` writes rows [first, first + columns) as columns (input_size, kColumns).
  using Load = std::function<void(std::int64_t first, std::int32_t columns, float* to)>;
  using Loss = std::function<void(const ChunkOutputs& outputs)>;
  void Run(const Weights& weights, std::int64_t first, std::int64_t last, const Load& load,
           const Loss& loss, Room& room, float* sums) const;

  std::int64_t num_sums() const { return num_sums_; }
  // The gradients in `sums`, added to arrays of the parameters' own sizes; null where one is not
  // wanted.
  void Unpack(const float* sums, std::span<float* const> gradients) const;

 private:
  void Plan(const std::vector<bool>& trained);
  std::vector<bool> FindWanted(const std::vector<bool>& trained) const;
  void PlanInputs(const std::vector<bool>& wanted);
  void PlanLinear(std::size_t op, BackwardStep& step);
  void PlanSums(std::size_t op, const std::vector<bool>& trained, BackwardStep& step);

  struct Matrix {
    std::int32_t param;
    std::int64_t offset;
    std::int32_t outputs, inputs, padded;
  };
  // The place of a parameter's gradient among the sums.
  struct Sum {
    std::int32_t param;
    std::int64_t offset;
    std::int32_t rows, columns, padded;  // columns 0: each row is a sum over kColumns lanes
  };

  const Network network_;
  std::vector<BackwardStep> steps_;  // beside the network's instructions
  std::vector<Matrix> matrices_;
  std::vector<Sum> sums_;
  std::vector<std::pair<std::int32_t, std::int32_t>> zeroed_;  // rows (first, count) of gradients
  std::int64_t num_matrices_ = 0;
  std::int64_t num_sums_ = 0;
  std::int64_t num_transposed_ = 0;
};

}  // namespace rollouts::policy
