// SPDX-License-Identifier: Apache-2.0
// Places of the fields of MuJoCo's structs: each supported release has its own table, which is
// chosen when the library is loaded. native/tools/mujoco_layout.py makes the tables from the
// headers of a release.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "mujoco_abi.h"
#include "rollouts/engines/mujoco_physics.h"

namespace rollouts {

// A value of type T at a known distance from the beginning of a struct.
template <typename T>
struct Place {
  std::uint32_t offset;

  const T& In(const void* object) const {
    return *reinterpret_cast<const T*>(static_cast<const std::uint8_t*>(object) + offset);
  }
  T& In(void* object) const {
    return *reinterpret_cast<T*>(static_cast<std::uint8_t*>(object) + offset);
  }
};

// Members of an mjModel that are read: X(type, name here, name in mjModel).
#define ROLLOUTS_MODEL_PLACES(X)                      \
  X(std::int64_t, nq, nq)                             \
  X(std::int64_t, nv, nv)                             \
  X(std::int64_t, nu, nu)                             \
  X(std::int64_t, na, na)                             \
  X(std::int64_t, nactuator, nactuator)               \
  X(std::int64_t, nout, nout)                         \
  X(std::int64_t, nbody, nbody)                       \
  X(std::int64_t, njnt, njnt)                         \
  X(std::int64_t, ngeom, ngeom)                       \
  X(std::int64_t, nsite, nsite)                       \
  X(std::int64_t, ncam, ncam)                         \
  X(std::int64_t, nhfield, nhfield)                   \
  X(std::int64_t, nhfielddata, nhfielddata)           \
  X(std::int64_t, ntendon, ntendon)                   \
  X(std::int64_t, nsensor, nsensor)                   \
  X(std::int64_t, nkey, nkey)                         \
  X(std::int64_t, ntree, ntree)                       \
  X(std::int64_t, nJten, nJten)                       \
  X(std::int64_t, nflex, nflex)                       \
  X(std::int64_t, npair, npair)                       \
  X(std::int64_t, nexclude, nexclude)                 \
  X(std::int64_t, neq, neq)                           \
  X(std::int64_t, nwrap, nwrap)                       \
  X(std::int64_t, nplugin, nplugin)                   \
  X(std::int64_t, nhistory, nhistory)                 \
  X(std::int64_t, nmocap, nmocap)                     \
  X(std::int64_t, nsensordata, nsensordata)           \
  X(std::int64_t, nbuffer, nbuffer)                   \
  X(void*, buffer, buffer)                            \
  X(double, timestep, opt.timestep)                   \
  X(double[3], gravity, opt.gravity)                  \
  X(std::int32_t, integrator, opt.integrator)         \
  X(std::int32_t, disableflags, opt.disableflags)     \
  X(double, extent, stat.extent)                      \
  X(double*, qpos0, qpos0)                            \
  X(double*, body_mass, body_mass)                    \
  X(double*, body_subtreemass, body_subtreemass)      \
  X(std::int32_t*, body_mocapid, body_mocapid)        \
  X(std::int32_t*, jnt_type, jnt_type)                \
  X(std::int32_t*, jnt_qposadr, jnt_qposadr)          \
  X(std::int32_t*, jnt_dofadr, jnt_dofadr)            \
  X(bool*, jnt_limited, jnt_limited)                  \
  X(double*, jnt_range, jnt_range)                    \
  X(double*, geom_size, geom_size)                    \
  X(double*, site_size, site_size)                    \
  X(double*, hfield_size, hfield_size)                \
  X(std::int32_t*, hfield_nrow, hfield_nrow)          \
  X(std::int32_t*, hfield_ncol, hfield_ncol)          \
  X(std::int32_t*, hfield_adr, hfield_adr)            \
  X(float*, hfield_data, hfield_data)                 \
  X(double*, key_qpos, key_qpos)                      \
  X(double*, key_qvel, key_qvel)                      \
  X(bool*, actuator_ctrllimited, actuator_ctrllimited) \
  X(double*, actuator_ctrlrange, actuator_ctrlrange)  \
  X(std::int32_t*, actuator_ctrladr, actuator_ctrladr) \
  X(std::int32_t*, actuator_ctrlnum, actuator_ctrlnum) \
  X(std::int32_t*, actuator_outadr, actuator_outadr)  \
  X(std::int32_t*, actuator_outnum, actuator_outnum)  \
  X(std::int32_t*, actuator_actadr, actuator_actadr)  \
  X(std::int32_t*, actuator_actnum, actuator_actnum)  \
  X(std::int32_t*, sensor_adr, sensor_adr)            \
  X(std::int32_t*, sensor_dim, sensor_dim)

// Members of an mjData that are read.
#define ROLLOUTS_DATA_PLACES(X) \
  X(std::int64_t, nbuffer)      \
  X(void*, buffer)              \
  X(std::int32_t, ncon)         \
  X(std::int32_t, nefc)         \
  X(std::int32_t, nisland)      \
  X(std::int32_t[kMostIslands], solver_niter) \
  X(double, time)               \
  ROLLOUTS_DATA_ARRAYS(X)

#define ROLLOUTS_DATA_ARRAYS(X)  \
  X(double*, qpos)               \
  X(double*, qvel)               \
  X(double*, qacc)               \
  X(double*, qacc_smooth)        \
  X(double*, qacc_warmstart)     \
  X(double*, qfrc_actuator)      \
  X(double*, qfrc_applied)       \
  X(double*, qfrc_bias)          \
  X(double*, qfrc_constraint)    \
  X(double*, qfrc_passive)       \
  X(double*, ctrl)               \
  X(double*, act)                \
  X(double*, actuator_length)    \
  X(double*, actuator_velocity)  \
  X(double*, actuator_force)     \
  X(double*, sensordata)         \
  X(double*, xpos)               \
  X(double*, xquat)              \
  X(double*, xmat)               \
  X(double*, xipos)              \
  X(double*, ximat)              \
  X(double*, subtree_com)        \
  X(double*, cinert)             \
  X(double*, cvel)               \
  X(double*, xfrc_applied)       \
  X(double*, cacc)               \
  X(double*, cfrc_int)           \
  X(double*, cfrc_ext)           \
  X(double*, mocap_pos)          \
  X(double*, mocap_quat)         \
  X(double*, xanchor)            \
  X(double*, xaxis)              \
  X(double*, geom_xpos)          \
  X(double*, geom_xmat)          \
  X(double*, site_xpos)          \
  X(double*, site_xmat)          \
  X(double*, cam_xpos)           \
  X(double*, cam_xmat)           \
  X(double*, ten_length)         \
  X(double*, ten_velocity)

struct ModelPlaces {
#define X(type, name, member) Place<type> name;
  ROLLOUTS_MODEL_PLACES(X)
#undef X
};

// mjWarningStat
struct MujocoWarning {
  std::int32_t last_info;
  std::int32_t number;
};

struct DataPlaces {
  Place<MujocoWarning[kNumWarnings]> warning;
#define X(type, name) Place<type> name;
  ROLLOUTS_DATA_PLACES(X)
#undef X
};

// Structs for rendering: the sizes of mjvScene, mjvOption and mjrContext, and the places of their
// members that are read and written.
struct DrawingPlaces {
  std::uint32_t scene_bytes;
  std::uint32_t option_bytes;
  std::uint32_t context_bytes;
  std::int32_t num_flags;               // mjNVISFLAG
  Place<std::uint8_t[1]> flags;         // mjvOption: (num_flags) of mjtVisFlag
  Place<std::int32_t> current_buffer;   // mjrContext
};

// A number, or a multiple of one of the model's sizes.
struct Extent {
  std::int32_t times = 1;
  std::int32_t size = -1;  // offset of an mjtSize in mjModel; -1: none

