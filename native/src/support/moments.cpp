// SPDX-License-Identifier: Apache-2.0
#include "rollouts/support/moments.h"

#include <algorithm>

namespace rollouts {
namespace {

// Gymnasium's RunningMeanStd: the count of the values assumed before the first batch.
constexpr double kFirstCount = 1e-4;

}  // namespace

void Merge(const Moments& more, Moments& moments) {
  const double before = moments.count, added = more.count, total = before + added;
  if (added == 0) return;
  for (std::size_t i = 0; i < moments.mean.size(); ++i) {
    const double apart = more.mean[i] - moments.mean[i];
    const double squares = moments.var[i] * before + more.var[i] * added +
                           apart * apart * before * added / total;
    moments.mean[i] += apart * added / total;
    moments.var[i] = squares / total;
  }
  moments.count = total;
}

RunningMoments::RunningMoments(std::int64_t size) {
  const auto length = static_cast<std::size_t>(size);
  all_ = {std::vector<double>(length, 0.0), std::vector<double>(length, 1.0), kFirstCount};
  new_ = {std::vector<double>(length, 0.0), std::vector<double>(length, 0.0), 0};
}

void RunningMoments::Add(const Moments& batch) {
  Merge(batch, all_);
  Merge(batch, new_);
}

Moments RunningMoments::TakeNew() {
  Moments taken = new_;
  std::fill(new_.mean.begin(), new_.mean.end(), 0.0);
  std::fill(new_.var.begin(), new_.var.end(), 0.0);
  new_.count = 0;
  return taken;
}

}  // namespace rollouts
