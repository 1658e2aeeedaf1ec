// SPDX-License-Identifier: Apache-2.0
// The maps of a WAD, as the game looks them up.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rollouts {

// Names in capitals, in the file's order; none for what is no WAD or cannot be read.
std::optional<std::vector<std::string>> MapsOf(const std::string& wad_file);

}  // namespace rollouts
