// SPDX-License-Identifier: Apache-2.0
#include "bindings/bindings.h"

PYBIND11_MODULE(_native, module) {
  module.doc() = "Native core of rollouts: environments, pools, engines. Use it through `rollouts`.";
  rollouts::BindErrors(module);
  rollouts::BindInterrupts(module);
  rollouts::BindRegistry(module);
  rollouts::BindPool(module);
  rollouts::BindDevice(module);
  rollouts::BindRowSets(module);
  rollouts::BindCudaEntry(module);
  rollouts::BindStepLaunches(module);
  rollouts::BindRowsByGroup(module);
  rollouts::BindFinalRows(module);
  rollouts::BindPlainLoop(module);
  rollouts::BindAle(module);
  rollouts::BindDoom(module);
  rollouts::BindMujoco(module);
  rollouts::BindMujocoLanes(module);
  rollouts::BindReturns(module);
  rollouts::BindChecksum(module);
  rollouts::BindColumnDigests(module);
  rollouts::BindPackedIntegers(module);
  rollouts::BindFrameStacks(module);
  rollouts::BindParentEnd(module);
  rollouts::BindReplay(module);
  rollouts::BindXla(module);
  rollouts::BindPolicy(module);
}
