// SPDX-License-Identifier: Apache-2.0
// PlanarWorld in a build without Box2D: its constructor throws.
#include "rollouts/engines/planar_world.h"
#include "rollouts/support/errors.h"

namespace rollouts {

struct PlanarWorld::Engine {};

bool HasBox2D() { return false; }
std::int32_t PlanarTurns() { return 1; }
void RunPlanarTurns(std::int32_t, const std::function<void(std::int32_t)>&) {}

PlanarWorld::PlanarWorld(PlanarPoint) { throw EngineError("this build of rollouts has no Box2D"); }
PlanarWorld::~PlanarWorld() = default;

std::int32_t PlanarWorld::AddStaticBody() { return 0; }
std::int32_t PlanarWorld::AddBody(PlanarPoint, double) { return 0; }
void PlanarWorld::AddEdge(std::int32_t, PlanarPoint, PlanarPoint, const PlanarMaterial&) {}
void PlanarWorld::AddPolygon(std::int32_t, std::span<const PlanarPoint>, const PlanarMaterial&) {}
void PlanarWorld::AddBox(std::int32_t, double, double, const PlanarMaterial&) {}
std::int32_t PlanarWorld::AddHinge(const PlanarHinge&) { return 0; }
void PlanarWorld::ApplyForce(std::int32_t, PlanarPoint) {}
void PlanarWorld::ApplyTorque(std::int32_t, double) {}
void PlanarWorld::ApplyImpulse(std::int32_t, PlanarPoint, PlanarPoint) {}
void PlanarWorld::SetMotor(std::int32_t, float, float) {}
void PlanarWorld::Step(float, std::int32_t, std::int32_t) {}
PlanarMotion PlanarWorld::Motion(std::int32_t) const { return {}; }
PlanarTurn PlanarWorld::Turn(std::int32_t) const { return {}; }
bool PlanarWorld::Touches(std::int32_t) const { return false; }
bool PlanarWorld::HasTouched(std::int32_t) const { return false; }
std::span<const PlanarContact> PlanarWorld::Contacts() const { return {}; }
void PlanarWorld::AppendCorners(std::int32_t, std::vector<double>&) const {}
float PlanarWorld::FreeWay(PlanarPoint, PlanarPoint, std::uint16_t) const { return 1; }

}  // namespace rollouts
