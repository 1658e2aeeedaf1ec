// SPDX-License-Identifier: Apache-2.0
#include "rollouts/support/model_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace rollouts {
namespace {

namespace fs = std::filesystem;

// The five entities that XML has without a declaration.
std::string Decoded(std::string_view value) {
  constexpr std::pair<std::string_view, char> kEntities[] = {
      {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
  std::string text;
  while (!value.empty()) {
    const auto* const entity = std::find_if(
        std::begin(kEntities), std::end(kEntities),
        [&](const auto& one) { return value.starts_with(one.first); });
    const bool found = entity != std::end(kEntities);
    text += found ? entity->second : value.front();
    value.remove_prefix(found ? entity->first.size() : 1);
  }
  return text;
}

// Tells if a value may name a file: most values are numbers, for which the disk need not be
// accessed.
bool MayBeName(std::string_view value) {
  const bool has_digit = value.find_first_of("0123456789") != std::string_view::npos;
  const bool numbers = value.find_first_not_of("0123456789 .+-eE\t\r\n") == std::string_view::npos;
  return !value.empty() && !(has_digit && numbers);
}

// Adds the values of attributes that may be names.
void CollectValues(std::string_view text, std::set<std::string>& values) {
  std::size_t at = 0;
  while ((at = text.find('<', at)) != std::string_view::npos) {
    // apostrophes in comments are no quotes
    if (text.substr(at).starts_with("<!--")) {
      at = text.find("-->", at);
      if (at == std::string_view::npos) return;
      continue;
    }
    // the next quote or the end of the tag
    while ((at = text.find_first_of("\"'>", at)) != std::string_view::npos && text[at] != '>') {
      const std::size_t end = text.find(text[at], at + 1);
      if (end == std::string_view::npos) return;
      const std::string_view value = text.substr(at + 1, end - at - 1);
      if (MayBeName(value)) values.insert(Decoded(value));
      at = end + 1;
    }
  }
}

// The whole text of an XML file; empty for other files, as a mesh may be large.
std::string XmlText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const auto is_before = [](char one) {
    // white space and the mark of UTF-8
    return std::string_view(" \t\r\n\xEF\xBB\xBF").find(one) != std::string_view::npos;
  };
  char first = ' ';
  while (file.get(first) && is_before(first)) {
  }
  if (!file || first != '<') return {};
  return std::string(std::istreambuf_iterator<char>(file), {}).insert(0, 1, first);
}

// Facts found so far about a model's files.
struct Search {
  std::set<std::string> values;
  std::set<fs::path> folders;
  std::set<fs::path> files;

  void Add(const fs::path& file) {
    if (!files.insert(file).second) return;
    folders.insert(file.parent_path());
    CollectValues(XmlText(file), values);
  }

  // Looks for files and folders that values name, with or without the folders in a value
  // (strippath).
  void Look() {
    const auto names = values;
    const auto from = folders;
    for (const fs::path& folder : from) {
      for (const fs::path name : names) {
        for (const fs::path& path : {folder / name, folder / name.filename()}) {
          std::error_code none;
          const fs::file_type type = fs::status(path, none).type();
          if (type == fs::file_type::regular) Add(path.lexically_normal());
          if (type == fs::file_type::directory) folders.insert(path.lexically_normal());
        }
      }
    }
  }
};

}  // namespace

ModelFiles::ModelFiles(const std::string& path) {
  Search search;
  search.Add(fs::path(path).lexically_normal());
  // a file that was found may name others, and a folder may contain a file that was missing
  std::size_t known = 0;
  while (known != search.files.size() + search.folders.size()) {
    known = search.files.size() + search.folders.size();
    search.Look();
  }
  for (const fs::path& file : search.files) files_.push_back(Look(file));
}

bool ModelFiles::Unchanged() const {
  return std::all_of(files_.begin(), files_.end(),
                     [](const Stamp& one) { return Look(one.path) == one; });
}

ModelFiles::Stamp ModelFiles::Look(const fs::path& path) {
  Stamp stamp{.path = path};
  std::error_code none;
  const auto written = fs::last_write_time(path, none).time_since_epoch();
  stamp.written = std::chrono::duration_cast<std::chrono::nanoseconds>(written).count();
  // a file that replaced another one may have the same time and size
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return {.path = path};
  stamp.changed = static_cast<std::uint64_t>(found.st_ctime);
  stamp.bytes = static_cast<std::uint64_t>(found.st_size);
  stamp.inode = static_cast<std::uint64_t>(found.st_ino);
  return stamp;
}

}  // namespace rollouts
