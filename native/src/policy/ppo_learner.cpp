// SPDX-License-Identifier: Apache-2.0
#include "rollouts/policy/ppo_learner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "rollouts/policy/kernels.h"
#include "rollouts/support/errors.h"

namespace rollouts::policy {
namespace {

bool Counts(const ActedRows& acted, std::int64_t row) {
  return !acted.counts || acted.counts[row] != 0;
}

// Calls `use(row, place)` for each row of a minibatch after the burn-in, step by step.
template <typename Use>
void ForEachRow(const ActedRows& acted, std::span<const std::int64_t> sequences, Use&& use) {
  const std::int64_t stride = acted.num_sequences();
  std::size_t place = acted.burn_in * sequences.size();
  for (std::int64_t t = acted.burn_in; t < acted.num_steps; ++t) {
    for (const std::int64_t sequence : sequences) use(t * stride + sequence, place++);
  }
}

// The number of rows that count in the means of a minibatch.
std::int64_t NumCounted(const ActedRows& acted, std::span<const std::int64_t> rows) {
  std::int64_t counted = 0;
  ForEachRow(acted, rows, [&](std::int64_t row, std::size_t) { counted += Counts(acted, row); });
  return counted;
}

// The rows of some columns, and whether each counts in the loss.
struct ColumnRows {
  std::int64_t row[kColumns];
  bool counts[kColumns];
};

// Gathers one number of each row; 0 without an array.
void Take(const ColumnRows& of, const float* from, float* to) {
  for (std::int32_t i = 0; i < kColumns; ++i) to[i] = from ? from[of.row[i]] : 0.0f;
}

// Gathers like Take, but 0 for rows that do not count.
void TakeCounted(const ColumnRows& of, const float* from, float* to) {
  for (std::int32_t i = 0; i < kColumns; ++i) {
    to[i] = from && of.counts[i] ? from[of.row[i]] : 0.0f;
  }
}

// Throws for a minibatch without a row that counts, which has no means.
void CheckCounted(const ActedRows& acted, std::span<const std::int64_t> rows,
                  std::size_t minibatch) {
  if (NumCounted(acted, rows) > 0) return;
  throw SpecError("minibatch " + std::to_string(minibatch) +
                  " has no row that counts, expected one or more");
}

}  // namespace

PpoLearner::PpoLearner(const Program& program, std::vector<ParamView> views,
                       const std::vector<bool>& trained, const Head& head,
                       std::vector<std::int32_t> nvec, std::int32_t num_threads)
    : steps_(program, std::move(views), trained, num_threads),
      head_(head),
      nvec_(std::move(nvec)),
      parts_(GradientSteps::kMostParts) {}

void PpoLearner::Normalize(std::span<const std::int64_t> rows, const ActedRows& acted,
                           bool normalizes) {
  advantages_.assign(rows.size() * acted.num_steps, 0.0f);
  std::int64_t count = 0;
  double sum = 0, squares = 0;
  // a row that does not count has an advantage of 0
  const auto for_each = [&](auto&& use) {
    ForEachRow(acted, rows, [&](std::int64_t row, std::size_t place) {
      if (Counts(acted, row)) use(acted.advantage[row], advantages_[place]);
    });
  };
  for_each([&](float value, float& to) {
    to = value;
    sum += value;
    ++count;
  });
  if (!normalizes || count < 2) return;
  const double mean = sum / static_cast<double>(count);
  for_each([&](float value, float&) { squares += (value - mean) * (value - mean); });
  // as torch's std: the standard deviation of a sample
  const double deviation = std::sqrt(squares / static_cast<double>(count - 1));
  for_each([&](float value, float& to) {
    to = static_cast<float>((value - mean) / (deviation + 1e-8));
  });
}

void PpoLearner::BeginPart(Part& part, const ActedRows& acted,
                           std::span<const std::int64_t> rows) const {
  const std::int32_t width = network().output_size(0);
  std::fill(std::begin(part.loss), std::end(part.loss), 0.0f);
  part.box.resize(static_cast<std::size_t>(width) * kColumns);
  part.shares.resize(static_cast<std::size_t>(width) * kColumns);
  part.index.resize(num_elements() * kColumns);
  part.inputs.resize(acted.inputs ? num_inputs() * kColumns : 0);
  part.masked.resize(acted.mask ? static_cast<std::size_t>(width) * kColumns : 0);
  part.weight = 1.0f / static_cast<float>(NumCounted(acted, rows));
}

void PpoLearner::GatherActed(Part& part, const ActedRows& acted, std::span<const std::int64_t> rows,
                             const ChunkOutputs& chunk) const {
  const std::int64_t width = network().output_size(0), all = num_inputs();
  const auto elements = static_cast<std::int64_t>(num_elements());
  const bool has_target = has_value();
  ActedColumns& columns = part.acted;
  ColumnRows of;
  for (std::int32_t i = 0; i < kColumns; ++i) {
    // columns beyond the minibatch repeat the first row, and do not count
    const std::int64_t place = chunk.first + (i < chunk.columns ? i : 0);
    const std::int64_t row = chunk.step * acted.num_sequences() + rows[place];
    of.row[i] = row;
    of.counts[i] = i < chunk.columns && Counts(acted, row);
    columns.weight[i] = of.counts[i] ? part.weight : 0.0f;
    columns.advantage[i] =
        advantages_.empty() ? 0.0f : advantages_[chunk.step * rows.size() + place];
  }
  // array by array, because the same branches for each row would cost more than the copies
  Take(of, acted.log_prob, columns.log_prob);
  Take(of, acted.log_slope, columns.log_slope);
  TakeCounted(of, has_target ? acted.target : nullptr, columns.target);
  TakeCounted(of, acted.value, columns.value);
  for (std::int64_t e = 0; e < elements && acted.index; ++e) {
    for (std::int32_t i = 0; i < kColumns; ++i) {
      part.index[e * kColumns + i] = static_cast<std::int32_t>(acted.index[of.row[i] * elements + e]);
    }
  }
  for (std::int64_t d = 0; d < width && acted.box; ++d) {
    for (std::int32_t i = 0; i < kColumns; ++i) {
      part.box[d * kColumns + i] = acted.box[of.row[i] * width + d];
    }
  }
  for (std::int64_t k = 0; k < all && acted.inputs; ++k) {
    for (std::int32_t i = 0; i < kColumns; ++i) {
      const std::int64_t row = of.row[i];
      // forbidden actions had no probability when the action was drawn, and have none now
      const bool is_drawn = !acted.mask || !Counts(acted, row) || acted.mask[row * width + k];
      part.inputs[k * kColumns + i] =
          is_drawn ? acted.inputs[row * all + k] : -std::numeric_limits<float>::infinity();
    }
  }
  columns.index = part.index.data();
  columns.box = part.box.data();
  columns.inputs = part.inputs.data();
}

// The head's first input, with no probability for forbidden actions.
const float* PpoLearner::Masked(Part& part, const ActedRows& acted,
                                std::span<const std::int64_t> rows,
                                const ChunkOutputs& chunk) const {
  const float* logits = chunk.output(0);
  if (!acted.mask) return logits;
  const std::int64_t width = network().output_size(0);
  std::copy_n(logits, width * kColumns, part.masked.data());
  for (std::int32_t i = 0; i < chunk.columns; ++i) {
    const std::int64_t row = chunk.step * acted.num_sequences() + rows[chunk.first + i];
    // a row that does not count may allow no action
    if (!Counts(acted, row)) continue;
    for (std::int64_t a = 0; a < width; ++a) {
      if (acted.mask[row * width + a]) continue;
      part.masked[a * kColumns + i] = -std::numeric_limits<float>::infinity();
    }
  }
  return part.masked.data();
}

HeadInputs PpoLearner::InputsOf(const ChunkOutputs& chunk, const float* first) const {
  HeadInputs inputs{.first = first, .size = network().output_size(0)};
  if (!IsDiscrete(head_.kind)) {
    inputs.second = chunk.output(1);
    inputs.second_size = network().output_size(1);
  }
  inputs.nvec = nvec_.data();
  inputs.num_elements = static_cast<std::int32_t>(nvec_.size());
  return inputs;
}

void PpoLearner::AddLoss(Part& part, const PpoRule& rule, const ChunkOutputs& chunk,
                         const float* first) const {
  const std::size_t value_at = NumHeadInputs(head_.kind);
  HeadGradients to{.first = chunk.gradient(0)};
  if (!IsDiscrete(head_.kind)) to.second = chunk.gradient(1);
  if (has_value()) to.value = chunk.gradient(value_at);
  BestKernels().ppo(head_, InputsOf(chunk, first), has_value() ? chunk.output(value_at) : nullptr,
                    part.acted, rule, part.shares.data(), to, part.loss);
}

// Loads the observations of a step, and before the first step the states.
void PpoLearner::LoadColumns(const ActedRows& acted, std::span<const std::int64_t> rows,
                             std::int32_t step, float* to) const {
  const auto copy = [&](const float* from, std::int64_t first, std::int32_t size, float* columns) {
    const float* places[kColumns];
    for (std::size_t i = 0; i < kColumns; ++i) {
      // columns beyond the minibatch repeat its first row
      places[i] = from + (first + rows[i < rows.size() ? i : 0]) * size;
    }
    BestKernels().transpose(places, kColumns, size, kColumns, columns);
  };
  const std::int32_t size = network().program().obs_size;
  copy(acted.obs, step * acted.num_sequences(), size, to);
  if (step == 0) copy(acted.states, 0, network().state_size(), to + size * kColumns);
}

Sequences PpoLearner::SequencesOf(const ActedRows& acted, std::span<const std::int64_t> rows) {
  const auto begins = [&acted, rows](std::int64_t sequence, std::int32_t step) {
    return acted.ended[(step - 1) * acted.num_sequences() + rows[sequence]] != 0;
  };
  return {acted.num_steps, acted.burn_in, acted.initial, begins};
}

PpoReport PpoLearner::Compute(std::span<const Source> sources, std::size_t before,
                              const ActedRows& acted, std::span<const std::int64_t> rows,
                              const PpoRule& rule, const UpdateStop& stop) {
  const auto load = [&](std::int64_t first, std::int32_t columns, std::int32_t step, float* to) {
    LoadColumns(acted, rows.subspan(first, columns), step, to);
  };
  const auto begin = [&](std::size_t part) { BeginPart(parts_[part], acted, rows); };
  const auto loss = [&](std::size_t part, const ChunkOutputs& chunk) {
    GatherActed(parts_[part], acted, rows, chunk);
    AddLoss(parts_[part], rule, chunk, Masked(parts_[part], acted, rows, chunk));
  };
  const auto count = static_cast<std::int64_t>(rows.size());
  return AddParts(
      steps_.Compute(sources, before, count, SequencesOf(acted, rows), load, begin, loss, stop));
}

void PpoLearner::Evaluate(std::span<const Source> sources, const ActedRows& acted,
                          const Evaluated& to, const UpdateStop& stop) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(acted.num_sequences()));
  std::iota(rows.begin(), rows.end(), 0);
  advantages_.clear();
  const auto load = [&](std::int64_t first, std::int32_t columns, std::int32_t step, float* columns_to) {
    LoadColumns(acted, std::span<const std::int64_t>(rows).subspan(first, columns), step, columns_to);
  };
  const auto begin = [&](std::size_t part) { BeginPart(parts_[part], acted, rows); };
  const auto use = [&](std::size_t index, const ChunkOutputs& chunk) {
    Part& part = parts_[index];
    GatherActed(part, acted, rows, chunk);
    float log_prob[kColumns], entropy[kColumns];
    BestKernels().density(head_, InputsOf(chunk, Masked(part, acted, rows, chunk)), part.acted,
                          part.shares.data(), log_prob, entropy);
    const std::int64_t row = chunk.step * acted.num_sequences() + chunk.first;
    std::copy_n(log_prob, chunk.columns, to.log_prob + row);
    std::copy_n(entropy, chunk.columns, to.entropy + row);
    if (to.value) std::copy_n(chunk.output(NumHeadInputs(head_.kind)), chunk.columns, to.value + row);
  };
  const auto count = static_cast<std::int64_t>(rows.size());
  steps_.RunForward(sources, count, SequencesOf(acted, rows), load, begin, use, stop);
}

