// SPDX-License-Identifier: Apache-2.0
#include "rollouts/policy/gradients.h"

#include <algorithm>

#include "policy/columns.h"
#include "rollouts/policy/kernels.h"

namespace rollouts::policy {
namespace {

constexpr std::int32_t kBlock = 16;
// The most floats that a chunk of sequences keeps of its forward pass: above it, a chunk has fewer
// sequences.
constexpr std::int64_t kMostKept = std::int64_t{1} << 22;

std::int32_t Padded(std::int32_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

// The number of last inputs of a linear layer whose gradients are sums over lanes.
std::int32_t TailOf(std::int32_t inputs) {
  const std::int32_t rest = inputs % kBlock;
  return rest <= kMostTail ? rest : 0;
}

// Tells if a gradient goes through an operation to one of its inputs.
bool HasSlope(OpKind kind, std::size_t input) {
  switch (kind) {
    case OpKind::kGreater:
    case OpKind::kGreaterEqual:
    case OpKind::kEqual:
    case OpKind::kDetach:
    case OpKind::kEmbedding: return false;
    case OpKind::kWhere: return input > 0;
    default: return true;
  }
}

float* OnALine(std::vector<float>& memory, std::int64_t floats) {
  memory.resize(std::max(memory.size(), static_cast<std::size_t>(floats) + kBlock));
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64 / sizeof(float);
}

}  // namespace

Gradients::Gradients(const Program& program, const std::vector<bool>& trained)
    : network_(program, true) {
  Plan(trained);
}

// Finds registers that the outputs' gradients reach and that lead to a trained parameter, perhaps
// through earlier states.
std::vector<bool> Gradients::FindWanted(const std::vector<bool>& trained) const {
  const Program& program = network_.program();
  std::vector<bool> wanted{network_.state_size() > 0};
  for (const Op& op : program.ops) {
    bool wants = false;
    for (const std::int32_t param : op.params) wants = wants || trained[param];
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      wants = wants || (wanted[op.inputs[i]] && HasSlope(op.kind, i));
    }
    const auto name = static_cast<std::int32_t>(wanted.size());
    // a slice that is a part of the observation alone gets no gradient
    if (op.kind == OpKind::kSlice && network_.row(name) + op.size <= program.obs_size) wants = false;
    wanted.push_back(wants);
  }
  std::vector<bool> reached(wanted.size(), false);
  // register 0 is reached, because states are carried from step to step
  reached[0] = true;
  for (const std::int32_t output : program.outputs) reached[output] = true;
  for (std::size_t reg = wanted.size(); reg-- > 1;) {
    wanted[reg] = wanted[reg] && reached[reg];
    const Op& op = program.ops[reg - 1];
    for (std::size_t i = 0; wanted[reg] && i < op.inputs.size(); ++i) {
      if (HasSlope(op.kind, i)) reached[op.inputs[i]] = true;
    }
  }
  return wanted;
}

void Gradients::Plan(const std::vector<bool>& trained) {
  const Program& program = network_.program();
  const std::vector<bool> wanted = FindWanted(trained);
  steps_.resize(network_.instructions().size());
  PlanInputs(wanted);
  PlanTanh();
  std::vector<std::int64_t> places(program.ops.size() + 1, -1);
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const std::int32_t index = network_.sources()[i].op;
    const Op& op = program.ops[index];
    if (op.kind == OpKind::kLinear) steps_[i].matrix = op.params[0];
    if (!wanted[index + 1]) continue;
    PlanSums(index, trained, steps_[i]);
    if (op.kind != OpKind::kLinear) continue;
    PlanLinear(index, steps_[i]);
    if (steps_[i].weight_sum < 0) continue;
    // a register that several layers read is transposed once
    std::int64_t& place = places[op.inputs[0]];
    steps_[i].transposes = place < 0;
    if (place < 0) {
      place = num_transposed_;
      num_transposed_ += std::int64_t{kChunkColumns} * steps_[i].summed;
    }
    steps_[i].transposed = place;
  }
}

