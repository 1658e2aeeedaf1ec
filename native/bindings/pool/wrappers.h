// SPDX-License-Identifier: Apache-2.0
// Wrappers around a pool's environments and their running statistics, from and to Python.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "rollouts/pool/cpu_pool.h"
#include "rollouts/wrappers/step_normalizer.h"
#include "rollouts/wrappers/wrappers.h"

namespace rollouts {

// Reads what `Wrappers.native` of rollouts/envs/wrappers.py returns, which is checked.
Wrappers ReadWrappers(const pybind11::dict& given);

// (mean, var, count) of "observation" or "reward", float64: `fresh`, those since the last such
// call.
pybind11::tuple ReadStatistics(CpuPool& pool, const std::string& of, bool fresh);
void SetStatistics(CpuPool& pool, const std::string& of, const pybind11::object& mean,
                   const pybind11::object& var, double count);

// Made from the dict that `native_arguments` of integrations/sb3/normalize.py returns, for one
// rollout; Take writes what has changed into such a dict.
StepNormalizer MakeStepNormalizer(const pybind11::dict& given, const EnvSpec& spec,
                                  std::int32_t num_envs);
void TakeStepNormalizer(StepNormalizer& made, const EnvSpec& spec, std::int32_t num_envs,
                        pybind11::dict& to);

void UpdateStatistics(CpuPool& pool, bool updates);

}  // namespace rollouts
