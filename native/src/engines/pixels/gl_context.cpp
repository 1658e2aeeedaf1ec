// SPDX-License-Identifier: Apache-2.0
#include "engines/pixels/gl_context.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// constants of EGL/egl.h, EGL/eglext.h, GL/osmesa.h and GL/gl.h
enum : std::int32_t {
  kEglNone = 0x3038,
  kEglRedSize = 0x3024,
  kEglGreenSize = 0x3023,
  kEglBlueSize = 0x3022,
  kEglAlphaSize = 0x3021,
  kEglDepthSize = 0x3025,
  kEglStencilSize = 0x3026,
  kEglColorBufferType = 0x303F,
  kEglRgbBuffer = 0x308E,
  kEglSurfaceType = 0x3033,
  kEglPbufferBit = 0x0001,
  kEglRenderableType = 0x3040,
  kEglOpenGlBit = 0x0008,
  kEglDraw = 0x3059,
  kEglRead = 0x305A,
  kEglPlatformDevice = 0x313F,
  kEglCudaDevice = 0x323A,
  kOsMesaType = 0x23,
  kGlRgba = 0x1908,
  kGlUnsignedByte = 0x1401,
};
constexpr unsigned kEglOpenGlApi = 0x30A2;

std::atomic<bool> use_osmesa{false};

[[noreturn]] void Fail(const std::string& why) {
  throw EngineError(
      "observations cannot be drawn: " + why +
      ". Install EGL (Debian: apt-get install libegl1 libgl1-mesa-dri, or the driver of an NVIDIA "
      "GPU), or OSMesa (Debian: apt-get install libosmesa6) and set MUJOCO_GL=osmesa before the "
      "process starts");
}

// Throws; not inlined, because GCC 12 would warn about strings inlined into its many callers.
[[noreturn, gnu::noinline]] void FailWithout(const char* name) {
  Fail("OpenGL's library has no " + std::string(name));
}

// Loads the first of these libraries that exists, such that MuJoCo finds its functions, too.
void* Load(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_GLOBAL)) return handle;
  }
  Fail(std::string(*names.begin()) + " is not installed");
}

template <typename Function>
void Find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (!function) FailWithout(name);
}

// The number in an environment variable; -1: there is none.
std::int64_t NumberOf(const char* variable) {
  const char* const text = std::getenv(variable);
  if (!text) return -1;
  char* end = nullptr;
  const std::int64_t number = std::strtoll(text, &end, 10);
  return end == text ? -1 : number;
}

class Egl {
 public:
  // Loads and initialises EGL at the first call. Throws EngineError, then and in every later call.
  static const Egl& Get() {
    static std::mutex mutex;
    static std::unique_ptr<const Egl> made;
    const std::lock_guard lock(mutex);
    // never freed, because contexts may live until the process ends
    if (!made) made.reset(new Egl);
    return *made;
  }

  void* (*get_current_display)();
  void* (*get_current_surface)(std::int32_t which);
  void* (*get_current_context)();
  unsigned (*query_api)();
  unsigned (*bind_api)(unsigned api);
  unsigned (*make_current)(void* display, void* draw, void* read, void* context);
  void* (*create_context)(void* display, void* config, void* share, const std::int32_t*);
  unsigned (*destroy_context)(void* display, void* context);
  std::int32_t (*get_error)();
  void* display = nullptr;
  void* config = nullptr;

 private:
  Egl() {
    // NVIDIA's driver needs it for several threads
    dlopen("libOpenGL.so.0", RTLD_NOW | RTLD_GLOBAL);
    void* const handle = Load({"libEGL.so.1", "libEGL.so"});
    Find(handle, "eglGetCurrentDisplay", get_current_display);
    Find(handle, "eglGetCurrentSurface", get_current_surface);
    Find(handle, "eglGetCurrentContext", get_current_context);
    Find(handle, "eglQueryAPI", query_api);
    Find(handle, "eglBindAPI", bind_api);
    Find(handle, "eglMakeCurrent", make_current);
    Find(handle, "eglCreateContext", create_context);
    Find(handle, "eglDestroyContext", destroy_context);
    Find(handle, "eglGetError", get_error);
    Find(handle, "eglGetProcAddress", get_proc_address_);
    Find(handle, "eglInitialize", initialize_);
    Find(handle, "eglChooseConfig", choose_config_);
    display = OpenDisplay();
    if (!display) Fail("EGL has no device that works");
    ChooseConfig();
  }

