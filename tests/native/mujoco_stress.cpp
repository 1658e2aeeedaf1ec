// SPDX-License-Identifier: Apache-2.0
// Exercises MuJoCo's environments from several threads. test_mujoco_sanitizers.py builds it with
// ThreadSanitizer and with AddressSanitizer + UndefinedBehaviorSanitizer; each scenario is an
// argument. The environment variables MUJOCO_LIBRARY, MUJOCO_ASSETS, UNSTABLE_MODEL (a cheetah
// that diverges) and SMALL_MODEL (an ant without memory for contacts) name files; SUITE_MODELS names a
// folder of the suite's models, each a file by its task's id.
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "engines/mujoco_library.h"
#include "rollouts/envs/dm_control/ball_in_cup.h"
#include "rollouts/envs/dm_control/cheetah.h"
#include "rollouts/envs/dm_control/dmc_env.h"
#include "rollouts/envs/dm_control/stacker.h"
#include "rollouts/envs/mujoco/ant.h"
#include "rollouts/envs/mujoco/half_cheetah.h"
#include "rollouts/envs/mujoco/humanoid.h"
#include "rollouts/envs/mujoco/own_model.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/options.h"
#include "rollouts/support/state.h"

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
      std::exit(1);                                                             \
    }                                                                           \
  } while (false)

