// SPDX-License-Identifier: Apache-2.0
// A program laid out in memory, and its weights in the layout of kernels.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rollouts/policy/program.h"

namespace rollouts::policy {

// The size of the next block of outputs. They are packed in blocks of 16, and a last one of 16, 8
// or 4: (blocks, inputs, block).
std::int32_t LinearBlock(std::int32_t outputs_left);

// Immutable; any number of threads may compute with it.
class Network {
 public:
  // Throws SpecError for a program that is inconsistent: registers, sizes, parameters. `keeps`: the
  // forward pass keeps all registers that gradients need, and reads the matrices of linears from
  // the module's own memory, so that these are not packed.
  explicit Network(const Program& program, bool keeps = false);

  const Program& program() const { return program_; }
  std::span<const Instruction> instructions() const { return instructions_; }
  // The operation that an instruction computes, or an input of a concat.
  struct Source {
    std::int32_t op;
    std::int32_t input;
  };
  std::span<const Source> sources() const { return sources_; }  // one for each instruction
  std::int32_t num_rows() const { return num_rows_; }  // in the scratch memory
  std::int64_t num_packed() const { return num_packed_; }
  // Number of features of register 0, and of its states.
  std::int32_t input_size() const { return sizes_[0]; }
  std::int32_t state_size() const { return sizes_[0] - program_.obs_size; }
  // First rows of registers and outputs in the scratch memory, and their numbers of rows; states
  // follow the other outputs.
  std::int32_t row(std::int32_t reg) const { return rows_[reg]; }
  std::int32_t size(std::int32_t reg) const { return sizes_[reg]; }
  std::int32_t output_row(std::size_t index) const { return rows_[program_.outputs[index]]; }
  std::int32_t output_size(std::size_t index) const { return sizes_[program_.outputs[index]]; }
  std::size_t num_outputs() const { return program_.outputs.size() - program_.states.size(); }

  // The parameters, one array for each of program().params, in the layout of kernels. Throws
  // SpecError where one is not finite.
  std::vector<float> Pack(std::span<const std::span<const float>> params) const;
  // Packs into `packed`, which must be empty or hold parameters that this network packed before.
  // `are_finite`: the caller has already checked that all parameters are.
  void Pack(std::span<const std::span<const float>> params, std::vector<float>& packed,
            bool are_finite = false) const;

 private:
  void LayOut();
  void CheckOp(std::size_t index) const;
  void CheckSizes(std::size_t index) const;
  void CheckOutputs() const;
  void CheckParams(std::span<const std::span<const float>> params, bool are_finite) const;
  [[noreturn]] void Refuse(std::size_t index, const std::string& why) const;
  void AddInstruction(std::int32_t index, std::int32_t out);
  bool MayOverwrite(std::size_t index) const;
  std::vector<std::size_t> LastReads(std::vector<std::int32_t>& owner) const;

  const Program program_;
  const bool keeps_;
  std::vector<std::int32_t> sizes_;  // by register
  std::vector<std::int32_t> rows_;   // by register
  std::vector<Instruction> instructions_;
  std::vector<Source> sources_;
  // the place of each parameter's packed form, by the operation that reads it
  struct Placed {
    std::int32_t param;
    std::int64_t offset;
    std::int32_t outputs;  // > 0: a matrix, packed in blocks
    std::int32_t inputs;
  };
  std::vector<Placed> placed_;
  std::vector<std::pair<std::int64_t, std::vector<float>>> literals_;
  std::int32_t num_rows_ = 0;
  std::int64_t num_packed_ = 0;
};

}  // namespace rollouts::policy