  template <typename Function>
  Function Extension(const char* name) const {
    return reinterpret_cast<Function>(get_proc_address_(name));
  }

  // The devices in the order in which the mujoco package tries them.
  std::vector<void*> Devices() const {
    const auto query = Extension<unsigned (*)(std::int32_t, void**, std::int32_t*)>(
        "eglQueryDevicesEXT");
    std::int32_t count = 0;
    if (!query || !query(0, nullptr, &count)) return {};
    std::vector<void*> devices(static_cast<std::size_t>(count));
    if (!query(count, devices.data(), &count)) return {};
    devices.resize(static_cast<std::size_t>(count));
    // the number is that of CUDA where the driver reports it, else that of EGL
    const std::int64_t chosen = NumberOf("MUJOCO_EGL_DEVICE_ID");
    const std::int64_t cuda = chosen >= 0 ? chosen : NumberOf("CUDA_VISIBLE_DEVICES");
    const auto found = std::find_if(devices.begin(), devices.end(), [&](void* device) {
      return cuda >= 0 && CudaNumber(device) == cuda;
    });
    if (found != devices.end()) {
      std::rotate(devices.begin(), found, found + 1);
      if (chosen >= 0) devices.resize(1);
    } else if (chosen >= 0) {
      if (chosen >= std::ssize(devices)) {
        Fail("MUJOCO_EGL_DEVICE_ID is " + std::to_string(chosen) + ", and there are " +
             std::to_string(devices.size()) + " devices");
      }
      devices = {devices[static_cast<std::size_t>(chosen)]};
    }
    return devices;
  }

  std::int64_t CudaNumber(void* device) const {
    const auto query = Extension<unsigned (*)(void*, std::int32_t, std::intptr_t*)>(
        "eglQueryDeviceAttribEXT");
    std::intptr_t number = -1;
    if (!query || !query(device, kEglCudaDevice, &number)) return -1;
    return number;
  }

  void* OpenDisplay() const {
    const auto display_of = Extension<void* (*)(std::int32_t, void*, const std::int32_t*)>(
        "eglGetPlatformDisplayEXT");
    if (!display_of) return nullptr;
    for (void* device : Devices()) {
      void* const found = display_of(kEglPlatformDevice, device, nullptr);
      if (found && initialize_(found, nullptr, nullptr)) return found;
    }
    return nullptr;
  }

  // Chooses the same settings as the mujoco package, so that images are the same.
  void ChooseConfig() {
    constexpr std::int32_t kAttributes[] = {
        kEglRedSize,         8,             kEglGreenSize,    8,
        kEglBlueSize,        8,             kEglAlphaSize,    8,
        kEglDepthSize,       24,            kEglStencilSize,  8,
        kEglColorBufferType, kEglRgbBuffer, kEglSurfaceType,  kEglPbufferBit,
        kEglRenderableType,  kEglOpenGlBit, kEglNone};
    std::int32_t count = 0;
    if (!choose_config_(display, kAttributes, &config, 1, &count) || count < 1) {
      Fail("EGL's device has no OpenGL");
    }
  }

  void* (*get_proc_address_)(const char* name);
  unsigned (*initialize_)(void* display, std::int32_t*, std::int32_t*);
  unsigned (*choose_config_)(void* display, const std::int32_t* attributes, void** configs,
                             std::int32_t size, std::int32_t* count);
};

class EglContext final : public GlContext {
 public:
  EglContext() {
    const unsigned api = egl_.query_api();
    egl_.bind_api(kEglOpenGlApi);
    context_ = egl_.create_context(egl_.display, egl_.config, nullptr, nullptr);
    const std::int32_t error = egl_.get_error();
    egl_.bind_api(api);
    if (!context_) Fail("EGL made no context (error " + std::to_string(error) + ")");
  }
  ~EglContext() override { egl_.destroy_context(egl_.display, context_); }

