// SPDX-License-Identifier: Apache-2.0
#include "rollouts/policy/network.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "rollouts/policy/kernels.h"
#include "rollouts/support/errors.h"

namespace rollouts::policy {
namespace {

struct KindFact {
  OpKind kind;
  std::int32_t inputs;   // -1: any number
  std::int32_t numbers;  // likewise
  bool elementwise;      // element i of the result needs only element i of the first input
  bool needs_inputs;     // for its gradient
};

// Kinds by their names in rollouts/policies/program.py. kCopy has no name: only the layout makes
// it.
const std::map<std::string, KindFact>& Kinds() {
#define ROLLOUTS_EACH(Name, name, formula, needs, slope) \
  {name, {OpKind::k##Name, 1, 0, true, needs}},
#define ROLLOUTS_WITH(Name, name, numbers, formula, needs, slope) \
  {name, {OpKind::k##Name, 1, numbers, true, needs}},
#define ROLLOUTS_PAIR(Name, name, formula, needs, slope_x, slope_y) \
  {name, {OpKind::k##Name, 2, 0, true, needs}},
#define ROLLOUTS_LOOP(Name, name, inputs, numbers, elementwise) \
  {name, {OpKind::k##Name, inputs, numbers, elementwise, true}},
  static const std::map<std::string, KindFact> kinds{
      ROLLOUTS_OPERATIONS(ROLLOUTS_EACH, ROLLOUTS_WITH, ROLLOUTS_PAIR, ROLLOUTS_LOOP)};
#undef ROLLOUTS_EACH
#undef ROLLOUTS_WITH
#undef ROLLOUTS_PAIR
#undef ROLLOUTS_LOOP
  return kinds;
}

const std::pair<const std::string, KindFact>& FactOf(OpKind kind) {
  return *std::find_if(Kinds().begin(), Kinds().end(),
                       [&](const auto& entry) { return entry.second.kind == kind; });
}

// Rows of the scratch memory that no register needs at the moment.
class FreeRows {
 public:
  explicit FreeRows(std::int32_t taken) : end_(taken) {}

  // Takes the first place with that many rows; at the end there are always enough.
  std::int32_t Take(std::int32_t count) {
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      const auto [row, size] = *hole;
      if (size < count) continue;
      holes_.erase(hole);
      if (size > count) holes_[row + count] = size - count;
      return row;
    }
    return Add(count);
  }

  std::int32_t Add(std::int32_t count) { return std::exchange(end_, end_ + count); }

  void Give(std::int32_t row, std::int32_t count) {
    const auto hole = holes_.emplace(row, count).first;
    if (const auto next = std::next(hole);
        next != holes_.end() && row + hole->second == next->first) {
      hole->second += next->second;
      holes_.erase(next);
    }
    if (hole == holes_.begin()) return;
    if (const auto before = std::prev(hole); before->first + before->second == row) {
      before->second += hole->second;
      holes_.erase(hole);
    }
  }

  std::int32_t num_rows() const { return end_; }

 private:
  std::map<std::int32_t, std::int32_t> holes_;  // row -> how many
  std::int32_t end_;
};

constexpr std::size_t kNever = static_cast<std::size_t>(-1);

}  // namespace

OpKind OpKindOf(const std::string& name) {
  const auto found = Kinds().find(name);
  if (found == Kinds().end()) throw SpecError("'" + name + "' is no operation of a network");
  return found->second.kind;
}

std::int32_t LinearBlock(std::int32_t outputs_left) {
  return outputs_left > 8 ? 16 : outputs_left > 4 ? 8 : 4;
}

Network::Network(const Program& program, bool keeps) : program_(program), keeps_(keeps) {
  if (program_.obs_size < 1) throw SpecError("a network's observation has no features");
  // register 0, before the registers that operations write
  sizes_ = {std::accumulate(program_.states.begin(), program_.states.end(), program_.obs_size)};
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    CheckOp(i);
    sizes_.push_back(program_.ops[i].size);
  }
  CheckOutputs();
  LayOut();
}

void Network::CheckOutputs() const {
  if (program_.outputs.empty()) throw SpecError("a network has no outputs");
  for (const std::int32_t output : program_.outputs) {
    if (output < 0 || output >= static_cast<std::int32_t>(sizes_.size())) {
      throw SpecError("a network's output " + std::to_string(output) + " is no register");
    }
  }
  if (program_.states.size() >= program_.outputs.size()) {
    throw SpecError("a network has no outputs besides its states");
  }
  for (std::size_t i = 0; i < program_.states.size(); ++i) {
    if (program_.states[i] < 1 || output_size(num_outputs() + i) != program_.states[i]) {
      throw SpecError("state " + std::to_string(i) + " of a network has " +
                      std::to_string(program_.states[i]) + " features and becomes one of " +
                      std::to_string(output_size(num_outputs() + i)));
    }
  }
}

void Network::Refuse(std::size_t index, const std::string& why) const {
  throw SpecError("operation " + std::to_string(index) + " of a network (" +
                  FactOf(program_.ops[index].kind).first + ") " + why);
}

// Throws unless operation `index` reads earlier registers and existing parameters.
void Network::CheckOp(std::size_t index) const {
  const Op& op = program_.ops[index];
  const KindFact& fact = FactOf(op.kind).second;
  const auto refuse = [&](const std::string& why) { Refuse(index, why); };
  if (op.size < 1) refuse("writes no features");
  // registers are checked first, because the checks below need their sizes
  if (fact.inputs >= 0 && static_cast<std::int32_t>(op.inputs.size()) != fact.inputs) {
    refuse("has " + std::to_string(op.inputs.size()) + " inputs, expected " +
           std::to_string(fact.inputs));
  }
  // a literal has one number for each feature
  const std::int32_t numbers = op.kind == OpKind::kLiteral ? op.size : fact.numbers;
  if (static_cast<std::int32_t>(op.numbers.size()) != numbers) {
    refuse("has " + std::to_string(op.numbers.size()) + " numbers, expected " +
           std::to_string(numbers));
  }
  for (const std::int32_t input : op.inputs) {
    if (input < 0 || input > static_cast<std::int32_t>(index)) {
      refuse("reads a register that is not yet written");
    }
  }
  for (const std::int32_t param : op.params) {
    if (param < 0 || param >= static_cast<std::int32_t>(program_.params.size())) {
      refuse("reads a parameter that there is not");
    }
  }
  CheckSizes(index);
}

// Checks sizes, once all indices were checked.
void Network::CheckSizes(std::size_t index) const {
  const Op& op = program_.ops[index];
  const auto refuse = [&](const std::string& why) { Refuse(index, why); };
  const auto input_size = [&](std::size_t i) { return sizes_[op.inputs[i]]; };
  const auto param_is = [&](std::size_t i, std::int64_t size) {
    return program_.params[op.params[i]].size == size;
  };
  switch (op.kind) {
    case OpKind::kLinear:
      if (op.params.empty() || op.params.size() > 2 ||
          !param_is(0, std::int64_t{op.size} * input_size(0)) ||
          (op.params.size() == 2 && !param_is(1, op.size))) {
        refuse("has weights that do not fit its sizes");
      }
      return;
    case OpKind::kLayerNorm:
      if (input_size(0) != op.size) refuse("writes another size than it reads");
      if (op.params.size() > 2) refuse("has more than a gain and a bias");
      for (std::size_t i = 0; i < op.params.size(); ++i) {
        if (!param_is(i, op.size)) refuse("has weights that do not fit its size");
      }
      return;
    // the parameter's size gives the table's number of rows; an index is one number
    case OpKind::kEmbedding:
      if (op.params.size() != 1 || input_size(0) != 1 ||
          program_.params[op.params[0]].size % op.size != 0) {
        refuse("has a table that does not fit");
      }
      return;
    case OpKind::kConstant:
      if (op.params.size() != 1 || !param_is(0, op.size)) refuse("has a parameter of another size");
      return;
    case OpKind::kLiteral: return;
    case OpKind::kConcat: {
      std::int64_t size = 0;
      for (std::size_t i = 0; i < op.inputs.size(); ++i) size += input_size(i);
      if (size != op.size) refuse("writes another size than its inputs have together");
      return;
    }
    case OpKind::kSlice:
      if (op.numbers[0] < 0 ||
          op.numbers[0] + static_cast<float>(op.size) > static_cast<float>(input_size(0))) {
        refuse("reads beyond its input");
      }
      return;
    default: break;
  }
  // elementwise operations: all inputs have the same size, but one of several may have a single
  // feature, which goes with all features of the others
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (input_size(i) != op.size && !(op.inputs.size() > 1 && input_size(i) == 1)) {
      refuse("writes another size than it reads");
    }
  }
}

// True where operation `index` may overwrite its first input, because no other operation reads it.
bool Network::MayOverwrite(std::size_t index) const {
  const Op& op = program_.ops[index];
  // gathered observations must stay unchanged
  if (!FactOf(op.kind).second.elementwise || op.inputs[0] == 0) return false;
  const std::int32_t input = op.inputs[0];
  // a gradient may need the operation's input, or the output of the operation before
  const KindFact& before = FactOf(program_.ops[input - 1].kind).second;
  if (keeps_ && (FactOf(op.kind).second.needs_inputs || (before.elementwise && before.inputs == 1))) {
    return false;
  }
  // a slice is a view of rows that others may read
  const OpKind source = program_.ops[input - 1].kind;
  if (source == OpKind::kSlice || sizes_[input] != op.size) return false;
  // counts this operation, too; outputs are read when all operations have run
  std::size_t readers = std::count(program_.outputs.begin(), program_.outputs.end(), input);
  for (const Op& other : program_.ops) {
    readers += std::count(other.inputs.begin(), other.inputs.end(), input);
  }
  return readers == 1;
}

// Gives each register its rows, and each parameter its place among the packed ones. Rows that were
// read for the last time are free for later registers, unless gradients need them.
void Network::LayOut() {
  rows_ = {0};
  FreeRows free(input_size());
  // for each register, the one that owns its rows, and the last operation that reads these
  std::vector<std::int32_t> owner{0};
  std::vector<std::size_t> last_read = LastReads(owner);
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const Op& op = program_.ops[i];
    std::int32_t row;
    if (op.kind == OpKind::kSlice) {
      // a slice has no rows of its own, but shares some rows of its input
      row = rows_[op.inputs[0]] + static_cast<std::int32_t>(op.numbers[0]);
    } else if (MayOverwrite(i)) {
      row = rows_[op.inputs[0]];
    } else {
      // an output goes to the end: it stays, and in a gap it would take room from later layers
      row = last_read[i + 1] == kNever ? free.Add(op.size) : free.Take(op.size);
    }
    rows_.push_back(row);
    AddInstruction(static_cast<std::int32_t>(i), row);
    for (const std::int32_t input : op.inputs) {
      const std::int32_t of = owner[input];
      if (keeps_ || of == 0 || last_read[of] != i) continue;
      free.Give(rows_[of], sizes_[of]);
      last_read[of] = kNever;
    }
  }
  num_rows_ = free.num_rows();
}

// Fills in `owner`, and returns for each register the last operation that reads its rows.
std::vector<std::size_t> Network::LastReads(std::vector<std::int32_t>& owner) const {
  std::vector<std::size_t> last(sizes_.size(), kNever);
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const Op& op = program_.ops[i];
    const bool has_rows = op.kind != OpKind::kSlice && !MayOverwrite(i);
    owner.push_back(has_rows ? static_cast<std::int32_t>(i) + 1 : owner[op.inputs[0]]);
    for (const std::int32_t input : op.inputs) last[owner[input]] = i;
  }
  // outputs are read when all operations have run
  for (const std::int32_t output : program_.outputs) last[owner[output]] = kNever;
  return last;
}

void Network::AddInstruction(std::int32_t index, std::int32_t out) {
  const Op& op = program_.ops[index];
  // a slice only has a place, and computes nothing
  if (op.kind == OpKind::kSlice) return;
  if (op.kind == OpKind::kConcat) {
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const std::int32_t input = op.inputs[i];
      instructions_.push_back(
          {.kind = OpKind::kCopy, .out = out, .a = rows_[input], .size = sizes_[input]});
      sources_.push_back({index, static_cast<std::int32_t>(i)});
      out += sizes_[input];
    }
    return;
  }
  // registers become rows, parameters offsets, so that kernels look nothing up
  Instruction step{.kind = op.kind, .out = out, .size = op.size, .weight = -1, .bias = -1};
  if (!op.inputs.empty()) {
    step.a = rows_[op.inputs[0]];
    step.a_size = sizes_[op.inputs[0]];
  }
  if (op.inputs.size() > 1) {
    step.b = rows_[op.inputs[1]];
    step.b_size = sizes_[op.inputs[1]];
  }
  if (op.inputs.size() > 2) {
    step.c = rows_[op.inputs[2]];
    step.c_size = sizes_[op.inputs[2]];
  }
  for (std::size_t i = 0; i < op.numbers.size() && i < 2; ++i) step.number[i] = op.numbers[i];
  for (std::size_t i = 0; i < op.params.size(); ++i) {
    const bool matrix = op.kind == OpKind::kLinear && i == 0;
    if (matrix && keeps_) continue;
    // every array begins at a cache line; biases are read to the end of a block
    const std::int64_t outputs = (op.size + 15) / 16 * 16;
    const std::int64_t size =
        matrix ? outputs * step.a_size : program_.params[op.params[i]].size + 16;
    (i == 0 ? step.weight : step.bias) = num_packed_;
    placed_.push_back({op.params[i], num_packed_, matrix ? op.size : 0, step.a_size});
    num_packed_ += (size + 15) / 16 * 16;
  }
  // the numbers of a literal are packed like a parameter
  if (op.kind == OpKind::kLiteral) {
    step.weight = num_packed_;
    literals_.push_back({num_packed_, op.numbers});
    num_packed_ += (op.size + 15) / 16 * 16;
  }
  if (op.kind == OpKind::kEmbedding) {
    // keeps the number of the table's rows, so that no index beyond them is read
    step.b_size = static_cast<std::int32_t>(program_.params[op.params[0]].size / op.size);
  }
  instructions_.push_back(step);
  sources_.push_back({index, 0});
}

std::vector<float> Network::Pack(std::span<const std::span<const float>> params) const {
  std::vector<float> packed;
  Pack(params, packed);
  return packed;
}

void Network::CheckParams(std::span<const std::span<const float>> params, bool are_finite) const {
  if (params.size() != program_.params.size()) {
    throw SpecError("a network got " + std::to_string(params.size()) + " parameters, expected " +
                    std::to_string(program_.params.size()));
  }
  for (std::size_t i = 0; i < params.size(); ++i) {
    const Param& param = program_.params[i];
    if (static_cast<std::int64_t>(params[i].size()) != param.size) {
      throw SpecError("parameter '" + param.name + "' has " + std::to_string(params[i].size()) +
                      " numbers, expected " + std::to_string(param.size));
    }
    if (!are_finite && !BestKernels().is_finite(param.size, params[i].data())) {
      throw SpecError("parameter '" + param.name + "' has a value that is nan or infinite");
    }
  }
}

void Network::Pack(std::span<const std::span<const float>> params, std::vector<float>& packed,
                   bool are_finite) const {
  // all are checked before any is packed
  CheckParams(params, are_finite);
  // padding in blocks stays 0; its results are computed and not stored
  packed.resize(static_cast<std::size_t>(num_packed_), 0.0f);
  for (const auto& [offset, numbers] : literals_) {
    std::copy(numbers.begin(), numbers.end(), packed.begin() + offset);
  }
  for (const Placed& placed : placed_) {
    const std::span<const float> from = params[placed.param];
    float* to = packed.data() + placed.offset;
    if (placed.outputs == 0) {
      std::copy(from.begin(), from.end(), to);
      continue;
    }
    // the order in which the kernels read: block, input, output of the block
    for (std::int32_t first = 0; first < placed.outputs;) {
      const std::int32_t block = LinearBlock(placed.outputs - first);
      const std::int32_t filled = std::min(block, placed.outputs - first);
      const float* rows[kColumns];
      for (std::int32_t o = 0; o < filled; ++o) {
        rows[o] = from.data() + static_cast<std::int64_t>(first + o) * placed.inputs;
      }
      BestKernels().transpose(rows, filled, placed.inputs, block, to);
      to += static_cast<std::int64_t>(block) * placed.inputs;
      first += block;
    }
  }
}

}  // namespace rollouts::policy