namespace rollouts {

// The registry's, which is no part of this program: the tasks that it plays.
const dmc::TaskEntry& dmc::FindTask(const std::string& id) {
  for (const TaskEntry* const task : {&kStackerTasks<TaskEntry>[0], &kCheetahTasks<TaskEntry>[0],
                                      &kBallInCupTasks<TaskEntry>[0]}) {
    if (id == task->id) return *task;
  }
  throw SpecError("the program has no task '" + id + "'");
}

namespace {

constexpr int kThreads = 3;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  CHECK(value != nullptr);
  return value;
}

// Fields that Python fills in; `task` is one of the suite's.
template <typename Env>
OptionColumns FilledIn(const std::string& task = "StackerStack2-v1") {
  if constexpr (std::is_same_v<Env, DmControl>) {
    return {{"suite_model", {Variable("SUITE_MODELS") + "/" + task + ".mjb"}}, {"suite_task", {task}}};
  } else {
    return {{"assets", {Variable("MUJOCO_ASSETS")}}};
  }
}

template <typename Env>
std::unique_ptr<Env> MakeEnv(OptionColumns options = FilledIn<Env>()) {
  return std::make_unique<Env>(ReadConfig<Env>(options, 0));
}

template <typename Env>
std::unique_ptr<Env> MakeOf(const std::string& xml_file) {
  OptionColumns options = FilledIn<Env>();
  options["xml_file"] = {xml_file};
  return MakeEnv<Env>(std::move(options));
}

// Steps an environment through several episodes, with a save and a load on the way; returns
// all that it showed.
template <typename Env>
std::vector<std::uint8_t> Play(int seed) {
  const auto env = MakeEnv<Env>();
  const auto copy = MakeEnv<Env>();
  const EnvSpec spec = Env::MakeSpec(ReadConfig<Env>(FilledIn<Env>(), 0));
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

// A task with own fields of the model that they share.
void SuiteTasksShareModels() {
  const auto alone = Play<DmControl>(7);
  const auto other = Play<DmControl>(8);
  CHECK(alone != other);
  InThreads([&](int) {
    CHECK(Play<DmControl>(7) == alone);
    CHECK(Play<DmControl>(8) == other);
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
    const auto env = MakeOf<HalfCheetah>(Variable("UNSTABLE_MODEL"));
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
    const auto env = MakeOf<Ant>(Variable("SMALL_MODEL"));
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

// The end of an ant whose bodies and gravity are its own; a state is taken over on the way.
std::vector<double> DropAnt(double mass_scale, double gravity) {
  const auto model = PhysicsModel::Get(Variable("MUJOCO_ASSETS") + "/ant.xml");
  Physics physics(model);
  Physics copy(model);
  for (double& mass : physics.Own("body_mass")) mass *= mass_scale;
  physics.Own("opt.gravity")[2] = gravity;
  physics.DeriveConstants();
  CHECK(physics.model_view().body_mass[1] == model->view().body_mass[1] * mass_scale);
  const std::vector<double> still(static_cast<std::size_t>(model->view().nv), 0);
  const std::vector<float> controls(static_cast<std::size_t>(model->view().nu), 0.3f);
  physics.Reset(model->view().qpos0, still.data());
  for (int step = 0; step < 40; ++step) {
    if (step == 20) {
      std::vector<std::uint8_t> state;
      StateWriter writer(state);
      physics.Save(writer);
      StateReader reader(state);
      copy.Load(reader);
      CHECK(copy.model_view().body_mass[1] == physics.model_view().body_mass[1]);
    }
    physics.Step(controls.data(), 5, true);
    if (step >= 20) copy.Step(controls.data(), 5, true);
  }
  const std::size_t size = static_cast<std::size_t>(model->view().nq);
  const std::vector<double> end(physics.view().qpos, physics.view().qpos + size);
  CHECK(end == std::vector<double>(copy.view().qpos, copy.view().qpos + size));
  copy.RestoreModel();
  CHECK(copy.model_view().body_mass == model->view().body_mass);
  return end;
}

void OwnFieldsStayApart() {
  const auto shared = DropAnt(1, -9.81);
  const auto heavy = DropAnt(2, -9.81);
  const auto floating = DropAnt(1, 0);
  CHECK(shared != heavy && shared != floating);
  InThreads([&](int thread) {
    CHECK(DropAnt(1, -9.81) == shared);
    CHECK(DropAnt(2, -9.81) == heavy);
    if (thread == 0) CHECK(DropAnt(1, 0) == floating);
  });
}

// Environments of which, with models of their own, every third has another gravity, every third other
// masses, which change many numbers, and the others the file's.
template <typename Env>
std::vector<std::unique_ptr<Env>> MakeSeveral(std::size_t count, const OptionColumns& options, bool own_models) {
  std::vector<std::unique_ptr<Env>> envs;
  for (std::size_t i = 0; i < count; ++i) {
    envs.push_back(MakeEnv<Env>(options));
    CHECK(envs[i]->engine().name == "lanes");
    if (!own_models || i % 3 == 0) continue;
    const std::string field = i % 3 == 1 ? "opt.gravity" : "body_mass";
    std::vector<double> values = envs[i]->ReadModel(field, true).values;
    for (double& value : values) value *= 1 + 0.01 * static_cast<double>(i);
    envs[i]->SetModel({{field, values, {}}});
  }
  return envs;
}

// Begins episodes as a pool does: starts that come to rest do so side by side.
template <typename Env>
void ResetTogether(std::span<Env* const> envs, std::span<Rng> rngs) {
  if constexpr (std::is_same_v<Env, DmControl>) Env::BeginAhead(envs, rngs);
  for (std::size_t i = 0; i < envs.size(); ++i) envs[i]->Reset(rngs[i], false);
}

// Steps and begins environments in groups of changing sizes, as a pool does, and one row at a time with
// actions that are no numbers; returns the sum of the rewards of each, and the last observations.
template <typename Env>
std::vector<double> PlayTogether(bool with_nan, bool own_models = false,
                                 const OptionColumns& options = FilledIn<Env>()) {
  constexpr std::size_t kEnvs = 13;
  const auto owned = MakeSeveral<Env>(kEnvs, options, own_models);
  std::vector<Env*> envs;
  std::vector<Rng> rngs;
  for (std::size_t i = 0; i < kEnvs; ++i) {
    envs.push_back(owned[i].get());
    rngs.emplace_back(std::uint64_t{5}, i, 0U);
  }
  const EnvSpec spec = Env::MakeSpec(ReadConfig<Env>(options, 0));
  const auto size = static_cast<std::size_t>(spec.action.shape[0]);
  std::vector<std::vector<float>> actions(kEnvs, std::vector<float>(size));
  std::vector<const float*> chosen(kEnvs);
  std::vector<double> rewards(kEnvs);
  std::size_t in_lanes = 0;
  for (std::size_t step = 0; step < 40; ++step) {
    for (std::size_t i = 0; i < kEnvs; ++i) {
      for (float& value : actions[i]) value = static_cast<float>(rngs[i].Uniform(-0.4, 0.4));
      chosen[i] = actions[i].data();
    }
    if (with_nan && step % 10 == 9) actions[0][0] = std::numeric_limits<float>::quiet_NaN();
    const std::size_t group = 1 + (step + (with_nan ? 4 : 11)) % kEnvs;
    for (std::size_t first = 0; first < kEnvs; first += group) {
      const std::size_t count = std::min(group, kEnvs - first);
      const auto due = std::span(envs).subspan(first, count);
      if (step % 20 == 0) ResetTogether<Env>(due, std::span(rngs).subspan(first, count));
      Env::StepAhead(std::span<Env* const>(due), std::span<const float* const>(chosen).subspan(first, count));
      for (std::size_t i = first; i < first + count; ++i) {
        try {
          rewards[i] += envs[i]->Step(actions[i].data(), rngs[i]).reward;
          in_lanes += envs[i]->stepped_ahead();
        } catch (const EngineError&) {
          CHECK(with_nan && i == 0);
        }
        if (i == 0 && step % 10 == 9) envs[i]->Reset(rngs[i], false);
      }
    }
  }
  CHECK(in_lanes > 30 * kEnvs);
  std::vector<double> shown(rewards.begin() + 1, rewards.end());
  std::vector<std::uint8_t> row(static_cast<std::size_t>(spec.observation.bytes()));
  for (std::size_t i = 1; i < kEnvs; ++i) {
    envs[i]->Observe(row.data());
    shown.insert(shown.end(), row.begin(), row.end());
  }
  return shown;
}

void GroupsStepInLanes() {
  const auto cheetahs = PlayTogether<HalfCheetah>(false);
  const auto ants = PlayTogether<Ant>(false);
  const auto humanoids = PlayTogether<Humanoid>(false);
  InThreads([&](int thread) {
    CHECK(PlayTogether<HalfCheetah>(thread == 0) == cheetahs);
    CHECK(PlayTogether<Ant>(thread == 0) == ants);
    CHECK(PlayTogether<Humanoid>(thread == 0) == humanoids);
  });
}

// Starts that come to rest, and a string that becomes taut.
void SuiteTasksBeginInGroups() {
  const OptionColumns cheetah = FilledIn<DmControl>("CheetahRun-v1");
  const OptionColumns cup = FilledIn<DmControl>("BallInCupCatch-v1");
  const auto cheetahs = PlayTogether<DmControl>(false, false, cheetah);
  const auto own_cheetahs = PlayTogether<DmControl>(false, true, cheetah);
  const auto cups = PlayTogether<DmControl>(false, true, cup);
  CHECK(cheetahs != own_cheetahs);
  InThreads([&](int thread) {
    CHECK(PlayTogether<DmControl>(thread == 0, false, cheetah) == cheetahs);
    CHECK(PlayTogether<DmControl>(thread == 1, true, cup) == cups);
    CHECK(PlayTogether<DmControl>(thread == 2, true, cheetah) == own_cheetahs);
  });
}

void OwnModelsStandInLanes() {
  const auto cheetahs = PlayTogether<HalfCheetah>(false, true);
  const auto humanoids = PlayTogether<Humanoid>(false, true);
  CHECK(cheetahs != PlayTogether<HalfCheetah>(false));
  InThreads([&](int thread) {
    // a small model, a large one and the small one again in a thread's memory
    CHECK(PlayTogether<HalfCheetah>(thread == 0, true) == cheetahs);
    CHECK(PlayTogether<Humanoid>(thread == 0, true) == humanoids);
    CHECK(PlayTogether<HalfCheetah>(thread == 1, true) == cheetahs);
  });
}

}  // namespace
}  // namespace rollouts

int main(int argc, char** argv) {
  const std::map<std::string, void (*)()> scenarios = {
      {"divergence_stays_apart", rollouts::DivergenceStaysApart},
      {"fatal_errors_stay_apart", rollouts::FatalErrorsStayApart},
      {"groups_step_in_lanes", rollouts::GroupsStepInLanes},
      {"own_models_stand_in_lanes", rollouts::OwnModelsStandInLanes},
      {"own_fields_stay_apart", rollouts::OwnFieldsStayApart},
      {"suite_tasks_begin_in_groups", rollouts::SuiteTasksBeginInGroups},
      {"suite_tasks_share_models", rollouts::SuiteTasksShareModels},
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
  rollouts::LoadMujoco(library, rollouts::MujocoReleaseNames().back());
  scenarios.at(argv[1])();
  return 0;
}
