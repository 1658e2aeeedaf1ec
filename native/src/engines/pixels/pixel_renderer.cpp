// SPDX-License-Identifier: Apache-2.0
#include "engines/pixels/pixel_renderer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "engines/mujoco_native.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// The id of the process that has used OpenGL; 0: none has.
std::atomic<pid_t> drawing_process{0};

// Tells if this is a child that has inherited contexts: it must not use them, nor can it make
// others.
bool WasForked() {
  pid_t none = 0;
  const pid_t here = getpid();
  return !drawing_process.compare_exchange_strong(none, here) && none != here;
}

void RefuseForked() {
  if (!WasForked()) return;
  throw EngineError(
      "observations cannot be drawn: this process was forked from one that has drawn some, and "
      "OpenGL does not survive that. Start it with multiprocessing's 'spawn' or 'forkserver'");
}

// Held while a context is made, which writes global data of OpenGL's libraries and of MuJoCo.
std::mutex making_mutex;

using RenderersKey = std::tuple<const PhysicsModel*, std::int32_t, std::int32_t, std::int32_t>;
std::mutex renderers_mutex;
std::map<RenderersKey, std::weak_ptr<PixelRenderers>> renderers;

}  // namespace

PixelRenderer::PixelRenderer(const mjModel* model, std::int32_t width, std::int32_t height,
                             std::int32_t max_geom)
    : viewport_{0, 0, width, height},
      context_(GlContext::Make(width, height)),
      scene_(Release().drawing.scene_bytes),
      drawing_(Release().drawing.context_bytes) {
  const MujocoApi& api = Mujoco();
  auto* const scene = scene_.As<mjvScene_>();
  auto* const drawing = drawing_.As<mjrContext_>();
  api.default_scene(scene);
  api.default_context(drawing);
  const GlContext::Use use(*context_);
  try {
    Guarded([&] {
      api.make_scene(model, scene, max_geom);
      api.make_context(model, drawing, kUsualFont);
      // resized here, because the model's own size of the buffer must not be changed
      api.resize_offscreen(width, height, drawing);
      api.set_buffer(kOffscreenBuffer, drawing);
    });
    if (Release().drawing.current_buffer.In(drawing) != kOffscreenBuffer) {
      throw EngineError("observations cannot be drawn: OpenGL has no buffer of " +
                        std::to_string(width) + " x " + std::to_string(height) + " pixels");
    }
  } catch (...) {
    Free();
    throw;
  }
  // the heights that make_context has uploaded
  const float* const heights = Release().model.hfield_data.In(model);
  terrain_.assign(heights, heights + Release().model.nhfielddata.In(model));
}

PixelRenderer::~PixelRenderer() {
  try {
    const GlContext::Use use(*context_);
    Free();
  } catch (const EngineError&) {
    // the process ends, and another user of OpenGL has closed it already
  }
}

// Frees the renderer's memory in its context.
void PixelRenderer::Free() {
  Guarded([&] {
    Mujoco().free_context(drawing_.As<mjrContext_>());
    Mujoco().free_scene(scene_.As<mjvScene_>());
  });
}

void PixelRenderer::Draw(const mjModel* model, mjData* data, const mjvOption_* flags,
                         const PixelCamera& camera, std::uint8_t* rgb) {
  const MujocoApi& api = Mujoco();
  auto* const scene = scene_.As<mjvScene_>();
  const auto* const drawing = drawing_.As<mjrContext_>();
  MujocoCamera view{camera.type,
                    camera.fixedcamid,
                    camera.trackbodyid,
                    {camera.lookat[0], camera.lookat[1], camera.lookat[2]},
                    camera.distance,
                    camera.azimuth,
                    camera.elevation,
                    camera.orthographic};
  const GlContext::Use use(*context_);
  UploadTerrain(model);
  Guarded([&] {
    api.update_scene(model, data, flags, nullptr, reinterpret_cast<mjvCamera_*>(&view),
                     kAllCategories, scene);
    api.render(viewport_, scene, drawing);
    api.read_pixels(rgb, nullptr, viewport_, drawing);
  });
}

// Uploads heights, the only array in OpenGL's memory that an environment may own.
void PixelRenderer::UploadTerrain(const mjModel* model) {
  const float* const heights = Release().model.hfield_data.In(model);
  if (std::equal(terrain_.begin(), terrain_.end(), heights)) return;
  const auto count = static_cast<int>(Release().model.nhfield.In(model));
  Guarded([&] {
    for (int i = 0; i < count; ++i) {
      Mujoco().upload_hfield(model, drawing_.As<mjrContext_>(), i);
    }
  });
  std::copy_n(heights, terrain_.size(), terrain_.begin());
}

std::shared_ptr<PixelRenderers> PixelRenderers::Get(std::shared_ptr<const PhysicsModel> model,
                                                    const PixelConfig& config) {
  // checked before the search, because a forked child would find the renderers of its parent
  RefuseForked();
  const std::lock_guard lock(renderers_mutex);
  std::erase_if(renderers, [](const auto& entry) { return entry.second.expired(); });
  const RenderersKey key(model.get(), config.pixel_width, config.pixel_height,
                         config.pixel_max_geom);
  if (const auto held = renderers.find(key); held != renderers.end()) {
    // the last user may be gone by now
    if (auto found = held->second.lock()) return found;
  }
  const std::shared_ptr<PixelRenderers> made(new PixelRenderers(std::move(model), config));
  renderers[key] = made;
  return made;
}

PixelRenderers::PixelRenderers(std::shared_ptr<const PhysicsModel> model,
                               const PixelConfig& config)
    : model_(std::move(model)),
      width_(config.pixel_width),
      height_(config.pixel_height),
      max_geom_(config.pixel_max_geom) {
  // the first is made at once, so that without OpenGL a pool's constructor throws, and not its
  // threads
  Return(Take());
}

PixelRenderers::~PixelRenderers() {
  if (!WasForked()) return;
  // these belong to the parent
  for (auto& renderer : idle_) renderer.release();
}

void PixelRenderers::Draw(const mjModel* model, mjData* data, const mjvOption_* flags,
                          const PixelCamera& camera, std::uint8_t* rgb) {
  std::unique_ptr<PixelRenderer> renderer = Take();
  // a renderer that throws is not used again
  renderer->Draw(model, data, flags, camera, rgb);
  Return(std::move(renderer));
}

std::unique_ptr<PixelRenderer> PixelRenderers::Take() {
  RefuseForked();
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto renderer = std::move(idle_.back());
      idle_.pop_back();
      return renderer;
    }
  }
  const std::lock_guard lock(making_mutex);
  return std::make_unique<PixelRenderer>(ModelOf(*model_), width_, height_, max_geom_);
}

void PixelRenderers::Return(std::unique_ptr<PixelRenderer> renderer) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(renderer));
}

}  // namespace rollouts
