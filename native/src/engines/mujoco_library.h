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

// The releases that are supported, oldest first, such as "4.0"; their patches are, too.
std::vector<std::string> MujocoReleaseNames();

}  // namespace rollouts
