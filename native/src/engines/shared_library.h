// SPDX-License-Identifier: Apache-2.0
// A shared library that stays loaded until the process ends.
#pragma once

#include <string>

namespace rollouts {

// Loads `path` and looks a function up. Throws EngineError with the loader's message.
void* LoadFunction(const std::string& path, const char* name);

// Tells if the functions at these addresses lie in one library, or both in the program itself.
bool AreOfOneLibrary(const void* one, const void* other);

}  // namespace rollouts