  std::int64_t In(const mjModel* model) const {
    return size < 0 ? times : times * Place<std::int64_t>{static_cast<std::uint32_t>(size)}.In(model);
  }
};

// The place of the values of an mjModel's entry.
enum class EntryKind : std::uint8_t {
  kArray,    // behind a pointer
  kOption,   // in the struct's mjOption
  kDerived,  // directly in the struct; written by mj_setConst
};

// An array of mjModel, or another entry that mj_setConst reads or writes.
struct ModelEntry {
  const char* name;
  EntryKind kind;
  ModelValue type;
  std::int32_t value_bytes;
  std::uint32_t offset;
  Extent rows;
  Extent columns;
  bool read = false;     // mj_setConst reads it
  bool written = false;  // mj_setConst writes it
};

struct MujocoRelease {
  const char* name;  // such as "4.0"
  std::int32_t number;  // as mj_version(), without the last part: 4000000 also stands for 4.0.1
  std::uint32_t model_bytes;  // sizeof(mjModel)
  std::int32_t saved_state;   // mjSTATE_INTEGRATION
  ModelPlaces model;
  DataPlaces data;
  DrawingPlaces drawing;
  std::span<const ModelEntry> entries;  // arrays in the order of their memory, then other kinds
};

// The table for an mj_version(); null where there is none.
const MujocoRelease* FindRelease(int version);

// All tables, oldest first.
std::span<const MujocoRelease* const> MujocoReleases();

// The fault in the structs of a loaded library, found with one model and its data; empty where
// arrays lie as in the table. Detects builds with other options than those of the packages.
std::string LayoutFault(const MujocoRelease& release, const mjModel* model);
std::string LayoutFault(const MujocoRelease& release, const mjModel* model, const mjData* data);

}  // namespace rollouts
