// SPDX-License-Identifier: Apache-2.0
// data/packed_integers.h: numbers are found again in as few bits as they need.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "rollouts/core/rng.h"
#include "rollouts/data/packed_integers.h"
#include "units.h"

namespace rollouts {
namespace {

// The number at a place of packed bytes, bit by bit.
template <typename T>
T NumberAt(const std::vector<std::uint8_t>& bytes, std::size_t place, const IntegerRange<T>& range) {
  std::uint64_t distance = 0;
  for (std::size_t bit = 0; bit < static_cast<std::size_t>(range.bits); ++bit) {
    const std::size_t at = place * range.bits + bit;
    const std::size_t shift = range.bits == 1 ? 7 - at % 8 : at % 8;
    distance |= static_cast<std::uint64_t>(bytes[at / 8] >> shift & 1) << bit;
  }
  return static_cast<T>(static_cast<std::uint64_t>(range.low) + distance);
}

// Packs numbers, and checks each of them.
template <typename T>
void CheckPacked(const std::vector<T>& numbers, T low, int bits) {
  const std::span<const T> all(numbers);
  const IntegerRange<T> range = RangeOf(all);
  CHECK(range.low == low);
  CHECK_EQ(range.bits, bits);
  if (bits == 64) return;
  std::vector<std::uint8_t> bytes(PackedBytes(numbers.size(), bits));
  PackIntegers(all, range, bytes.data());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    CHECK(NumberAt(bytes, i, range) == numbers[i]);
  }
}

// `count` numbers from `low` to `low + spread`, both among them.
template <typename T>
std::vector<T> Drawn(std::size_t count, T low, std::uint64_t spread) {
  Rng rng(1, static_cast<std::uint32_t>(count), 0);
  std::vector<T> numbers(count, low);
  for (T& number : numbers) {
    std::uint64_t distance = static_cast<std::uint64_t>(rng.NextWord()) << 32 | rng.NextWord();
    if (spread != std::numeric_limits<std::uint64_t>::max()) distance %= spread + 1;
    number = static_cast<T>(static_cast<std::uint64_t>(low) + distance);
  }
  numbers.front() = low;
  numbers.back() = static_cast<T>(static_cast<std::uint64_t>(low) + spread);
  return numbers;
}

TEST(PackedIntegers, AreFoundAgain) {
  for (const std::size_t count : {2, 3, 7, 8, 9, 64, 1001}) {
    for (const int bits : {1, 2, 4, 8}) {
      const std::uint64_t spread = (std::uint64_t{1} << bits) - 1;
      CheckPacked(Drawn<std::uint8_t>(count, 0, spread), std::uint8_t{0}, bits);
      CheckPacked(Drawn<std::int8_t>(count, -128, spread), std::int8_t{-128}, bits);
      CheckPacked(Drawn<std::int64_t>(count, -3, spread), std::int64_t{-3}, bits);
    }
    CheckPacked(Drawn<std::int32_t>(count, -70, 256), std::int32_t{-70}, 16);
    CheckPacked(Drawn<std::uint16_t>(count, 1, 0xFFFE), std::uint16_t{1}, 16);
    const std::int32_t least = std::numeric_limits<std::int32_t>::min();
    CheckPacked(Drawn<std::int32_t>(count, least, 0xFFFFFFFF), least, 32);
    CheckPacked(Drawn<std::uint64_t>(count, 1, 0x10000), std::uint64_t{1}, 32);
  }
}

TEST(PackedIntegers, TakeTheirOwnBitsWhereNothingIsGained) {
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  CheckPacked(Drawn<std::int64_t>(9, least, std::numeric_limits<std::uint64_t>::max()), least, 64);
  CheckPacked(Drawn<std::uint64_t>(9, 5, 0x100000000), std::uint64_t{5}, 64);
}

TEST(PackedIntegers, TakeABitWhereAllAreEqual) {
  CheckPacked(std::vector<std::uint32_t>(17, 7), std::uint32_t{7}, 1);
  CheckPacked(std::vector<std::int16_t>(1, -9), std::int16_t{-9}, 1);
}

}  // namespace
}  // namespace rollouts
