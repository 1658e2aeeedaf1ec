// SPDX-License-Identifier: Apache-2.0
#include "rollouts/policy/gradient_steps.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "rollouts/policy/kernels.h"
#include "rollouts/support/errors.h"

namespace rollouts::policy {
namespace {

// The time that a thread spins for the next loop: longer than one thread's work between two loops.
// A parked thread wakes only 20 us after it was called.
constexpr std::chrono::microseconds kSpin{60};

// The number of parts, such that each has at least one group of columns.
std::int64_t NumParts(std::int64_t rows, std::int64_t num_steps) {
  const std::int64_t groups = (rows + kColumns - 1) / kColumns;
  const std::int64_t most = std::clamp<std::int64_t>(groups, 1, GradientSteps::kMostParts);
  return std::clamp<std::int64_t>(rows * num_steps / (2 * kChunkColumns), 1, most);
}

// Calls `use(i, place)` for each element of a view, in its own order.
template <typename Use>
void ForEach(const ParamView& view, Use&& use) {
  if (view.shape.empty()) return use(std::int64_t{0}, view.start);
  const std::size_t last = view.shape.size() - 1;
  const std::int64_t row = view.shape[last], stride = view.strides[last];
  const std::int64_t count = view.num_elements();
  for (std::int64_t first = 0; first < count; first += row) {
    // the place is computed once per row, because a division for each element takes longer than the
    // layer
    std::int64_t left = first / row, place = view.start;
    for (std::size_t axis = last; axis-- > 0;) {
      place += left % view.shape[axis] * view.strides[axis];
      left /= view.shape[axis];
    }
    for (std::int64_t i = 0; i < row; ++i) use(first + i, place + i * stride);
  }
}

double SquaresOf(std::span<const float> gradient) {
  return BestKernels().sum_squares(static_cast<std::int64_t>(gradient.size()), gradient.data());
}

}  // namespace

std::int64_t ParamView::num_elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool ParamView::is_dense() const {
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] != 1 && strides[axis] != stride) return false;
    stride *= shape[axis];
  }
  return true;
}

bool ParamView::is_whole(std::int64_t source_size) const {
  return start == 0 && num_elements() == source_size && is_dense();
}

GradientSteps::GradientSteps(const Program& program, std::vector<ParamView> views,
                             const std::vector<bool>& trained, std::int32_t num_threads)
    : gradients_(program, trained),
      views_(std::move(views)),
      threads_(std::min(num_threads, kMostParts), kSpin),
      gathered_(views_.size()),
      of_params_(views_.size()),
      parts_(kMostParts) {}

// Reads the parameters in the layouts of both passes, after each step.
void GradientSteps::ReadParams(std::span<const Source> sources, bool are_finite) {
  std::vector<std::span<const float>> params;
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const Source& source = sources[views_[i].source];
    if (views_[i].is_dense()) {
      const auto size = static_cast<std::size_t>(views_[i].num_elements());
      params.emplace_back(source.weights + views_[i].start, size);
      continue;
    }
    std::vector<float>& gathered = gathered_[i];
    gathered.resize(network().program().params[i].size);
    ForEach(views_[i], [&](std::int64_t element, std::int64_t place) {
      gathered[element] = source.weights[place];
    });
    params.emplace_back(gathered);
  }
  gradients_.Pack(params, weights_, are_finite);
}

std::size_t GradientSteps::Compute(std::span<const Source> sources, std::size_t before,
                                   std::int64_t count, const Sequences& sequences,
                                   const Gradients::Load& load, const Begin& begin,
                                   const PartLoss& loss, const UpdateStop& stop) {
  of_sources_.resize(sources.size());
  squares_.resize(sources.size());
  kept_.resize(sources.size());
  for (std::size_t s = 0; s < sources.size(); ++s) {
    kept_[s].resize(sources[s].size);
    of_sources_[s] = kept_[s];
  }
  SortBySource(sources.size());
  // a step has checked the weights that it wrote, and all others are as they were read
  ReadParams(sources, before > 0 && std::ranges::count(are_finite_, 0) == 0);
  ForEachPart(count, sequences.num_steps, stop, [&](std::size_t index) {
    Part& part = parts_[index];
    part.sums.resize(static_cast<std::size_t>(gradients_.num_sums()));
    begin(index);
    const auto of_part = [&](const ChunkOutputs& chunk) { loss(index, chunk); };
    gradients_.Run(weights_, part.first, part.last, sequences, load, of_part, part.room,
                   part.sums.data(), stop);
  });
  ForEachSource(sources.size(), [&](std::size_t source) { FindGradient(source); });
  return num_parts_;
}

