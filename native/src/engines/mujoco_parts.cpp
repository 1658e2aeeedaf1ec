// SPDX-License-Identifier: Apache-2.0
#include "rollouts/engines/mujoco_parts.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>
#include <optional>
#include <string_view>

#include "mujoco_native.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// The kinds of objects that own rows of arrays.
enum class Rows {
  kTime, kPositions, kVelocities, kControls, kForces, kActivations, kBodies, kMocap, kGeoms,
  kSites, kCameras, kTendons, kJoints, kSensors
};

struct Field {
  const char* name;
  Rows rows;
  int width;  // numbers in a row
  Place<double*> DataPlaces::* array;
  bool after_constraints = false;  // computed by mj_rnePostConstraint
};

// Fields by their names in mjData, in the order in which messages list them.
constexpr Field kFields[] = {
    {"time", Rows::kTime, 1, nullptr},
    {"qpos", Rows::kPositions, 1, &DataPlaces::qpos},
    {"qvel", Rows::kVelocities, 1, &DataPlaces::qvel},
    {"qacc", Rows::kVelocities, 1, &DataPlaces::qacc},
    {"qfrc_actuator", Rows::kVelocities, 1, &DataPlaces::qfrc_actuator},
    {"qfrc_applied", Rows::kVelocities, 1, &DataPlaces::qfrc_applied},
    {"qfrc_bias", Rows::kVelocities, 1, &DataPlaces::qfrc_bias},
    {"qfrc_constraint", Rows::kVelocities, 1, &DataPlaces::qfrc_constraint},
    {"qfrc_passive", Rows::kVelocities, 1, &DataPlaces::qfrc_passive},
    {"ctrl", Rows::kControls, 1, &DataPlaces::ctrl},
    {"act", Rows::kActivations, 1, &DataPlaces::act},
    {"actuator_length", Rows::kForces, 1, &DataPlaces::actuator_length},
    {"actuator_velocity", Rows::kForces, 1, &DataPlaces::actuator_velocity},
    {"actuator_force", Rows::kForces, 1, &DataPlaces::actuator_force},
    {"sensordata", Rows::kSensors, 1, &DataPlaces::sensordata},
    {"xpos", Rows::kBodies, 3, &DataPlaces::xpos},
    {"xquat", Rows::kBodies, 4, &DataPlaces::xquat},
    {"xmat", Rows::kBodies, 9, &DataPlaces::xmat},
    {"xipos", Rows::kBodies, 3, &DataPlaces::xipos},
    {"ximat", Rows::kBodies, 9, &DataPlaces::ximat},
    {"subtree_com", Rows::kBodies, 3, &DataPlaces::subtree_com},
    {"cinert", Rows::kBodies, 10, &DataPlaces::cinert},
    {"cvel", Rows::kBodies, 6, &DataPlaces::cvel},
    {"xfrc_applied", Rows::kBodies, 6, &DataPlaces::xfrc_applied},
    {"cacc", Rows::kBodies, 6, &DataPlaces::cacc, true},
    {"cfrc_int", Rows::kBodies, 6, &DataPlaces::cfrc_int, true},
    {"cfrc_ext", Rows::kBodies, 6, &DataPlaces::cfrc_ext, true},
    {"mocap_pos", Rows::kMocap, 3, &DataPlaces::mocap_pos},
    {"mocap_quat", Rows::kMocap, 4, &DataPlaces::mocap_quat},
    {"xanchor", Rows::kJoints, 3, &DataPlaces::xanchor},
    {"xaxis", Rows::kJoints, 3, &DataPlaces::xaxis},
    {"geom_xpos", Rows::kGeoms, 3, &DataPlaces::geom_xpos},
    {"geom_xmat", Rows::kGeoms, 9, &DataPlaces::geom_xmat},
    {"site_xpos", Rows::kSites, 3, &DataPlaces::site_xpos},
    {"site_xmat", Rows::kSites, 9, &DataPlaces::site_xmat},
    {"cam_xpos", Rows::kCameras, 3, &DataPlaces::cam_xpos},
    {"cam_xmat", Rows::kCameras, 9, &DataPlaces::cam_xmat},
    {"ten_length", Rows::kTendons, 1, &DataPlaces::ten_length},
    {"ten_velocity", Rows::kTendons, 1, &DataPlaces::ten_velocity},
};

