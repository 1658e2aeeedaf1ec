// SPDX-License-Identifier: Apache-2.0
#include "wad_maps.h"

#include <cctype>
#include <cstdint>
#include <cstring>
#include <fstream>

namespace rollouts {
namespace {

// id Software's format: a header, and elsewhere a table of the file's contents.
struct Head {
  char magic[4];
  std::int32_t num_lumps;
  std::int32_t table;  // bytes from the file's beginning
};
struct Lump {
  std::int32_t offset;
  std::int32_t bytes;
  char name[8];  // zeros after the last letter
};

std::string NameOf(const Lump& lump) {
  std::string name(lump.name, strnlen(lump.name, sizeof(lump.name)));
  for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return name;
}

}  // namespace

std::optional<std::vector<std::string>> MapsOf(const std::string& wad_file) {
  std::ifstream file(wad_file, std::ios::binary);
  Head head;
  if (!file.read(reinterpret_cast<char*>(&head), sizeof(head))) return std::nullopt;
  if (std::memcmp(head.magic, "IWAD", 4) != 0 && std::memcmp(head.magic, "PWAD", 4) != 0) {
    return std::nullopt;
  }
  std::vector<std::string> maps;
  std::string before;
  file.seekg(head.table);
  for (std::int32_t i = 0; i < head.num_lumps; ++i) {
    Lump lump;
    if (!file.read(reinterpret_cast<char*>(&lump), sizeof(lump))) return std::nullopt;
    // a map is an empty lump with its name, followed by its parts
    std::string name = NameOf(lump);
    if (name == "THINGS" || name == "TEXTMAP") maps.push_back(before);
    before = std::move(name);
  }
  return maps;
}

}  // namespace rollouts
