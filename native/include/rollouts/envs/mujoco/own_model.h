// SPDX-License-Identifier: Apache-2.0
// MuJoCo-v0: any MuJoCo model. It is simulated, observed and reset here. Its reward is 0 and it
// never terminates, because Python computes both (rollouts/own_model/) and passes them to the pool
// afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rollouts/core/env.h"
#include "rollouts/engines/mujoco_parts.h"
#include "rollouts/envs/mujoco/mujoco_env.h"

namespace rollouts {

class OwnModel : public ModelOwner {
 public:
  struct Config : MujocoConfig {
    std::string observation = "qpos, qvel";  // its parts; mujoco_parts.h has all names
    std::string info;                        // parts that are reported as infos
    std::string keyframe;                    // the start's keyframe; "": the model's own positions
    double reset_noise_scale = 0;            // scale of the noise of positions, velocities at the start
    std::string qvel_noise = "uniform";      // noise of velocities at the start: uniform or normal
  };
  using Action = float;
  using Obs = std::uint8_t;  // bytes: the dtype is an option

  // Numbers that WriteInfo writes, as one array: these, then the parts named by option `info`.
  enum RowValue : std::int32_t {
    kStepped,  // 1 after a step, 0 after a reset (and in the rows of failures)
    kDt,       // seconds of a step
    kNumRowValues
  };

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("assets", config.assets);
    visit("xml_file", config.xml_file);
    visit("frame_skip", config.frame_skip);
    visit("obs_dtype", config.obs_dtype);
    EngineConfig::VisitEngine(config, visit);
    visit("observation", config.observation);
    visit("info", config.info);
    visit("keyframe", config.keyframe);
    visit("reset_noise_scale", config.reset_noise_scale);
    visit("qvel_noise", config.qvel_noise);
  }
  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Positive("frame_skip", config.frame_skip);
    check.OneOf("obs_dtype", config.obs_dtype, {"float64", "float32"});
    EngineConfig::CheckEngine(config, check);
    check.Finite("reset_noise_scale", config.reset_noise_scale);
    check.OneOf("qvel_noise", config.qvel_noise, {"uniform", "normal"});
  }

  // Throw SpecError where xml_file is missing, or an option has a name that the model lacks, and
  // EngineError for a model that MuJoCo cannot read.
  static std::shared_ptr<const void> Share(const Config& config);
  static EnvSpec MakeSpec(const Config& config);
  explicit OwnModel(const Config& config);

  void Reset(Rng& rng, bool forced);
  StepResult Step(const Action* action, Rng& rng);
  void Observe(Obs* obs) const;
  void WriteInfo(double* values) const;
  void SaveState(std::vector<std::uint8_t>& out) const;
  void LoadState(std::span<const std::uint8_t> state);

 private:
  // Consecutive numbers of the simulation.
  struct Source {
    const double* values;
    std::int32_t count;
  };
  // Parts of the simulation, one after the other.
  struct Sources {
    std::vector<Source> parts;
    std::int32_t size = 0;
  };

  Sources Find(const std::vector<ModelPart>& parts) const;
  void TakeInfos(bool stepped);
  std::int64_t ObserveState(Obs* obs) const;

  const Config config_;
  const std::int32_t keyframe_;
  const bool contact_forces_;
  const Sources observed_;
  const Sources told_;
  std::vector<double> start_;  // positions, then velocities
  std::vector<double> infos_;
  std::vector<double> shown_;  // the observation of a loaded state; empty after the next step
};

}  // namespace rollouts