 private:
  std::vector<void*> Enter() override {
    // a thread has a current API and, for each API, a current context
    const std::uintptr_t api = egl_.query_api();
    egl_.bind_api(kEglOpenGlApi);
    std::vector<void*> before{egl_.get_current_display(), egl_.get_current_surface(kEglDraw),
                              egl_.get_current_surface(kEglRead), egl_.get_current_context(),
                              reinterpret_cast<void*>(api)};
    if (!egl_.make_current(egl_.display, nullptr, nullptr, context_)) {
      const std::int32_t error = egl_.get_error();
      Leave(before);
      Fail("EGL's context cannot be used (error " + std::to_string(error) + ")");
    }
    return before;
  }
  void Leave(const std::vector<void*>& before) noexcept override {
    void* const display = before[3] ? before[0] : egl_.display;
    egl_.make_current(display, before[1], before[2], before[3]);
    egl_.bind_api(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(before[4])));
  }

  const Egl& egl_ = Egl::Get();
  void* context_ = nullptr;
};

class OsMesa {
 public:
  static const OsMesa& Get() {
    static const OsMesa made;
    return made;
  }

  void* (*create_context)(std::int32_t format, std::int32_t depth, std::int32_t stencil,
                          std::int32_t accumulator, void* share);
  void (*destroy_context)(void* context);
  unsigned char (*make_current)(void* context, void* buffer, std::int32_t type, std::int32_t width,
                                std::int32_t height);
  void* (*get_current_context)();
  unsigned char (*get_color_buffer)(void* context, std::int32_t* width, std::int32_t* height,
                                    std::int32_t* format, void** buffer);
  void (*get_integer)(std::int32_t name, std::int32_t* value);

 private:
  OsMesa() {
    void* const handle = Load({"libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so"});
    Find(handle, "OSMesaCreateContextExt", create_context);
    Find(handle, "OSMesaDestroyContext", destroy_context);
    Find(handle, "OSMesaMakeCurrent", make_current);
    Find(handle, "OSMesaGetCurrentContext", get_current_context);
    Find(handle, "OSMesaGetColorBuffer", get_color_buffer);
    Find(handle, "OSMesaGetIntegerv", get_integer);
  }
};

class OsMesaContext final : public GlContext {
 public:
  OsMesaContext(std::int32_t width, std::int32_t height)
      : width_(width), height_(height), buffer_(std::size_t{4} * width * height) {
    context_ = mesa_.create_context(kGlRgba, /*depth=*/24, /*stencil=*/8, 0, nullptr);
    if (!context_) Fail("OSMesa made no context");
  }
  ~OsMesaContext() override { mesa_.destroy_context(context_); }

 private:
  // Returns the context, its buffer, and the buffer's type, width and height.
  std::vector<void*> Enter() override {
    const auto number = [](std::int32_t value) {
      return reinterpret_cast<void*>(static_cast<std::intptr_t>(value));
    };
    std::vector<void*> before(5);
    before[0] = mesa_.get_current_context();
    if (before[0]) {
      std::int32_t width = 0, height = 0, format = 0, type = 0;
      mesa_.get_color_buffer(before[0], &width, &height, &format, &before[1]);
      mesa_.get_integer(kOsMesaType, &type);
      before[2] = number(type);
      before[3] = number(width);
      before[4] = number(height);
    }
    if (!mesa_.make_current(context_, buffer_.data(), kGlUnsignedByte, width_, height_)) {
      Fail("OSMesa's context cannot be used");
    }
    return before;
  }
  void Leave(const std::vector<void*>& before) noexcept override {
    const auto number = [](void* value) {
      return static_cast<std::int32_t>(reinterpret_cast<std::intptr_t>(value));
    };
    mesa_.make_current(before[0], before[1], number(before[2]), number(before[3]),
                       number(before[4]));
  }

  const OsMesa& mesa_ = OsMesa::Get();
  const std::int32_t width_;
  const std::int32_t height_;
  std::vector<std::uint8_t> buffer_;  // required by OSMesa; images are drawn elsewhere
  void* context_ = nullptr;
};

}  // namespace

void GlContext::Choose(const std::string& library) { use_osmesa = library == "osmesa"; }

std::unique_ptr<GlContext> GlContext::Make(std::int32_t width, std::int32_t height) {
  if (use_osmesa) return std::make_unique<OsMesaContext>(width, height);
  return std::make_unique<EglContext>();
}

}  // namespace rollouts
