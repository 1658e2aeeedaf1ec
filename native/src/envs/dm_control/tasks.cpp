// SPDX-License-Identifier: Apache-2.0
// The host's part of a start, which all domains of the DeepMind Control Suite share.
#include "rollouts/envs/dm_control/dmc_task.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "rollouts/envs/dm_control/terrain.h"
#include "rollouts/support/errors.h"

namespace rollouts::dmc {
namespace {

const char* NameOf(DrawnField field) {
  switch (field) {
    case DrawnField::kGeomPos: return "geom_pos";
    case DrawnField::kSitePos: return "site_pos";
    case DrawnField::kBodyPos: return "body_pos";
    case DrawnField::kBodyQuat: return "body_quat";
    case DrawnField::kJntStiffness: return "jnt_stiffness";
    case DrawnField::kLightPos: return "light_pos";
    case DrawnField::kWrapPrm: return "wrap_prm";
  }
  return "";
}

}  // namespace

std::string NameOf(const std::type_info& type) {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr), &std::free);
  return name ? name.get() : type.name();
}

void ChangedModel::Set(const char* field, std::int32_t at, double value) {
  const auto index = static_cast<std::size_t>(at);
  if (physics_.model().SettableField(field).type == ModelValue::kFloat) {
    physics_.Own<float>(field)[index] = static_cast<float>(value);
  } else {
    physics_.Own(field)[index] = value;
  }
}

void HostStart::Put(DrawnField field, std::int32_t at, double value) {
  physics_.Own(NameOf(field))[static_cast<std::size_t>(at)] = value;
}

void HostStart::DrawBowl(Rng& rng) {
  const Physics::HeightFieldView field = physics_.HeightField();
  DrawTerrain(rng, field.num_rows, 2 * field.radius,
              physics_.Own<float>("hfield_data").subspan(field.first));
}

void DrawApart(Physics& physics, bool forgives, const std::function<void()>& draw) {
  // dm_control tries for ever; a model with changed sizes may have no such start
  constexpr std::int32_t kTries = 10'000;
  for (std::int32_t i = 0; i < kTries; ++i) {
    draw();
    if (!forgives) {
      physics.ForwardUnactuated();
    } else if (!physics.TryForwardUnactuated()) {
      continue;
    }
    if (physics.num_contacts() == 0) return;
  }
  throw EngineError("no start without contacts was found in " + std::to_string(kTries) +
                    " tries; sizes or ranges of the model may leave none");
}

}  // namespace rollouts::dmc
