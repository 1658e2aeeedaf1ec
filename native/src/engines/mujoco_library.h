// SPDX-License-Identifier: Apache-2.0
// The MuJoCo library as a whole: how it is loaded, which releases are supported, what Python draws
// frames of, and which numbers of a model are rotations.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rollouts {

class PhysicsModel;
class StateReader;

// Resolves every function in the shared object that the imported `mujoco` package uses.
// `version` is the package's, for messages. Loading twice is harmless. Throws EngineError when
// the object is not loaded, lacks a function, or is of a release that is not supported.
void LoadMujoco(const std::string& so_path, const std::string& version);

// Our steps do without the timer that the mujoco package in `folder` sets (mjcb_time), from now on.
// To be called while Python knows of no callback that a user has set. Callbacks of users are called
// in our steps as in all others, and simulations that are not ours are timed as before.
void LearnPackageTimer(const std::string& folder);

// Beginnings of quaternions in the values of a field that can be set: of bodies, geoms, sites,
// cameras and mocap bodies, of free and ball joints in positions, and of welds. Throws SpecError.
std::vector<std::size_t> QuaternionsOf(const PhysicsModel& model, const std::string& field);

// The bytes of a .mjb file.
std::vector<std::uint8_t> BinaryOf(const PhysicsModel& model);

// A field's name, which bytes that are not trusted say. Throws SpecError where it can be none.
std::string FieldNameIn(StateReader& reader);

// Reads what Physics::Save wrote: fields in which the simulation's model differs from its file,
// constants among them, by name, and the bytes of their values. Throws SpecError.
std::vector<std::pair<std::string, std::span<const std::uint8_t>>> OwnFieldsIn(StateReader& reader);

// Warnings on models that lanes were found to step otherwise than MuJoCo: sentences,
// one for each model in a process, since the last call.
std::vector<std::string> TakeLanesWarnings();

// The releases that are supported, oldest first, such as "4.0"; their patches are, too.
std::vector<std::string> MujocoReleaseNames();

}  // namespace rollouts
