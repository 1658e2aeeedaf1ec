// SPDX-License-Identifier: Apache-2.0
// Draws one model's simulations: a context of OpenGL, with MuJoCo's scene and drawing context. Only
// the files next to it include this.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engines/pixels/gl_context.h"
#include "engines/mujoco_lib.h"
#include "rollouts/engines/mujoco_pixels.h"

namespace rollouts {

// Memory for a MuJoCo struct whose size depends on the release.
class MujocoStruct {
 public:
  explicit MujocoStruct(std::uint32_t bytes) : words_((bytes + 7) / 8) {}
  template <typename T>
  T* As() {
    return reinterpret_cast<T*>(words_.data());
  }

 private:
  std::vector<std::uint64_t> words_;
};

// Used by one thread at a time, which may be any.
class PixelRenderer {
 public:
  PixelRenderer(const mjModel* model, std::int32_t width, std::int32_t height,
                std::int32_t max_geom);
  ~PixelRenderer();

  // Writes height x width x 3 bytes, the lowest row first. `model` is that of the constructor, or
  // one that differs from it only in the values of some arrays. Throws EngineError.
  void Draw(const mjModel* model, mjData* data, const mjvOption_* flags, const PixelCamera& camera,
            std::uint8_t* rgb);

 private:
  void Free();
  void UploadTerrain(const mjModel* model);

  const MujocoRect viewport_;
  const std::unique_ptr<GlContext> context_;
  MujocoStruct scene_;
  MujocoStruct drawing_;
  std::vector<float> terrain_;  // the height fields in OpenGL's memory
};

// The renderers of one model, for images of one size. Thread-safe.
class PixelRenderers {
 public:
  // Returns the renderers for these images; environments share them as long as one environment uses
  // them.
  static std::shared_ptr<PixelRenderers> Get(std::shared_ptr<const PhysicsModel> model,
                                             const PixelConfig& config);
  ~PixelRenderers();

  // Draws with an unused renderer, or with a new one. Throws EngineError, also in a process that
  // was forked after the first renderer was made: OpenGL does not survive that.
  void Draw(const mjModel* model, mjData* data, const mjvOption_* flags, const PixelCamera& camera,
            std::uint8_t* rgb);

 private:
  PixelRenderers(std::shared_ptr<const PhysicsModel> model, const PixelConfig& config);
  std::unique_ptr<PixelRenderer> Take();
  void Return(std::unique_ptr<PixelRenderer> renderer);

  const std::shared_ptr<const PhysicsModel> model_;
  const std::int32_t width_;
  const std::int32_t height_;
  const std::int32_t max_geom_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PixelRenderer>> idle_;  // guarded by mutex_
};

}  // namespace rollouts
