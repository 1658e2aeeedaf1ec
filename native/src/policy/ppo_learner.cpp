// SPDX-License-Identifier: Apache-2.0
#include "rollouts/policy/ppo_learner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "policy/columns.h"
#include "rollouts/policy/kernels.h"
#include "rollouts/support/errors.h"

namespace rollouts::policy {
namespace {

// A minibatch is cut into as many parts whatever the number of threads, and their sums are added in
// one order.
constexpr std::int32_t kMostParts = 8;

std::int64_t NumParts(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / (2 * kChunkColumns), 1, kMostParts);
}

// Calls `use(i, place)` for each element of a view, in its own order.
template <typename Use>
void ForEach(const ParamView& view, Use&& use) {
  const std::int64_t count = std::accumulate(view.shape.begin(), view.shape.end(), std::int64_t{1},
                                             std::multiplies<>());
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t left = i, place = view.start;
    for (std::size_t axis = view.shape.size(); axis-- > 0;) {
      place += left % view.shape[axis] * view.strides[axis];
      left /= view.shape[axis];
    }
    use(i, place);
  }
}

// The weight of each row that counts in the means of a minibatch.
float WeightOf(const ActedRows& acted, std::span<const std::int64_t> rows) {
  if (!acted.counts) return 1.0f / static_cast<float>(rows.size());
  const auto counted =
      std::ranges::count_if(rows, [&](std::int64_t row) { return acted.counts[row] != 0; });
  return counted == 0 ? 0.0f : 1.0f / static_cast<float>(counted);
}

// Sums of squares over lanes, in one order for every machine.
double SquaresOf(std::span<const float> gradient) {
  double lanes[kColumns] = {}, squares = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    lanes[i % kColumns] += double{gradient[i]} * gradient[i];
  }
  for (const double lane : lanes) squares += lane;
  return squares;
}

}  // namespace

bool ParamView::is_whole(std::int64_t source_size) const {
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] != 1 && strides[axis] != stride) return false;
    stride *= shape[axis];
  }
  return start == 0 && stride == source_size;
}

PpoLearner::PpoLearner(const Program& program, std::vector<ParamView> views,
                       const std::vector<bool>& trained, const Head& head,
                       std::vector<std::int32_t> nvec, std::int32_t num_threads)
    : gradients_(program, trained),
      views_(std::move(views)),
      head_(head),
      nvec_(std::move(nvec)),
      threads_(std::min(num_threads, kMostParts)),
      gathered_(views_.size()),
      of_params_(views_.size()),
      parts_(kMostParts) {}

// The parameters as both passes read them, after each step.
void PpoLearner::ReadParams(std::span<const Source> sources) {
  std::vector<std::span<const float>> params;
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const Source& source = sources[views_[i].source];
    if (views_[i].is_whole(source.size)) {
      params.emplace_back(source.weights, static_cast<std::size_t>(source.size));
      continue;
    }
    std::vector<float>& gathered = gathered_[i];
    gathered.resize(network().program().params[i].size);
    ForEach(views_[i], [&](std::int64_t element, std::int64_t place) {
      gathered[element] = source.weights[place];
    });
    params.emplace_back(gathered);
  }
  gradients_.Pack(params, weights_);
}

void PpoLearner::Normalize(std::span<const std::int64_t> rows, const ActedRows& acted,
                           bool normalizes) {
  advantages_.resize(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) advantages_[i] = acted.advantage[rows[i]];
  if (!normalizes || rows.size() < 2) return;
  double sum = 0, squares = 0;
  for (const float value : advantages_) sum += value;
  const double mean = sum / static_cast<double>(rows.size());
  for (const float value : advantages_) squares += (value - mean) * (value - mean);
  // torch's std: of a sample
  const double deviation = std::sqrt(squares / static_cast<double>(rows.size() - 1));
  for (float& value : advantages_) {
    value = static_cast<float>((value - mean) / (deviation + 1e-8));
  }
}

// Copies what a batch holds of a chunk's rows into columns.
void PpoLearner::LoadActed(Part& part, const ActedRows& acted, std::span<const std::int64_t> rows,
                           const ChunkOutputs& chunk, float counted) const {
  const std::int64_t width = network().output_size(0);
  const auto elements = static_cast<std::int64_t>(std::max<std::size_t>(nvec_.size(), 1));
  const std::int64_t all = IsDiscrete(head_.kind) ? width : 2 * width;
  ActedColumns& columns = part.acted;
  for (std::int32_t i = 0; i < kColumns; ++i) {
    // what is beyond the minibatch is the first row once more, and does not count
    const std::int64_t place = chunk.first + (i < chunk.columns ? i : 0);
    const std::int64_t row = rows[place];
    const bool counts = i < chunk.columns && (!acted.counts || acted.counts[row] != 0);
    columns.weight[i] = counts ? counted : 0.0f;
    columns.log_prob[i] = acted.log_prob[row];
    columns.advantage[i] = advantages_[place];
    columns.target[i] = acted.target ? acted.target[row] : 0.0f;
    columns.value[i] = acted.value ? acted.value[row] : 0.0f;
    for (std::int64_t e = 0; e < elements && acted.index; ++e) {
      part.index[e * kColumns + i] = static_cast<std::int32_t>(acted.index[row * elements + e]);
    }
    for (std::int64_t d = 0; d < width && acted.box; ++d) {
      part.box[d * kColumns + i] = acted.box[row * width + d];
    }
    for (std::int64_t k = 0; k < all && acted.inputs; ++k) {
      part.inputs[k * kColumns + i] = acted.inputs[row * all + k];
    }
  }
}

