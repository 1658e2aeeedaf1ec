// SPDX-License-Identifier: Apache-2.0
// Reads MuJoCo's fields by name.
#pragma once

#include <algorithm>
#include <cstddef>

#include "model.h"

namespace rollouts::lanes {

// An array or an option of a model; null where the model's release has none.
template <typename T>
const T* Array(const FieldReader& read, const char* name) {
  return static_cast<const T*>(read(name));
}

// A copy that the model owns; zeros where the model's release has none.
template <typename T>
const T* Copy(Model& model, const FieldReader& read, const char* name, std::size_t count) {
  T* const out = model.Keep<T>(count);
  if (const T* in = Array<T>(read, name)) std::copy_n(in, count, out);
  return out;
}

}  // namespace rollouts::lanes
