// SPDX-License-Identifier: Apache-2.0
// Reads actuators, tendons and sensors from the model.
#include <algorithm>
#include <cstdint>

#include "fields.h"
#include "model.h"

namespace rollouts::lanes {
namespace {

// mjtSensor and mjtObj.
SensorKind KindOfSensor(std::int32_t type) {
  switch (type) {
    case 0: return SensorKind::kTouch;
    case 1: return SensorKind::kAccelerometer;
    case 2: return SensorKind::kVelocimeter;
    case 3: return SensorKind::kGyro;
    case 4: return SensorKind::kForce;
    case 5: return SensorKind::kTorque;
    case 9: return SensorKind::kJointPosition;
    case 10: return SensorKind::kJointVelocity;
    case 26: return SensorKind::kFramePosition;
    case 28: case 29: case 30: return SensorKind::kFrameAxis;
    case 35: return SensorKind::kSubtreeCom;
    case 36: return SensorKind::kSubtreeVelocity;
    default: return SensorKind::kUncovered;
  }
}

FrameKind KindOfFrame(std::int32_t object) {
  switch (object) {
    case 1: return FrameKind::kInertialBody;
    case 2: return FrameKind::kBody;
    case 5: return FrameKind::kGeom;
    default: return FrameKind::kSite;
  }
}

std::uint64_t DofsThatMove(const Model& model, const FieldReader& read, std::int32_t body) {
  while (body > 0 && model.body_dofnum[body] == 0) body = model.body_parentid[body];
  std::uint64_t dofs = 0;
  const auto* const parent = Array<std::int32_t>(read, "dof_parentid");
  const std::int32_t last = body > 0 ? model.body_dofadr[body] + model.body_dofnum[body] - 1 : -1;
  for (std::int32_t i = last; i >= 0; i = parent[i]) dofs |= std::uint64_t{1} << i;
  return dofs;
}

// Adds the dofs that move a point of the tendon but not the next point.
void AddDofs(Model& model, const TendonPoint* points, Tendon& tendon) {
  std::uint64_t dofs = 0;
  for (std::int32_t i = tendon.adr; i + 1 < tendon.adr + tendon.num; ++i) {
    dofs |= points[i].dofs ^ points[i + 1].dofs;
  }
  auto* const list = model.Keep<std::int32_t>(static_cast<std::size_t>(model.n.nv));
  for (std::int32_t i = model.n.nv - 1; i >= 0; --i) {
    if (dofs >> i & 1) list[tendon.num_dofs++] = i;
  }
  tendon.dofs = list;
  tendon.moments = model.num_tendon_moments;
  model.num_tendon_moments += tendon.num_dofs;
}

}  // namespace

void ReadTendons(Model& model, const FieldReader& read) {
  const auto nwrap = static_cast<std::size_t>(model.n.nwrap);
  const auto* const objects = Array<std::int32_t>(read, "wrap_objid");
  const auto* const kinds = Array<std::int32_t>(read, "wrap_type");
  auto* const joints = model.Keep<TendonJoint>(nwrap);
  auto* const points = model.Keep<TendonPoint>(nwrap);
  for (std::size_t i = 0; i < nwrap; ++i) {
    const std::int32_t id = objects[i];
    if (kinds[i] == kWrapJoint) {
      joints[i] = {model.jnt_dofadr[id], model.jnt_qposadr[id]};
    } else {
      const std::int32_t body = model.site_bodyid[id];
      points[i] = {id, body, model.body_rootid[body], DofsThatMove(model, read, body)};
    }
  }
  auto* const tendons = model.Keep<Tendon>(static_cast<std::size_t>(model.n.ntendon));
  for (std::int32_t t = 0; t < model.n.ntendon; ++t) {
    Tendon& one = tendons[t];
    one.adr = Array<std::int32_t>(read, "tendon_adr")[t];
    one.num = Array<std::int32_t>(read, "tendon_num")[t];
    one.spatial = kinds[one.adr] != kWrapJoint;
    if (one.spatial) AddDofs(model, points, one);
  }
  model.tendon_joints = joints;
  model.tendon_points = points;
  model.tendons = tendons;
}

void ReadActuators(Model& model, const FieldReader& read) {
  const auto nu = static_cast<std::size_t>(model.n.nu);
  auto* const out = model.Keep<Actuator>(nu);
  for (std::size_t i = 0; i < nu; ++i) {
    Actuator& one = out[i];
    one.on_tendon = Array<std::int32_t>(read, "actuator_trntype")[i] == 3;
    const std::int32_t id = Array<std::int32_t>(read, "actuator_trnid")[2 * i];
    if (one.on_tendon) {
      one.tendon = id;
    } else {
      one.dof = model.jnt_dofadr[id];
      one.qpos = model.jnt_qposadr[id];
    }
    one.affine_gain = Array<std::int32_t>(read, "actuator_gaintype")[i] == 1;
    one.affine_bias = Array<std::int32_t>(read, "actuator_biastype")[i] == 1;
    one.ctrl_limited = Array<std::uint8_t>(read, "actuator_ctrllimited")[i] && (model.disabled & kNoClamp) == 0;
    one.force_limited = Array<std::uint8_t>(read, "actuator_forcelimited")[i];
  }
  model.actuators = out;
}

void ReadActuatorNumbers(Model& model, const FieldReader& read) {
  constexpr std::size_t kParameters = 10;  // mjNGAIN, mjNBIAS
  for (std::size_t i = 0; i < static_cast<std::size_t>(model.n.nu); ++i) {
    ActuatorNumbers<double>& one = model.actuator_numbers[i];
    one.gear = Array<double>(read, "actuator_gear")[6 * i];
    std::copy_n(Array<double>(read, "actuator_gainprm") + kParameters * i, 3, one.gain);
    std::copy_n(Array<double>(read, "actuator_biasprm") + kParameters * i, 3, one.bias);
    std::copy_n(Array<double>(read, "actuator_ctrlrange") + 2 * i, 2, one.ctrl_range);
    std::copy_n(Array<double>(read, "actuator_forcerange") + 2 * i, 2, one.force_range);
  }
  if (model.n.nwrap > 0) {
    std::copy_n(Array<double>(read, "wrap_prm"), model.n.nwrap, model.tendon_coefficient);
  }
  if (model.n.nsensor > 0) std::copy_n(Array<double>(read, "sensor_cutoff"), model.n.nsensor, model.sensor_cutoff);
}

void ReadSensors(Model& model, const FieldReader& read) {
  const auto count = static_cast<std::size_t>(model.n.nsensor);
  auto* const out = model.Keep<Sensor>(count);
  const auto* const type = Array<std::int32_t>(read, "sensor_type");
  const auto* const object = Array<std::int32_t>(read, "sensor_objtype");
  for (std::size_t i = 0; i < count; ++i) {
    Sensor& one = out[i];
    one.kind = KindOfSensor(type[i]);
    one.frame = KindOfFrame(object[i]);
    one.object = Array<std::int32_t>(read, "sensor_objid")[i];
    one.adr = Array<std::int32_t>(read, "sensor_adr")[i];
    one.dim = Array<std::int32_t>(read, "sensor_dim")[i];
    one.axis = type[i] - 28;
    one.cuts = Array<double>(read, "sensor_cutoff")[i] > 0 && one.kind != SensorKind::kFrameAxis;
    const bool framed = one.kind == SensorKind::kFramePosition || one.kind == SensorKind::kFrameAxis;
    const bool known = object[i] == 1 || object[i] == 2 || object[i] == 5 || object[i] == 6;
    // not covered: sensors relative to another frame, or of a camera
    if (framed && (!known || Array<std::int32_t>(read, "sensor_refid")[i] >= 0)) {
      one.kind = SensorKind::kUncovered;
    }
    // not covered: touch zones of other shapes
    if (one.kind == SensorKind::kTouch) {
      const std::int32_t zone = model.site_type[one.object];
      if (zone != kSphere && zone != kCapsule && zone != kBox && zone != kEllipsoid) {
        one.kind = SensorKind::kUncovered;
      }
    }
    const auto* const interval = Array<double>(read, "sensor_interval");
    const auto* const delay = Array<double>(read, "sensor_delay");
    if ((interval && interval[2 * i] > 0) || (delay && delay[i] > 0)) one.kind = SensorKind::kUncovered;
    model.accelerations_sensed |= one.kind == SensorKind::kForce || one.kind == SensorKind::kTorque ||
                                  one.kind == SensorKind::kAccelerometer;
  }
  model.sensors = out;
}

}  // namespace rollouts::lanes