// Adds up the parts in a fixed tree.
PpoReport PpoLearner::AddParts(std::size_t count) {
  for (std::size_t step = 1; step < count; step *= 2) {
    for (std::size_t i = 0; i + step < count; i += 2 * step) {
      Part& to = parts_[i];
      const Part& from = parts_[i + step];
      for (std::size_t k = 0; k < std::size(to.loss); ++k) to.loss[k] += from.loss[k];
    }
  }
  PpoReport report;
  for (int i = 0; i < kNumLossSums; ++i) {
    for (std::int32_t c = 0; c < kColumns; ++c) report.sums[i] += parts_[0].loss[i * kColumns + c];
  }
  return report;
}

void PpoLearner::CheckLosses(const PpoReport& report, const PpoSettings& settings,
                             std::size_t minibatch) {
  // a ratio that is nan shows in the loss
  const LossSum kinds[] = {kPolicyLoss, kValueLoss, kEntropy, kKl};
  const char* const names[] = {"a policy loss", "a value loss", "an entropy", "a KL divergence"};
  for (std::size_t i = 0; i < std::size(kinds); ++i) {
    if (!std::isfinite(report.sums[kinds[i]])) GradientSteps::Refuse(minibatch, names[i]);
  }
  if (settings.refuses_overflow && !std::isfinite(report.sums[kApproxKl])) {
    GradientSteps::Refuse(minibatch, "a ratio of probabilities");
  }
}

std::vector<PpoReport> PpoLearner::Update(std::span<const Source> sources, const ActedRows& acted,
                                          std::span<const std::int64_t> order,
                                          std::int64_t minibatch, const PpoSettings& settings,
                                          const UpdateStop& stop, const MeanOverProcesses& mean) {
  std::vector<PpoReport> reports;
  for (std::size_t at = 0; at < order.size(); at += minibatch) {
    const auto rows = order.subspan(at, std::min<std::size_t>(minibatch, order.size() - at));
    CheckCounted(acted, rows, reports.size());
    Normalize(rows, acted, settings.normalizes);
    PpoReport report = Compute(sources, reports.size(), acted, rows, settings.rule, stop);
    if (mean) steps_.Average(sources, report.sums, mean);
    if (settings.target_kl && report.sums[kApproxKl] > *settings.target_kl) {
      reports.push_back(report);
      break;
    }
    CheckLosses(report, settings, reports.size());
    const double norm = steps_.FindNorm(sources);
    steps_.CheckNorm(norm, reports.size());
    report.norm = static_cast<float>(norm);
    steps_.Step(sources, reports.size(), norm, settings.max_norm, settings.clip_by);
    reports.push_back(report);
  }
  return reports;
}

}  // namespace rollouts::policy
