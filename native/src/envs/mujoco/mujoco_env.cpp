// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/mujoco/mujoco_env.h"

#include <charconv>
#include <cstdlib>
#include <limits>

#include "rollouts/support/errors.h"
#include "rollouts/support/state.h"

namespace rollouts {
namespace {

// Checks the number of elements: a task's formulas read fixed elements, which a smaller model does
// not have.
void Need(const PhysicsModel& model, const char* what, std::int32_t has, std::int32_t needed) {
  if (has >= needed) return;
  throw SpecError("the model " + model.xml_path() + " has " + std::to_string(has) + " " + what +
                  ", this task needs " + std::to_string(needed) + " or more");
}

void PutDoubles(StateWriter& writer, const std::vector<double>& values) {
  writer.Put(static_cast<std::uint64_t>(values.size()));
  for (const double value : values) writer.Put(value);
}

// Reads into a vector whose size depends on the model.
void GetDoubles(StateReader& reader, std::vector<double>& values) {
  const auto size = reader.Get<std::uint64_t>();
  // a state of another model is recognised by its sizes
  if (size != values.size()) {
    throw SpecError("has " + std::to_string(size) + " values where this model has " +
                    std::to_string(values.size()));
  }
  for (double& value : values) value = reader.Get<double>();
}

}  // namespace

// The path of the model, by the rules of Gymnasium's expand_model_path.
std::string ModelPath(const MujocoConfig& config) {
  const std::string& file = config.xml_file;
  if (file.starts_with('/') || file.starts_with('.')) return file;
  const char* home = std::getenv("HOME");
  if (file.starts_with("~/") && home) return home + file.substr(1);
  return config.assets + "/" + file;
}

void CheckModel(const PhysicsModel& model, const ModelNeeds& needs) {
  Need(model, "positions", model.view().nq, needs.nq);
  Need(model, "velocities", model.view().nv, needs.nv);
  Need(model, "sites", model.view().nsite, needs.nsite);
  Need(model, "actuators", model.view().nu, 1);
}

// The body of Gymnasium's main_body, a number or a name; as an option it is text.
std::int32_t BodyByNumberOrName(const PhysicsModel& model, const char* option,
                                const std::string& body) {
  std::int32_t number = 0;
  const char* const end = body.data() + body.size();
  const auto [stopped, error] = std::from_chars(body.data(), end, number);
  // not a whole number, so a name
  if (error != std::errc() || stopped != end) return model.BodyId(body);
  if (number < 0 || number >= model.view().nbody) {
    throw SpecError(std::string("option '") + option + "' is " + body + ", the model " +
                    model.xml_path() + " has the bodies 0 to " +
                    std::to_string(model.view().nbody - 1));
  }
  return number;
}

// The action space, with Gymnasium's bounds: the float32 nearest to the actuator's.
SpaceSpec ActionSpace(const PhysicsModel& model) {
  SpaceSpec space;
  space.dtype = DType::kFloat32;
  space.ndim = 1;
  const std::int32_t nu = model.view().nu;
  space.shape[0] = nu;
  // actuators beyond the spec's room for bounds must share one pair
  space.elementwise = nu <= SpaceSpec::kMaxBounds;
  for (std::int32_t i = 0; i < nu; ++i) {
    const PhysicsModel::Range range = model.ControlRange(i);
    const std::int32_t at = space.elementwise ? i : 0;
    // one pair of bounds can stand for all only where they are equal
    if (at < i && (range.low != space.low[0] || range.high != space.high[0])) {
      throw SpecError("the model " + model.xml_path() + " has " + std::to_string(nu) +
                      " actuators of different ranges, expected at most " +
                      std::to_string(SpaceSpec::kMaxBounds) + ", or one range for all");
    }
    space.low[at] = range.low;
    space.high[at] = range.high;
  }
  return space;
}

SpaceSpec ObservationSpace(const std::string& obs_dtype, std::int32_t size) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  SpaceSpec space;
  space.dtype = obs_dtype == "float32" ? DType::kFloat32 : DType::kFloat64;
  space.ndim = 1;
  space.shape[0] = size;
  // one pair of bounds for all numbers
  space.low[0] = -kInfinite;
  space.high[0] = kInfinite;
  return space;
}

EnvSpec MakeMujocoSpec(const MujocoConfig& config, const PhysicsModel& model,
                       std::span<const InfoSpec> infos, std::int32_t observation_size,
                       std::int32_t substep_ns, DataArrays reads) {
  EnvSpec spec;
  spec.observation = ObservationSpace(config.obs_dtype, observation_size);
  spec.action = ActionSpace(model);
  spec.step_cost_ns = EnvSpec::CostNs(substep_ns, config.frame_skip);
  ChangeSpecForLanes(config, model, reads, spec);
  std::int32_t values = 0;
  for (const InfoSpec& info : infos) {
    InfoSpec& ours = spec.infos[spec.num_infos++];
    ours = info;
    // a length that depends on the model
    if (ours.length == kPerTendon) ours.length = model.view().ntendon;
    values += ours.size();
  }
  if (values > EnvSpec::kMaxInfoValues) {
    throw SpecError("the model " + model.xml_path() + " has " +
                    std::to_string(model.view().ntendon) + " tendons, which make " +
                    std::to_string(values) + " info values, expected at most " +
                    std::to_string(EnvSpec::kMaxInfoValues));
  }
  spec.reset_infos = true;  // as in Gymnasium, where a reset reports them, too
  PixelView::ChangeSpec(config, spec);
  return spec;
}

void SaveMujoco(const Physics& physics, const MujocoMemory& memory,
                std::vector<std::uint8_t>& out) {
  StateWriter writer(out);
  physics.Save(writer);
  // values that the simulation itself does not keep
  for (const double value : memory.before) writer.Put(value);
  PutDoubles(writer, memory.infos);
  PutDoubles(writer, memory.shown);
  memory.changes.Save(writer);
}

void LoadMujoco(Physics& physics, MujocoMemory& memory, PixelView* pixels,
                std::span<const std::uint8_t> state) {
  StateReader reader(state);
  physics.Load(reader);
  for (double& value : memory.before) value = reader.Get<double>();
  GetDoubles(reader, memory.infos);
  GetDoubles(reader, memory.shown);
  // the changes of the next episode; those of this episode came with the simulation
  memory.changes.Load(reader, physics.model());
  if (pixels) pixels->Load(reader);
}

}  // namespace rollouts
