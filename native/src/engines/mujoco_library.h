// SPDX-License-Identifier: Apache-2.0
// The MuJoCo library as a whole, for who does not include MuJoCo's headers.
#pragma once

#include <string>

namespace rollouts {

// Resolves every function in the shared object that the imported `mujoco` package uses.
// `version` is the package's, for messages. Loading twice is harmless. Throws EngineError when
// the object is not loaded, lacks a function, or is of another release than the headers that
// this was built with.
void LoadMujoco(const std::string& so_path, const std::string& version);

// The release of the headers, such as "4.0.0".
std::string MujocoHeaderVersion();

}  // namespace rollouts
