// SPDX-License-Identifier: Apache-2.0
// An island of Box2D as a lane of an IslandBlock.
#pragma once

#include <Box2D/Box2D.h>
#include <Box2D/Dynamics/Contacts/b2ContactSolver.h>
#include <Box2D/Dynamics/b2Island.h>

#include <array>
#include <cstdint>

#include "island_block.h"

namespace rollouts {

// An island whose velocities are to be solved.
struct Island {
  b2Island* of = nullptr;
  b2ContactSolver* contacts = nullptr;
  const b2SolverData* data = nullptr;
  // places of its bodies in a block, by their index in the island; kStill: the body does not move
  std::array<std::int8_t, 2 * kMaxIslandBodies> place;
  std::int32_t num_bodies = 0;
  std::array<std::int8_t, 2 * kMaxIslandHinges> hinge_places;
  bool solved = false;

  static constexpr std::int8_t kStill = -1;
  static constexpr std::int8_t kNone = -2;

  // Assigns places; false if a block does not have enough of them.
  bool FindPlaces();
  // Tells if both islands have the same structure, so that they can be solved at once.
  bool IsLike(const Island& other) const;
  void Put(IslandBlock& block, std::int32_t lane) const;
  void Take(const IslandBlock& block, std::int32_t lane) const;

 private:
  bool Place(std::int32_t index, bool may_be_still);
};

}  // namespace rollouts
