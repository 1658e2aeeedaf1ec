// SPDX-License-Identifier: Apache-2.0
#include "rollouts/envs/atari/area_resize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

constexpr std::int32_t kLanes = 8;    // elements of a Group
constexpr std::int32_t kWindow = 16;  // bytes that one shuffle can reach

// Nearest integer, ties to even, of a float in [0, 2^22): adding 1.5 * 2^23 leaves
// it in the low bits, in a form that compilers vectorise.
inline std::uint8_t RoundToByte(float value) {
  return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(value + 12582912.0f));
}

bool HasAvx2() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
#else
  return false;
#endif
}

}  // namespace

AreaResize::AreaResize(std::int32_t src_height, std::int32_t src_width, std::int32_t dst_height,
                       std::int32_t dst_width, std::int32_t channels)
    : src_row_bytes_(src_width * channels),
      dst_row_elements_(dst_width * channels),
      channels_(channels) {
  if (dst_height < 1 || dst_height > src_height || dst_width < 1 || dst_width > src_width) {
    throw SpecError("img_height, img_width is " + std::to_string(dst_height) + ", " +
                    std::to_string(dst_width) + ", expected 1 to " + std::to_string(src_height) +
                    ", 1 to " + std::to_string(src_width) +
                    ", the size of the screen: frames are only shrunk");
  }

  // as in OpenCV, which has an exact path where cells are whole source elements
  const bool whole_cells = src_height % dst_height == 0 && src_width % dst_width == 0;
  if (whole_cells) {
    cell_height_ = src_height / dst_height;
    cell_width_ = src_width / dst_width;
    for (std::int32_t y = 0; y < dst_height; ++y) {
      ranges_.push_back({y * cell_height_, (y + 1) * cell_height_ - 1});
    }
    return;
  }

  // terms of a row follow each other in row_terms_, and refer to consecutive source rows
  row_terms_ = MakeTerms(src_height, dst_height);
  std::size_t next = 0;
  for (std::int32_t y = 0; y < dst_height; ++y) {
    row_begin_.push_back(static_cast<std::int32_t>(next));
    const std::size_t first = next;
    while (next < row_terms_.size() && row_terms_[next].dst == y) ++next;
    ranges_.push_back({row_terms_[first].src, row_terms_[next - 1].src});
  }
  row_begin_.push_back(static_cast<std::int32_t>(next));

  MakeColumnTaps(MakeTerms(src_width, dst_width), channels);
  MakeGroups();
  columns_.assign(padded_elements_, 0.0f);
  sum_.assign(padded_elements_, 0.0f);
}

std::vector<AreaResize::Term> AreaResize::MakeTerms(std::int32_t src_size,
                                                    std::int32_t dst_size) {
  // slivers thinner than this are left out, as in OpenCV
  constexpr double kSliver = 1e-3;
  const double scale = static_cast<double>(src_size) / dst_size;
  std::vector<Term> terms;
  for (std::int32_t dst = 0; dst < dst_size; ++dst) {
    const double begin = dst * scale;
    const double end = begin + scale;
    const double cell = std::min(scale, src_size - begin);
    std::int32_t whole_begin = static_cast<std::int32_t>(std::ceil(begin));
    const std::int32_t whole_end =
        std::min(static_cast<std::int32_t>(std::floor(end)), src_size - 1);
    whole_begin = std::min(whole_begin, whole_end);

    // the part of a source element on the left, the whole elements, the part on the right
    if (whole_begin - begin > kSliver) {
      terms.push_back({dst, whole_begin - 1, static_cast<float>((whole_begin - begin) / cell)});
    }
    for (std::int32_t src = whole_begin; src < whole_end; ++src) {
      terms.push_back({dst, src, static_cast<float>(1.0 / cell)});
    }
    if (end - whole_end > kSliver) {
      const double part = std::min(std::min(end - whole_end, 1.0), cell);
      terms.push_back({dst, whole_end, static_cast<float>(part / cell)});
    }
  }
  return terms;
}

