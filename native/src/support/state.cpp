// SPDX-License-Identifier: Apache-2.0
#include "rollouts/support/state.h"

#include <bit>
#include <cstddef>

#include "rollouts/support/checksum.h"

namespace rollouts {
namespace {

constexpr char kMagic[8] = {'r', 'o', 'l', 'l', 'o', 'u', 't', 's'};
constexpr std::uint32_t kVersion = 5;

// The header that state.h describes, as it lies in memory.
struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t type_bytes;
  std::uint64_t fingerprint;
  std::uint64_t state_bytes;
  std::uint64_t checksum;
};
static_assert(sizeof(Header) == 40);
static_assert(std::endian::native == std::endian::little, "states are little-endian");

// FNV-1a, 64 bits (Fowler, Noll, Vo), of options. A change of one byte always changes the hash.
class Hash {
 public:
  void Add(std::span<const std::uint8_t> bytes) {
    for (const std::uint8_t byte : bytes) value_ = (value_ ^ byte) * 0x100000001B3u;
  }
  void Add(const std::string& text) {
    // added with its length, so that two texts together never give the bytes of two others
    const std::uint64_t size = text.size();
    Add({reinterpret_cast<const std::uint8_t*>(&size), sizeof(size)});
    Add({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325u;
};

// The checksum of all bytes but its own.
std::uint64_t ChecksumOf(std::span<const std::uint8_t> sealed) {
  constexpr std::size_t kBefore = offsetof(Header, checksum);
  Checksum checksum;
  checksum.Add(sealed.first(kBefore));
  checksum.Add(sealed.subspan(sizeof(Header)));
  return checksum.value();
}

// An option as text, for the fingerprint.
std::string Text(const OptionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    return text->substr(text->find_last_of('/') + 1);  // npos + 1 is 0
  }
  if (const auto* number = std::get_if<double>(&value)) {
    // written by its bits, because text would round it
    return std::to_string(std::bit_cast<std::uint64_t>(*number));
  }
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  return std::get<bool>(value) ? "true" : "false";
}

// A sealed state, taken apart; borrows from it.
struct Opened {
  std::string type;
  std::uint64_t fingerprint;
  std::span<const std::uint8_t> state;
};

Opened Open(std::span<const std::uint8_t> sealed) {
  // foreign bytes first: their other fields mean nothing
  if (sealed.size() >= sizeof(kMagic) && std::memcmp(sealed.data(), kMagic, sizeof(kMagic)) != 0) {
    throw SpecError("is not a state: expected bytes that get_state returned");
  }
  if (sealed.size() < sizeof(Header)) {
    throw SpecError("is truncated: it has " + std::to_string(sealed.size()) +
                    " bytes, its header alone has " + std::to_string(sizeof(Header)));
  }
  Header header;
  std::memcpy(&header, sealed.data(), sizeof(header));
  if (header.version != kVersion) {
    throw SpecError("has format version " + std::to_string(header.version) +
                    ", this version of rollouts reads " + std::to_string(kVersion));
  }
  const std::span body = sealed.subspan(sizeof(header));
  if (header.type_bytes > body.size() || header.state_bytes != body.size() - header.type_bytes) {
    throw SpecError("is truncated or damaged: it has " + std::to_string(sealed.size()) +
                    " bytes, its header says otherwise");
  }
  // checked last, because it reads all bytes, and its message explains least
  if (header.checksum != ChecksumOf(sealed)) throw SpecError("is damaged: its checksum is wrong");

  return {{body.begin(), body.begin() + header.type_bytes},
          header.fingerprint,
          body.subspan(header.type_bytes)};
}

}  // namespace

StateKind MakeStateKind(const std::string& type, const Options& options) {
  Hash hash;
  for (const auto& [name, value] : options) {
    hash.Add(name);
    hash.Add(Text(value));
  }
  return {type, hash.value()};
}

std::vector<std::uint8_t> SealState(const StateKind& kind, std::span<const std::uint8_t> state) {
  Header header{{}, kVersion, static_cast<std::uint32_t>(kind.type.size()), kind.fingerprint,
                state.size(), 0};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  // the header is written twice, because its checksum is over everything else
  std::vector<std::uint8_t> sealed(sizeof(Header));
  sealed.reserve(sizeof(Header) + kind.type.size() + state.size());
  std::memcpy(sealed.data(), &header, sizeof(header));
  sealed.insert(sealed.end(), kind.type.begin(), kind.type.end());
  sealed.insert(sealed.end(), state.begin(), state.end());

  header.checksum = ChecksumOf(sealed);
  std::memcpy(sealed.data(), &header, sizeof(header));
  return sealed;
}

std::span<const std::uint8_t> OpenState(const StateKind& kind,
                                        std::span<const std::uint8_t> sealed) {
  const Opened opened = Open(sealed);
  if (opened.type != kind.type) {
    throw SpecError("is of a " + opened.type + " environment, expected one of " + kind.type);
  }
  if (opened.fingerprint != kind.fingerprint) {
    throw SpecError("is of a " + opened.type + " environment with other options than this one's");
  }
  return opened.state;
}

std::span<const std::uint8_t> StateInside(std::span<const std::uint8_t> sealed) {
  return Open(sealed).state;
}

}  // namespace rollouts
