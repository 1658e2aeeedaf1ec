// SPDX-License-Identifier: Apache-2.0
#include "rollouts/data/column_digests.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "rollouts/support/checksum.h"
#include "support/clones.h"

namespace rollouts {
namespace {

constexpr std::int64_t kWord = 8;  // bytes
constexpr std::int64_t kMinPictureBytes = 4096;
constexpr std::int64_t kMaxStack = 8;
// The approximate number of words in the columns that are digested together: their sums stay in L1.
constexpr std::int64_t kWordsAtOnce = 1024;

// Finds numbers of 16, 32 or 64 bits that are not finite, all numbers of a word at once: their
// exponent bits are all ones, so that adding one carries into the sign bit, which was cleared.
struct ExponentTest {
  std::uint64_t exponents = 0;
  std::uint64_t one = 0;
  std::uint64_t signs = 0;
};

constexpr ExponentTest TestOf(FloatKind kind) {
  switch (kind) {
    case FloatKind::kFloat16:
      return {0x7C007C007C007C00u, 0x0400040004000400u, 0x8000800080008000u};
    case FloatKind::kFloat32:
      return {0x7F8000007F800000u, 0x0080000000800000u, 0x8000000080000000u};
    case FloatKind::kFloat64:
      return {0x7FF0000000000000u, 0x0010000000000000u, 0x8000000000000000u};
    case FloatKind::kNone:
      break;
  }
  return {};
}

// Sums of some columns: one lane for each word of an observation, column by column.
struct Lanes {
  std::uint64_t* sums;
  std::uint64_t* carries;  // a bit of ExponentTest::signs is set where a number is not finite
};

inline void AddWord(std::uint64_t word, const ExponentTest& test, Lanes to, std::int64_t lane) {
  to.sums[lane] = Mixed(to.sums[lane], word);
  to.carries[lane] |= (word & test.exponents) + test.one;
}

// Adds contiguous bytes, in words of 8, 4, 2 or 1 bytes.
template <typename Word>
inline void AddFlat(const std::uint8_t* from, std::int64_t words, const ExponentTest& test,
                    Lanes to) {
  std::uint64_t* const __restrict sums = to.sums;
  std::uint64_t* const __restrict carries = to.carries;
  for (std::int64_t i = 0; i < words; ++i) {
    Word word;
    std::memcpy(&word, from + i * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
    AddWord(word, test, {sums, carries}, i);
  }
}

// Observations of one step, `count` of them side by side.
struct Cells {
  const std::uint8_t* first;
  std::int64_t count;
  std::int64_t bytes;  // each
  CellPart part;       // the bytes that are added
  std::int64_t lanes;  // each
};

ROLLOUTS_CLONES void AddCells(const Cells& cells, const ExponentTest& test, Lanes to) {
  const CellPart part = cells.part;
  const bool is_whole = part.bytes == cells.bytes;
  if (is_whole && part.bytes % kWord == 0) {
    return AddFlat<std::uint64_t>(cells.first, cells.count * cells.lanes, test, to);
  }
  if (part.bytes < kWord) {
    const std::int64_t words = cells.count * cells.lanes;
    if (part.bytes == 4) return AddFlat<std::uint32_t>(cells.first, words, test, to);
    if (part.bytes % 2 == 0) return AddFlat<std::uint16_t>(cells.first, words, test, to);
    return AddFlat<std::uint8_t>(cells.first, words, test, to);
  }
  for (std::int64_t i = 0; i < cells.count; ++i) {
    const std::uint8_t* const from = cells.first + i * cells.bytes + part.first;
    const std::int64_t lane = i * cells.lanes + part.first / kWord;
    const std::int64_t words = part.bytes / kWord;
    AddFlat<std::uint64_t>(from, words, test, {to.sums + lane, to.carries + lane});
    if (part.bytes % kWord == 0) continue;
    // the last eight bytes overlap the word before
    std::uint64_t word;
    std::memcpy(&word, from + part.bytes - kWord, kWord);
    AddWord(word, test, to, lane + words);
  }
}

// Results of one step, for some columns.
struct Outcomes {
  const float* reward;
  const std::uint8_t* terminated;
  const std::uint8_t* truncated;
  const std::uint8_t* active;
};

ROLLOUTS_CLONES void AddOutcomes(const Outcomes& of, std::int64_t count,
                                 std::uint64_t* __restrict sums,
                                 std::uint32_t* __restrict largest) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto reward = std::bit_cast<std::uint32_t>(of.reward[i]);
    const std::uint64_t ends = of.terminated[i] | std::uint64_t{of.truncated[i]} << 8;
    sums[i] = Mixed(sums[i], reward | ends << 32);
    // without the sign, a float's bits are in the order of its magnitude; infinity and nan are last
    largest[i] = std::max(largest[i], reward & 0x7FFFFFFFu);
  }
  if (!of.active) return;
  for (std::int64_t i = 0; i < count; ++i) sums[i] = Mixed(sums[i], of.active[i]);
}

// Returns the lanes of an observation. Short ones have words of 4, 2 or 1 bytes.
std::int64_t LanesOf(std::int64_t bytes) {
  if (bytes >= kWord) return (bytes + kWord - 1) / kWord;
  if (bytes == 4) return 1;
  return bytes % 2 == 0 ? bytes / 2 : bytes;
}

// The sums of the columns that are digested together.
class Digester {
 public:
  Digester(const RolloutColumns& of, std::int64_t columns)
      : of_(of),
        test_(TestOf(of.kind)),
        lanes_(LanesOf(of.cell_bytes)),
        sums_(static_cast<std::size_t>(columns * lanes_)),
        carries_(sums_.size()),
        outcomes_(static_cast<std::size_t>(columns)),
        largest_(outcomes_.size()) {}

