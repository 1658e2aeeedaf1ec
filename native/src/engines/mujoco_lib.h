// SPDX-License-Identifier: Apache-2.0
// MuJoCo, reached through the C functions of the libmujoco that the imported `mujoco`
// package uses. Only engines/mujoco_*.cpp include this: they alone know MuJoCo's structs,
// which are those of the headers at build time and of no other release.
#pragma once

#include <mujoco/mujoco.h>

#include <string>
#include <type_traits>

namespace rollouts {

struct MujocoApi {
  decltype(&mj_loadXML) load_xml;
  decltype(&mj_loadModel) load_model;
  decltype(&mj_deleteModel) delete_model;
  decltype(&mj_makeData) make_data;
  decltype(&mj_deleteData) delete_data;
  decltype(&mj_resetData) reset_data;
  decltype(&mj_resetDataKeyframe) reset_data_keyframe;
  decltype(&mj_setConst) set_const;
  decltype(&mj_forward) forward;
  decltype(&mj_step) step;
  decltype(&mj_step1) step1;
  decltype(&mj_step2) step2;
  decltype(&mj_rnePostConstraint) rne_post_constraint;
  decltype(&mj_objectVelocity) object_velocity;
  decltype(&mj_stateSize) state_size;
  decltype(&mj_getState) get_state;
  decltype(&mj_setState) set_state;
  decltype(&mj_name2id) name2id;
  decltype(&mj_id2name) id2name;
  // Of this thread alone; returns the one before. MuJoCo's own Python package uses it, too.
  mjfLogHandler (*set_thread_log_handler)(mjfLogHandler);
};

// Throws EngineError when LoadMujoco has not succeeded.
const MujocoApi& Mujoco();

// The first warning that MuJoCo gave in this thread's last guarded call; empty for none.
std::string LastMujocoWarning();

void RunGuarded(void (*call)(void*), void* context);

// Runs `call`, which only calls MuJoCo and owns nothing: what MuJoCo reports as a fatal
// error ends it by longjmp and is thrown as EngineError, where it would end the process.
// The mjData that it worked on needs mj_resetData then. Warnings are kept and not printed.
template <typename Call>
void Guarded(Call&& call) {
  using Plain = std::remove_reference_t<Call>;
  RunGuarded([](void* context) { (*static_cast<Plain*>(context))(); }, &call);
}

}  // namespace rollouts
