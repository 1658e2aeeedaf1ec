// SPDX-License-Identifier: Apache-2.0
// Running means and variances: Gymnasium's RunningMeanStd, always in double.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace rollouts {

// Moments of `count` rows, for each element; the variance is that of the rows themselves (ddof 0).
struct Moments {
  std::vector<double> mean;
  std::vector<double> var;
  double count = 0;
};

// Merges `more` into `moments`, in the order of Gymnasium's update_mean_var_count_from_moments.
void Merge(const Moments& more, Moments& moments);

// Moments of everything counted, and of the rows since the last TakeNew. Not thread-safe.
class RunningMoments {
 public:
  explicit RunningMoments(std::int64_t size);

  const Moments& all() const { return all_; }
  void Add(const Moments& batch);

  // Replaces all but the rows since the last TakeNew. `moments` has as many elements as before.
  void Set(Moments moments) { all_ = std::move(moments); }
  Moments TakeNew();

 private:
  Moments all_;
  Moments new_;
};

}  // namespace rollouts
