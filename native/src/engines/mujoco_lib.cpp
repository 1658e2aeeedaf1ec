// SPDX-License-Identifier: Apache-2.0
#include "mujoco_lib.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <csetjmp>
#include <cstdio>
#include <memory>
#include <mutex>
#include <vector>

#include "mujoco_library.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// Callbacks of users that MuJoCo calls in steps, if they are set.
constexpr const char* kCallbacks[] = {
    "mjcb_passive", "mjcb_control",  "mjcb_contactfilter", "mjcb_sensor",
    "mjcb_act_dyn", "mjcb_act_gain", "mjcb_act_bias",
};

std::mutex load_mutex;

struct Loaded {
  MujocoApi api;
  MujocoTimer* timer = nullptr;  // mjcb_time
  std::vector<void**> callbacks;  // all others
  const MujocoRelease* release = nullptr;
  int version = 0;
};
std::atomic<const Loaded*> loaded{nullptr};  // set once, never freed

// The jump target for a fatal error in this thread, and the error's message.
struct Trap {
  std::jmp_buf jump;
  char error[1024];
  char warning[1024];
};
thread_local Trap trap;

// The timer that the mujoco package sets when it is imported; null until it is found.
std::atomic<MujocoTimer> package_timer{nullptr};
thread_local bool untimed = false;

// Replaces the package's timer: nobody reads the durations of this library's steps, and each step
// calls the timer some forty times. Other simulations in the process are timed as before.
double TimeOfOthers() { return untimed ? 0 : package_timer.load(std::memory_order_relaxed)(); }

// Replaces only the package's timer. A user's own stays, and is called in this library's steps,
// too.
void ReplacePackageTimer(MujocoTimer* timer) {
  MujocoTimer expected = package_timer.load(std::memory_order_relaxed);
  if (!expected || __atomic_load_n(timer, __ATOMIC_RELAXED) != expected) [[likely]] return;
  // if another thread sets a timer meanwhile, that one stays
  __atomic_compare_exchange_n(timer, &expected, &TimeOfOthers, false, __ATOMIC_RELEASE,
                              __ATOMIC_RELAXED);
}

void OnLog(const MujocoLog* message) {
  if (message->level == kLogError) {
    // copied, because the message need not outlive the jump
    std::snprintf(trap.error, sizeof(trap.error), "%s", message->subject);
    std::longjmp(trap.jump, 1);
  }
  // only the first warning is kept, because others follow from it
  if (message->level == kLogWarning && trap.warning[0] == 0) {
    std::snprintf(trap.warning, sizeof(trap.warning), "%s", message->subject);
  }
}

// Looks functions up and remembers which are missing.
class Resolver {
 public:
  explicit Resolver(void* handle) : handle_(handle) {}
  template <typename Function>
  void operator()(Function& function, const char* name) {
    // the others are looked up too after a missing one, because the message counts the missing ones
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (!function) missing_.push_back(name);
  }
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  void* handle_;
  std::vector<std::string> missing_;
};

void ResolveAll(Resolver& resolve, MujocoApi& api) {
  resolve(api.load_xml, "mj_loadXML");
  resolve(api.get_cache, "mj_getCache");
  resolve(api.clear_cache, "mj_clearCache");
  resolve(api.load_model, "mj_loadModel");
  resolve(api.delete_model, "mj_deleteModel");
  resolve(api.size_model, "mj_sizeModel");
  resolve(api.save_model, "mj_saveModel");
  resolve(api.make_data, "mj_makeData");
  resolve(api.delete_data, "mj_deleteData");
  resolve(api.reset_data, "mj_resetData");
  resolve(api.reset_data_keyframe, "mj_resetDataKeyframe");
  resolve(api.set_const, "mj_setConst");
  resolve(api.forward, "mj_forward");
  resolve(api.step, "mj_step");
  resolve(api.step1, "mj_step1");
  resolve(api.step2, "mj_step2");
  resolve(api.rne_post_constraint, "mj_rnePostConstraint");
  resolve(api.full_m, "mj_fullM");
  resolve(api.state_size, "mj_stateSize");
  resolve(api.get_state, "mj_getState");
  resolve(api.set_state, "mj_setState");
  resolve(api.name2id, "mj_name2id");
  resolve(api.id2name, "mj_id2name");
  resolve(api.default_camera, "mjv_defaultCamera");
  resolve(api.default_free_camera, "mjv_defaultFreeCamera");
  resolve(api.default_option, "mjv_defaultOption");
  resolve(api.default_scene, "mjv_defaultScene");
  resolve(api.make_scene, "mjv_makeScene");
  resolve(api.free_scene, "mjv_freeScene");
  resolve(api.update_scene, "mjv_updateScene");
  resolve(api.default_context, "mjr_defaultContext");
  resolve(api.make_context, "mjr_makeContext");
  resolve(api.free_context, "mjr_freeContext");
  resolve(api.resize_offscreen, "mjr_resizeOffscreen");
  resolve(api.set_buffer, "mjr_setBuffer");
  resolve(api.upload_hfield, "mjr_uploadHField");
  resolve(api.render, "mjr_render");
  resolve(api.read_pixels, "mjr_readPixels");
  resolve(api.set_thread_log_handler, "_mjPRIVATE_setTlsLogHandler");
}

