// SPDX-License-Identifier: Apache-2.0
#include "rollouts/engines/mujoco_pixels.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "engines/mujoco_native.h"
#include "engines/pixels/pixel_renderer.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/state.h"

namespace rollouts {
namespace {

constexpr std::int32_t kFreeNumber = -1;    // MuJoCo's free camera
constexpr std::int32_t kUsualNumber = -2;   // no camera
constexpr std::int32_t kColours = 3;
// The rough cost of a picture on a GPU; a CPU, which mostly computes the depths of shadows, takes
// 30 times as long.
constexpr std::int32_t kPictureNs = 1'000'000;

int CameraNamed(const mjModel* model, const std::string& name) {
  return Mujoco().name2id(model, kCameraObject, name.c_str());
}

[[noreturn]] void ThrowNoCamera(const PhysicsModel& model, const std::string& given) {
  std::string has = std::to_string(kFreeNumber) + " (the free one)";
  for (int i = 0; i < Release().model.ncam.In(ModelOf(model)); ++i) {
    const char* const name = Mujoco().id2name(ModelOf(model), kCameraObject, i);
    has += ", " + std::to_string(i) + " (" + (name ? name : "") + ")";
  }
  throw SpecError("the model " + model.xml_path() + " has no camera " + given + "; it has " + has);
}

// The camera used without options: "track", else Gymnasium's free camera if `gymnasium`, else the
// first.
std::int32_t UsualCamera(const mjModel* model, bool gymnasium) {
  const int track = CameraNamed(model, "track");
  if (track >= 0 || gymnasium || Release().model.ncam.In(model) == 0) return track;
  return 0;
}

std::int32_t CameraNumber(const PhysicsModel& model, const PixelConfig& config) {
  if (!config.pixel_camera_name.empty()) {
    const int number = CameraNamed(ModelOf(model), config.pixel_camera_name);
    if (number < 0) ThrowNoCamera(model, "'" + config.pixel_camera_name + "'");
    return number;
  }
  if (config.pixel_camera_id == kUsualNumber) {
    return UsualCamera(ModelOf(model), config.pixel_gymnasium);
  }
  if (config.pixel_camera_id >= Release().model.ncam.In(ModelOf(model))) {
    ThrowNoCamera(model, std::to_string(config.pixel_camera_id));
  }
  return config.pixel_camera_id;
}

// The middle of a model in its own start position. Gymnasium's camera looks at the middle of the
// first state that an environment has shown; this middle is the same in every environment and every
// episode.
std::array<double, 3> MiddleOf(std::shared_ptr<const PhysicsModel> model) {
  Physics physics(std::move(model));
  const ModelView& view = physics.model_view();
  const std::vector<double> at_rest(static_cast<std::size_t>(view.nv));
  physics.Reset(view.qpos0, at_rest.data());
  const auto count = static_cast<std::size_t>(Release().model.ngeom.In(ModelOf(physics)));
  std::array<double, 3> middle{};
  std::vector<double> places(count);
  for (std::size_t axis = 0; axis < 3 && count > 0; ++axis) {
    for (std::size_t i = 0; i < count; ++i) places[i] = physics.view().geom_xpos[3 * i + axis];
    std::sort(places.begin(), places.end());
    // an even count has two numbers in the middle, and their mean is taken
    middle[axis] = (places[(count - 1) / 2] + places[count / 2]) / 2;
  }
  return middle;
}

// Splits "name=1,2,3" into its name and numbers.
std::pair<std::string, std::vector<double>> NamedNumbers(const std::string& word) {
  const std::size_t equals = word.find('=');
  std::istringstream rest(word.substr(equals + 1));
  std::vector<double> numbers;
  for (std::string part; std::getline(rest, part, ',');) {
    numbers.push_back(0);
    std::istringstream(part) >> numbers.back();
  }
  return {word.substr(0, equals), std::move(numbers)};
}

// Changes the named fields of the camera.
void SetLens(const std::string& lens, PixelCamera& camera) {
  std::istringstream words(lens);
  for (std::string word; words >> word;) {
    const auto [name, numbers] = NamedNumbers(word);
    const auto whole = static_cast<std::int32_t>(numbers.at(0));
    if (name == "azimuth") camera.azimuth = numbers[0];
    if (name == "distance") camera.distance = numbers[0];
    if (name == "elevation") camera.elevation = numbers[0];
    if (name == "lookat") std::copy_n(numbers.begin(), 3, camera.lookat.begin());
    if (name == "orthographic") camera.orthographic = whole;
    if (name == "trackbodyid") camera.trackbodyid = whole;
    if (name == "type") camera.type = whole;
  }
}

PixelCamera CameraOf(const std::shared_ptr<const PhysicsModel>& model, const PixelConfig& config) {
  const mjModel* const raw = ModelOf(*model);
  const std::int32_t number = CameraNumber(*model, config);
  MujocoCamera usual;
  if (config.pixel_gymnasium) {
    Mujoco().default_camera(reinterpret_cast<mjvCamera_*>(&usual));
  } else {
    Mujoco().default_free_camera(raw, reinterpret_cast<mjvCamera_*>(&usual));
  }
  PixelCamera camera{.type = usual.type,
                     .fixedcamid = usual.fixedcamid,
                     .trackbodyid = usual.trackbodyid,
                     .lookat = {usual.lookat[0], usual.lookat[1], usual.lookat[2]},
                     .distance = usual.distance,
                     .azimuth = usual.azimuth,
                     .elevation = usual.elevation,
                     .orthographic = usual.orthographic};
  if (number == kFreeNumber && config.pixel_gymnasium) {
    camera.lookat = MiddleOf(model);
    camera.distance = Release().model.extent.In(raw);
  }
  SetLens(config.pixel_lens, camera);
  if (number != kFreeNumber) camera.type = kFixedCamera;
  camera.fixedcamid = number;
  return camera;
}

// Makes the bytes of an mjvOption.
std::vector<std::uint8_t> FlagsOf(const PixelConfig& config) {
  const DrawingPlaces& at = Release().drawing;
  std::vector<std::uint8_t> option(at.option_bytes);
  Mujoco().default_option(reinterpret_cast<mjvOption_*>(option.data()));
  std::uint8_t* const flags = at.flags.In(option.data());
  std::istringstream words(config.pixel_flags);
  for (std::string word; words >> word;) {
    const auto [name, numbers] = NamedNumbers(word);
    std::int32_t flag = -1;
    std::istringstream(name) >> flag;
    if (flag < 0 || flag >= at.num_flags) {
      throw SpecError("visual_options has the flag " + name +
                      ", expected a number of mujoco.mjtVisFlag from 0 to " +
                      std::to_string(at.num_flags - 1));
    }
    flags[flag] = numbers.at(0) != 0;
  }
  return option;
}

std::size_t PictureBytes(const PixelConfig& config) {
  const std::size_t pixels = std::size_t{1} * config.pixel_height * config.pixel_width;
  return pixels * (config.grayscale ? 1 : kColours);
}

// The gray of a pixel, rounded down as by Gymnasium's GrayscaleObservation.
std::uint8_t Gray(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>(rgb[0] * 0.2125 + rgb[1] * 0.7154 + rgb[2] * 0.0721);
}

}  // namespace

std::unique_ptr<PixelView> PixelView::Make(std::shared_ptr<const PhysicsModel> model,
                                           const PixelConfig& config) {
  if (!config.from_pixels) return nullptr;
  return std::unique_ptr<PixelView>(new PixelView(std::move(model), config));
}

PixelView::PixelView(std::shared_ptr<const PhysicsModel> model, const PixelConfig& config)
    : model_(std::move(model)),
      config_(config),
      flags_(FlagsOf(config)),
      camera_(CameraOf(model_, config)),
      drawn_(std::size_t{kColours} * config.pixel_height * config.pixel_width) {}

std::shared_ptr<const void> PixelView::Share(std::shared_ptr<const PhysicsModel> model,
                                             const PixelConfig& config) {
  if (!config.from_pixels) return model;
  // the renderer holds the model
  return PixelRenderers::Get(std::move(model), config);
}

void PixelView::ChangeSpec(const PixelConfig& config, EnvSpec& spec) {
  if (!config.from_pixels) {
    if (config.grayscale) throw SpecError("option 'grayscale' needs from_pixels=True");
    return;
  }
  const std::int32_t ndim = config.grayscale ? 2 : 3;
  const std::int32_t shape[] = {config.pixel_height, config.pixel_width, kColours};
  SpaceSpec pictures;
  pictures.dtype = DType::kUint8;
  pictures.high[0] = 255;
  if (config.all_parts) {
    const SpaceSpec& state = spec.observation;
    if (spec.num_parts == 0) {
      ObservationPart& part = spec.parts[spec.num_parts++];
      part.name = "state";
      part.ndim = state.ndim;
      std::copy_n(state.shape, 3, part.shape);
    }
    if (spec.num_parts == EnvSpec::kMaxParts) {
      throw SpecError("the observation has " + std::to_string(spec.num_parts) +
                      " parts, and there is no room for pictures: leave out "
                      "flatten_observation=False");
    }
    for (std::int32_t i = 0; i < spec.num_parts; ++i) spec.parts[i].dtype = state.dtype;
    ObservationPart& part = spec.parts[spec.num_parts++];
    part = {.name = "pixels", .ndim = ndim, .shape = {}, .dtype = DType::kUint8};
    std::copy_n(shape, ndim, part.shape);
    pictures.ndim = 1;
    // numbers of the next row begin at an aligned place
    const auto bytes = static_cast<std::int64_t>(PictureBytes(config));
    pictures.shape[0] = static_cast<std::int32_t>((state.bytes() + bytes + 7) / 8 * 8);
  } else {
    spec.num_parts = 0;
    pictures.ndim = ndim;
    std::copy_n(shape, ndim, pictures.shape);
  }
  spec.observation = pictures;
  spec.step_cost_ns = EnvSpec::CostNs(spec.step_cost_ns + kPictureNs, 1);
}

void PixelView::Write(const Physics& physics, std::uint8_t* out) {
  if (shown_.empty()) Draw(physics);
  std::copy(shown_.begin(), shown_.end(), out);
}

void PixelView::Draw(const Physics& physics) {
  if (!renderers_) renderers_ = PixelRenderers::Get(model_, config_);
  // not const, because drawing uses the data's stack
  auto* const data = static_cast<mjData*>(const_cast<void*>(physics.view().engine_data));
  renderers_->Draw(ModelOf(physics), data, reinterpret_cast<const mjvOption_*>(flags_.data()),
                   camera_, drawn_.data());
  shown_.resize(PictureBytes(config_));
  const std::size_t row_bytes = std::size_t{kColours} * config_.pixel_width;
  std::uint8_t* out = shown_.data();
  for (std::int32_t row = config_.pixel_height - 1; row >= 0; --row) {
    const std::uint8_t* const rgb = drawn_.data() + row * row_bytes;
    if (!config_.grayscale) {
      out = std::copy_n(rgb, row_bytes, out);
      continue;
    }
    for (std::int32_t x = 0; x < config_.pixel_width; ++x) *out++ = Gray(rgb + kColours * x);
  }
}

void PixelView::Save(const Physics& physics, StateWriter& writer) {
  if (shown_.empty()) Draw(physics);
  writer.PutBytes(shown_);
}

void PixelView::Load(StateReader& reader) {
  const auto bytes = reader.GetBytes(PictureBytes(config_));
  shown_.assign(bytes.begin(), bytes.end());
}

}  // namespace rollouts
