// SPDX-License-Identifier: Apache-2.0
// The parts of the extension module `rollouts._native`.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "rollouts/core/spec.h"
#include "rollouts/support/options.h"

namespace rollouts {

void BindErrors(pybind11::module_& module);
void BindRegistry(pybind11::module_& module);
void BindPool(pybind11::module_& module);
void BindDevice(pybind11::module_& module);
void BindRowSets(pybind11::module_& module);
void BindCudaEntry(pybind11::module_& module);
void BindStepLaunches(pybind11::module_& module);
void BindRowsByGroup(pybind11::module_& module);
void BindFinalRows(pybind11::module_& module);
void BindPlainLoop(pybind11::module_& module);
void BindAle(pybind11::module_& module);
void BindDoom(pybind11::module_& module);
void BindMujoco(pybind11::module_& module);
void BindMujocoLanes(pybind11::module_& module);
void BindReturns(pybind11::module_& module);
void BindChecksum(pybind11::module_& module);
void BindColumnDigests(pybind11::module_& module);
void BindPackedIntegers(pybind11::module_& module);
void BindFrameStacks(pybind11::module_& module);
void BindParentEnd(pybind11::module_& module);
void BindReplay(pybind11::module_& module);
void BindXla(pybind11::module_& module);
void BindPolicy(pybind11::module_& module);

// NumPy dtype of an array of `dtype`.
pybind11::dtype NumpyDType(DType dtype);

// A Python dict of str -> bool | int | float | str, or a list of them, as native options.
OptionColumns OptionColumnsFromDict(const pybind11::dict& given);

}  // namespace rollouts
