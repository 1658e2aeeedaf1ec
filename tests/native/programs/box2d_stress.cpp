// SPDX-License-Identifier: Apache-2.0
// Worlds of Box2D under sanitizers: several threads step their own, contacts are told, failed
// assertions are exceptions after which a world can be dropped, and turns are halted and go on.
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

// A hull on two legs that turn within limits and fall on the ground, each `variant` otherwise; where
// the hull is after so many steps, or what was thrown.
struct End {
  float x = 0;
  float y = 0;
  float angle = 0;
  std::string error;

  bool operator==(const End&) const = default;
};
End Tumble(std::int32_t variant) {
  PlanarWorld world({0, -10});
  world.AddEdge(world.AddStaticBody(), {-20, 0}, {20, 0.1 * variant}, PlanarMaterial{});
  const std::int32_t hull = world.AddBody({0, 1.5 + 0.1 * variant}, 0.1 * variant);
  world.AddBox(hull, 0.5, 0.3, kBox);
  std::vector<std::int32_t> hinges;
  for (std::int32_t leg = 0; leg < 2 + variant % 2; ++leg) {
    const std::int32_t body = world.AddBody({0.4 - 0.4 * leg, 1.0 + 0.1 * variant}, 0);
    world.AddBox(body, 0.1, 0.4, kBox);
    hinges.push_back(world.AddHinge({.body_a = hull,
                                     .body_b = body,
                                     .anchor_a = {0.4 - 0.4 * leg, -0.3},
                                     .anchor_b = {0, 0.4},
                                     .max_torque = 20,
                                     .motor_speed = 1,
                                     .lower_angle = -0.3F,
                                     .upper_angle = 0.1F * static_cast<float>(variant % 5)}));
  }
  try {
    for (std::int32_t i = 0; i < 60 + variant % 3; ++i) {
      world.SetMotor(hinges[i % hinges.size()], i % 20 < 10 ? 2.0F : -2.0F, 20);
      // once it lies on the ground
      if (variant % 7 == 3 && i == 50) world.ApplyForce(hull, {1e38, -1e38});
      world.Step(0.02F, 60, 20);
    }
  } catch (const std::runtime_error& error) {
    return {.error = error.what()};
  }
  const rollouts::PlanarMotion at = world.Motion(hull);
  return {at.position.x, at.position.y, at.angle, {}};
}

// Worlds in turns come to the ends that they come to alone, and fail as they fail alone.
void Turns() {
  constexpr std::int32_t kCount = 37;
  std::vector<End> alone;
  for (std::int32_t i = 0; i < kCount; ++i) alone.push_back(Tumble(i));
  Check(alone[0].error.empty() && !alone[3].error.empty(), "not the variants that are to fail");
  std::vector<std::thread> threads;
  for (std::int32_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      for (const std::int32_t count : {kCount, 1, 16, 3}) {
        std::vector<End> ends(count);
        rollouts::RunPlanarTurns(count, [&](std::int32_t i) { ends[i] = Tumble(i); });
        for (std::int32_t i = 0; i < count; ++i) {
          Check(ends[i] == alone[i], "a turn came to another end than its world alone");
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  // an exception of a turn, while it is handled, and after all the others have ended
  std::int32_t ended = 0;
  Throws("of a turn", [&] {
    rollouts::RunPlanarTurns(10, [&](std::int32_t i) {
      try {
        if (i % 2 == 0) throw std::runtime_error("to be handled");
        Tumble(i);
      } catch (const std::runtime_error&) {
        Tumble(i);
        ++ended;
        if (i == 4) throw std::runtime_error("of a turn");
        return;
      }
      ++ended;
    });
  });
  Check(ended == 10, "turns did not end");
}

}  // namespace

int main(int, char** arguments) {
  const std::string scenario = arguments[1];
  if (scenario == "threads") Threads();
  if (scenario == "assertions") Assertions();
  if (scenario == "contacts") Contacts();
  if (scenario == "infinite") Infinite();
  if (scenario == "turns") Turns();
}