// Finds which operation writes the gradient of each register first, and which gradients must be 0
// before that.
void Gradients::PlanInputs(const std::vector<bool>& wanted) {
  const Program& program = network_.program();
  // where several registers share rows, every write adds
  std::vector<bool> shared(wanted.size(), false), written(wanted.size(), false);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind != OpKind::kSlice) continue;
    shared[i + 1] = shared[program.ops[i].inputs[0]] = true;
  }
  for (const std::int32_t output : program.outputs) shared[output] = true;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const auto [op_index, input_index] = network_.sources()[i];
    const Op& op = program.ops[op_index];
    if (!wanted[op_index + 1]) continue;
    BackwardStep& step = steps_[i];
    bool* wants[] = {&step.wants_a, &step.wants_b, &step.wants_c};
    bool* adds[] = {&step.adds_a, &step.adds_b, &step.adds_c};
    const bool copy = network_.instructions()[i].kind == OpKind::kCopy;
    // goes through the inputs in the order of the kernels: the last one first, except for kWhere
    const bool forwards = op.kind == OpKind::kWhere;
    const auto count = static_cast<std::int32_t>(copy ? 1 : op.inputs.size());
    for (std::int32_t n = 0; n < count; ++n) {
      const std::int32_t place = forwards ? n : count - 1 - n;
      const std::int32_t input = op.inputs[copy ? input_index : place];
      if (!wanted[input] || !HasSlope(op.kind, place)) continue;
      *wants[place] = true;
      *adds[place] = shared[input] || written[input];
      written[input] = true;
    }
  }
  for (std::size_t reg = 0; reg < wanted.size(); ++reg) {
    if (!wanted[reg] || (written[reg] && !shared[reg])) continue;
    const auto name = static_cast<std::int32_t>(reg);
    zeroed_.emplace_back(network_.row(name), network_.size(name));
  }
  for (const std::int32_t output : program.outputs) {
    zeroed_.emplace_back(network_.row(output), network_.size(output));
  }
}

// Finds the linear layers that are the only reader of a tanh. Their kernel multiplies what it
// stores by the slope of the tanh.
void Gradients::PlanTanh() {
  const Program& program = network_.program();
  std::vector<std::int32_t> readers(program.ops.size() + 1, 0);
  for (const Op& op : program.ops) {
    for (const std::int32_t input : op.inputs) ++readers[input];
  }
  for (const std::int32_t output : program.outputs) ++readers[output];
  // for each register, the last instruction that writes it
  std::vector<std::size_t> writer(readers.size(), 0);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const std::int32_t index = network_.sources()[i].op;
    writer[index + 1] = i;
    const Op& op = program.ops[index];
    if (op.kind != OpKind::kLinear || !steps_[i].wants_a) continue;
    const std::int32_t input = op.inputs[0];
    if (input == 0 || program.ops[input - 1].kind != OpKind::kTanh || readers[input] > 1) continue;
    // the tanh must have overwritten its input, so that both gradients lie in the same place
    const Instruction& tanh = network_.instructions()[writer[input]];
    BackwardStep& of_tanh = steps_[writer[input]];
    if (tanh.a != tanh.out || of_tanh.adds_a || steps_[i].adds_a) continue;
    steps_[i].through_tanh = true;
    of_tanh.wants_a = false;
  }
}

void Gradients::PlanLinear(std::size_t index, BackwardStep& step) {
  const Op& op = network_.program().ops[index];
  const std::int32_t inputs = network_.size(op.inputs[0]);
  step.tail = TailOf(inputs);
  step.summed = Padded(inputs - step.tail);
}

void Gradients::PlanSums(std::size_t index, const std::vector<bool>& trained, BackwardStep& step) {
  const Op& op = network_.program().ops[index];
  for (std::size_t i = 0; i < op.params.size(); ++i) {
    const std::int32_t param = op.params[i];
    if (!trained[param]) continue;
    (i == 0 ? step.weight_sum : step.bias_sum) = num_sums_;
    Sum sum{param, num_sums_, op.size, 0, 0, 1};
    if (i == 0 && op.kind == OpKind::kLinear) {
      const std::int32_t inputs = network_.size(op.inputs[0]);
      sum.tail = TailOf(inputs);
      sum.columns = inputs - sum.tail;
      sum.padded = Padded(sum.columns);
    } else if (op.kind == OpKind::kEmbedding) {
      sum.columns = sum.padded = op.size;
      sum.tail = 0;
      sum.rows = static_cast<std::int32_t>(network_.program().params[param].size / op.size);
    }
    num_sums_ = (sum.end() + kBlock - 1) / kBlock * kBlock;
    sums_.push_back(sum);
  }
}

void Gradients::Pack(std::span<const std::span<const float>> params, Weights& weights,
                     bool are_finite) const {
  network_.Pack(params, weights.packed, are_finite);
  weights.params.clear();
  for (const std::span<const float> each : params) weights.params.push_back(each.data());
}

// Rows that are computed together, in one thread's memory.
struct Gradients::Pass {
  float* values;      // (num_steps, groups, num_rows, kColumns)
  float* gradients;   // (groups, num_rows, kColumns): of one step
  float* transposed;
  float* carried;     // (groups, state_size, kColumns): gradients of the states that a step left
  std::int64_t most;  // the number of rows that it has room for
  std::int64_t group_size;
  std::int64_t first = 0, last = 0;
  bool adds = false;  // true: adds to the sums of the rows before

