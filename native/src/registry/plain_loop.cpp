// SPDX-License-Identifier: Apache-2.0
#include "rollouts/registry/plain_loop.h"

#include <limits>
#include <type_traits>

#include "registry_light_includes.inc"
#include "rollouts/core/env.h"

namespace rollouts {
namespace {

// A loop over one type, known to the compiler: nothing in it is virtual, as in a program written
// for this type.
template <typename Env>
class PlainLoopOf final : public PlainLoop {
  using Obs = typename Env::Obs;
  using Action = typename Env::Action;
  // Python's actions of a Discrete space are int64
  using Given = std::conditional_t<std::is_integral_v<Action>, std::int64_t, Action>;
  static_assert(Env::kSpec.action.size() == 1);

 public:
  PlainLoopOf(const typename Env::Config& config, std::int32_t num_envs,
              std::int32_t max_episode_steps, std::uint64_t seed)
      : PlainLoop(num_envs, SpecUnder<Env>(config).observation.bytes()),
        config_(config),
        spec_(SpecUnder<Env>(config)),
        obs_bytes_(spec_.observation.bytes()),
        // 0 means no limit: becomes one that no episode reaches
        max_episode_steps_(max_episode_steps > 0 ? max_episode_steps
                                                 : std::numeric_limits<std::int32_t>::max()),
        seed_(seed),
        // Begin gives each environment its own stream
        envs_(num_envs, One{{}, Rng(seed, 0, 0)}) {}

  const EnvSpec& spec() const override { return spec_; }

  void Reset() override {
    for (std::int32_t i = 0; i < num_envs(); ++i) {
      Begin(i);
      Write(i, 0, false, false);
    }
  }

  void Step(const void* actions) override {
    const auto* given = static_cast<const Given*>(actions);
    const std::int32_t count = num_envs();
    for (std::int32_t i = 0; i < count; ++i) {
      One& env = envs_[i];
      // next-step autoreset: the action is not used
      if (env.ended) {
        Begin(i);
        Write(i, 0, false, false);
        continue;
      }
      const Action action = static_cast<Action>(given[i]);
      const StepResult result = Env::Step(config_, env.state, &action, env.rng);
      // a time limit, as in the simplest wrapper, or the environment's own
      const bool truncated = ++env.elapsed_steps >= max_episode_steps_ || result.cuts_off;
      env.ended = result.terminated || truncated;
      Write(i, result.reward, result.terminated, truncated);
    }
  }

 private:
  struct One {
    typename Env::State state;
    Rng rng;
    std::uint32_t next_episode = 0;
    std::int32_t elapsed_steps = 0;
    bool ended = false;
  };

  void Begin(std::int32_t i) {
    One& env = envs_[i];
    // a stream for each episode, as in the pool, so that both run the same episodes
    env.rng = Rng(seed_, static_cast<std::uint32_t>(i), env.next_episode++);
    env.elapsed_steps = 0;
    env.ended = false;
    Env::Reset(config_, env.state, env.rng);
  }

  void Write(std::int32_t i, double reward, bool terminated, bool truncated) {
    Env::Observe(config_, envs_[i].state, reinterpret_cast<Obs*>(obs_.data() + i * obs_bytes_));
    reward_[i] = reward;
    terminated_[i] = terminated;
    truncated_[i] = truncated;
  }

  const typename Env::Config config_;
  const EnvSpec spec_;
  const std::int64_t obs_bytes_;  // a row's
  const std::int32_t max_episode_steps_;
  const std::uint64_t seed_;
  std::vector<One> envs_;
};

template <typename Env>
std::unique_ptr<PlainLoop> Make(const OptionColumns& options, std::int32_t num_envs,
                                std::int32_t max_episode_steps, std::uint64_t seed,
                                const typename Env::Config& defaults) {
  return std::make_unique<PlainLoopOf<Env>>(ReadConfig<Env>(options, 0, defaults), num_envs,
                                            max_episode_steps, seed);
}

}  // namespace

std::unique_ptr<PlainLoop> MakePlainLoop(const std::string& id, const OptionColumns& options,
                                         std::int32_t num_envs, std::int32_t max_episode_steps,
                                         std::uint64_t seed) {
#define ROLLOUTS_LIGHT_ENV(ID, TYPE, HEADER, MAX_STEPS, THRESHOLD, ...) \
  if (id == ID) {                                                       \
    return Make<TYPE>(options, num_envs, max_episode_steps, seed, {__VA_ARGS__}); \
  }
#include "registry_light_entries.inc"
#undef ROLLOUTS_LIGHT_ENV
  throw SpecError("there is no plain loop over '" + id +
                  "': it has an engine, or is no environment of rollouts.env_ids()");
}

}  // namespace rollouts
