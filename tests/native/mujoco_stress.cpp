// SPDX-License-Identifier: Apache-2.0
// Exercises MuJoCo's environments from several threads. test_mujoco_sanitizers.py builds it with
// ThreadSanitizer and with AddressSanitizer + UndefinedBehaviorSanitizer; each scenario is an
// argument. The environment variables MUJOCO_LIBRARY, MUJOCO_ASSETS, UNSTABLE_MODEL (a cheetah
// that diverges) and SMALL_MODEL (an ant without memory for contacts) name files.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engines/mujoco_library.h"
#include "rollouts/envs/mujoco/ant.h"
#include "rollouts/envs/mujoco/half_cheetah.h"
#include "rollouts/envs/mujoco/humanoid.h"
#include "rollouts/envs/mujoco/own_model.h"
#include "rollouts/pool/errors.h"
#include "rollouts/pool/options.h"

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
      std::exit(1);                                                             \
    }                                                                           \
  } while (false)

namespace rollouts {
namespace {

constexpr int kThreads = 3;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  CHECK(value != nullptr);
  return value;
}

template <typename Env>
std::unique_ptr<Env> MakeEnv(const std::string& xml_file = "") {
  OptionColumns options;
  options["assets"] = {Variable("MUJOCO_ASSETS")};
  if (!xml_file.empty()) options["xml_file"] = {xml_file};
  return std::make_unique<Env>(ReadConfig<Env>(options, 0));
}

// Steps an environment through several episodes, with a save and a load on the way; returns
// all that it showed.
template <typename Env>
std::vector<std::uint8_t> Play(int seed) {
  const auto env = MakeEnv<Env>();
  const auto copy = MakeEnv<Env>();
  OptionColumns options;
  options["assets"] = {Variable("MUJOCO_ASSETS")};
  const EnvSpec spec = Env::MakeSpec(ReadConfig<Env>(options, 0));
  const auto row = static_cast<std::size_t>(spec.observation.bytes());
  std::vector<std::uint8_t> shown;
  std::vector<std::uint8_t> ends;
  for (std::uint32_t episode = 0; episode < 3; ++episode) {
    Rng rng(static_cast<std::uint64_t>(seed), 0, episode);
    env->Reset(rng, false);
    for (int step = 0; step < 20; ++step) {
      std::vector<float> action(static_cast<std::size_t>(spec.action.shape[0]));
      for (float& value : action) value = static_cast<float>(rng.Uniform(-0.4, 0.4));
      if (step == 9) {
        std::vector<std::uint8_t> state;
        env->SaveState(state);
        copy->LoadState(state);
      }
      const StepResult result = env->Step(action.data(), rng);
      shown.resize(shown.size() + row);
      env->Observe(shown.data() + shown.size() - row);
      ends.push_back(result.terminated);
      if (step >= 9) {
        CHECK(copy->Step(action.data(), rng).reward == result.reward);
      }
    }
  }
  shown.insert(shown.end(), ends.begin(), ends.end());
  return shown;
}

void InThreads(const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(run, i);
  for (std::thread& thread : threads) thread.join();
}

void ThreadsShareModels() {
  const auto alone = Play<HalfCheetah>(7);
  const auto humanoid = Play<Humanoid>(7);
  InThreads([&](int) {
    CHECK(Play<HalfCheetah>(7) == alone);
    CHECK(Play<Humanoid>(7) == humanoid);
  });
}

// Named parts of a model that no task knows, found and gathered in several threads.
void PartsByName() {
  const auto config = [](const std::string& observation) {
    OptionColumns options;
    options["assets"] = {Variable("MUJOCO_ASSETS")};
    options["xml_file"] = {std::string("humanoid.xml")};
    options["observation"] = {observation};
    options["info"] = {std::string("xpos:torso, ten_length, qpos:abdomen_z")};
    options["reset_noise_scale"] = {0.1};
    return ReadConfig<OwnModel>(options, 0);
  };
  const auto play = [&] {
    OwnModel env(config("qpos[2:], qvel, cfrc_ext[1:], xpos:torso[0:2]"));
    std::vector<double> obs(static_cast<std::size_t>(
        OwnModel::MakeSpec(config("qpos[2:], qvel, cfrc_ext[1:], xpos:torso[0:2]"))
            .observation.size()));
    Rng rng(1, 0, 0);
    env.Reset(rng, false);
    const float action[17] = {0.1f, -0.2f};
    double infos[EnvSpec::kMaxInfoValues] = {};
    double sum = 0;
    for (int step = 0; step < 20; ++step) {
      std::vector<std::uint8_t> state;
      env.SaveState(state);
      env.LoadState(state);
      env.Step(action, rng);
      env.Observe(reinterpret_cast<std::uint8_t*>(obs.data()));
      env.WriteInfo(infos);
      for (const double value : obs) sum += value;
    }
    return sum + infos[OwnModel::kNumRowValues];
  };
  const double alone = play();
  InThreads([&](int) {
    CHECK(play() == alone);
    for (const char* wrong : {"xpos:torzo", "qpos[90:]", "nothing", "qpos, qpos", "qpos[:x]"}) {
      bool refused = false;
      try {
        OwnModel env(config(wrong));
      } catch (const SpecError&) {
        refused = true;
      }
      CHECK(refused);
    }
  });
}

// Half of the threads fail in every few steps; the others do not notice.
void DivergenceStaysApart() {
  const auto alone = Play<HalfCheetah>(3);
  InThreads([&](int thread) {
    if (thread == 0) {
      CHECK(Play<HalfCheetah>(3) == alone);
      return;
    }
    const auto env = MakeEnv<HalfCheetah>(Variable("UNSTABLE_MODEL"));
    const float action[6] = {1, 1, 1, 1, 1, 1};
    int failures = 0;
    for (std::uint32_t episode = 0; episode < 10; ++episode) {
      Rng rng(1, 0, episode);
      env->Reset(rng, false);
      try {
        for (int step = 0; step < 50; ++step) env->Step(action, rng);
      } catch (const EngineError&) {
        ++failures;
      }
    }
    CHECK(failures > 0);
  });
}

void FatalErrorsStayApart() {
  const auto alone = Play<Ant>(3);
  InThreads([&](int thread) {
    if (thread == 0) {
      CHECK(Play<Ant>(3) == alone);
      return;
    }
    const auto env = MakeEnv<Ant>(Variable("SMALL_MODEL"));
    const float action[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    int failures = 0;
    for (std::uint32_t episode = 0; episode < 5; ++episode) {
      try {
        Rng rng(1, 0, episode);
        env->Reset(rng, false);
        for (int step = 0; step < 50; ++step) env->Step(action, rng);
      } catch (const EngineError& error) {
        CHECK(std::string(error.what()).find("out of memory") != std::string::npos);
        ++failures;
      }
    }
    CHECK(failures == 5);
  });
}

}  // namespace
}  // namespace rollouts

int main(int argc, char** argv) {
  const std::map<std::string, void (*)()> scenarios = {
      {"divergence_stays_apart", rollouts::DivergenceStaysApart},
      {"fatal_errors_stay_apart", rollouts::FatalErrorsStayApart},
      {"parts_by_name", rollouts::PartsByName},
      {"threads_share_models", rollouts::ThreadsShareModels},
  };
  if (argc < 2) {
    for (const auto& [name, run] : scenarios) std::puts(name.c_str());
    return 0;
  }
  const std::string library = rollouts::Variable("MUJOCO_LIBRARY");
  // in Python, importing mujoco has done this
  CHECK(dlopen(library.c_str(), RTLD_NOW) != nullptr);
  rollouts::LoadMujoco(library, rollouts::MujocoHeaderVersion());
  scenarios.at(argv[1])();
  return 0;
}
