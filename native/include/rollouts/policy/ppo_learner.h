// SPDX-License-Identifier: Apache-2.0
// Gradient steps of PPO on a batch of rows or sequences, in place in the parameters' own memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rollouts/policy/gradient_steps.h"
#include "rollouts/policy/losses.h"

namespace rollouts::policy {

// Rows of a batch. Either index or box is null. For a network with memory the rows are sequences:
// row t * (count / num_steps) + s is step t of sequence s.
struct ActedRows {
  std::int64_t count = 0;
  std::int32_t num_steps = 1;
  std::int32_t burn_in = 0;                // see Sequences; these steps do not count in the loss
  const float* states = nullptr;           // (sequences, state_size): before the first step
  const float* initial = nullptr;          // (state_size): at the beginning of an episode
  const std::uint8_t* ended = nullptr;     // (count): whether an episode ended with the row
  const float* obs = nullptr;           // (count, input_size)
  const std::int64_t* index = nullptr;  // (count, elements)
  const float* box = nullptr;           // (count, d)
  const std::uint8_t* mask = nullptr;   // (count, A): whether an action was allowed, or null
  const float* log_prob = nullptr;
  const float* advantage = nullptr;
  const float* target = nullptr;
  const float* value = nullptr;
  const float* log_slope = nullptr;       // see ActedColumns; null: 0
  const float* inputs = nullptr;          // (count, all): inputs of the head at the draw, or null
  const std::uint8_t* counts = nullptr;   // whether a row counts in the loss; null: all do

  std::int64_t num_sequences() const { return count / num_steps; }
};

struct PpoSettings {
  PpoRule rule;
  std::optional<double> max_norm;  // limit of gradients
  ClipBy clip_by = ClipBy::kAll;
  bool normalizes = true;          // advantages, in each minibatch
  std::optional<double> target_kl;  // ends the update where a minibatch's divergence exceeds it
  bool refuses_overflow = false;    // throws for an infinite ratio, which has no gradient in torch
};

// Means over one minibatch, and the norm of its gradients before the limit.
struct PpoReport {
  float sums[kNumLossSums] = {};
  float norm = 0;
};

// One caller at a time; the object's own threads compute. The bits are the same for any number of
// threads.
class PpoLearner {
 public:
  PpoLearner(const Program& program, std::vector<ParamView> views,
             const std::vector<bool>& trained, const Head& head, std::vector<std::int32_t> nvec,
             std::int32_t num_threads);

  const Network& network() const { return steps_.network(); }

  // Makes one gradient step for each minibatch of `order`, which lists rows or sequences. Returns a
  // report for each step made. Throws SpecError, with the weights as before the minibatch, where a
  // gradient or a parameter is not finite, or no row counts; likewise what `stop` raises. Reports
  // are means over the processes, too, so that target_kl ends the update of all at the same
  // minibatch.
  std::vector<PpoReport> Update(std::span<const Source> sources, const ActedRows& rows,
                                std::span<const std::int64_t> order, std::int64_t minibatch,
                                const PpoSettings& settings, const UpdateStop& stop = {},
                                const MeanOverProcesses& mean = {});
  // Computes the actions' log-density and entropy, and the value if there is one, of each row
  // (count) after the burn-in, with the weights of `sources`. Throws as Update.
  struct Evaluated {
    float* log_prob;
    float* entropy;
    float* value;  // null: there is none
  };
  void Evaluate(std::span<const Source> sources, const ActedRows& rows, const Evaluated& to,
                const UpdateStop& stop = {});
  // Gradient steps made by this object. An update makes one for each report, except for the last
  // report where target_kl ended it; an update that threw has made the steps before. Thread-safe.
  std::int64_t num_steps() const { return steps_.num_steps(); }

 private:
  struct Part {
    float loss[kNumLossSums * kColumns];
    std::vector<float> box, shares, inputs, masked;
    float weight = 0;  // for a row that counts
    std::vector<std::int32_t> index;
    ActedColumns acted;
  };
  void Normalize(std::span<const std::int64_t> rows, const ActedRows& acted, bool normalizes);
  void LoadColumns(const ActedRows& acted, std::span<const std::int64_t> rows, std::int32_t step,
                   float* to) const;
  static Sequences SequencesOf(const ActedRows& acted, std::span<const std::int64_t> rows);
  PpoReport Compute(std::span<const Source> sources, std::size_t before, const ActedRows& acted,
                    std::span<const std::int64_t> rows, const PpoRule& rule,
                    const UpdateStop& stop);
  void BeginPart(Part& part, const ActedRows& acted, std::span<const std::int64_t> rows) const;
  void GatherActed(Part& part, const ActedRows& acted, std::span<const std::int64_t> rows,
                   const ChunkOutputs& chunk) const;
  const float* Masked(Part& part, const ActedRows& acted, std::span<const std::int64_t> rows,
                      const ChunkOutputs& chunk) const;
  HeadInputs InputsOf(const ChunkOutputs& chunk, const float* first) const;
  void AddLoss(Part& part, const PpoRule& rule, const ChunkOutputs& chunk,
               const float* first) const;
  PpoReport AddParts(std::size_t count);
  static void CheckLosses(const PpoReport& report, const PpoSettings& settings,
                          std::size_t minibatch);
  std::size_t num_elements() const { return nvec_.empty() ? 1 : nvec_.size(); }
  // The number of values in the head's inputs of a row.
  std::int64_t num_inputs() const {
    return NumHeadInputs(head_.kind) * std::int64_t{network().output_size(0)};
  }
  bool has_value() const { return network().num_outputs() > NumHeadInputs(head_.kind); }

  GradientSteps steps_;
  const Head head_;
  const std::vector<std::int32_t> nvec_;
  std::vector<float> advantages_;  // for the minibatch; empty while rows are evaluated
  std::vector<Part> parts_;
};

}  // namespace rollouts::policy
