// SPDX-License-Identifier: Apache-2.0
// Gradient steps of PPO on a batch of rows, in place on the parameters' own memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rollouts/policy/gradients.h"
#include "rollouts/policy/losses.h"
#include "rollouts/policy/optimizers.h"
#include "rollouts/replay/worker_threads.h"

namespace rollouts::policy {

// The layout of an operation's parameter in an array of the module: element (i, j) is number
// start + i * strides[0] + j * strides[1].
struct ParamView {
  std::int32_t source = 0;
  std::int64_t start = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;

  bool is_whole(std::int64_t source_size) const;
};

// An array of the module, and what the optimiser keeps of it: `squares`, which is null where it is
// not trained, and with Adam `means`.
struct Source {
  float* weights = nullptr;
  std::int64_t size = 0;
  float* means = nullptr;
  float* squares = nullptr;
  StepRule rule;           // step_size and root_correction are computed from `steps`
  std::int64_t steps = 0;  // made before
};

// Rows of a batch. One of index and box is null.
struct ActedRows {
  std::int64_t count = 0;
  const float* obs = nullptr;           // (count, input_size)
  const std::int64_t* index = nullptr;  // (count, elements)
  const float* box = nullptr;           // (count, d)
  const std::uint8_t* mask = nullptr;   // (count, A) or null
  const float* log_prob = nullptr;
  const float* advantage = nullptr;
  const float* target = nullptr;
  const float* value = nullptr;
  const float* inputs = nullptr;          // (count, all): the head's, when actions were drawn, or null
  const std::uint8_t* counts = nullptr;   // whether a row counts in the loss; null: all do
};

// Numbers that a limit of gradients is of.
enum class ClipBy {
  kAll,      // the norm of all together
  kEach,     // the norm of each array's
  kElement,  // the absolute value of each number
};

struct PpoSettings {
  PpoRule rule;
  std::optional<double> max_norm;  // limit of gradients
  ClipBy clip_by = ClipBy::kAll;
  bool normalizes = true;          // advantages, in each minibatch
  std::optional<double> target_kl;  // ends the update where a minibatch is further
};

// Means over one minibatch, and the norm of its gradients before they were clipped.
struct PpoReport {
  float sums[kNumLossSums] = {};
  float norm = 0;
};

// One caller at a time; its own threads compute. The bits are the same for any number of them.
class PpoLearner {
 public:
  PpoLearner(const Program& program, std::vector<ParamView> views,
             const std::vector<bool>& trained, const Head& head, std::vector<std::int32_t> nvec,
             std::int32_t num_threads);

  const Network& network() const { return gradients_.network(); }

  // One gradient step for each minibatch of `order`, which names rows. Returns a report of each that
  // was made. Throws SpecError, with the weights as before the minibatch, where a gradient or a
  // parameter is not finite.
  std::vector<PpoReport> Update(std::span<const Source> sources, const ActedRows& rows,
                                std::span<const std::int64_t> order, std::int64_t minibatch,
                                const PpoSettings& settings);
  // Gradient steps since it was made. An update makes one for each report, but none for the last one
  // where target_kl ended it; what threw has made those before. Thread-safe.
  std::int64_t num_steps() const { return num_steps_; }

 private:
  struct Part;
  void ReadParams(std::span<const Source> sources);
  void Normalize(std::span<const std::int64_t> rows, const ActedRows& acted, bool normalizes);
  void LoadActed(Part& part, const ActedRows& acted, std::span<const std::int64_t> rows,
                 const ChunkOutputs& chunk, float counted) const;
  void RunPart(Part& part, const ActedRows& acted, std::span<const std::int64_t> rows,
               const PpoRule& rule);
  PpoReport AddParts(std::size_t count);
  double FindNorm(std::span<const Source> sources) const;
  void CheckFinite(const PpoReport& report, double norm, std::size_t minibatch) const;
  double Clip(std::span<const Source> sources, double norm, const PpoSettings& settings);
  void Step(std::span<const Source> sources, std::size_t minibatch, float scale);

  struct Part {
    std::int64_t first, last;
    std::vector<float> sums;
    float loss[kNumLossSums * kColumns];
    Gradients::Room room;
    std::vector<float> box, shares, inputs;
    std::vector<std::int32_t> index;
    ActedColumns acted;
  };

  const Gradients gradients_;
  const std::vector<ParamView> views_;
  const Head head_;
  const std::vector<std::int32_t> nvec_;
  replay::WorkerThreads threads_;
  Gradients::Weights weights_;
  std::vector<std::vector<float>> gathered_;  // params that are no whole array
  std::vector<std::vector<float>> of_sources_;  // gradients
  std::vector<std::vector<float>> of_params_;   // gradients of params that are no whole array
  std::vector<float> advantages_;               // those of the minibatch
  std::vector<Part> parts_;
  std::atomic<std::int64_t> num_steps_{0};
};

}  // namespace rollouts::policy