// The range [first, first + count).
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// The kind of object whose names the rows have, and the kind's name in messages.
struct Named {
  MujocoObject type;
  const char* what;
  std::int64_t count;
};

Named NamesOf(const mjModel* model, Rows rows) {
  // positions and velocities have their joints' names, controls those of actuators
  const ModelPlaces& at = Release().model;
  switch (rows) {
    case Rows::kTime: return {kUnknownObject, "", 0};
    case Rows::kPositions:
    case Rows::kVelocities:
    case Rows::kJoints: return {kJointObject, "joint", at.njnt.In(model)};
    case Rows::kControls:
    case Rows::kForces:
    case Rows::kActivations: return {kActuatorObject, "actuator", at.nactuator.In(model)};
    case Rows::kBodies:
    case Rows::kMocap: return {kBodyObject, "body", at.nbody.In(model)};
    case Rows::kGeoms: return {kGeomObject, "geom", at.ngeom.In(model)};
    case Rows::kSites: return {kSiteObject, "site", at.nsite.In(model)};
    case Rows::kCameras: return {kCameraObject, "camera", at.ncam.In(model)};
    case Rows::kTendons: return {kTendonObject, "tendon", at.ntendon.In(model)};
    case Rows::kSensors: return {kSensorObject, "sensor", at.nsensor.In(model)};
  }
  return {kUnknownObject, "", 0};
}

// The number of rows, which is not the number of objects where an object has several rows or none.
std::int64_t NumRows(const mjModel* model, Rows rows) {
  const ModelPlaces& at = Release().model;
  switch (rows) {
    case Rows::kTime: return 1;
    case Rows::kPositions: return at.nq.In(model);
    case Rows::kVelocities: return at.nv.In(model);
    case Rows::kControls: return at.nu.In(model);
    case Rows::kForces: return at.nout.In(model);
    case Rows::kActivations: return at.na.In(model);
    case Rows::kMocap: return at.nmocap.In(model);
    case Rows::kSensors: return at.nsensordata.In(model);
    default: return NamesOf(model, rows).count;
  }
}

// The rows of one object; none where it has none, such as a body that is not a mocap body.
Range RowsOf(const mjModel* model, Rows rows, int id) {
  const ModelPlaces& at = Release().model;
  constexpr int kPositionsOf[] = {7, 4, 1, 1};  // by mjtJoint: free, ball, slide, hinge
  constexpr int kVelocitiesOf[] = {6, 3, 1, 1};
  switch (rows) {
    case Rows::kPositions: return {at.jnt_qposadr.In(model)[id], kPositionsOf[at.jnt_type.In(model)[id]]};
    case Rows::kVelocities: return {at.jnt_dofadr.In(model)[id], kVelocitiesOf[at.jnt_type.In(model)[id]]};
    case Rows::kControls: return {at.actuator_ctrladr.In(model)[id], at.actuator_ctrlnum.In(model)[id]};
    case Rows::kForces: return {at.actuator_outadr.In(model)[id], at.actuator_outnum.In(model)[id]};
    case Rows::kActivations:
      // an actuator without a state
      if (at.actuator_actadr.In(model)[id] < 0) return {};
      return {at.actuator_actadr.In(model)[id], at.actuator_actnum.In(model)[id]};
    case Rows::kMocap:
      if (at.body_mocapid.In(model)[id] < 0) return {};
      return {at.body_mocapid.In(model)[id], 1};
    case Rows::kSensors: return {at.sensor_adr.In(model)[id], at.sensor_dim.In(model)[id]};
    default: return {id, 1};
  }
}

// -- names ------------------------------------------------------------------------------

using Names = std::vector<std::string>;

// The objects' names; some objects have none.
Names NamesOfObjects(const mjModel* model, const Named& named) {
  Names names;
  for (int id = 0; id < named.count; ++id) {
    const char* name = Mujoco().id2name(model, named.type, id);
    if (name && *name) names.push_back(name);
  }
  return names;
}

// The number of insertions, deletions and replacements that turn one text into the other
// (Levenshtein 1966).
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    // one row of the table at a time, which overwrites the row before
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// Such as " Did you mean 'torso'?"; empty where no name is similar.
std::string Suggestion(const std::string& given, const Names& names) {
  const auto distance = [&](const std::string& name) { return EditDistance(given, name); };
  const auto best = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return distance(a) < distance(b);
  });
  // a name that differs more would be a guess
  if (best == names.end() || distance(*best) > std::max<std::size_t>(2, given.size() / 3)) return "";
  return " Did you mean '" + *best + "'?";
}

