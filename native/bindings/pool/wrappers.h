// SPDX-License-Identifier: Apache-2.0
// Converts wrappers around a pool's environments and their running statistics from and to Python.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "rollouts/pool/cpu_pool.h"
#include "rollouts/wrappers/step_normalizer.h"
#include "rollouts/wrappers/wrappers.h"

namespace rollouts {

// Reads the result of `Wrappers.native` in rollouts/envs/wrappers.py, which is checked already.
Wrappers ReadWrappers(const pybind11::dict& given);

// (mean, var, count) of "observation" or "reward", float64; `fresh`: only of the rows counted since
// the last such call.
pybind11::tuple ReadStatistics(CpuPool& pool, const std::string& of, bool fresh);
void SetStatistics(CpuPool& pool, const std::string& of, const pybind11::object& mean,
                   const pybind11::object& var, double count);

// Makes a StepNormalizer for one rollout, from the dict that `native_arguments` of
// integrations/sb3/normalize.py returns; TakeStepNormalizer writes its changes into such a dict.
StepNormalizer MakeStepNormalizer(const pybind11::dict& given, const EnvSpec& spec,
                                  std::int32_t num_envs);
void TakeStepNormalizer(StepNormalizer& made, const EnvSpec& spec, std::int32_t num_envs,
                        pybind11::dict& to);

void UpdateStatistics(CpuPool& pool, bool updates);

}  // namespace rollouts
