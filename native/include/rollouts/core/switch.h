// SPDX-License-Identifier: Apache-2.0
// The value of an option that is off, on, or on in a named variant. On the host alone.
#pragma once

#include <string>
#include <variant>

namespace rollouts {

using Switch = std::variant<bool, std::string>;

}  // namespace rollouts
