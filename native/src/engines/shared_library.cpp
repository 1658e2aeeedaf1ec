// SPDX-License-Identifier: Apache-2.0
#include "engines/shared_library.h"

#include <dlfcn.h>

#include "rollouts/support/errors.h"

namespace rollouts {

void* LoadFunction(const std::string& path, const char* name) {
  // RTLD_LOCAL keeps equal names in two libraries separate
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* found = handle ? dlsym(handle, name) : nullptr;
  if (found) return found;
  const char* why = dlerror();
  throw EngineError(why ? why : path + " has no function " + name);
}

bool AreOfOneLibrary(const void* one, const void* other) {
  Dl_info of_one, of_other;
  return dladdr(one, &of_one) != 0 && dladdr(other, &of_other) != 0 &&
         of_one.dli_fbase == of_other.dli_fbase;
}

}  // namespace rollouts
