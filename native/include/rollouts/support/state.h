// SPDX-License-Identifier: Apache-2.0
// Saved states of environments as bytes: what surrounds them, and reading and writing
// them field by field.
//
//   magic "rollouts"  8 bytes      version     uint32    type bytes  uint32
//   fingerprint       uint64       state bytes uint64    checksum    uint64
//   type              its name     state       an EpisodeClock, then the environment
//
// Numbers are little-endian. The checksum is that of support/checksum.h over everything else.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "rollouts/support/errors.h"
#include "rollouts/support/options.h"

namespace rollouts {

// Environments of equal kind can load each other's states.
struct StateKind {
  std::string type;
  std::uint64_t fingerprint = 0;  // the options' fingerprint
};

// `options` are all options of the environment. Only the file name of a path counts, because the
// file may lie elsewhere on the machine where the state is loaded.
StateKind MakeStateKind(const std::string& type, const Options& options);

// Surrounds the bytes that CpuPool::SaveState returned.
std::vector<std::uint8_t> SealState(const StateKind& kind, std::span<const std::uint8_t> state);

// The bytes that SealState was given; borrows from `sealed`. Throws SpecError when the state is
// foreign, damaged or truncated; the message continues a sentence that begins with the state's
// name.
std::span<const std::uint8_t> OpenState(const StateKind& kind,
                                        std::span<const std::uint8_t> sealed);

// Like OpenState, but for an environment of any kind: the bytes are to be read, not loaded.
std::span<const std::uint8_t> StateInside(std::span<const std::uint8_t> sealed);

// Appends plain values.
class StateWriter {
 public:
  explicit StateWriter(std::vector<std::uint8_t>& out) : out_(out) {}

  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_arithmetic_v<T>);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    PutBytes({bytes, sizeof(value)});
  }
  void PutBytes(std::span<const std::uint8_t> bytes) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }

 private:
  std::vector<std::uint8_t>& out_;
};

// Takes values in the order they were put; throws SpecError where too few bytes are left.
class StateReader {
 public:
  explicit StateReader(std::span<const std::uint8_t> bytes) : rest_(bytes) {}

  template <typename T>
  T Get() {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    std::memcpy(&value, GetBytes(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::span<const std::uint8_t> GetBytes(std::uint64_t count) {
    if (count > rest_.size()) throw SpecError("is shorter than its parts");
    const auto bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return bytes;
  }
  std::span<const std::uint8_t> rest() const { return rest_; }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace rollouts
