// SPDX-License-Identifier: Apache-2.0
// The MuJoCo library as a whole: how it is loaded, and which releases are supported.
#pragma once

#include <string>
#include <vector>

namespace rollouts {

// Resolves every function in the shared object that the imported `mujoco` package uses.
// `version` is the package's, for messages. Loading twice is harmless. Throws EngineError when
// the object is not loaded, lacks a function, or is of a release that is not supported.
void LoadMujoco(const std::string& so_path, const std::string& version);

// Our steps do without the timer that the mujoco package in `folder` sets (mjcb_time), from now on.
// To be called while Python knows of no callback that a user has set. Callbacks of users are called
// in our steps as in all others, and simulations that are not ours are timed as before.
void LearnPackageTimer(const std::string& folder);

// The releases that are supported, oldest first, such as "4.0"; their patches are, too.
std::vector<std::string> MujocoReleaseNames();

}  // namespace rollouts
