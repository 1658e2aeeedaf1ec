// SPDX-License-Identifier: Apache-2.0
// The part of MuJoCo's C interface that is the same in every supported release: opaque structs,
// numbers of enums, and functions. Building needs nothing of MuJoCo: native/tools/mujoco_layout.py
// compares this with the headers of a release.
#pragma once

#include <cstdint>

struct mjModel_;
struct mjData_;
struct mjVFS_;
struct mjCache_;
struct mjvCamera_;
struct mjvOption_;
struct mjvPerturb_;
struct mjvScene_;
struct mjrContext_;
using mjModel = mjModel_;  // mujoco_release.h has the places of its fields
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
constexpr int kMostIslands = 20;               // mjNISLAND: islands with statistics of solvers
constexpr int kAllCategories = 7;              // mjtCatBit
constexpr int kOffscreenBuffer = 1;            // mjtFramebuffer
constexpr int kUsualFont = 150;                // mjtFontScale
constexpr int kLogWarning = 2, kLogError = 3;  // mjtLogLevel

// The beginning of mjLogMessage; the rest is not read
struct MujocoLog {
  int level;
  int topic;
  char subject[1024];
};

// mjtCamera
enum MujocoCameraType : int { kFreeCamera = 0, kTrackingCamera = 1, kFixedCamera = 2 };

// mjvCamera
struct MujocoCamera {
  int type;
  int fixedcamid;
  int trackbodyid;
  double lookat[3];
  double distance;
  double azimuth;
  double elevation;
  int orthographic;
};

// mjrRect, in pixels
struct MujocoRect {
  int left;
  int bottom;
  int width;
  int height;
};

using MujocoLogHandler = void (*)(const MujocoLog*);
using MujocoTimer = double (*)();  // mjfTime

struct MujocoApi {
  mjModel* (*load_xml)(const char* path, const mjVFS_*, char* error, int error_size);
  mjCache_* (*get_cache)();  // holds assets that were read
  void (*clear_cache)(mjCache_*);
  mjModel* (*load_model)(const char* path, const mjVFS_*);
  void (*delete_model)(mjModel*);
  std::int64_t (*size_model)(const mjModel*);
  // Releases before 4.0 take an int as size, in the same register.
  void (*save_model)(const mjModel*, const char* path, void* buffer, std::int64_t size);
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
  void (*full_m)(const mjModel*, const mjData*, double* matrix);  // (nv, nv)
  int (*state_size)(const mjModel*, int parts);
  void (*get_state)(const mjModel*, const mjData*, double* state, int parts);
  void (*set_state)(const mjModel*, mjData*, const double* state, int parts);
  int (*name2id)(const mjModel*, int object, const char* name);
  const char* (*id2name)(const mjModel*, int object, int id);
  // for rendering, in a thread with a context of OpenGL; mjvCamera is MujocoCamera
  void (*default_camera)(mjvCamera_*);
  void (*default_free_camera)(const mjModel*, mjvCamera_*);
  void (*default_option)(mjvOption_*);
  void (*default_scene)(mjvScene_*);
  void (*make_scene)(const mjModel*, mjvScene_*, int max_geoms);
  void (*free_scene)(mjvScene_*);
  void (*update_scene)(const mjModel*, mjData*, const mjvOption_*, const mjvPerturb_*, mjvCamera_*,
                       int categories, mjvScene_*);
  void (*default_context)(mjrContext_*);
  void (*make_context)(const mjModel*, mjrContext_*, int font);
  void (*free_context)(mjrContext_*);
  void (*resize_offscreen)(int width, int height, mjrContext_*);
  void (*set_buffer)(int buffer, mjrContext_*);
  void (*upload_hfield)(const mjModel*, const mjrContext_*, int id);
  void (*render)(MujocoRect, mjvScene_*, const mjrContext_*);
  void (*read_pixels)(unsigned char* rgb, float* depth, MujocoRect, const mjrContext_*);
  // Sets a handler for this thread alone; returns the one before. MuJoCo's own Python package uses
  // it, too.
  MujocoLogHandler (*set_thread_log_handler)(MujocoLogHandler);
};

}  // namespace rollouts
