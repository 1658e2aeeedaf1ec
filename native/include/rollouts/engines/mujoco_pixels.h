// SPDX-License-Identifier: Apache-2.0
// Images of a simulation as observations, drawn by MuJoCo with an OpenGL that needs no display. A
// thread borrows one of the model's renderers while it draws, so a model has at most as many
// renderers as there are threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rollouts/core/spec.h"
#include "rollouts/engines/mujoco_physics.h"

namespace rollouts {

class StateReader;
class StateWriter;

// Options of every environment on MuJoCo. rollouts/rendering/pixels.py sets those after
// `grayscale`, from the options for frames.
struct PixelConfig {
  bool from_pixels = false;  // observations are images, (height, width, 3) of uint8
  bool grayscale = false;    // with from_pixels: (height, width), by the weights of Gymnasium's wrapper

  bool all_parts = false;    // set by flatten_observation=False: also the usual observation
  std::int32_t pixel_width = 84;
  std::int32_t pixel_height = 84;
  std::int32_t pixel_max_geom = 1000;
  std::int32_t pixel_camera_id = -2;  // -1: the free one, -2: the task's usual one
  std::string pixel_camera_name;      // in place of a number
  bool pixel_gymnasium = false;       // cameras are chosen and set up as by Gymnasium
  std::string pixel_lens;             // fields of the free camera: "distance=4 lookat=0,0,1.15"
  std::string pixel_flags;            // fields of mjtVisFlag: "14=1"

  template <typename Visitor>
  static void VisitPixels(PixelConfig& config, Visitor& visit) {
    visit("from_pixels", config.from_pixels);
    visit("grayscale", config.grayscale);
    visit("all_parts", config.all_parts);
    visit("pixel_width", config.pixel_width);
    visit("pixel_height", config.pixel_height);
    visit("pixel_max_geom", config.pixel_max_geom);
    visit("pixel_camera_id", config.pixel_camera_id);
    visit("pixel_camera_name", config.pixel_camera_name);
    visit("pixel_gymnasium", config.pixel_gymnasium);
    visit("pixel_lens", config.pixel_lens);
    visit("pixel_flags", config.pixel_flags);
  }
};

// A camera's place, in fields of MuJoCo's mjvCamera.
struct PixelCamera {
  std::int32_t type = 0;
  std::int32_t fixedcamid = 0;
  std::int32_t trackbodyid = 0;
  std::array<double, 3> lookat = {};
  double distance = 0;
  double azimuth = 0;
  double elevation = 0;
  std::int32_t orthographic = 0;
};

class PixelRenderers;

// The images of one environment. Used by one thread at a time.
class PixelView {
 public:
  // Null without from_pixels. Throws SpecError for an unknown camera or flag.
  static std::unique_ptr<PixelView> Make(std::shared_ptr<const PhysicsModel> model,
                                         const PixelConfig& config);
  // Makes a first renderer, which environments with these options share as long as the result
  // exists. Throws EngineError where there is no OpenGL.
  static std::shared_ptr<const void> Share(std::shared_ptr<const PhysicsModel> model,
                                           const PixelConfig& config);
  // Changes the spec to that of an environment that shows images in place of its usual observation,
  // or in addition to it.
  static void ChangeSpec(const PixelConfig& config, EnvSpec& spec);

  // To be called when the simulation has moved.
  void Forget() { shown_.clear(); }
  // Writes the image of the simulation's present state, which is drawn at the first call after
  // Forget. Throws EngineError.
  void Write(const Physics& physics, std::uint8_t* out);

  // Saves the present image, because MuJoCo's states do not contain all that it was drawn from.
  void Save(const Physics& physics, StateWriter& writer);
  // Throws SpecError.
  void Load(StateReader& reader);

 private:
  PixelView(std::shared_ptr<const PhysicsModel> model, const PixelConfig& config);
  void Draw(const Physics& physics);

  const std::shared_ptr<const PhysicsModel> model_;
  const PixelConfig config_;
  const std::vector<std::uint8_t> flags_;  // an mjvOption
  const PixelCamera camera_;
  std::shared_ptr<PixelRenderers> renderers_;  // from the first image on
  std::vector<std::uint8_t> drawn_;  // in OpenGL's order: the lowest row first
  std::vector<std::uint8_t> shown_;  // the present image; empty until it is drawn
};

}  // namespace rollouts
