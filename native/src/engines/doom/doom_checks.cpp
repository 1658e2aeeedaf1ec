// SPDX-License-Identifier: Apache-2.0
#include "doom_checks.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "rollouts/support/errors.h"
#include "wad_maps.h"

namespace rollouts {
namespace {

using std::filesystem::path;

// Arguments that ViZDoom writes itself, so that it ignores a second one or is confused by it.
constexpr std::pair<std::string_view, std::string_view> kOwnArguments[] = {
    {"-iwad", "iwad_file"},
    {"+map", "doom_map"},
    {"-skill", "doom_skill"},
    {"-width", "screen_resolution"},
    {"-height", "screen_resolution"},
    {"-rngseed", "seed"},
    {"-config", "cfg_file"},
    {"+viz_instance_id", "nothing: games of a pool have their own"},
    {"+viz_controlled", "nothing: the pool's actions control it"},
};

bool IsFile(const path& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored);
}

// Checks the command line's arguments besides ViZDoom's own; returns the WADs that they add.
std::vector<std::string> ReadArguments(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> files;
  std::string option;
  for (std::string word; words >> word;) {
    if (word[0] != '-' && word[0] != '+') {
      if (option != "-file") continue;
      if (!IsFile(word) || !path(word).is_absolute()) {
        throw SpecError("game_args names the file '" + word + "', which is none: a game runs in a "
                        "folder of its own, so give the absolute path of a file");
      }
      files.push_back(word);
      continue;
    }
    option = word;
    std::ranges::transform(option, option.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const auto& [own, instead] : kOwnArguments) {
      if (option != own) continue;
      throw SpecError("game_args has '" + word + "', which ViZDoom sets itself, so that the game "
                      "would ignore it; use " + std::string(instead));
    }
  }
  return files;
}

// The main WAD, searched as ViZDoom does: next to its library, where the path leads nowhere.
std::string MainWad(const std::string& given, const path& library) {
  if (IsFile(given)) return given;
  if (!given.empty()) return (library / path(given).filename()).string();
  for (const char* const name : {"doom2.wad", "freedoom2.wad"}) {
    if (IsFile(library / name)) return (library / name).string();
  }
  return "";
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

void CheckDoomPlan(const DoomPlan& plan, const std::string& library) {
  std::vector<std::string> wads = ReadArguments(plan.game_args);
  if (!plan.wad_file.empty()) wads.push_back(plan.wad_file);
  wads.push_back(MainWad(plan.iwad_file, library));
  std::vector<std::string> names, maps;
  for (const std::string& wad : wads) {
    const auto own = MapsOf(wad);
    // an archive, whose maps only the game can find, or a file that the game will refuse itself
    if (!own) return;
    names.push_back(path(wad).filename().string());
    maps.insert(maps.end(), own->begin(), own->end());
  }
  std::string wanted = plan.map;
  std::ranges::transform(wanted, wanted.begin(), [](unsigned char c) { return std::toupper(c); });
  if (wanted.empty() || std::ranges::find(maps, wanted) != maps.end()) return;
  std::ranges::sort(maps);
  maps.erase(std::unique(maps.begin(), maps.end()), maps.end());
  throw SpecError("doom_map is '" + plan.map + "', which is not in " + Joined(names) +
                  "; expected one of " + Joined(maps));
}

}  // namespace rollouts