  void Take(std::int64_t first, std::int64_t count, const ColumnDigests& to) {
    // the lanes of every column begin with the same numbers
    for (std::int64_t i = 0; i < count; ++i) {
      std::iota(sums_.begin() + i * lanes_, sums_.begin() + (i + 1) * lanes_, std::uint64_t{1});
    }
    std::fill(carries_.begin(), carries_.end(), 0);
    std::fill(outcomes_.begin(), outcomes_.end(), 0);
    std::fill(largest_.begin(), largest_.end(), 0);
    for (std::int64_t t = 0; t < of_.steps; ++t) AddStep(t, first, count);
    AddObs(of_.last_obs, first, count, Whole());
    for (std::int64_t i = 0; i < count; ++i) Write(i, first + i, to);
  }

 private:
  CellPart Whole() const { return {0, of_.cell_bytes}; }

  void AddStep(std::int64_t t, std::int64_t first, std::int64_t count) {
    const std::int64_t at = t * of_.rows + first;
    AddObs(of_.obs + t * of_.rows * of_.cell_bytes, first, count, t == 0 ? Whole() : of_.part);
    AddOutcomes({of_.reward + at, of_.terminated + at, of_.truncated + at,
                 of_.active ? of_.active + at : nullptr},
                count, outcomes_.data(), largest_.data());
  }

  void AddObs(const std::uint8_t* row, std::int64_t first, std::int64_t count, CellPart part) {
    AddCells({row + first * of_.cell_bytes, count, of_.cell_bytes, part, lanes_}, test_,
             {sums_.data(), carries_.data()});
  }

  void Write(std::int64_t i, std::int64_t column, const ColumnDigests& to) const {
    const auto first = static_cast<std::size_t>(i * lanes_), own = static_cast<std::size_t>(i);
    std::uint64_t sum = outcomes_[own], carries = 0;
    for (std::size_t lane = first; lane < first + static_cast<std::size_t>(lanes_); ++lane) {
      sum = Mixed(sum, sums_[lane]);
      carries |= carries_[lane];
    }
    to.digest[column] = sum;
    to.largest_reward[column] = std::bit_cast<float>(largest_[own]);
    to.is_obs_finite[column] = (carries & test_.signs) == 0;
  }

  const RolloutColumns& of_;
  const ExponentTest test_;
  const std::int64_t lanes_;  // an observation's
  std::vector<std::uint64_t> sums_, carries_;
  std::vector<std::uint64_t> outcomes_;
  std::vector<std::uint32_t> largest_;
};

}  // namespace

FloatKind FloatKindOf(DType dtype) {
  if (dtype == DType::kFloat32) return FloatKind::kFloat32;
  return dtype == DType::kFloat64 ? FloatKind::kFloat64 : FloatKind::kNone;
}

CellPart NewestPart(std::span<const std::int64_t> shape, std::int64_t item_bytes) {
  const std::int64_t bytes =
      std::accumulate(shape.begin(), shape.end(), item_bytes, std::multiplies<>());
  if (shape.size() != 3 || bytes < kMinPictureBytes || shape[0] > kMaxStack) return {0, bytes};
  const std::int64_t picture = bytes / shape[0];
  // images of other sizes would not begin at a word
  return picture % kWord == 0 ? CellPart{bytes - picture, picture} : CellPart{0, bytes};
}

void DigestColumns(const RolloutColumns& of, std::int32_t first, std::int32_t count,
                   const ColumnDigests& to) {
  const std::int64_t wanted = kWordsAtOnce / std::max<std::int64_t>(LanesOf(of.cell_bytes), 1);
  const std::int64_t at_once = std::clamp<std::int64_t>(wanted, 1, std::max(count, 1));
  Digester digester(of, at_once);
  for (std::int64_t i = 0; i < count; i += at_once) {
    digester.Take(first + i, std::min(at_once, count - i), to);
  }
}

}  // namespace rollouts