void GradientSteps::RunForward(std::span<const Source> sources, std::int64_t count,
                               const Sequences& sequences, const Gradients::Load& load,
                               const Begin& begin, const PartLoss& use, const UpdateStop& stop) {
  ReadParams(sources, false);
  ForEachPart(count, sequences.num_steps, stop, [&](std::size_t index) {
    begin(index);
    const Part& part = parts_[index];
    const auto of_part = [&](const ChunkOutputs& chunk) { use(index, chunk); };
    gradients_.RunForward(weights_, part.first, part.last, sequences, load, of_part,
                          parts_[index].room, stop);
  });
}

void GradientSteps::ForEachPart(std::int64_t count, std::int32_t num_steps, const UpdateStop& stop,
                                const std::function<void(std::size_t)>& run) {
  // parts are whole groups of columns, as with one thread
  const std::int64_t groups = (count + kColumns - 1) / kColumns;
  const std::int64_t num_parts = NumParts(count, num_steps);
  num_parts_ = static_cast<std::size_t>(num_parts);
  for (std::int64_t p = 0; p < num_parts; ++p) {
    parts_[p].first = groups * p / num_parts * kColumns;
    parts_[p].last = std::min(count, groups * (p + 1) / num_parts * kColumns);
  }
  threads_.For(num_parts, 1, [&](std::int64_t at, std::int64_t end) {
    for (; at < end; ++at) run(static_cast<std::size_t>(at));
  });
  // throws if the update was stopped: rows may have been left out, which is not visible below
  stop.Check();
}

// Finds the parameters and the places among the sums that belong to each source.
void GradientSteps::SortBySource(std::size_t num_sources) {
  if (params_of_.size() == num_sources) return;
  params_of_.assign(num_sources, {});
  sums_of_.assign(num_sources, {});
  for (std::size_t i = 0; i < views_.size(); ++i) params_of_[views_[i].source].push_back(i);
  const auto sums = gradients_.sums();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums_of_[views_[sums[i].param].source].push_back(i);
  }
}

// Calls `use` for each source, by several threads if the minibatch was large enough for them.
void GradientSteps::ForEachSource(std::size_t num_sources,
                                  const std::function<void(std::size_t)>& use) {
  const auto count = static_cast<std::int64_t>(num_sources);
  threads_.For(count, num_parts_ > 1 ? 1 : count, [&](std::int64_t at, std::int64_t end) {
    for (; at < end; ++at) use(static_cast<std::size_t>(at));
  });
}

// Adds up numbers [begin, end) of the parts' sums in a fixed tree.
void GradientSteps::AddParts(std::int64_t begin, std::int64_t end) {
  for (std::size_t step = 1; step < num_parts_; step *= 2) {
    for (std::size_t i = 0; i + step < num_parts_; i += 2 * step) {
      float* to = parts_[i].sums.data();
      const float* from = parts_[i + step].sums.data();
      for (std::int64_t k = begin; k < end; ++k) to[k] += from[k];
    }
  }
}

// Finds the gradient of one of the module's arrays from the sums of all parts, and its squares.
void GradientSteps::FindGradient(std::size_t source) {
  const std::span<float> whole = of_sources_[source];
  const auto is_whole = [&](std::size_t param) {
    return views_[param].is_whole(static_cast<std::int64_t>(whole.size()));
  };
  // the first place of a parameter that is the whole array overwrites the gradient; all others add
  // to it
  bool adds = sums_of_[source].empty();
  for (const std::size_t param : params_of_[source]) {
    if (is_whole(param)) continue;
    adds = true;
    of_params_[param].assign(network().program().params[param].size, 0.0f);
  }
  if (adds) std::fill(whole.begin(), whole.end(), 0.0f);
  for (const std::size_t place : sums_of_[source]) {
    const Gradients::Sum& sum = gradients_.sums()[place];
    float* to = is_whole(sum.param) ? whole.data() : of_params_[sum.param].data();
    AddParts(sum.offset, sum.end());
    if (!adds && sums_of_[source].size() == 1 && sum.is_plain()) {
      of_sources_[source] = {parts_[0].sums.data() + sum.offset, whole.size()};
      break;
    }
    Gradients::Unpack(parts_[0].sums.data(), sum, adds, to);
    adds = true;
  }
  for (const std::size_t param : params_of_[source]) {
    if (is_whole(param)) continue;
    ForEach(views_[param], [&](std::int64_t element, std::int64_t place) {
      whole[place] += of_params_[param][element];
    });
  }
  squares_[source] = SquaresOf(of_sources_[source]);
}

