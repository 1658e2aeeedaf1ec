// SPDX-License-Identifier: Apache-2.0
// Converts the environments of a pool, their options, models and statistics from and to Python.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>
#include <vector>

#include "rollouts/pool/cpu_pool.h"
#include "rollouts/registry/registry.h"

namespace rollouts {

// Reads tuples (id, num_envs, max_episode_steps, internal options). Throws SpecError for
// an unknown id.
std::vector<Segment> ReadSegments(const pybind11::list& given);

// The entry of one of the pool's environments.
const RegistryEntry& EntryOf(std::span<const Segment> segments, std::int32_t env);

// A list with the value of each environment, by option name; None where an environment has no such
// option.
pybind11::dict OptionsByName(CpuPool& pool);

// (name, why it is not lanes) of each environment's engine; names are empty where there is no choice.
pybind11::list Engines(CpuPool& pool);

// Throws SpecError unless there is one CPU per worker thread.
PoolOptions MakePoolOptions(std::int32_t num_envs, std::int32_t batch_size,
                            std::int32_t num_threads, std::int32_t env_id_offset,
                            std::uint64_t seed, std::int32_t autoreset_mode,
                            std::int32_t max_episode_steps, std::int32_t on_env_error,
                            const std::vector<std::int32_t>& pin_cpus);
// Reads tuples (field, by_env, low, high). low and high are None or float64 arrays in C order, of
// one environment or of all; low None: the file's values again.
ModelColumns ReadModelColumns(const pybind11::list& given, std::int32_t num_envs);

// An array with the field's dtype and shape.
pybind11::array ModelToArray(const ModelArray& model);

}  // namespace rollouts
