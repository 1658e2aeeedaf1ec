// SPDX-License-Identifier: Apache-2.0
#include "bindings/pool/wrappers.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
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

py::tuple MomentsTuple(const Moments& moments) {
  return py::make_tuple(Doubles(std::ssize(moments.mean), moments.mean.data()),
                        Doubles(std::ssize(moments.var), moments.var.data()), moments.count);
}

Moments ReadMoments(const py::handle& given) {
  const auto [mean, var, count] = given.cast<std::tuple<Doubles, Doubles, double>>();
  return {{mean.data(), mean.data() + mean.size()}, {var.data(), var.data() + var.size()}, count};
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
  if (given.contains("clip_action")) {
    auto [low, high] = given["clip_action"].cast<std::pair<std::vector<float>, std::vector<float>>>();
    wrappers.clip_action = ClipAction{std::move(low), std::move(high)};
  }
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
    // without the GIL, as another thread may hold the pool's lock while it waits for a batch
    const ReleaseGil release;
    moments = fresh ? pool.TakeNewStatistics(ReadKind(of)) : pool.ReadStatistics(ReadKind(of));
  }
  return MomentsTuple(moments);
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

StepNormalizer MakeStepNormalizer(const py::dict& given, const EnvSpec& spec,
                                  std::int32_t num_envs) {
  Wrappers wrappers;
  const auto epsilon = given["epsilon"].cast<double>();
  const bool of_observations = given.contains("observation");
  if (of_observations) {
    wrappers.normalize_observation =
        NormalizeObservation{epsilon, given["clip_obs"].cast<double>(), /*to_float32=*/true};
  }
  const auto scales = given["norm_reward"].cast<bool>();
  wrappers.normalize_reward =
      NormalizeReward{given["gamma"].cast<double>(), epsilon, /*of_episodes=*/true, scales};
  if (scales) {
    const auto clip = given["clip_reward"].cast<double>();
    wrappers.clip_reward = ClipReward{-clip, clip};
  }
  StepNormalizer made(wrappers, spec.observation, num_envs, given["training"].cast<bool>());
  Normalizer& normalizer = made.normalizer();
  if (of_observations) normalizer.observation()->Set(ReadMoments(given["observation"]));
  normalizer.reward()->Set(ReadMoments(given["reward"]));
  const auto returns = given["returns"].cast<Doubles>();
  for (std::int32_t env = 0; env < num_envs; ++env) normalizer.SetKept(env, returns.at(env));
  normalizer.Refresh();
  return made;
}

void TakeStepNormalizer(StepNormalizer& made, const EnvSpec& spec, std::int32_t num_envs,
                        py::dict& to) {
  Normalizer& normalizer = made.normalizer();
  if (normalizer.observation()) to["observation"] = MomentsTuple(normalizer.observation()->all());
  to["reward"] = MomentsTuple(normalizer.reward()->all());
  Doubles returns(num_envs);
  for (std::int32_t env = 0; env < num_envs; ++env) returns.mutable_at(env) = *normalizer.Kept(env);
  to["returns"] = returns;
  py::array_t<std::uint8_t> last_obs({static_cast<py::ssize_t>(num_envs),
                                      static_cast<py::ssize_t>(spec.observation.bytes())});
  std::copy(made.last_obs().begin(), made.last_obs().end(), last_obs.mutable_data());
  to["last_obs"] = last_obs;
  to["last_reward"] = Doubles(num_envs, made.last_reward().data());
}

void UpdateStatistics(CpuPool& pool, bool updates) {
  const ReleaseGil release;
  pool.UpdateStatistics(updates);
}

}  // namespace rollouts
