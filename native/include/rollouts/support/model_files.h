// SPDX-License-Identifier: Apache-2.0
// The files that a model is made of, and whether one of them was changed since.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace rollouts {

// Finds the files in the text of an XML file: every attribute's value that names a file, in the
// file's folder or in a folder that another value names, and then the files that those files name.
// So meshes, textures and height fields are found without knowing which attribute means what; a
// file too many only means that the model is read once more.
class ModelFiles {
 public:
  // Takes note of the files as they are now. If `path` is not XML, as for a binary model, it is the
  // only file.
  explicit ModelFiles(const std::string& path);

  // Checks each of the files again.
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
