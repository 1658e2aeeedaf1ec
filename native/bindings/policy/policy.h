// SPDX-License-Identifier: Apache-2.0
// A native policy as a Python object.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "rollouts/policy/rollout.h"

namespace rollouts {

// Params are (name, size), operations (kind, inputs, params, numbers, size), as in
// rollouts/policies/native.py. Network checks their values.
policy::Program ReadProgram(std::int32_t obs_size, const pybind11::list& ops,
                            const pybind11::list& params, std::vector<std::int32_t> outputs,
                            std::vector<std::int32_t> states);

policy::HeadKind HeadKindOf(const std::string& name);

// Throws SpecError where the network's outputs are not those that the head reads; `nvec`: see
// Head's kMultiCategorical.
void CheckHead(const policy::Head& head, const std::vector<std::int32_t>& nvec,
               const policy::Network& network);

void BindGradients(pybind11::module_& module);

// Methods hold the GIL. New weights make a new NativePolicy: a thread that computes with the old
// one goes on with it to the end. A copy keeps the weights that it was copied with.
class PyPolicy {
 public:
  PyPolicy(std::int32_t obs_size, const pybind11::list& ops, const pybind11::list& params,
           std::vector<std::int32_t> outputs, const pybind11::dict& head,
           std::vector<std::int32_t> states);

  // Takes over one float32 array for each parameter, made of the arrays `sources`, and the state
  // that the policy has at the beginning of an episode.
  void Load(const pybind11::list& params, const pybind11::list& sources,
            const pybind11::array_t<float, pybind11::array::c_style>& initial);
  // Tells if the last Load had sources with exactly these bytes: cheap enough to check before each
  // rollout.
  bool Holds(const pybind11::list& sources) const;

  // Throws SpecError before the first Load.
  std::shared_ptr<const policy::NativePolicy> current() const;

  // The network's outputs (B, size) for observations (B, obs_size) float32. States follow the
  // observations in a row, and new states follow the outputs.
  pybind11::tuple Evaluate(const pybind11::array_t<float, pybind11::array::c_style>& obs) const;

  // Returns (action, log_prob, entropy, *outputs): action (B,) or (B, elements) int64 or (B, d)
  // float32, the next two (B,). `keys` (3, B) uint32: the env_id, episode and step that each row's
  // noise is drawn for. `mask` (B, A) bool: the actions that may be chosen; None: any.
  pybind11::tuple Act(
      const pybind11::array_t<float, pybind11::array::c_style>& obs,
      const pybind11::array_t<std::uint32_t, pybind11::array::c_style>& keys,
      const pybind11::object& mask) const;

  // All that a kernel on another device needs, except the weights: the instructions and the head as
  // bytes, and the places of the outputs and the states.
  pybind11::dict Layout() const;
  // The parameters in the layout of kernels; the policy itself does not change.
  pybind11::array_t<float> Pack(const pybind11::list& params) const;

 private:
  std::shared_ptr<const policy::Network> network_;
  policy::Head head_;
  std::vector<std::int32_t> nvec_;
  std::vector<float> bounds_;
  std::vector<std::uint8_t> sources_;  // sources of the last Load, one after the other
  std::shared_ptr<const policy::NativePolicy> current_;
};

}  // namespace rollouts
