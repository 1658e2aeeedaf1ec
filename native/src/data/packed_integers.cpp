// SPDX-License-Identifier: Apache-2.0
#include "rollouts/data/packed_integers.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>

namespace rollouts {
namespace {

static_assert(std::endian::native == std::endian::little, "wide numbers are written as they are");

// Packs `count` numbers, at most as many as fit into one byte.
template <int kBits, typename T>
std::uint8_t PackByte(const T* numbers, std::size_t count, T low) {
  unsigned byte = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto place = static_cast<unsigned>(kBits == 1 ? 7 - i : i * kBits);
    byte |= static_cast<unsigned>(numbers[i] - low) << place;
  }
  return static_cast<std::uint8_t>(byte);
}

template <int kBits, typename T>
void PackInBytes(std::span<const T> numbers, T low, std::uint8_t* to) {
  constexpr std::size_t kShare = 8 / kBits;
  const std::size_t whole = numbers.size() / kShare;
  for (std::size_t i = 0; i < whole; ++i) {
    to[i] = PackByte<kBits>(&numbers[i * kShare], kShare, low);
  }
  const std::size_t rest = numbers.size() - whole * kShare;
  if (rest > 0) to[whole] = PackByte<kBits>(&numbers[whole * kShare], rest, low);
}

template <typename Narrow, typename T>
void PackWide(std::span<const T> numbers, T low, std::uint8_t* to) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    // unsigned, as the distance may exceed the largest T
    const auto distance = static_cast<Narrow>(static_cast<std::uint64_t>(numbers[i]) -
                                              static_cast<std::uint64_t>(low));
    std::memcpy(to + i * sizeof(Narrow), &distance, sizeof(Narrow));
  }
}

}  // namespace

template <typename T>
IntegerRange<T> RangeOf(std::span<const T> numbers) {
  T low = numbers[0], high = numbers[0];
  for (const T number : numbers) {
    low = std::min(low, number);
    high = std::max(high, number);
  }
  const auto spread = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  for (const int bits : {1, 2, 4, 8, 16, 32}) {
    if (spread >> bits == 0) return {low, bits};
  }
  return {low, 64};
}

template <typename T>
void PackIntegers(std::span<const T> numbers, IntegerRange<T> range, std::uint8_t* to) {
  switch (range.bits) {
    case 1: return PackInBytes<1>(numbers, range.low, to);
    case 2: return PackInBytes<2>(numbers, range.low, to);
    case 4: return PackInBytes<4>(numbers, range.low, to);
    case 8: return PackWide<std::uint8_t>(numbers, range.low, to);
    case 16: return PackWide<std::uint16_t>(numbers, range.low, to);
    case 32: return PackWide<std::uint32_t>(numbers, range.low, to);
  }
}

#define ROLLOUTS_PACK(T)                                     \
  template IntegerRange<T> RangeOf<T>(std::span<const T>);   \
  template void PackIntegers<T>(std::span<const T>, IntegerRange<T>, std::uint8_t*);
ROLLOUTS_PACK(std::int8_t)
ROLLOUTS_PACK(std::uint8_t)
ROLLOUTS_PACK(std::int16_t)
ROLLOUTS_PACK(std::uint16_t)
ROLLOUTS_PACK(std::int32_t)
ROLLOUTS_PACK(std::uint32_t)
ROLLOUTS_PACK(std::int64_t)
ROLLOUTS_PACK(std::uint64_t)
#undef ROLLOUTS_PACK

}  // namespace rollouts
