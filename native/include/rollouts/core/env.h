// SPDX-License-Identifier: Apache-2.0
// The contract of an environment, included by every environment header.
//
// A light environment is a struct with
//   using Config = ...;  plain data, defaults in place
//   using State = ...;   plain data (trivially copyable)
//   using Action = std::int32_t (Discrete) or float (Box: a pointer to the row)
//   using Obs = ...;     element type of the observation
//   static constexpr EnvSpec kSpec
//   template <class V> static void VisitConfig(Config&, V& visit)   option names
//   template <class C> static void CheckConfig(const Config&, C& check)   optional: what its
//       options may be; `check` is a ConfigCheck (support/options.h)
//   static EnvSpec MakeSpec(const Config&)   optional: the spec under options that change the
//       observation, whose rows may then be longer than kSpec's. A GPU's pool refuses such options
//   static const char* CheckState(const Config&, const State&)   optional: null, or what is wrong
//       with a saved state, as the end of a message that begins "state 0 for env_id 0: ". A state
//       may come from anywhere, so this checks every number that Step, Observe and WriteInfo use as
//       an index, a size or the bound of a loop; most return kNoSuchState
//   static const char* HostOnly(const Config&)   optional, only in our own headers: the option that
//       makes Observe call host functions (unless kInKernel), so that a GPU's pool refuses it, or
//       null
//   static void Reset(const Config&, State&, Rng&)
//   static StepResult Step(const Config&, State&, const Action* action, Rng&)
//   static void Observe(const Config&, const State&, Obs* obs)
//   static void WriteInfo(const Config&, const State&, double* values)   where kSpec announces
//       infos (with reset_infos): computes them from the State, after a reset as after a step
//   static constexpr bool kVectorized = true   optional: State is Reals only or int32s only,
//       Step does not branch but on options, the action has one element; then the CPU pool
//       steps blocks of environments with vector instructions
//   static bool StepDraws(const Config&)   with kVectorized: whether Step may draw under these
//       options, at most 4 words in most steps. Step is then a template over the Rng's type, and
//       calls only Uniform() and Below(). Without StepDraws, Step draws nothing
//   static constexpr const char* kStateNames[]   where State is Reals: their names; a number
//       that is not finite after a step is reported as this environment's failure
// all ROLLOUTS_HD but VisitConfig, CheckConfig and HostOnly. It knows nothing of threads, batches, seeds,
// time limits or autoreset: core/step.h does.
//
// A heavy environment (CPU_ONLY) hosts an engine and is a class with
//   using Config, Action, Obs; template <class V> static void VisitConfig(Config&, V&)
//   static EnvSpec MakeSpec(const Config&)
//   explicit Env(const Config&)              may throw
//   void Reset(Rng&, bool forced)            forced: by the user's reset(), not by autoreset
//   StepResult Step(const Action*, Rng&)
//   void Observe(Obs* obs) const
//   void WriteInfo(double* values) const     what EnvSpec::infos announces, one after the other
//   void SaveState(std::vector<std::uint8_t>& out) const   optional, as is the next:
//       appends all that later steps depend on; called after a Reset, between steps
//   void LoadState(std::span<const std::uint8_t>)   restores a state that an Env of equal Config
//       saved, maybe before the first Reset; throws when it cannot
//   void CheckOverrides(const ModelOverrides&) const   optional, as are the next four, for an
//       engine whose model has fields: throws SpecError for overrides that SetModel must not get
//   void SetModel(ModelOverrides)            replaces all overrides of fields, from the next Reset
//       on
//   const ModelOverrides& model_overrides() const
//   ModelArray ReadModel(const std::string& field, bool of_file) const     a field's values in
//       force, or those of the file; throws SpecError
//   std::vector<std::string> ModelFields() const     names of the fields that can be overridden
//   static std::shared_ptr<const void> Share(const Config&)   optional: what environments of
//       these options have in common, held by their batch
//   static void RunTurns(std::int32_t count, const std::function<void(std::int32_t)>& turn)
//       optional: calls turn(0) to turn(count - 1), each of which runs one environment, on this
//       thread; more than EnvSpec::together turns gain nothing
//   static void StepAhead(std::span<Env* const>, std::span<const Action* const>)   optional, used
//       where EnvSpec::together is above 1: computes in advance what it can of at most 64 steps
//       that are due; does not throw, and each Step follows in the same thread
//   static void BeginAhead(std::span<Env* const>, std::span<const Rng>)   optional, with StepAhead:
//       computes in advance what it can of resets that are due, with the streams of their episodes;
//       does not throw, and each Reset follows in the same thread, with an equal stream
// The functions of a heavy environment may throw; the pool reports that as this environment's
// failure.
//
// The concepts below make the compiler name the member that is missing.
#pragma once

#include "rollouts/core/math.h"
#include "rollouts/core/platform.h"
#include "rollouts/core/rng.h"
#include "rollouts/core/spec.h"

namespace rollouts {

struct StepResult {
  double reward = 0;
  bool terminated = false;
  // Added to the episode's return. Differs from `reward` only where the reward
  // that the learner sees is clipped.
  double score = 0;
  // Reports `terminated` to the learner although the episode goes on.
  bool marks_end = false;
  // Truncates the episode at a limit of the environment itself. Code that cannot throw also sets it
  // where the episode cannot go on.
  bool cuts_off = false;

  ROLLOUTS_HD static constexpr StepResult Of(double reward, bool terminated) {
    return StepResult{reward, terminated, reward};
  }
};

// Replaces std::same_as, because NVRTC has no standard library.
template <typename A, typename B>
inline constexpr bool kSameType = false;
template <typename A>
inline constexpr bool kSameType<A, A> = true;

// Tells if low <= value <= high; for CheckState.
ROLLOUTS_HD constexpr bool IsWithin(std::int64_t value, std::int64_t low, std::int64_t high) {
  return value >= low && value <= high;
}
inline constexpr const char* kNoSuchState = "has numbers that no state of the environment has";

// Members that a light environment must have; each optional one is tested where it is used.
template <typename Env>
concept LightEnvironment =
    requires(const typename Env::Config& config, typename Env::State& state,
             const typename Env::State& seen, const typename Env::Action* action,
             typename Env::Obs* obs, Rng& rng) {
      static_cast<const EnvSpec&>(Env::kSpec);
      Env::Reset(config, state, rng);
      requires kSameType<decltype(Env::Step(config, state, action, rng)), StepResult>;
      Env::Observe(config, seen, obs);
    };

// Members that a heavy one must have.
template <typename Env>
concept HeavyEnvironment =
    requires(const typename Env::Config& config, Env& env, const Env& seen,
             const typename Env::Action* action, typename Env::Obs* obs, double* values, Rng& rng) {
      requires kSameType<decltype(Env::MakeSpec(config)), EnvSpec>;
      Env(config);
      env.Reset(rng, true);
      requires kSameType<decltype(env.Step(action, rng)), StepResult>;
      seen.Observe(obs);
      seen.WriteInfo(values);
    };

// A kernel loads a State of at most this many bytes for a step, and steps a larger one in place: a
// copy would be in local memory, which a GPU reserves for each thread that it can hold.
inline constexpr std::int64_t kMostLoadedState = 256;

// The spec of a light environment under its options.
template <typename Env>
constexpr EnvSpec SpecUnder(const typename Env::Config& config) {
  if constexpr (requires { Env::MakeSpec(config); }) {
    return Env::MakeSpec(config);
  } else {
    return Env::kSpec;
  }
}

}  // namespace rollouts
