// SPDX-License-Identifier: Apache-2.0
// Observations in types narrower than those of their environment, with the same bits on host and
// device.
#pragma once

#include "rollouts/core/platform.h"

namespace rollouts {

// IEEE 754 binary16.
struct Float16 {
  std::uint16_t bits;
};

// The upper half of a float.
struct BFloat16 {
  std::uint16_t bits;
};

// Shifts right, rounding to the nearest number, and to the even one of two equally near.
ROLLOUTS_HD inline std::uint16_t RoundedShift(std::uint32_t bits, std::int32_t shift) {
  const std::uint32_t half = (1u << (shift - 1)) - 1 + ((bits >> shift) & 1);
  return static_cast<std::uint16_t>((bits + half) >> shift);
}

// A number converted to a type that observations may have: unchanged, or the nearest.
template <typename To>
struct NumberAs {
  template <typename From>
  ROLLOUTS_HD static To Of(From value) {
    return static_cast<To>(value);
  }
};

template <>
struct NumberAs<BFloat16> {
  ROLLOUTS_HD static BFloat16 Of(float value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    // sets a bit that is kept, since the set bits of a NaN may all be cut off
    if (value != value) return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};
    return {RoundedShift(bits, 16)};
  }
};

template <>
struct NumberAs<Float16> {
  ROLLOUTS_HD static Float16 Of(float value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
    const std::uint32_t size = bits & 0x7FFFFFFF;
    if (size > 0x7F800000) return {static_cast<std::uint16_t>(sign | 0x7E00)};  // NaN
    if (size >= 0x477FF000) return {static_cast<std::uint16_t>(sign | 0x7C00)};  // infinite
    if (size >= 0x38800000) {
      // a float's exponent is 112 larger
      return {static_cast<std::uint16_t>(sign | RoundedShift(size - 0x38000000, 13))};
    }
    // below the smallest normal number, a Float16 is a multiple of 2^-24
    if (size < 0x33000000) return {sign};
    const std::uint32_t mantissa = (size & 0x7FFFFF) | 0x800000;
    const auto shift = static_cast<std::int32_t>(126 - (size >> 23));
    return {static_cast<std::uint16_t>(sign | RoundedShift(mantissa, shift))};
  }
};

}  // namespace rollouts