void PpoLearner::RunPart(Part& part, const ActedRows& acted, std::span<const std::int64_t> rows,
                         const PpoRule& rule) {
  const Network& network = gradients_.network();
  const std::int64_t size = network.input_size(), width = network.output_size(0);
  const auto elements = static_cast<std::int64_t>(std::max<std::size_t>(nvec_.size(), 1));
  const std::size_t value_at = NumHeadInputs(head_.kind);
  const bool has_value = network.num_outputs() > value_at;
  part.sums.assign(static_cast<std::size_t>(gradients_.num_sums()), 0.0f);
  std::fill(std::begin(part.loss), std::end(part.loss), 0.0f);
  part.box.resize(width * kColumns);
  part.shares.resize(width * kColumns);
  part.index.resize(elements * kColumns);
  const std::int64_t all = IsDiscrete(head_.kind) ? width : 2 * width;
  part.inputs.resize(acted.inputs ? all * kColumns : 0);
  const float counted = WeightOf(acted, rows);
  const auto load = [&](std::int64_t first, std::int32_t columns, float* to) {
    for (std::int32_t i = 0; i < columns; ++i) {
      const float* row = acted.obs + rows[first + i] * size;
      for (std::int64_t k = 0; k < size; ++k) to[k * kColumns + i] = row[k];
    }
  };
  const auto loss = [&](const ChunkOutputs& chunk) {
    LoadActed(part, acted, rows, chunk, counted);
    ActedColumns& columns = part.acted;
    columns.index = part.index.data();
    columns.box = part.box.data();
    columns.inputs = part.inputs.data();
    HeadInputs inputs{.first = chunk.output(0), .size = network.output_size(0)};
    HeadGradients to{.first = chunk.gradient(0)};
    if (!IsDiscrete(head_.kind)) {
      inputs.second = chunk.output(1);
      inputs.second_size = network.output_size(1);
      to.second = chunk.gradient(1);
    }
    inputs.nvec = nvec_.data();
    inputs.num_elements = static_cast<std::int32_t>(nvec_.size());
    if (has_value) to.value = chunk.gradient(value_at);
    BestKernels().ppo(head_, inputs, has_value ? chunk.output(value_at) : nullptr, columns, rule,
                      part.shares.data(), to, part.loss);
  };
  gradients_.Run(weights_, part.first, part.last, load, loss, part.room, part.sums.data());
}

// Adds the parts up in a fixed tree, into the gradients of the module's arrays.
PpoReport PpoLearner::AddParts(std::size_t count) {
  for (std::size_t step = 1; step < count; step *= 2) {
    for (std::size_t i = 0; i + step < count; i += 2 * step) {
      Part& to = parts_[i];
      const Part& from = parts_[i + step];
      for (std::size_t k = 0; k < to.sums.size(); ++k) to.sums[k] += from.sums[k];
      for (std::size_t k = 0; k < std::size(to.loss); ++k) to.loss[k] += from.loss[k];
    }
  }
  std::vector<float*> to;
  for (std::size_t i = 0; i < views_.size(); ++i) {
    std::vector<float>& whole = of_sources_[views_[i].source];
    if (views_[i].is_whole(static_cast<std::int64_t>(whole.size()))) {
      to.push_back(whole.data());
    } else {
      of_params_[i].assign(network().program().params[i].size, 0.0f);
      to.push_back(of_params_[i].data());
    }
  }
  for (auto& each : of_sources_) std::fill(each.begin(), each.end(), 0.0f);
  gradients_.Unpack(parts_[0].sums.data(), to);
  for (std::size_t i = 0; i < views_.size(); ++i) {
    std::vector<float>& whole = of_sources_[views_[i].source];
    if (to[i] == whole.data()) continue;
    ForEach(views_[i], [&](std::int64_t element, std::int64_t place) {
      whole[place] += of_params_[i][element];
    });
  }
  PpoReport report;
  for (int i = 0; i < kNumLossSums; ++i) {
    for (std::int32_t c = 0; c < kColumns; ++c) report.sums[i] += parts_[0].loss[i * kColumns + c];
  }
  return report;
}

