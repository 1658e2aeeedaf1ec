// SPDX-License-Identifier: Apache-2.0
// Shrinks an 8-bit image by area averaging, bit for bit as OpenCV 4.10's cv::resize(...,
// INTER_AREA), which ale-py's vector environment calls. Works row by row, so that unchanged rows
// need not be computed again.
#pragma once

#include <cstdint>
#include <vector>

namespace rollouts {

class AreaResize {
 public:
  struct RowRange {
    std::int32_t first = 0;
    std::int32_t last = 0;  // inclusive
  };

  // Rows are interleaved channels. Throws SpecError when the destination is empty
  // or larger than the source in either direction.
  AreaResize(std::int32_t src_height, std::int32_t src_width, std::int32_t dst_height,
             std::int32_t dst_width, std::int32_t channels);

  // The source rows that row `dst_y` of the result is computed from.
  RowRange SourceRows(std::int32_t dst_y) const { return ranges_[dst_y]; }

  // To be called before the rows of another image.
  void BeginImage() { cached_row_ = -1; }

  // Writes row `dst_y` of the result. `src` is the whole image.
  void ComputeRow(const std::uint8_t* src, std::int32_t dst_y, std::uint8_t* dst_row);

 private:
  // One term of a weighted sum: destination position += source position * weight.
  struct Term {
    std::int32_t dst;
    std::int32_t src;
    float weight;
  };
  // Eight adjacent destination elements: each tap takes a byte per element from two 16-byte windows
  // of the source row.
  struct Group {
    std::int32_t window[2];
    std::int32_t dst;
  };

  static std::vector<Term> MakeTerms(std::int32_t src_size, std::int32_t dst_size);
  void MakeColumnTaps(const std::vector<Term>& terms, std::int32_t channels);
  void MakeGroups();
  void AverageColumns(const std::uint8_t* src_row, float* out) const;
  void AverageColumnsAvx2(const std::uint8_t* src_row, float* out) const;
  void ComputeWholeCells(const std::uint8_t* src, std::int32_t dst_y, std::uint8_t* dst_row) const;

  std::int32_t src_row_bytes_;
  std::int32_t dst_row_elements_;
  std::int32_t channels_;
  std::int32_t cell_height_ = 0;  // both > 0 where both ratios are whole numbers
  std::int32_t cell_width_ = 0;

  std::vector<RowRange> ranges_;      // (dst_height,)
  std::vector<Term> row_terms_;       // sorted by dst
  std::vector<std::int32_t> row_begin_;  // (dst_height + 1,) into row_terms_

  // (num_taps, padded_elements): tap t of element x is byte tap_src of the source
  // row times tap_weight; missing taps have weight 0
  std::int32_t num_taps_ = 0;
  std::int32_t padded_elements_ = 0;
  std::vector<std::int32_t> tap_src_;
  std::vector<float> tap_weight_;
  std::vector<Group> groups_;            // empty: no fast path
  std::vector<std::uint8_t> group_mask_;  // (groups, num_taps, 32)

  std::int32_t cached_row_ = -1;  // the source row that columns_ was computed from
  std::vector<float> columns_;    // (padded_elements,)
  std::vector<float> sum_;        // (padded_elements,)
};

}  // namespace rollouts
