// SPDX-License-Identifier: Apache-2.0
// A world of Box2D for the environments that use it; Box2D's headers are not needed. Numbers are
// float32, as in Box2D. Bodies and hinges are numbered from 0 in the order in which they were
// added.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace rollouts {

// A point whose coordinates are rounded as Box2D's binding for Python rounds its arguments.
struct PlanarPoint {
  constexpr PlanarPoint() = default;
  constexpr PlanarPoint(double x_value, double y_value)
      : x(static_cast<float>(x_value)), y(static_cast<float>(y_value)) {}
  float x = 0;
  float y = 0;
};

// The material of a shape, with Box2D's defaults.
struct PlanarMaterial {
  float density = 0;
  float friction = 0.2F;
  float restitution = 0;
  std::uint16_t category = 0x0001;
  std::uint16_t mask = 0xFFFF;  // the categories it collides with
  bool sensor = false;          // reports contacts, and stops nothing
};

// A joint that turns, with a motor and limits.
struct PlanarHinge {
  std::int32_t body_a = 0;
  std::int32_t body_b = 0;
  PlanarPoint anchor_a;  // in each body's own coordinates
  PlanarPoint anchor_b;
  float max_torque = 0;
  float motor_speed = 0;
  float lower_angle = 0;
  float upper_angle = 0;
};

struct PlanarMotion {
  PlanarPoint position;
  PlanarPoint velocity;
  float angle = 0;
  float angular_velocity = 0;
  bool awake = true;
  PlanarPoint right{1, 0};  // where the body's x axis points
};

// Two bodies whose shapes began to touch, or stopped touching.
struct PlanarContact {
  std::int32_t body_a = 0;
  std::int32_t body_b = 0;
  bool begins = false;
};

struct PlanarTurn {
  float angle = 0;
  float speed = 0;
};

// Tells if this build has Box2D (ROLLOUTS_BOX2D in native/box2d.cmake). Without it, the constructor
// of a world throws EngineError.
bool HasBox2D();

// The number of turns that RunPlanarTurns computes with the same vector instructions; 1: each turn
// is computed alone.
std::int32_t PlanarTurns();

// Calls turn(0) to turn(count - 1) on this thread. A turn that steps a world pauses within the
// step, until other turns have come as far. The worlds of several turns are then solved at once,
// with the same bits as one by one. Rethrows the first exception of a turn, after all have ended.
void RunPlanarTurns(std::int32_t count, const std::function<void(std::int32_t)>& turn);

// A world of Box2D. Not thread-safe; several threads may have their own. Functions throw
// std::runtime_error where an assertion of Box2D fails; the world may then only be destroyed.
class PlanarWorld {
 public:
  explicit PlanarWorld(PlanarPoint gravity);
  ~PlanarWorld();

  std::int32_t AddStaticBody();
  std::int32_t AddBody(PlanarPoint position, double angle);
  void AddEdge(std::int32_t body, PlanarPoint from, PlanarPoint to, const PlanarMaterial& material);
  // Convex, 3 to 16 corners.
  void AddPolygon(std::int32_t body, std::span<const PlanarPoint> corners,
                  const PlanarMaterial& material);
  void AddBox(std::int32_t body, double half_width, double half_height,
              const PlanarMaterial& material);
  std::int32_t AddHinge(const PlanarHinge& hinge);

  void ApplyForce(std::int32_t body, PlanarPoint force);  // at its centre, during one step
  void ApplyTorque(std::int32_t body, double torque);
  void ApplyImpulse(std::int32_t body, PlanarPoint impulse, PlanarPoint at);
  void SetMotor(std::int32_t hinge, float speed, float max_torque);

  // Also throws std::runtime_error where a body's motion is not finite any more.
  void Step(float seconds, std::int32_t velocity_iterations, std::int32_t position_iterations);

  PlanarMotion Motion(std::int32_t body) const;
  PlanarTurn Turn(std::int32_t hinge) const;
  // Tells if the body began to touch something, and no contact of it ended since. Of several
  // contacts, the first that ends makes this false.
  bool Touches(std::int32_t body) const;
  bool HasTouched(std::int32_t body) const;
  // The contacts of the last step, in Box2D's order; valid until the next step.
  std::span<const PlanarContact> Contacts() const;
  // Appends the corners of the body's first shape, a polygon, in world coordinates: x, y of each.
  void AppendCorners(std::int32_t body, std::vector<double>& out) const;
  // The part of the way to `to` that is free of shapes of `category`; 1: all of it.
  float FreeWay(PlanarPoint from, PlanarPoint to, std::uint16_t category) const;

 private:
  struct Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace rollouts