  std::int32_t groups() const {
    return static_cast<std::int32_t>((last - first + kColumns - 1) / kColumns);
  }
  float* step(std::int32_t index) const { return values + index * groups() * group_size; }
};

// Some of these rows, as columns.
struct Gradients::Group {
  std::int64_t first;
  std::int32_t columns;

  Group(const Pass& pass, std::int32_t index)
      : first(pass.first + index * kColumns),
        columns(static_cast<std::int32_t>(std::min<std::int64_t>(kColumns, pass.last - first))) {}
  // the sequence of a column; unwanted columns repeat the first one's computation
  std::int64_t row(std::int32_t column) const { return first + (column < columns ? column : 0); }
};

Gradients::Pass Gradients::MakePass(std::int64_t num_rows, const Sequences& sequences,
                                    Room& room) const {
  const std::int64_t group_size = std::int64_t{network_.num_rows()} * kColumns;
  const std::int64_t sequence_size = group_size * sequences.num_steps;
  const std::int64_t groups = std::clamp<std::int64_t>(
      kMostKept / sequence_size, 1,
      std::min<std::int64_t>(kChunkGroups, (num_rows + kColumns - 1) / kColumns));
  // transposing reads up to a block after a register
  return {.values = OnALine(room.values, groups * sequence_size + kBlock * kColumns),
          .gradients = OnALine(room.gradients, groups * group_size),
          .transposed = OnALine(room.transposed, num_transposed_),
          .carried = OnALine(room.carried, groups * network_.state_size() * kColumns),
          .most = groups * kColumns,
          .group_size = group_size};
}

void Gradients::Run(const Weights& weights, std::int64_t first, std::int64_t last,
                    const Sequences& sequences, const Load& load, const Loss& loss, Room& room,
                    float* sums, const UpdateStop& stop) const {
  Pass pass = MakePass(last - first, sequences, room);
  for (; first < last && !stop.IsOver(); first = pass.last) {
    pass.first = first;
    pass.last = std::min(last, first + pass.most);
    Forward(weights, sequences, load, pass);
    Backward(weights, sequences, loss, pass, sums);
    pass.adds = true;
  }
}

void Gradients::RunForward(const Weights& weights, std::int64_t first, std::int64_t last,
                           const Sequences& sequences, const Load& load, const Loss& loss,
                           Room& room, const UpdateStop& stop) const {
  Pass pass = MakePass(last - first, sequences, room);
  for (; first < last && !stop.IsOver(); first = pass.last) {
    pass.first = first;
    pass.last = std::min(last, first + pass.most);
    Forward(weights, sequences, load, pass);
    for (std::int32_t t = sequences.burn_in; t < sequences.num_steps; ++t) {
      for (std::int32_t g = 0; g < pass.groups(); ++g) {
        const Group group(pass, g);
        loss({&network_, pass.step(t) + g * pass.group_size, nullptr, group.first, group.columns, t});
      }
    }
  }
}

void Gradients::Forward(const Weights& weights, const Sequences& sequences, const Load& load,
                        const Pass& pass) const {
  const auto instructions = network_.instructions();
  const auto count = static_cast<std::int32_t>(instructions.size());
  for (std::int32_t t = 0; t < sequences.num_steps; ++t) {
    for (std::int32_t g = 0; g < pass.groups(); ++g) {
      const Group group(pass, g);
      float* rows = pass.step(t) + g * pass.group_size;
      load(group.first, group.columns, t, rows);
      const std::int32_t loaded = t == 0 ? network_.input_size() : network_.program().obs_size;
      for (std::int32_t k = 0; k < loaded && group.columns < kColumns; ++k) {
        float* feature = rows + k * kColumns;
        std::fill(feature + group.columns, feature + kColumns, feature[0]);
      }
      if (t > 0) TakeStates(sequences, group, t, pass.step(t - 1) + g * pass.group_size, rows);
    }
    BestKernels().forward_groups(instructions.data(), steps_.data(), count, weights.packed.data(),
                                 weights.params.data(), network_.num_rows(), pass.groups(),
                                 pass.step(t));
  }
}

