// SPDX-License-Identifier: Apache-2.0
// The maps of a WAD, found as the game finds them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rollouts {

// Names in capitals, in the file's order; nullopt for a file that is no WAD or cannot be read.
std::optional<std::vector<std::string>> MapsOf(const std::string& wad_file);

}  // namespace rollouts
