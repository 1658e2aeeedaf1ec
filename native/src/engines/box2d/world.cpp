// SPDX-License-Identifier: Apache-2.0
#include <Box2D/Box2D.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include "memory.h"
#include "rollouts/engines/planar_world.h"

namespace rollouts {
namespace {

b2Vec2 Vec(PlanarPoint point) { return b2Vec2(point.x, point.y); }
PlanarPoint Point(const b2Vec2& vec) { return {vec.x, vec.y}; }

// Counts contacts of each body, in the order of bodies.
class TouchListener final : public b2ContactListener {
 public:
  struct Touch {
    bool now = false;
    bool ever = false;
  };

  void Add(b2Body* body) {
    body->SetUserData(reinterpret_cast<void*>(touches_.size()));
    touches_.push_back({});
  }
  const Touch& Of(std::int32_t body) const { return touches_[body]; }
  void Forget() { contacts_.clear(); }
  std::span<const PlanarContact> contacts() const { return contacts_; }

  void BeginContact(b2Contact* contact) override {
    const PlanarContact& of = Keep(contact, /*begins=*/true);
    for (const std::int32_t body : {of.body_a, of.body_b}) touches_[body] = {true, true};
  }
  void EndContact(b2Contact* contact) override {
    const PlanarContact& of = Keep(contact, /*begins=*/false);
    for (const std::int32_t body : {of.body_a, of.body_b}) touches_[body].now = false;
  }

 private:
  const PlanarContact& Keep(b2Contact* contact, bool begins) {
    return contacts_.emplace_back(
        PlanarContact{Index(contact->GetFixtureA()), Index(contact->GetFixtureB()), begins});
  }
  static std::int32_t Index(const b2Fixture* fixture) {
    return static_cast<std::int32_t>(
        reinterpret_cast<std::size_t>(fixture->GetBody()->GetUserData()));
  }

  std::vector<Touch> touches_;
  std::vector<PlanarContact> contacts_;
};

// Finds the nearest shape of a category.
class NearestHit final : public b2RayCastCallback {
 public:
  explicit NearestHit(std::uint16_t category) : category_(category) {}

  float32 ReportFixture(b2Fixture* fixture, const b2Vec2&, const b2Vec2&,
                        float32 fraction) override {
    constexpr float32 kIgnore = -1;
    if ((fixture->GetFilterData().categoryBits & category_) == 0) return kIgnore;
    fraction_ = fraction;
    return fraction;
  }
  float fraction() const { return fraction_; }

 private:
  const std::uint16_t category_;
  float fraction_ = 1;
};

bool IsFinite(const b2Body* body) {
  const b2Vec2 position = body->GetPosition();
  const b2Vec2 velocity = body->GetLinearVelocity();
  // the sum is finite only if each term is; no simulation has terms so large that only the sum
  // overflows
  return std::isfinite(position.x + position.y + body->GetAngle() + velocity.x + velocity.y +
                       body->GetAngularVelocity());
}

}  // namespace

// The b2World lies in memory of the Engine, and its destructor is never run: what it would free is
// freed with the Box2DMemory.
struct PlanarWorld::Engine {
  explicit Engine(PlanarPoint gravity) : storage(new(std::align_val_t(kAlign)) std::byte[kBytes]) {
    const Box2DMemory::Use use(memory);
    world = new (storage.get()) b2World(Vec(gravity));
    world->SetContactListener(&listener);
  }

  std::int32_t Add(const b2BodyDef& definition) {
    const Box2DMemory::Use use(memory);
    b2Body* const body = world->CreateBody(&definition);
    listener.Add(body);
    bodies.push_back(body);
    if (definition.type == b2_dynamicBody) moving.push_back(body);
    return static_cast<std::int32_t>(bodies.size()) - 1;
  }
  void Add(std::int32_t body, const b2Shape& shape, const PlanarMaterial& material) {
    const Box2DMemory::Use use(memory);
    b2FixtureDef definition;
    definition.shape = &shape;
    definition.density = material.density;
    definition.friction = material.friction;
    definition.restitution = material.restitution;
    definition.filter.categoryBits = material.category;
    definition.filter.maskBits = material.mask;
    definition.isSensor = material.sensor;
    bodies[body]->CreateFixture(&definition);
  }

  static constexpr std::size_t kBytes = sizeof(b2World);
  static constexpr std::size_t kAlign = alignof(b2World);
  struct FreeStorage {
    void operator()(std::byte* bytes) const { operator delete[](bytes, std::align_val_t(kAlign)); }
  };

