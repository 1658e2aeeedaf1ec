// SPDX-License-Identifier: Apache-2.0
// The rules of core/env.h and core/multi_agent.h, each with a message for the author of an
// environment that breaks it.
#pragma once

#include <type_traits>

#include "rollouts/core/env.h"
#include "rollouts/core/info_columns.h"
#include "rollouts/core/multi_agent.h"
#include "rollouts/plugin/abi.h"
#include "rollouts/support/options.h"

namespace rollouts {

// The DType of an element type; kNoElement where it has none.
template <typename T>
constexpr std::int32_t ElementOf() {
  const auto of = [](DType dtype) { return static_cast<std::int32_t>(dtype); };
  if constexpr (kSameType<T, float>) return of(DType::kFloat32);
  if constexpr (kSameType<T, double>) return of(DType::kFloat64);
  // chosen by signedness and size: an int64 may be a long or a long long
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    if (sizeof(T) == 1) return of(DType::kInt8);
    if (sizeof(T) == 2) return of(DType::kInt16);
    return of(sizeof(T) == 4 ? DType::kInt32 : DType::kInt64);
  }
  return std::is_integral_v<T> && sizeof(T) == 1 ? of(DType::kUint8) : kNoElement;
}

// Tells if a space has elements that can be laid out; spec_rules.cpp checks the rest after the
// compilation.
constexpr bool HasElements(const SpaceSpec& space) {
  return space.ndim >= 0 && space.ndim <= SpaceSpec::kMaxDims && space.size() > 0;
}

// Tells if an environment is meant to have several agents: it has phases.
template <typename Env>
inline constexpr bool kHasAgents = requires { Env::kPhases; };

// A struct with one check for each function, so that each missing one is named.
// clang-format off
template <typename Env>
struct CommonContract {
  static_assert(requires { typename Env::Config; }, "rollouts: it has no type Config");
  static_assert(requires { typename Env::Obs; }, "rollouts: it has no type Obs, that of an element of its observations");
  static_assert(std::is_trivially_copyable_v<typename Env::Config>, "rollouts: its Config is not trivially copyable; options are bool, std::int32_t, float or double");
  static_assert(requires(typename Env::Config& config, OptionReader& visit) { Env::VisitConfig(config, visit); }, "rollouts: it has no function `template <class V> static void VisitConfig(Config&, V& visit)`");
  static constexpr bool kHolds = true;
};

template <typename Env>
struct LightContract : CommonContract<Env> {
  static_assert(requires { typename Env::State; }, "rollouts: it has no type State");
  static_assert(requires { typename Env::Action; }, "rollouts: it has no type Action: std::int32_t for Discrete and MultiDiscrete actions, float for a Box");
  static_assert(std::is_trivially_copyable_v<typename Env::State>, "rollouts: its State is not trivially copyable: no pointers to memory of its own, no containers, no virtual functions");
  static_assert(requires { static_cast<const EnvSpec&>(Env::kSpec); }, "rollouts: it has no `static constexpr EnvSpec kSpec`");
  static_assert(requires(const typename Env::Config& config, typename Env::State& state, Rng& rng) { Env::Reset(config, state, rng); }, "rollouts: it has no function `static void Reset(const Config&, State&, Rng&)`");
  static_assert(requires(const typename Env::Config& config, typename Env::State& state, const typename Env::Action* action, Rng& rng) { requires kSameType<decltype(Env::Step(config, state, action, rng)), StepResult>; }, "rollouts: it has no function `static StepResult Step(const Config&, State&, const Action* action, Rng&)`");
  static_assert(requires(const typename Env::Config& config, const typename Env::State& state, typename Env::Obs* obs) { Env::Observe(config, state, obs); }, "rollouts: it has no function `static void Observe(const Config&, const State&, Obs* obs)`");
  static_assert(Env::kSpec.num_groups == 0, "rollouts: its kSpec has groups of agents, but it has no kPhases; see core/multi_agent.h");
  static_assert(HasElements(Env::kSpec.observation) && HasElements(Env::kSpec.action), "rollouts: kSpec.observation or kSpec.action has no elements, or more than 4 dimensions: n, or ndim and shape");
  static_assert(Env::kSpec.num_infos >= 0 && Env::kSpec.num_infos <= EnvSpec::kMaxInfos, "rollouts: kSpec.num_infos is above EnvSpec::kMaxInfos");
  static_assert(Env::kSpec.reset_infos == kTellsInfo<Env>, "rollouts: kSpec.reset_infos must be true where there are infos, else false");
  static_assert(NumInfoValues<Env>() <= EnvSpec::kMaxInfoValues, "rollouts: its infos have more values than EnvSpec::kMaxInfoValues");
  static_assert(!kTellsInfo<Env> || requires(const typename Env::Config& config, const typename Env::State& state, double* values) { Env::WriteInfo(config, state, values); }, "rollouts: kSpec has infos, and there is no function `static void WriteInfo(const Config&, const State&, double* values)`");
};

template <typename Env>
struct AgentsContract : CommonContract<Env> {
  static_assert(requires { typename Env::World; }, "rollouts: it has no type World");
  static_assert(requires { typename Env::Agents; }, "rollouts: it has no type Agents");
  static_assert(std::is_trivially_copyable_v<typename Env::World>, "rollouts: its World is not trivially copyable: no pointers to memory of its own, no containers, no virtual functions");
  static_assert(requires(const typename Env::Config& config) { requires kSameType<decltype(Env::MakeSpec(config)), EnvSpec>; }, "rollouts: it has no function `static EnvSpec MakeSpec(const Config&)`");
  static_assert(requires(const typename Env::Config& config, typename Env::Agents& agents, AnyVisitor& visit) { Env::VisitFields(config, agents, visit); }, "rollouts: it has no function `template <class V> static void VisitFields(const Config&, Agents&, V& visit)`");
  static_assert(requires(const WorldRef<Env>& world, Rng& rng) { Env::Reset(world, rng); }, "rollouts: it has no function `static void Reset(const WorldRef<Env>& world, Rng& rng)`");
  static_assert(Env::kPhases > 0, "rollouts: kPhases must be 1 at least");
  static_assert(requires(const WorldRef<Env>& world) { Env::template StepAgent<0>(world, 0); Env::template StepAgent<Env::kPhases - 1>(world, 0); }, "rollouts: it has no function `template <int kPhase> static void StepAgent(const WorldRef<Env>& world, int agent)`");
  static_assert(requires(const WorldRef<Env>& world, Rng& rng) { requires kSameType<decltype(Env::EndStep(world, rng)), bool>; }, "rollouts: it has no function `static bool EndStep(const WorldRef<Env>& world, Rng& rng)`");
  static_assert(requires(const WorldRef<Env>& world, typename Env::Obs* obs) { Env::Observe(world, 0, obs); }, "rollouts: it has no function `static void Observe(const WorldRef<Env>& world, int agent, Obs* obs)`");
};
// clang-format on

}  // namespace rollouts