double PpoLearner::FindNorm(std::span<const Source> sources) const {
  double squares = 0;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (sources[s].squares) squares += SquaresOf(of_sources_[s]);
  }
  return std::sqrt(squares);
}

// Limits gradients; returns what is left to multiply all of them with.
double PpoLearner::Clip(std::span<const Source> sources, double norm, const PpoSettings& settings) {
  if (!settings.max_norm) return 1;
  const double limit = *settings.max_norm;
  // as torch.nn.utils.clip_grad_norm_
  if (settings.clip_by == ClipBy::kAll) return std::min(1.0, limit / (norm + 1e-6));
  for (std::size_t s = 0; s < sources.size(); ++s) {
    std::vector<float>& gradient = of_sources_[s];
    if (!sources[s].squares) continue;
    const double own = settings.clip_by == ClipBy::kEach ? std::sqrt(SquaresOf(gradient)) : 0;
    const float scale = own > limit ? static_cast<float>(limit / own) : 1.0f;
    const float most = static_cast<float>(limit);
    for (float& each : gradient) {
      each = settings.clip_by == ClipBy::kEach ? each * scale : std::min(std::max(each, -most), most);
    }
  }
  return 1;
}

void PpoLearner::CheckFinite(const PpoReport& report, double norm, std::size_t minibatch) const {
  const auto refuse = [minibatch](const std::string& what) {
    throw SpecError("minibatch " + std::to_string(minibatch) + " gives " + what +
                    " that is nan or infinite: look at its rewards, advantages and observations, "
                    "or lower the learning rate");
  };
  // a ratio that is nan counts in the loss alone
  const LossSum kinds[] = {kPolicyLoss, kValueLoss, kEntropy, kKl};
  const char* const names[] = {"a policy loss", "a value loss", "an entropy", "a KL divergence"};
  for (std::size_t i = 0; i < std::size(kinds); ++i) {
    if (!std::isfinite(report.sums[kinds[i]])) refuse(names[i]);
  }
  if (std::isfinite(norm)) return;
  const auto is_finite = [](float value) { return std::isfinite(value); };
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const std::vector<float>& found = of_sources_[views_[i].source];
    if (!std::all_of(found.begin(), found.end(), is_finite)) {
      refuse("a gradient of " + network().program().params[i].name);
    }
  }
  refuse("a norm of all gradients");
}

void PpoLearner::Step(std::span<const Source> sources, std::size_t minibatch, float scale) {
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (!sources[s].squares) continue;
    StepRule rule = sources[s].rule;
    const double steps = static_cast<double>(sources[s].steps) + static_cast<double>(minibatch) + 1;
    rule.step_size = static_cast<float>(rule.lr / (1 - std::pow(double{rule.beta1}, steps)));
    rule.root_correction = static_cast<float>(std::sqrt(1 - std::pow(double{rule.beta2}, steps)));
    BestKernels().step(rule, scale, sources[s].size, sources[s].weights, of_sources_[s].data(),
                       sources[s].means, sources[s].squares);
  }
}

std::vector<PpoReport> PpoLearner::Update(std::span<const Source> sources, const ActedRows& acted,
                                          std::span<const std::int64_t> order,
                                          std::int64_t minibatch,
                                          const PpoSettings& settings) {
  of_sources_.resize(sources.size());
  for (std::size_t s = 0; s < sources.size(); ++s) of_sources_[s].resize(sources[s].size);
  std::vector<PpoReport> reports;
  for (std::size_t at = 0; at < order.size(); at += minibatch) {
    const auto rows = order.subspan(at, std::min<std::size_t>(minibatch, order.size() - at));
    const auto count = static_cast<std::int64_t>(rows.size());
    ReadParams(sources);
    Normalize(rows, acted, settings.normalizes);
    const std::int64_t num_parts = NumParts(count);
    // whole groups of columns, so that the cut is that of one thread
    const std::int64_t groups = (count + kColumns - 1) / kColumns;
    for (std::int64_t p = 0; p < num_parts; ++p) {
      parts_[p].first = groups * p / num_parts * kColumns;
      parts_[p].last = std::min(count, groups * (p + 1) / num_parts * kColumns);
    }
    threads_.For(num_parts, 1, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; ++begin) RunPart(parts_[begin], acted, rows, settings.rule);
    });
    PpoReport report = AddParts(static_cast<std::size_t>(num_parts));
    if (settings.target_kl && report.sums[kApproxKl] > *settings.target_kl) {
      reports.push_back(report);
      break;
    }
    const double norm = FindNorm(sources);
    CheckFinite(report, norm, reports.size());
    report.norm = static_cast<float>(norm);
    Step(sources, reports.size(), static_cast<float>(Clip(sources, norm, settings)));
    ++num_steps_;
    reports.push_back(report);
  }
  return reports;
}

}  // namespace rollouts::policy