void AreaResize::MakeColumnTaps(const std::vector<Term>& terms, std::int32_t channels) {
  // results have different numbers of terms: all get the largest number, with weight 0 for the rest
  std::vector<std::int32_t> count(dst_row_elements_ / channels, 0);
  for (const Term& term : terms) num_taps_ = std::max(num_taps_, ++count[term.dst]);

  // taps keep the order of the terms, because float sums depend on it
  padded_elements_ = (dst_row_elements_ + kLanes - 1) / kLanes * kLanes;
  tap_src_.assign(static_cast<std::size_t>(num_taps_) * padded_elements_, 0);
  tap_weight_.assign(tap_src_.size(), 0.0f);
  std::fill(count.begin(), count.end(), 0);
  for (const Term& term : terms) {
    const std::int32_t tap = count[term.dst]++;
    for (std::int32_t c = 0; c < channels; ++c) {
      const std::int32_t at = tap * padded_elements_ + term.dst * channels + c;
      tap_src_[at] = term.src * channels + c;
      tap_weight_[at] = term.weight;
    }
  }
}

void AreaResize::MakeGroups() {
  if (!HasAvx2() || src_row_bytes_ < kWindow) return;
  std::vector<Group> groups;
  std::vector<std::uint8_t> masks;
  for (std::int32_t dst = 0; dst < padded_elements_; dst += kLanes) {
    Group group{{0, 0}, dst};
    for (std::int32_t half = 0; half < 2; ++half) {
      // the smallest window that contains every byte that this half reads
      std::int32_t low = src_row_bytes_ - 1;
      std::int32_t high = 0;
      for (std::int32_t tap = 0; tap < num_taps_; ++tap) {
        for (std::int32_t lane = 0; lane < 4; ++lane) {
          const std::int32_t at = tap * padded_elements_ + dst + 4 * half + lane;
          if (tap_weight_[at] == 0.0f) continue;
          low = std::min(low, tap_src_[at]);
          high = std::max(high, tap_src_[at]);
        }
      }
      // no window reaches beyond the row's end
      group.window[half] = std::min(low, src_row_bytes_ - kWindow);
      // cells are too wide for one shuffle: no groups at all, so that the plain loop is used
      if (high - group.window[half] >= kWindow) return;
    }
    for (std::int32_t tap = 0; tap < num_taps_; ++tap) {
      for (std::int32_t lane = 0; lane < kLanes; ++lane) {
        const std::int32_t at = tap * padded_elements_ + dst + lane;
        const std::uint8_t pick =
            tap_weight_[at] == 0.0f
                ? 0x80  // the shuffle writes 0
                : static_cast<std::uint8_t>(tap_src_[at] - group.window[lane / 4]);
        // places a byte in the low end of 32 bits, with zeros above it
        masks.insert(masks.end(), {pick, 0x80, 0x80, 0x80});
      }
    }
    groups.push_back(group);
  }
  // all groups or none, because ComputeRow only checks whether there are any
  groups_ = std::move(groups);
  group_mask_ = std::move(masks);
}

void AreaResize::AverageColumns(const std::uint8_t* src_row, float* out) const {
  // the loop over elements is the inner one, because it vectorises
  std::fill_n(out, padded_elements_, 0.0f);
  for (std::int32_t tap = 0; tap < num_taps_; ++tap) {
    const std::int32_t* src = tap_src_.data() + tap * padded_elements_;
    const float* weight = tap_weight_.data() + tap * padded_elements_;
    for (std::int32_t x = 0; x < dst_row_elements_; ++x) {
      out[x] += static_cast<float>(src_row[src[x]]) * weight[x];
    }
  }
}

