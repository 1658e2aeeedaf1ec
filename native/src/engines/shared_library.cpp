// SPDX-License-Identifier: Apache-2.0
#include "engines/shared_library.h"

#include <dlfcn.h>

#include "rollouts/support/errors.h"

namespace rollouts {

void* LoadFunction(const std::string& path, const char* name) {
  // local: what two libraries have under one name stays apart
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* found = handle ? dlsym(handle, name) : nullptr;
  if (found) return found;
  const char* why = dlerror();
  throw EngineError(why ? why : path + " has no function " + name);
}

}  // namespace rollouts
