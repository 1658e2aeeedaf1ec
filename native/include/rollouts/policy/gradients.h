// SPDX-License-Identifier: Apache-2.0
// Gradients of a network's parameters for batches of rows: a reverse pass over its program.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "rollouts/policy/backward.h"
#include "rollouts/policy/network.h"
#include "rollouts/policy/update_stop.h"

namespace rollouts::policy {

// Some rows of a batch as columns: the network's outputs for them, and the places where a loss
// writes the outputs' gradients. Column i of output o is at `output(o)[k * kColumns + i]`, i <
// columns.
struct ChunkOutputs {
  const Network* network;
  const float* values;
  float* gradients;
  std::int64_t first;    // row of the batch; with memory, sequence of the batch
  std::int32_t columns;  // at most kColumns
  std::int32_t step = 0;  // place in the sequences

  const float* output(std::size_t index) const {
    return values + network->output_row(index) * kColumns;
  }
  // The gradient of an output, initially 0. A loss adds to it, because several outputs may be one
  // register.
  float* gradient(std::size_t index) const {
    return gradients + network->output_row(index) * kColumns;
  }
};

// Rows as sequences, where a network has memory. Without memory each row is a sequence of one step.
struct Sequences {
  std::int32_t num_steps = 1;
  // The number of first steps that only prepare the states of later ones; no gradient goes through
  // them.
  std::int32_t burn_in = 0;
  const float* initial = nullptr;  // (state_size): the states that an episode begins with
  // Tells if an episode begins with a step of a sequence other than its first.
  std::function<bool(std::int64_t sequence, std::int32_t step)> begins;
};

// Immutable; any number of threads may compute with it.
class Gradients {
 public:
  // Throws SpecError as Network does. `trained`: whether the gradient of each of program.params is
  // wanted.
  Gradients(const Program& program, const std::vector<bool>& trained);

  const Network& network() const { return network_; }

  // Parameters as the passes read them. Matrices of linears stay where they are, so their memory
  // must not change until both passes are done; all others are packed.
  struct Weights {
    std::vector<float> packed;
    std::vector<const float*> params;
  };
  // Throws SpecError where a parameter is not finite. `are_finite`: the caller has already checked
  // that.
  void Pack(std::span<const std::span<const float>> params, Weights& weights,
            bool are_finite = false) const;

  // Memory of one thread.
  struct Room {
    std::vector<float> values, gradients, transposed, carried;
  };

  // Runs rows [first, last) of a batch forward, calls `loss` on each group of them, and runs them
  // backward. Writes `sums` (num_sums). `load` writes rows [first, first + columns) as columns
  // (input_size, kColumns); after the first step it need not write the states. Sequences run
  // forward through all steps, and then back. Where `stop` is over, the remaining rows are left
  // out.
  using Load = std::function<void(std::int64_t first, std::int32_t columns, std::int32_t step,
                                  float* to)>;
  using Loss = std::function<void(const ChunkOutputs& outputs)>;
  void Run(const Weights& weights, std::int64_t first, std::int64_t last, const Sequences& sequences,
           const Load& load, const Loss& loss, Room& room, float* sums,
           const UpdateStop& stop = {}) const;
  // Runs the forward pass alone; `loss` gets the outputs, with null gradients.
  void RunForward(const Weights& weights, std::int64_t first, std::int64_t last,
                  const Sequences& sequences, const Load& load, const Loss& loss, Room& room,
                  const UpdateStop& stop = {}) const;

  // The place of a parameter's gradient among the sums. Each row has `columns` numbers, in an array
  // (rows, padded), and then `tail` sums over lanes, in an array (rows, tail, kColumns) after the
  // first.
  struct Sum {
    std::int32_t param;
    std::int64_t offset;
    std::int32_t rows, columns, padded, tail;

    std::int64_t tails() const { return offset + std::int64_t{rows} * padded; }
    std::int64_t end() const { return tails() + std::int64_t{rows} * tail * kColumns; }
    // Tells if the sums have the layout of the gradient.
    bool is_plain() const { return tail == 0 && columns == padded; }
  };
  std::int64_t num_sums() const { return num_sums_; }
  // The places of all parameters, in the order in which they are added up. A parameter that several
  // operations read has several places.
  std::span<const Sum> sums() const { return sums_; }
  // Writes the sums of one place to an array of the parameter's own size, or adds them.
  static void Unpack(const float* sums, const Sum& place, bool adds, float* gradient);
  // Adds the sums of all places; null stands for a parameter whose gradient is not wanted.
  void Unpack(const float* sums, std::span<float* const> gradients) const;

 private:
  struct Pass;
  struct Group;

  Pass MakePass(std::int64_t num_rows, const Sequences& sequences, Room& room) const;
  void Forward(const Weights& weights, const Sequences& sequences, const Load& load,
               const Pass& pass) const;
  void Backward(const Weights& weights, const Sequences& sequences, const Loss& loss,
                const Pass& pass, float* sums) const;
  void TakeStates(const Sequences& sequences, const Group& group, std::int32_t step,
                  const float* before, float* rows) const;
  void AddCarried(const float* carried, float* gradients) const;
  void Carry(const Sequences& sequences, const Group& group, std::int32_t step,
             const float* gradients, float* carried) const;
  void Plan(const std::vector<bool>& trained);
  std::vector<bool> FindWanted(const std::vector<bool>& trained) const;
  void PlanInputs(const std::vector<bool>& wanted);
  void PlanTanh();
  void PlanLinear(std::size_t op, BackwardStep& step);
  void PlanSums(std::size_t op, const std::vector<bool>& trained, BackwardStep& step);

  const Network network_;
  std::vector<BackwardStep> steps_;  // for each of the network's instructions
  std::vector<Sum> sums_;
  std::vector<std::pair<std::int32_t, std::int32_t>> zeroed_;  // rows (first, count) of gradients
  std::int64_t num_sums_ = 0;
  std::int64_t num_transposed_ = 0;
};

}  // namespace rollouts::policy