// Takes the states that the last step left, or new ones where an episode begins.
void Gradients::TakeStates(const Sequences& sequences, const Group& group, std::int32_t step,
                           const float* before, float* rows) const {
  float* to = rows + network_.program().obs_size * kColumns;
  const float* initial = sequences.initial;
  bool begins[kColumns];
  for (std::int32_t i = 0; i < kColumns; ++i) begins[i] = sequences.begins(group.row(i), step);
  for (std::size_t state = 0; state < network_.program().states.size(); ++state) {
    const std::size_t output = network_.num_outputs() + state;
    const float* from = before + network_.output_row(output) * kColumns;
    for (std::int32_t k = 0; k < network_.output_size(output); ++k, ++initial) {
      for (const bool is_new : begins) {
        *to++ = is_new ? *initial : *from;
        ++from;
      }
    }
  }
}

void Gradients::Backward(const Weights& weights, const Sequences& sequences, const Loss& loss,
                         const Pass& pass, float* sums) const {
  const auto instructions = network_.instructions();
  const auto count = static_cast<std::int32_t>(instructions.size());
  const std::int64_t carried_size = std::int64_t{network_.state_size()} * kColumns;
  // no gradient comes from after the last step
  std::fill_n(pass.carried, pass.groups() * carried_size, 0.0f);
  for (std::int32_t t = sequences.num_steps; t-- > sequences.burn_in;) {
    float* values = pass.step(t);
    for (std::int32_t g = 0; g < pass.groups(); ++g) {
      float* given = pass.gradients + g * pass.group_size;
      for (const auto& [row, size] : zeroed_) {
        std::fill_n(given + row * kColumns, size * kColumns, 0.0f);
      }
      AddCarried(pass.carried + g * carried_size, given);
      const Group group(pass, g);
      loss({&network_, values + g * pass.group_size, given, group.first, group.columns, t});
    }
    const Chunk chunk{values,         pass.gradients, pass.transposed, network_.num_rows(),
                      pass.groups(), pass.adds || t + 1 < sequences.num_steps};
    BestKernels().backward(instructions.data(), steps_.data(), count, weights.packed.data(),
                           weights.params.data(), chunk, sums);
    for (std::int32_t g = 0; g < pass.groups() && t > sequences.burn_in; ++g) {
      Carry(sequences, Group(pass, g), t, pass.gradients + g * pass.group_size,
            pass.carried + g * carried_size);
    }
  }
}

// Adds the gradients from later steps to those of the new states.
void Gradients::AddCarried(const float* carried, float* gradients) const {
  for (std::size_t state = 0; state < network_.program().states.size(); ++state) {
    const std::size_t output = network_.num_outputs() + state;
    float* to = gradients + network_.output_row(output) * kColumns;
    const std::int32_t count = network_.output_size(output) * kColumns;
    for (std::int32_t i = 0; i < count; ++i) to[i] += *carried++;
  }
}

// Keeps the gradients of the states before a step; those of an episode's new states are dropped.
void Gradients::Carry(const Sequences& sequences, const Group& group, std::int32_t step,
                      const float* gradients, float* carried) const {
  bool begins[kColumns];
  for (std::int32_t i = 0; i < kColumns; ++i) begins[i] = sequences.begins(group.row(i), step);
  const float* from = gradients + network_.program().obs_size * kColumns;
  for (std::int32_t k = 0; k < network_.state_size(); ++k) {
    for (const bool is_new : begins) {
      *carried++ = is_new ? 0.0f : *from;
      ++from;
    }
  }
}

void Gradients::Unpack(const float* sums, const Sum& place, bool adds, float* gradient) {
  const float* from = sums + place.offset;
  const float* lanes = sums + place.tails();
  // sums over lanes alone, such as those of a bias, have the layout of the gradient
  if (!adds && place.columns == 0) {
    return BestKernels().add_lanes(lanes, std::int64_t{place.rows} * place.tail, gradient);
  }
  const auto take = [&](const float* numbers, std::int32_t count) {
    for (std::int32_t k = 0; k < count; ++k) gradient[k] = adds ? gradient[k] + numbers[k] : numbers[k];
    gradient += count;
  };
  float tails[kBlock * kMostTail];
  for (std::int32_t first = 0; first < place.rows; first += kBlock) {
    const std::int32_t rows = std::min(kBlock, place.rows - first);
    BestKernels().add_lanes(lanes, std::int64_t{rows} * place.tail, tails);
    lanes += std::int64_t{rows} * place.tail * kColumns;
    for (std::int32_t row = 0; row < rows; ++row, from += place.padded) {
      take(from, place.columns);
      take(tails + row * place.tail, place.tail);
    }
  }
}

void Gradients::Unpack(const float* sums, std::span<float* const> gradients) const {
  for (const Sum& sum : sums_) Unpack(sums, sum, true, gradients[sum.param]);
}

}  // namespace rollouts::policy
