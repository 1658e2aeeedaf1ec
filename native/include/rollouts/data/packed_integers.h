// SPDX-License-Identifier: Apache-2.0
// Integers in as few bits as they need, as the log of a run stores them.
//
// Each number is stored as its distance from the smallest, in 1, 2, 4, 8, 16 or 32 bits. Numbers of
// less than 8 bits share bytes: the first number of a byte is in its lowest bits, but numbers of
// one bit begin at the highest bit, as in NumPy's packbits. Wider numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rollouts {

// The smallest of some numbers, and the bits that each takes; 64: packing gains nothing.
template <typename T>
struct IntegerRange {
  T low = 0;
  int bits = 1;
};

// Finds the range of `numbers`, of which there is at least one.
template <typename T>
IntegerRange<T> RangeOf(std::span<const T> numbers);

// Bytes of `count` numbers of so many bits.
inline std::size_t PackedBytes(std::size_t count, int bits) { return (count * bits + 7) / 8; }

// Writes PackedBytes() bytes; `range` is that of `numbers`, with less than 64 bits.
template <typename T>
void PackIntegers(std::span<const T> numbers, IntegerRange<T> range, std::uint8_t* to);

}  // namespace rollouts
