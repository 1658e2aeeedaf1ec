// SPDX-License-Identifier: Apache-2.0
// MuJoCo, used through the C functions of the libmujoco that the imported `mujoco` package has
// loaded. Only engines/mujoco_*.cpp and engines/pixels/ include this.
#pragma once

#include <string>
#include <type_traits>

#include "mujoco_abi.h"
#include "mujoco_release.h"

namespace rollouts {

// Throws EngineError when LoadMujoco has not succeeded.
const MujocoApi& Mujoco();

// The layout of its structs. Throws as Mujoco().
const MujocoRelease& Release();

// mj_version(), such as 4000000, and as text, such as "4.0.0".
int MujocoVersion();
std::string VersionText(int version);

// Advice on what to install in place of an unsupported MuJoCo.
std::string MujocoAdvice();

// The first warning that MuJoCo gave in this thread's last guarded call; empty without one.
std::string LastMujocoWarning();

// Tells if a user's callback (mjcb_control, mjcb_passive and so on) runs in every step.
bool HasMujocoCallbacks();

void RunGuarded(void (*call)(void*), void* context);

// Runs `call`, which must call only MuJoCo and own nothing: a fatal error of MuJoCo, which would
// end the process, leaves it by longjmp and is thrown as EngineError. Its mjData then needs
// mj_resetData. Warnings are kept and not printed.
template <typename Call>
void Guarded(Call&& call) {
  using Plain = std::remove_reference_t<Call>;
  RunGuarded([](void* context) { (*static_cast<Plain*>(context))(); }, &call);
}

}  // namespace rollouts