#if defined(__x86_64__)
// Computes the same products and sums as AverageColumns, in the same order. Without "fma" in the
// target the compiler cannot fuse them, which would round differently.
__attribute__((target("avx2"))) void AreaResize::AverageColumnsAvx2(const std::uint8_t* src_row,
                                                                    float* out) const {
  const std::uint8_t* mask = group_mask_.data();
  for (const Group& group : groups_) {
    const __m256i bytes = _mm256_set_m128i(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(src_row + group.window[1])),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(src_row + group.window[0])));
    __m256 sum = _mm256_setzero_ps();
    const float* weight = tap_weight_.data() + group.dst;
    for (std::int32_t tap = 0; tap < num_taps_; ++tap) {
      // the bytes of this tap, each in its own lane
      const __m256i picked = _mm256_shuffle_epi8(
          bytes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(mask)));
      sum = _mm256_add_ps(sum,
                          _mm256_mul_ps(_mm256_cvtepi32_ps(picked), _mm256_loadu_ps(weight)));
      mask += 4 * kLanes;
      weight += padded_elements_;
    }
    _mm256_storeu_ps(out + group.dst, sum);
  }
}
#else
void AreaResize::AverageColumnsAvx2(const std::uint8_t* src_row, float* out) const {
  AverageColumns(src_row, out);
}
#endif

void AreaResize::ComputeWholeCells(const std::uint8_t* src, std::int32_t dst_y,
                                   std::uint8_t* dst_row) const {
  const float scale = 1.0f / static_cast<float>(cell_height_ * cell_width_);
  // OpenCV rounds 2x2 cells half up and all others half to even
  const bool quads = cell_height_ == 2 && cell_width_ == 2;
  const std::uint8_t* cell_rows = src + static_cast<std::ptrdiff_t>(dst_y) * cell_height_ *
                                            src_row_bytes_;
  for (std::int32_t x = 0; x < dst_row_elements_; ++x) {
    // the channels of an element are adjacent; elements of a cell are `channels_` apart
    const std::int32_t column = x / channels_ * cell_width_ * channels_ + x % channels_;
    std::int32_t sum = 0;
    for (std::int32_t i = 0; i < cell_height_; ++i) {
      for (std::int32_t j = 0; j < cell_width_; ++j) {
        sum += cell_rows[i * src_row_bytes_ + column + j * channels_];
      }
    }
    dst_row[x] = quads ? static_cast<std::uint8_t>((sum + 2) >> 2)
                       : RoundToByte(static_cast<float>(sum) * scale);
  }
}

void AreaResize::ComputeRow(const std::uint8_t* src, std::int32_t dst_y, std::uint8_t* dst_row) {
  if (cell_height_ > 0) {
    ComputeWholeCells(src, dst_y, dst_row);
    return;
  }

  // columns first, then rows, so that float sums are in OpenCV's order
  const std::int32_t begin = row_begin_[dst_y];
  for (std::int32_t i = begin; i < row_begin_[dst_y + 1]; ++i) {
    const Term& term = row_terms_[i];
    // adjacent results share a source row
    if (term.src != cached_row_) {
      const std::uint8_t* row = src + static_cast<std::ptrdiff_t>(term.src) * src_row_bytes_;
      groups_.empty() ? AverageColumns(row, columns_.data())
                      : AverageColumnsAvx2(row, columns_.data());
      cached_row_ = term.src;
    }
    float* const sum = sum_.data();
    const float* const columns = columns_.data();
    const float weight = term.weight;
    // added in the order of the source rows, as in OpenCV
    if (i == begin) {
      for (std::int32_t x = 0; x < padded_elements_; ++x) sum[x] = columns[x] * weight;
    } else {
      for (std::int32_t x = 0; x < padded_elements_; ++x) sum[x] += columns[x] * weight;
    }
  }
  const float* const sum = sum_.data();
  for (std::int32_t x = 0; x < dst_row_elements_; ++x) dst_row[x] = RoundToByte(sum[x]);
}

}  // namespace rollouts