std::string Joined(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none with a name" : text;
}

// The beginning of messages: names the option, the part and the model.
std::string About(const PhysicsModel& model, const char* option, const std::string& part) {
  return std::string("option '") + option + "' names '" + part + "', and the model " +
         model.xml_path() + " ";
}

[[noreturn]] void ThrowUnknown(const PhysicsModel& model, const char* option,
                               const std::string& part, const std::string& base) {
  const mjModel* const native = ModelOf(model);
  const Names sensors = NamesOfObjects(native, NamesOf(native, Rows::kSensors));
  Names fields;
  for (const Field& field : kFields) fields.push_back(field.name);
  // the user may have meant either
  Names all = fields;
  all.insert(all.end(), sensors.begin(), sensors.end());
  throw SpecError(About(model, option, part) + "has neither an array nor a sensor of that name." +
                  Suggestion(base, all) + " Its sensors: " + Joined(sensors) +
                  "; arrays: " + Joined(fields) +
                  ", each also of one object, such as xpos:torso");
}

[[noreturn]] void ThrowNoObject(const PhysicsModel& model, const char* option,
                                const std::string& part, const Named& named,
                                const std::string& object) {
  const Names names = NamesOfObjects(ModelOf(model), named);
  throw SpecError(About(model, option, part) + "has no " + named.what + " '" + object + "'." +
                  Suggestion(object, names) + " It has: " + Joined(names));
}

// -- parts ------------------------------------------------------------------------------

std::string_view Trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Reads a range of elements, as in Python's slices of `count` elements.
Range Slice(const PhysicsModel& model, const char* option, const std::string& part,
            std::string_view text, std::int64_t count) {
  const std::size_t colon = text.find(':');
  const auto bound = [&](std::string_view digits, std::int64_t missing) {
    // without a number the range goes from the beginning, or to the end
    digits = Trimmed(digits);
    if (digits.empty()) return missing;
    std::int64_t value = 0;
    const auto [stopped, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || stopped != digits.data() + digits.size()) {
      throw SpecError(std::string("option '") + option + "' names '" + part +
                      "', expected whole numbers in the brackets, such as qpos[2:] or qpos[0:3]");
    }
    // as in Python: negative numbers count from the end, and too large ones mean the end
    return std::clamp<std::int64_t>(value < 0 ? value + count : value, 0, count);
  };
  const std::int64_t first = bound(text.substr(0, colon), 0);
  const std::int64_t last = bound(text.substr(colon + 1), count);
  if (last <= first) {
    throw SpecError(About(model, option, part) + "has " + std::to_string(count) +
                    " elements there, of which the brackets leave none");
  }
  return {first, last - first};
}

// The index of an array in kFields, if there is one of that name.
std::optional<std::int32_t> FieldOf(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFields), std::end(kFields),
                                   [&](const Field& field) { return name == field.name; });
  if (found == std::end(kFields)) return std::nullopt;
  return static_cast<std::int32_t>(found - kFields);
}

// The part that is a whole array.
ModelPart WholeField(const mjModel* model, std::int32_t number) {
  const Field& field = kFields[number];
  const std::int64_t rows = NumRows(model, field.rows);
  ModelPart part{
      .name = {}, .field = number, .count = rows * field.width, .shape = {rows}};
  // a second axis where a row has more than one number
  if (field.width > 1) part.shape.push_back(field.width);
  return part;
}

// The part that is one object's share of an array.
ModelPart ObjectsPart(const PhysicsModel& model, const char* option, const std::string& name,
                      std::int32_t number, const std::string& object) {
  const mjModel* const native = ModelOf(model);
  const Field& field = kFields[number];
  const Named named = NamesOf(native, field.rows);
  // time belongs to no object, so none is found
  const int id = named.type == kUnknownObject
                     ? -1
                     : Mujoco().name2id(native, named.type, object.c_str());
  if (id < 0) ThrowNoObject(model, option, name, named, object);
  const Range rows = RowsOf(native, field.rows, id);
  if (rows.count == 0) {
    throw SpecError(About(model, option, name) + "has no " + field.name + " of the " + named.what +
                    " '" + object + "'");
  }
  return {.name = {},
          .field = number,
          .offset = rows.first * field.width,
          .count = rows.count * field.width,
          .shape = {rows.count * field.width}};
}