void GradientSteps::Average(std::span<const Source> sources, std::span<float> others,
                            const MeanOverProcesses& mean) {
  averaged_.assign(others.begin(), others.end());
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (!sources[s].squares) continue;
    averaged_.insert(averaged_.end(), of_sources_[s].begin(), of_sources_[s].end());
  }
  mean(averaged_);
  const float* from = averaged_.data();
  std::copy_n(from, others.size(), others.begin());
  from += others.size();
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (!sources[s].squares) continue;
    std::copy_n(from, of_sources_[s].size(), of_sources_[s].begin());
    from += of_sources_[s].size();
    squares_[s] = SquaresOf(of_sources_[s]);
  }
}

double GradientSteps::FindNorm(std::span<const Source> sources) const {
  double squares = 0;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (sources[s].squares) squares += squares_[s];
  }
  return std::sqrt(squares);
}

void GradientSteps::Refuse(std::size_t minibatch, const std::string& what) {
  throw SpecError("minibatch " + std::to_string(minibatch) + " gives " + what +
                  " that is nan or infinite: look at its rewards, advantages and observations, "
                  "or lower the learning rate");
}

void GradientSteps::CheckNorm(double norm, std::size_t minibatch) const {
  if (std::isfinite(norm)) return;
  const auto is_finite = [](float value) { return std::isfinite(value); };
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const std::span<const float> found = of_sources_[views_[i].source];
    if (!std::all_of(found.begin(), found.end(), is_finite)) {
      Refuse(minibatch, "a gradient of " + network().program().params[i].name);
    }
  }
  Refuse(minibatch, "a norm of all gradients");
}

// Limits the gradients of each array separately.
void GradientSteps::Clip(std::span<const Source> sources, double limit, ClipBy by) {
  const auto most = static_cast<float>(limit);
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (!sources[s].squares) continue;
    const double norm = by == ClipBy::kEach ? std::sqrt(SquaresOf(of_sources_[s])) : 0;
    const float scale = norm > limit ? static_cast<float>(limit / norm) : 1.0f;
    for (float& each : of_sources_[s]) {
      // as in torch.clip: with a limit below 0 all numbers become the limit
      each = by == ClipBy::kEach ? each * scale : std::min(std::max(each, -most), most);
    }
  }
}

// Computes the rules with Adam's factors for its step: once for consecutive equal rules, as most
// are.
void GradientSteps::FindRules(std::span<const Source> sources, std::size_t before) {
  rules_.resize(sources.size());
  for (std::size_t s = 0; s < sources.size(); ++s) {
    StepRule& rule = rules_[s];
    rule = sources[s].rule;
    const StepRule* last = s > 0 && sources[s].steps == sources[s - 1].steps ? &rules_[s - 1] : nullptr;
    if (last && last->lr == rule.lr && last->beta1 == rule.beta1 && last->beta2 == rule.beta2) {
      rule.step_size = last->step_size;
      rule.root_scale = last->root_scale;
      continue;
    }
    const double steps = static_cast<double>(sources[s].steps) + static_cast<double>(before) + 1;
    rule.step_size = static_cast<float>(rule.lr / (1 - std::pow(double{rule.beta1}, steps)));
    rule.root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(double{rule.beta2}, steps)));
  }
}

void GradientSteps::Step(std::span<const Source> sources, std::size_t before, double norm,
                         const std::optional<double>& max_norm, ClipBy by) {
  if (max_norm && by != ClipBy::kAll) Clip(sources, *max_norm, by);
  // as in torch.nn.utils.clip_grad_norm_
  const auto scale = static_cast<float>(max_norm && by == ClipBy::kAll ? std::min(1.0, *max_norm / (norm + 1e-6)) : 1);
  FindRules(sources, before);
  are_finite_.assign(sources.size(), 1);
  ForEachSource(sources.size(), [&](std::size_t s) {
    if (!sources[s].squares) return;
    are_finite_[s] =
        BestKernels().step(rules_[s], scale, sources[s].size, sources[s].weights,
                           of_sources_[s].data(), sources[s].means, sources[s].squares);
  });
  ++num_steps_;
}

}  // namespace rollouts::policy
