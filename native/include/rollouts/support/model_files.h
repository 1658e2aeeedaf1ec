// SPDX-License-Identifier: Apache-2.0
// The files that a model is made of, and whether one of them was written since.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace rollouts {

// Finds them in the text of an XML file: every attribute's value that names a file, from the file's
// folder or from a folder that another value names, and what those files name in turn. Meshes,
// textures and height fields are so found without knowing which attribute means what; a file
// too many costs a model that is read once more.
class ModelFiles {
 public:
  // As they are now. A file that is no XML, such as a binary model, stands for itself.
  explicit ModelFiles(const std::string& path);

  // Looks at each of them again.
  bool Unchanged() const;

  struct Stamp {
    std::filesystem::path path;
    std::int64_t written = 0;  // ns
    std::uint64_t changed = 0, bytes = 0, inode = 0;

    bool operator==(const Stamp&) const = default;
  };

  const std::vector<Stamp>& files() const { return files_; }

 private:
  static Stamp Look(const std::filesystem::path& path);

  std::vector<Stamp> files_;
};

}  // namespace rollouts
