// SPDX-License-Identifier: Apache-2.0
// Functions of the MuJoCo library as a whole: loading it, supported releases, models as bytes for
// Python's drawing, and which numbers of a model are rotations.
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
// `version` is the version of the package, for messages. Loading twice is harmless. Throws
// EngineError when the object is not loaded, lacks a function, or is of a release that is not
// supported.
void LoadMujoco(const std::string& so_path, const std::string& version);

// Makes this library's steps skip, from now on, the timer that the mujoco package in `folder` sets
// (mjcb_time). To be called while Python has no callback set by a user. Users' callbacks still run
// in these steps as in all others, and other simulations are timed as before.
void LearnPackageTimer(const std::string& folder);

// Beginnings of quaternions in the values of a settable field: of bodies, geoms, sites, cameras and
// mocap bodies, of free and ball joints in positions, and of welds. Throws SpecError.
std::vector<std::size_t> QuaternionsOf(const PhysicsModel& model, const std::string& field);

// The bytes of a .mjb file.
std::vector<std::uint8_t> BinaryOf(const PhysicsModel& model);

// Reads a field's name from bytes that are not trusted. Throws SpecError for a name that no field
// can have.
std::string FieldNameIn(StateReader& reader);

// Reads what Physics::Save wrote: the fields in which the simulation's model differs from its file,
// including constants, by name, with the bytes of their values. Throws SpecError.
std::vector<std::pair<std::string, std::span<const std::uint8_t>>> OwnFieldsIn(StateReader& reader);

// Returns the warnings since the last call, as sentences: one for each model that lanes were found
// to step differently from MuJoCo. A process warns of a model once.
std::vector<std::string> TakeLanesWarnings();

// The supported releases, oldest first, such as "4.0"; their patch releases are supported, too.
std::vector<std::string> MujocoReleaseNames();

}  // namespace rollouts
