// SPDX-License-Identifier: Apache-2.0
// Worlds of Box2D under sanitizers: several threads step their own, contacts are told, and failed
// assertions are exceptions after which a world can be dropped.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "rollouts/engines/planar_world.h"

namespace {

using rollouts::PlanarMaterial;
using rollouts::PlanarPoint;
using rollouts::PlanarWorld;

constexpr PlanarMaterial kBox{.density = 1};

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

// Boxes that fall on the ground and on each other; where the last one is after so many steps.
float Fall(std::int32_t steps) {
  PlanarWorld world({0, -10});
  world.AddEdge(world.AddStaticBody(), {-20, 0}, {20, 0}, PlanarMaterial{});
  std::int32_t last = 0;
  for (std::int32_t i = 0; i < 8; ++i) {
    last = world.AddBody({0.3 * i, 1.0 + 2 * i}, 0.1 * i);
    world.AddBox(last, 0.5, 0.5, kBox);
  }
  for (std::int32_t i = 0; i < steps; ++i) world.Step(0.02F, 60, 20);
  Check(world.HasTouched(last), "the last box has touched nothing");
  return world.Motion(last).position.x;
}

void Threads() {
  float ends[4] = {};
  std::vector<std::thread> threads;
  for (float& end : ends) threads.emplace_back([&end] { end = Fall(250); });
  for (std::thread& thread : threads) thread.join();
  for (const float end : ends) Check(end == ends[0], "equal worlds came to different ends");
}

// A box that falls through a sensor: the contact begins and ends once, and stops nothing.
void Contacts() {
  PlanarWorld world({0, -10});
  const std::int32_t gate = world.AddStaticBody();
  const PlanarPoint corners[] = {{-1, 0}, {1, 0}, {1, 1}, {-1, 1}};
  world.AddPolygon(gate, corners, PlanarMaterial{.sensor = true});
  const std::int32_t box = world.AddBody({0, 3}, 0);
  world.AddBox(box, 0.5, 0.5, kBox);
  int begun = 0;
  int ended = 0;
  for (int i = 0; i < 100; ++i) {
    world.Step(0.02F, 60, 20);
    for (const rollouts::PlanarContact& contact : world.Contacts()) {
      Check(contact.body_a + contact.body_b == gate + box, "a contact of other bodies");
      ++(contact.begins ? begun : ended);
    }
  }
  Check(begun == 1 && ended == 1, "the contact did not begin and end once");
  Check(world.Motion(box).position.y < -5, "the box was stopped");
}

template <typename Call>
void Throws(const char* condition, Call call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    Check(std::strstr(error.what(), condition) != nullptr, error.what());
    return;
  }
  Check(false, "nothing was thrown");
}

void Assertions() {
  for (int i = 0; i < 3; ++i) {
    PlanarWorld world({0, -10});
    const std::int32_t body = world.AddBody({0, 1}, 0);
    const PlanarPoint two[] = {{0, 0}, {1, 0}};
    Throws("3 <= count", [&] { world.AddPolygon(body, two, kBox); });
    // in the middle of what Box2D does: the body's memory is taken, and it is in no list
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    Throws("IsValid", [&] { world.AddBody({kNaN, 0}, 0); });
  }
  Fall(300);
}

// A world that is dropped while it is locked, as after an exception in a step.
void Infinite() {
  PlanarWorld world({0, -10});
  const std::int32_t body = world.AddBody({0, 1}, 0);
  world.AddBox(body, 0.5, 0.5, kBox);
  world.ApplyForce(body, {std::numeric_limits<double>::infinity(), 0});
  Throws("no finite speed", [&] { world.Step(0.02F, 60, 20); });
}

}  // namespace

int main(int, char** arguments) {
  const std::string scenario = arguments[1];
  if (scenario == "threads") Threads();
  if (scenario == "assertions") Assertions();
  if (scenario == "contacts") Contacts();
  if (scenario == "infinite") Infinite();
}
