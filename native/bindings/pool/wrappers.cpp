// SPDX-License-Identifier: Apache-2.0
#include "bindings/pool/wrappers.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <tuple>
#include <utility>
#include <vector>

#include "bindings/gil.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using Doubles = py::array_t<double, py::array::c_style>;
using Pair = std::pair<double, double>;

StatisticsOf ReadKind(const std::string& of) {
  return of == "reward" ? StatisticsOf::kReward : StatisticsOf::kObservation;
}

RescaleAction ReadRescale(const py::handle& given) {
  RescaleAction rescale;
  std::tie(rescale.gradient, rescale.intercept, rescale.low, rescale.high) =
      given.cast<std::tuple<std::vector<float>, std::vector<float>, std::vector<double>,
                            std::vector<double>>>();
  return rescale;
}

}  // namespace

Wrappers ReadWrappers(const py::dict& given) {
  Wrappers wrappers;
  if (given.contains("rescale_action")) {
    wrappers.rescale_action = ReadRescale(given["rescale_action"]);
  }
  if (given.contains("time_aware")) {
    auto [fraction, limits] =
        given["time_aware"].cast<std::pair<bool, std::vector<std::int32_t>>>();
    wrappers.time_aware = TimeAware{fraction, std::move(limits)};
  }
  if (given.contains("frame_stack")) {
    wrappers.frame_stack = given["frame_stack"].cast<std::int32_t>();
  }
  if (given.contains("normalize_observation")) {
    const auto [epsilon, clip] = given["normalize_observation"].cast<Pair>();
    wrappers.normalize_observation = NormalizeObservation{epsilon, clip};
  }
  if (given.contains("normalize_reward")) {
    const auto [gamma, epsilon] = given["normalize_reward"].cast<Pair>();
    wrappers.normalize_reward = NormalizeReward{gamma, epsilon};
  }
  if (given.contains("clip_reward")) {
    const auto [low, high] = given["clip_reward"].cast<Pair>();
    wrappers.clip_reward = ClipReward{low, high};
  }
  return wrappers;
}

py::tuple ReadStatistics(CpuPool& pool, const std::string& of, bool fresh) {
  Moments moments;
  {
    // another thread may hold the pool's lock while it waits for a batch
    const ReleaseGil release;
    moments = fresh ? pool.TakeNewStatistics(ReadKind(of)) : pool.ReadStatistics(ReadKind(of));
  }
  return py::make_tuple(Doubles(std::ssize(moments.mean), moments.mean.data()),
                        Doubles(std::ssize(moments.var), moments.var.data()), moments.count);
}

void SetStatistics(CpuPool& pool, const std::string& of, const py::object& mean,
                   const py::object& var, double count) {
  const auto means = mean.cast<Doubles>();
  const auto vars = var.cast<Doubles>();
  Moments moments{{means.data(), means.data() + means.size()},
                  {vars.data(), vars.data() + vars.size()},
                  count};
  const ReleaseGil release;
  pool.SetStatistics(ReadKind(of), std::move(moments));
}

void UpdateStatistics(CpuPool& pool, bool updates) {
  const ReleaseGil release;
  pool.UpdateStatistics(updates);
}

}  // namespace rollouts
