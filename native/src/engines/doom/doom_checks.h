// SPDX-License-Identifier: Apache-2.0
// Finds settings that a game would ignore, or would hang with, before it starts.
#pragma once

#include <string>

#include "doom_abi.h"

namespace rollouts {

// A configured game: its map, its WADs and its further command line.
struct DoomPlan {
  std::string map;
  std::string wad_file;   // empty: none
  std::string iwad_file;  // empty: ViZDoom's choice
  std::string game_args;
};

// Throws SpecError, which lists the available maps. `library`: the folder of ViZDoom's own files.
void CheckDoomPlan(const DoomPlan& plan, const std::string& library);

}  // namespace rollouts