ModelPart FindPart(const PhysicsModel& model, const char* option, const std::string& name) {
  std::string base = name;
  std::string brackets;
  // brackets need a colon: a single element would have no axis
  const std::size_t open = name.rfind('[');
  if (name.ends_with(']') && open != std::string::npos &&
      name.find(':', open) != std::string::npos) {
    base = name.substr(0, open);
    brackets = name.substr(open + 1, name.size() - open - 2);
  }

  ModelPart part;
  const std::size_t colon = base.find(':');
  // an array, one object's share of it, or a sensor; an array comes first where names are equal
  const auto field = FieldOf(base.substr(0, colon));
  if (field && colon == std::string::npos) {
    part = WholeField(ModelOf(model), *field);
  } else if (field) {
    part = ObjectsPart(model, option, name, *field, base.substr(colon + 1));
  } else if (Mujoco().name2id(ModelOf(model), kSensorObject, base.c_str()) >= 0) {
    part = ObjectsPart(model, option, name, *FieldOf("sensordata"), base);
  } else {
    ThrowUnknown(model, option, name, base.substr(0, colon));
  }
  if (part.count == 0) throw SpecError(About(model, option, name) + "has none of them");
  if (!brackets.empty()) {
    const Range kept = Slice(model, option, name, brackets, part.shape[0]);
    // numbers for each element of the first axis
    const std::int64_t size = part.count / part.shape[0];
    part.offset += kept.first * size;
    part.count = kept.count * size;
    part.shape[0] = kept.count;
  }
  part.name = name;
  return part;
}

}  // namespace

std::vector<ModelPart> FindParts(const PhysicsModel& model, const char* option,
                                 const std::string& names) {
  std::vector<ModelPart> parts;
  std::string_view left = names;
  // a comma at the end adds no empty name
  while (!Trimmed(left).empty()) {
    const std::size_t comma = std::min(left.find(','), left.size());
    const std::string name(Trimmed(left.substr(0, comma)));
    left.remove_prefix(std::min(comma + 1, left.size()));
    const auto same = [&](const ModelPart& part) { return part.name == name; };
    // names must differ, because Python shows parts by name
    if (std::any_of(parts.begin(), parts.end(), same)) {
      throw SpecError(std::string("option '") + option + "' names '" + name + "' twice");
    }
    parts.push_back(FindPart(model, option, name));
  }
  return parts;
}

bool NeedContactForces(const std::vector<ModelPart>& parts) {
  return std::any_of(parts.begin(), parts.end(), [](const ModelPart& part) {
    return kFields[part.field].after_constraints;
  });
}

const char* PartArray(const ModelPart& part) { return kFields[part.field].name; }

const double* PartData(const Physics& physics, const ModelPart& part) {
  const void* const data = physics.view().engine_data;
  const DataPlaces& at = Release().data;
  const Field& field = kFields[part.field];
  // all fields but time are arrays
  return field.array ? (at.*field.array).In(data) + part.offset : &at.time.In(data);
}

std::int32_t FindKeyframe(const PhysicsModel& model, const std::string& keyframe) {
  const mjModel* const native = ModelOf(model);
  const std::int64_t num_keys = Release().model.nkey.In(native);
  if (keyframe.empty()) return kNoKeyframe;
  // names before numbers, because a keyframe may be called "1"
  int id = Mujoco().name2id(native, kKeyObject, keyframe.c_str());
  const char* const end = keyframe.data() + keyframe.size();
  if (id < 0) {
    const auto [stopped, error] = std::from_chars(keyframe.data(), end, id);
    if (error != std::errc() || stopped != end) id = -1;
  }
  if (id < 0 || id >= num_keys) {
    const Names names = NamesOfObjects(native, {kKeyObject, "keyframe", num_keys});
    throw SpecError("option 'keyframe' is '" + keyframe + "', and the model " + model.xml_path() +
                    " has " + std::to_string(num_keys) + " keyframes, counted from 0, with the "
                    "names: " + Joined(names) + "." + Suggestion(keyframe, names));
  }
  return id;
}

}  // namespace rollouts
