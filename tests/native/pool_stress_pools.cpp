// SPDX-License-Identifier: Apache-2.0
// The pools of pool_stress.h. Templates over environments are what sanitizers make a compiler slow with: they are
// instantiated here and in no other file.
#include "pool_stress.h"

#include "rollouts/envs/classic/cart_pole.h"
#include "rollouts/pool/heavy_env_batch.h"
#include "rollouts/pool/light_env_batch.h"

namespace rollouts {
namespace {

// A heavy environment whose steps wait while the gate is shut, and fail on demand.
struct GateEnv {
  struct Config {
    bool throws = false;
  };
  using Action = std::int32_t;
  using Obs = float;
  static inline std::atomic<bool> open{true};

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("throws", config.throws);
  }
  static EnvSpec MakeSpec(const Config&) {
    EnvSpec spec = CartPole::kSpec;
    spec.step_cost_ns = 100'000;
    return spec;
  }
  explicit GateEnv(const Config& config) : config_(config) {}
  void Reset(Rng& rng, bool) {
    if (config_.throws && rng.Below(8) == 0) throw std::runtime_error("reset broke");
    value_ = 0;
  }
  StepResult Step(const Action*, Rng& rng) {
    open.wait(false);
    if (config_.throws && rng.Below(8) == 0) throw std::runtime_error("step broke");
    if (config_.throws && rng.Below(8) == 0) throw 7;  // not a std::exception
    ++value_;
    return StepResult::Of(1, rng.Below(10) == 0);
  }
  void Observe(Obs* obs) const {
    for (int i = 0; i < 4; ++i) obs[i] = value_;
  }
  void WriteInfo(double*) const {}

 private:
  const Config config_;
  float value_ = 0;
};

// A heavy environment whose steps return when two of them are under way at once.
struct MeetingEnv : GateEnv {
  static inline std::atomic<int> inside{0};
  static inline std::atomic<int> meetings{0};

  using GateEnv::GateEnv;
  StepResult Step(const Action*, Rng&) {
    const auto deadline = Clock::now() + std::chrono::seconds(300);
    if (inside.fetch_add(1) + 1 == 2) meetings.fetch_add(1);
    while (meetings.load() == 0 && Clock::now() < deadline) CpuRelax();
    inside.fetch_sub(1);
    return StepResult::Of(1, false);
  }
};

// As GateEnv, but only steps with an odd action wait at the gate.
struct SlowOddEnv : GateEnv {
  using GateEnv::GateEnv;
  StepResult Step(const Action* action, Rng& rng) {
    if (*action % 2) return GateEnv::Step(action, rng);
    return StepResult::Of(1, false);
  }
};

// An engine that is refused for the fifth environment.
struct RefusedEnv : GateEnv {
  static inline std::atomic<int> made{0};

  explicit RefusedEnv(const Config& config) : GateEnv(config) {
    if (made.fetch_add(1) == 4) throw EngineError("refused");
  }
};

template <typename Env>
std::unique_ptr<CpuPool> MakeHeavy(const PoolOptions& options, const GateEnv::Config& config = {}) {
  return std::make_unique<CpuPool>(HeavyEnvBatch::Of<Env>(config, options.num_envs), options);
}

}  // namespace

void SetGate(bool open) {
  GateEnv::open.store(open);
  GateEnv::open.notify_all();
}

std::unique_ptr<CpuPool> MakeCartPoles(const PoolOptions& options) {
  return std::make_unique<CpuPool>(
      std::make_unique<LightEnvBatch<CartPole>>(std::vector{CartPole::Config{}}, options.num_envs), options);
}

std::unique_ptr<CpuPool> MakeGates(const PoolOptions& options, bool throws) {
  return MakeHeavy<GateEnv>(options, {throws});
}

std::unique_ptr<CpuPool> MakeSlowOdds(const PoolOptions& options) { return MakeHeavy<SlowOddEnv>(options); }

std::unique_ptr<CpuPool> MakeMeetings(const PoolOptions& options) { return MakeHeavy<MeetingEnv>(options); }

int NumMeetings() { return MeetingEnv::meetings.load(); }

std::unique_ptr<CpuPool> MakeRefused(const PoolOptions& options) {
  RefusedEnv::made = 0;
  return MakeHeavy<RefusedEnv>(options);
}

}  // namespace rollouts
