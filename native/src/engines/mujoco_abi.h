// SPDX-License-Identifier: Apache-2.0
// The part of MuJoCo's C interface that is the same in every release that is supported: opaque
// structs, numbers of enums, and functions. Nothing of MuJoCo's is needed to build:
// native/tools/mujoco_layout.py compares this with the headers of a release.
#pragma once

struct mjModel_;
struct mjData_;
struct mjVFS_;
using mjModel = mjModel_;  // mujoco_release.h says where the fields are
using mjData = mjData_;

namespace rollouts {

// mjtObj
enum MujocoObject : int {
  kUnknownObject = 0,
  kBodyObject = 1,
  kJointObject = 3,
  kGeomObject = 5,
  kSiteObject = 6,
  kCameraObject = 7,
  kLightObject = 8,
  kTendonObject = 18,
  kActuatorObject = 19,
  kSensorObject = 20,
  kKeyObject = 24,
};

constexpr int kRungeKutta = 1;                 // mjtIntegrator
constexpr int kActuationDisabled = 1 << 11;    // mjtDisableBit
constexpr int kNumWarnings = 7;                // mjtWarning
constexpr int kLogWarning = 2, kLogError = 3;  // mjtLogLevel

// mjLogMessage: its beginning, which is what is read of it
struct MujocoLog {
  int level;
  int topic;
  char subject[1024];
};
using MujocoLogHandler = void (*)(const MujocoLog*);

struct MujocoApi {
  mjModel* (*load_xml)(const char* path, const mjVFS_*, char* error, int error_size);
  mjModel* (*load_model)(const char* path, const mjVFS_*);
  void (*delete_model)(mjModel*);
  mjData* (*make_data)(const mjModel*);
  void (*delete_data)(mjData*);
  void (*reset_data)(const mjModel*, mjData*);
  void (*reset_data_keyframe)(const mjModel*, mjData*, int key);
  void (*set_const)(mjModel*, mjData*);
  void (*forward)(const mjModel*, mjData*);
  void (*step)(const mjModel*, mjData*);
  void (*step1)(const mjModel*, mjData*);
  void (*step2)(const mjModel*, mjData*);
  void (*rne_post_constraint)(const mjModel*, mjData*);
  void (*object_velocity)(const mjModel*, const mjData*, int object, int id, double velocity[6],
                          int local);
  int (*state_size)(const mjModel*, int parts);
  void (*get_state)(const mjModel*, const mjData*, double* state, int parts);
  void (*set_state)(const mjModel*, mjData*, const double* state, int parts);
  int (*name2id)(const mjModel*, int object, const char* name);
  const char* (*id2name)(const mjModel*, int object, int id);
  // Of this thread alone; returns the one before. MuJoCo's own Python package uses it, too.
  MujocoLogHandler (*set_thread_log_handler)(MujocoLogHandler);
};

}  // namespace rollouts