  Box2DMemory memory;
  std::unique_ptr<std::byte[], FreeStorage> storage;
  b2World* world = nullptr;
  TouchListener listener;
  std::vector<b2Body*> bodies;
  std::vector<const b2Body*> moving;
  std::vector<b2RevoluteJoint*> hinges;
};

bool HasBox2D() { return true; }

PlanarWorld::PlanarWorld(PlanarPoint gravity) {
  FillBox2DTables();
  engine_ = std::make_unique<Engine>(gravity);
}
PlanarWorld::~PlanarWorld() = default;

std::int32_t PlanarWorld::AddStaticBody() { return engine_->Add(b2BodyDef()); }

std::int32_t PlanarWorld::AddBody(PlanarPoint position, double angle) {
  b2BodyDef definition;
  definition.type = b2_dynamicBody;
  definition.position = Vec(position);
  definition.angle = static_cast<float>(angle);
  return engine_->Add(definition);
}

void PlanarWorld::AddEdge(std::int32_t body, PlanarPoint from, PlanarPoint to,
                          const PlanarMaterial& material) {
  b2EdgeShape shape;
  shape.Set(Vec(from), Vec(to));
  engine_->Add(body, shape, material);
}

void PlanarWorld::AddPolygon(std::int32_t body, std::span<const PlanarPoint> corners,
                             const PlanarMaterial& material) {
  std::vector<b2Vec2> vertices;
  for (const PlanarPoint& corner : corners) vertices.push_back(Vec(corner));
  b2PolygonShape shape;
  shape.Set(vertices.data(), static_cast<int32>(vertices.size()));
  engine_->Add(body, shape, material);
}

void PlanarWorld::AddBox(std::int32_t body, double half_width, double half_height,
                         const PlanarMaterial& material) {
  b2PolygonShape shape;
  shape.SetAsBox(static_cast<float>(half_width), static_cast<float>(half_height));
  engine_->Add(body, shape, material);
}

std::int32_t PlanarWorld::AddHinge(const PlanarHinge& hinge) {
  const Box2DMemory::Use use(engine_->memory);
  b2RevoluteJointDef definition;
  definition.bodyA = engine_->bodies[hinge.body_a];
  definition.bodyB = engine_->bodies[hinge.body_b];
  definition.localAnchorA = Vec(hinge.anchor_a);
  definition.localAnchorB = Vec(hinge.anchor_b);
  // as in Box2D's binding for Python: the angle between the bodies now counts as 0
  definition.referenceAngle = static_cast<float>(
      double{definition.bodyB->GetAngle()} - double{definition.bodyA->GetAngle()});
  definition.enableMotor = true;
  definition.enableLimit = true;
  definition.maxMotorTorque = hinge.max_torque;
  definition.motorSpeed = hinge.motor_speed;
  definition.lowerAngle = hinge.lower_angle;
  definition.upperAngle = hinge.upper_angle;
  engine_->hinges.push_back(static_cast<b2RevoluteJoint*>(engine_->world->CreateJoint(&definition)));
  return static_cast<std::int32_t>(engine_->hinges.size()) - 1;
}

void PlanarWorld::ApplyForce(std::int32_t body, PlanarPoint force) {
  engine_->bodies[body]->ApplyForceToCenter(Vec(force), /*wake=*/true);
}

void PlanarWorld::ApplyTorque(std::int32_t body, double torque) {
  engine_->bodies[body]->ApplyTorque(static_cast<float>(torque), /*wake=*/true);
}

void PlanarWorld::ApplyImpulse(std::int32_t body, PlanarPoint impulse, PlanarPoint at) {
  engine_->bodies[body]->ApplyLinearImpulse(Vec(impulse), Vec(at), /*wake=*/true);
}

void PlanarWorld::SetMotor(std::int32_t hinge, float speed, float max_torque) {
  b2RevoluteJoint* const joint = engine_->hinges[hinge];
  joint->SetMotorSpeed(speed);
  joint->SetMaxMotorTorque(max_torque);
}

void PlanarWorld::Step(float seconds, std::int32_t velocity_iterations,
                       std::int32_t position_iterations) {
  const Box2DMemory::Use use(engine_->memory);
  engine_->listener.Forget();
  engine_->world->Step(seconds, velocity_iterations, position_iterations);
  for (const b2Body* body : engine_->moving) {
    if (IsFinite(body)) continue;
    throw std::runtime_error("Box2D's bodies move at no finite speed: forces are too large");
  }
}

PlanarMotion PlanarWorld::Motion(std::int32_t body) const {
  const b2Body& of = *engine_->bodies[body];
  return {.position = Point(of.GetPosition()),
          .velocity = Point(of.GetLinearVelocity()),
          .angle = of.GetAngle(),
          .angular_velocity = of.GetAngularVelocity(),
          .awake = of.IsAwake(),
          .right = Point(of.GetTransform().q.GetXAxis())};
}

PlanarTurn PlanarWorld::Turn(std::int32_t hinge) const {
  const b2RevoluteJoint& of = *engine_->hinges[hinge];
  return {.angle = of.GetJointAngle(), .speed = of.GetJointSpeed()};
}

bool PlanarWorld::Touches(std::int32_t body) const { return engine_->listener.Of(body).now; }
bool PlanarWorld::HasTouched(std::int32_t body) const { return engine_->listener.Of(body).ever; }
std::span<const PlanarContact> PlanarWorld::Contacts() const {
  return engine_->listener.contacts();
}

void PlanarWorld::AppendCorners(std::int32_t body, std::vector<double>& out) const {
  const b2Body& of = *engine_->bodies[body];
  const auto& shape = *static_cast<const b2PolygonShape*>(of.GetFixtureList()->GetShape());
  for (int32 i = 0; i < shape.GetVertexCount(); ++i) {
    const b2Vec2 corner = b2Mul(of.GetTransform(), shape.GetVertex(i));
    out.insert(out.end(), {corner.x, corner.y});
  }
}

float PlanarWorld::FreeWay(PlanarPoint from, PlanarPoint to, std::uint16_t category) const {
  const Box2DMemory::Use use(engine_->memory);
  NearestHit hit(category);
  engine_->world->RayCast(&hit, Vec(from), Vec(to));
  return hit.fraction();
}

}  // namespace rollouts
