// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/checked_copy.h"

#include <bit>

#include "support/clones.h"

namespace rollouts {
namespace {

// Uses 32-bit comparisons and plain words, so that the loop vectorises everywhere.
template <typename Int>
inline bool Copy(const Int* from, std::int64_t count, std::int32_t n, std::int32_t* to) {
  std::uint64_t high_bits = 0;
  std::uint32_t bad = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    // negative values have high bits as well; without a sign they are above any n
    const auto low_bits = static_cast<std::uint32_t>(from[i]);
    high_bits |= static_cast<std::uint64_t>(from[i]) ^ low_bits;
    bad |= low_bits >= static_cast<std::uint32_t>(n);
    to[i] = static_cast<std::int32_t>(low_bits);
  }
  return bad == 0 && high_bits == 0;
}

// one function for each type, because target_clones works on plain functions only
ROLLOUTS_CLONES bool Copy32(const std::int32_t* from, std::int64_t count, std::int32_t n,
                            std::int32_t* to) {
  return Copy(from, count, n, to);
}

ROLLOUTS_CLONES bool Copy64(const std::int64_t* from, std::int64_t count, std::int32_t n,
                            std::int32_t* to) {
  return Copy(from, count, n, to);
}

ROLLOUTS_CLONES bool CopyFloats(const float* from, std::int64_t count, float* to) {
  constexpr std::uint32_t kExponent = 0x7f800000;  // all ones: infinite or not a number
  std::uint32_t bad = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    // the result is checked after the loop: a branch here would prevent the vectorisation
    bad |= (std::bit_cast<std::uint32_t>(from[i]) & kExponent) == kExponent;
    to[i] = from[i];
  }
  return bad == 0;
}

}  // namespace

bool CopyDiscrete(const std::int32_t* from, std::int64_t count, std::int32_t n, std::int32_t* to) {
  return Copy32(from, count, n, to);
}

bool CopyDiscrete(const std::int64_t* from, std::int64_t count, std::int32_t n, std::int32_t* to) {
  return Copy64(from, count, n, to);
}

bool CopyFinite(const float* from, std::int64_t count, float* to) {
  return CopyFloats(from, count, to);
}

}  // namespace rollouts