const Loaded& GetLoaded() {
  // acquire, to see all that LoadMujoco has found
  const Loaded* const found = loaded.load(std::memory_order_acquire);
  if (!found) {
    throw EngineError(
        "MuJoCo is not loaded: make its environments with rollouts.make_vec(\"Ant-v5\"), which "
        "imports mujoco first");
  }
  return *found;
}

}  // namespace

std::vector<std::string> MujocoReleaseNames() {
  std::vector<std::string> names;
  for (const MujocoRelease* release : MujocoReleases()) names.push_back(release->name);
  return names;
}

// The release as text: 4000001 is 4.0.1.
std::string VersionText(int version) {
  return std::to_string(version / 1'000'000) + "." + std::to_string(version / 1000 % 1000) + "." +
         std::to_string(version % 1000);
}

std::string MujocoAdvice() {
  const auto releases = MujocoReleases();
  std::string names;
  for (const MujocoRelease* release : releases) {
    names += (names.empty() ? "" : ", ") + std::string(release->name);
  }
  // the first minor release that is not supported any more
  const int last = releases.back()->number;
  return "this rollouts supports MuJoCo " + names + ": pip install \"mujoco>=" +
         releases.front()->name + ",<" + std::to_string(last / 1'000'000) + "." +
         std::to_string(last / 1000 % 1000 + 1) + "\"";
}

void LoadMujoco(const std::string& so_path, const std::string& version) {
  const std::lock_guard<std::mutex> lock(load_mutex);
  // loaded once in a process, although pools of several threads may call this
  if (loaded.load()) return;

  // the handle is kept until the process ends, like the library itself
  void* handle = dlopen(so_path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!handle) {
    const char* reason = dlerror();
    throw EngineError("the library of mujoco is not loaded: expected " + so_path +
                      " after `import mujoco`" + (reason ? std::string(", got: ") + reason : ""));
  }

  // the release is checked before functions that other releases may lack
  int (*library_version)() = nullptr;
  Resolver resolver(handle);
  resolver(library_version, "mj_version");
  auto made = std::make_unique<Loaded>();
  made->version = library_version ? library_version() : 0;
  made->release = FindRelease(made->version);
  if (!made->release) {
    throw EngineError("mujoco " + version + " is installed (" + so_path + "), and " +
                      MujocoAdvice());
  }
  ResolveAll(resolver, made->api);
  if (!resolver.missing().empty()) {
    throw EngineError(so_path + " does not export " + std::to_string(resolver.missing().size()) +
                      " functions that rollouts needs, the first is " +
                      resolver.missing().front() + "; it is of mujoco " + version + ", and " +
                      MujocoAdvice());
  }
  made->timer = reinterpret_cast<MujocoTimer*>(dlsym(handle, "mjcb_time"));
  for (const char* name : kCallbacks) {
    if (auto* const callback = static_cast<void**>(dlsym(handle, name))) {
      made->callbacks.push_back(callback);
    }
  }
  loaded.store(made.release(), std::memory_order_release);
}

void LearnPackageTimer(const std::string& folder) {
  MujocoTimer* const timer = GetLoaded().timer;
  // a release without a timer has nothing to replace
  if (!timer || package_timer.load(std::memory_order_relaxed)) return;
  const MujocoTimer found = __atomic_load_n(timer, __ATOMIC_ACQUIRE);
  // a function outside of the mujoco package is a user's own timer, which Python does not know of
  Dl_info info;
  const bool theirs = found && dladdr(reinterpret_cast<void*>(found), &info) && info.dli_fname &&
                      std::string(info.dli_fname).starts_with(folder);
  if (theirs) package_timer.store(found, std::memory_order_relaxed);
}

const MujocoApi& Mujoco() { return GetLoaded().api; }

const MujocoRelease& Release() { return *GetLoaded().release; }

int MujocoVersion() { return GetLoaded().version; }

std::string LastMujocoWarning() { return trap.warning; }

bool HasMujocoCallbacks() {
  const std::vector<void**>& callbacks = GetLoaded().callbacks;
  return std::any_of(callbacks.begin(), callbacks.end(), [](void** callback) {
    return __atomic_load_n(callback, __ATOMIC_RELAXED) != nullptr;
  });
}

void RunGuarded(void (*call)(void*), void* context) {
  const Loaded& engine = GetLoaded();
  const MujocoApi& api = engine.api;
  trap.warning[0] = 0;
  // replaced at each call, because setting and removing a callback brings the package's timer back
  ReplacePackageTimer(engine.timer);
  untimed = true;
  // for this thread alone; the user's own handler is restored after the call
  const MujocoLogHandler before = api.set_thread_log_handler(&OnLog);
  // there is no C++ frame between here and the jump, so that no destructor is skipped
  if (setjmp(trap.jump) == 0) {
    call(context);
    untimed = false;
    api.set_thread_log_handler(before);
    return;
  }
  untimed = false;
  api.set_thread_log_handler(before);
  throw EngineError(std::string("MuJoCo: ") + trap.error);
}

}  // namespace rollouts
