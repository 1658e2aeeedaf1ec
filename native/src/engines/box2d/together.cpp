// SPDX-License-Identifier: Apache-2.0
// Worlds that one thread steps in turns. Each turn has a stack of its own, stops where Box2D would
// solve the velocities of an island, and continues when islands of all turns were solved at once. A
// single island is a chain of dependent operations that leaves most of a core idle.
#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "island.h"
#include "memory.h"
#include "rollouts/engines/planar_world.h"
#include "support/fiber.h"
#include "support/runnable.h"

namespace rollouts {
namespace {

// Chooses the widest kernel that this machine runs; null where turns do not pay.
const IslandKernel* ChooseKernel() {
  if (!Fiber::kAvailable) return nullptr;
  return NamedBy("ROLLOUTS_BOX2D_KERNEL",
                 Runnable(Avx512IslandKernel(), Avx2IslandKernel(), BaselineIslandKernel()), "none");
}

const IslandKernel* Kernel() {
  static const IslandKernel* const kernel = ChooseKernel();
  return kernel;
}

// A thread's state for running turns.
class Turns {
 public:
  static Turns& OfThread() {
    static thread_local Turns turns;
    return turns;
  }

  // Runs turns, as many as there are lanes.
  void Run(std::int32_t first, std::int32_t count, const std::function<void(std::int32_t)>& turn) {
    while (std::ssize(fibers_) < count) fibers_.push_back(std::make_unique<Fiber>());
    num_waiting_ = 0;
    for (std::int32_t i = 0; i < count; ++i) {
      calls_[i] = {&turn, first + i, {}};
      fibers_[i]->Start(Call::Run, &calls_[i]);
    }
    while (num_waiting_ > 0) {
      const std::int32_t count_now = num_waiting_;
      const std::array<Waiting, kIslandLanes> now = waiting_;
      num_waiting_ = 0;
      Solve({now.data(), static_cast<std::size_t>(count_now)});
      for (std::int32_t i = 0; i < count_now; ++i) now[i].fiber->Resume();
    }
    for (std::int32_t i = 0; i < count; ++i) {
      if (calls_[i].error) std::rethrow_exception(calls_[i].error);
    }
  }

  // Stops the turn that this fiber runs until its island is solved.
  void Wait(Fiber& fiber, Island& island) {
    waiting_[num_waiting_++] = {&fiber, &island};
    fiber.Stop();
  }

 private:
  struct Call {
    const std::function<void(std::int32_t)>* turn;
    std::int32_t number;
    std::exception_ptr error;

    static void Run(void* self) {
      auto& call = *static_cast<Call*>(self);
      try {
        (*call.turn)(call.number);
      } catch (...) {
        call.error = std::current_exception();
      }
    }
  };
  struct Waiting {
    Fiber* fiber;
    Island* island;
  };

  void Solve(std::span<const Waiting> waiting) {
    std::array<Island*, kIslandLanes> rest;
    std::size_t num_rest = 0;
    for (const Waiting& each : waiting) rest[num_rest++] = each.island;
    while (num_rest > 1) {
      std::array<Island*, kIslandLanes> like;
      std::size_t num_like = 0;
      std::size_t num_other = 0;
      Island* const leader = rest[0];
      for (std::size_t i = 0; i < num_rest; ++i) {
        (rest[i]->IsLike(*leader) ? like[num_like++] : rest[num_other++]) = rest[i];
      }
      num_rest = num_other;
      // a single island is solved as fast by Box2D's own loop
      if (num_like > 1) SolveLike({like.data(), num_like});
    }
  }

  void SolveLike(std::span<Island* const> islands) {
    IslandBlock& block = *block_;
    const Island& leader = *islands[0];
    const auto count = static_cast<std::int32_t>(islands.size());
    const std::int32_t in_vector = Kernel()->lanes;
    block.iterations = leader.data->step.velocityIterations;
    block.lanes = (count + in_vector - 1) / in_vector * in_vector;
    block.num_hinges = leader.of->m_jointCount;
    block.num_bodies = 0;
    block.num_contacts = 0;
    for (const Island* island : islands) {
      block.num_bodies = std::max(block.num_bodies, island->num_bodies);
      block.num_contacts = std::max<std::int32_t>(block.num_contacts, island->contacts->m_count);
    }
    for (std::int32_t i = 0; i < block.num_hinges; ++i) {
      block.hinges[i].a = leader.hinge_places[2 * i];
      block.hinges[i].b = leader.hinge_places[2 * i + 1];
      block.hinges[i].any_limited = false;
    }
    for (std::int32_t i = 0; i < block.num_contacts; ++i) block.contacts[i] = ContactLanes();
    // unused lanes repeat the first one
    for (std::int32_t lane = 0; lane < block.lanes; ++lane) {
      islands[lane < count ? lane : 0]->Put(block, lane);
    }
    Kernel()->solve(block);
    for (std::int32_t lane = 0; lane < count; ++lane) {
      // Box2D's own loop will throw at the assertion
      if (block.failed.at[lane] != 0) continue;
      islands[lane]->Take(block, lane);
      islands[lane]->solved = true;
    }
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::array<Call, kIslandLanes> calls_;
  std::array<Waiting, kIslandLanes> waiting_;
  std::int32_t num_waiting_ = 0;
  std::unique_ptr<IslandBlock> block_ = std::make_unique<IslandBlock>();
};

}  // namespace

std::int32_t PlanarTurns() { return Kernel() ? kIslandLanes : 1; }

void RunPlanarTurns(std::int32_t count, const std::function<void(std::int32_t)>& turn) {
  if (!Kernel() || count == 1 || Fiber::Current()) {
    for (std::int32_t i = 0; i < count; ++i) turn(i);
    return;
  }
  // done here, because a turn that did it could stop halfway while others wait for it
  FillBox2DTables();
  for (std::int32_t first = 0; first < count; first += kIslandLanes) {
    Turns::OfThread().Run(first, std::min(count - first, kIslandLanes), turn);
  }
}

}  // namespace rollouts

// Replaces the loops in b2Island; false: Box2D must run them.
bool RolloutsSolveVelocities(b2Island& island, b2ContactSolver& contacts,
                             const b2SolverData& data) {
  using namespace rollouts;
  if (island.m_jointCount == 0 && contacts.m_count == 0) return true;
  Fiber* const fiber = Fiber::Current();
  // exceptions being handled are listed per thread, not per fiber
  if (fiber == nullptr || std::current_exception()) return false;
  Island waits;
  waits.of = &island;
  waits.contacts = &contacts;
  waits.data = &data;
  if (!waits.FindPlaces()) return false;
  const Box2DMemory::Away away;
  Turns::OfThread().Wait(*fiber, waits);
  return waits.solved;
}
