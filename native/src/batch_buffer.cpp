// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/batch_buffer.h"

#include <cstring>
#include <new>

namespace rollouts {
namespace {

// Cache-line alignment keeps the arrays' ends from sharing lines.
constexpr std::int64_t kAlignment = 64;

std::int64_t Aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

BatchBuffer::BatchBuffer(const EnvSpec& spec, std::int32_t rows, bool with_final_obs)
    : rows_(rows) {
  view_.obs_bytes = spec.observation.bytes();

  // two passes over the same layout: first sizes, then pointers
  std::uint8_t* base = nullptr;
  for (int pass = 0; pass < 2; ++pass) {
    std::int64_t offset = 0;
    const auto place = [&](auto*& array, std::int64_t row_bytes) {
      using Array = std::remove_reference_t<decltype(array)>;
      if (base) array = reinterpret_cast<Array>(base + offset);
      offset += Aligned(rows * row_bytes);
    };
    place(view_.obs, view_.obs_bytes);
    if (with_final_obs) place(view_.final_obs, view_.obs_bytes);
    place(view_.reward, 8);
    place(view_.episode_return, 8);
    place(view_.env_id, 4);
    place(view_.episode_length, 4);
    place(view_.terminated, 1);
    place(view_.truncated, 1);
    for (std::int32_t i = 0; i < spec.num_infos; ++i) {
      place(view_.infos[i], SizeOf(spec.infos[i].dtype));
    }
    if (pass == 0) {
      bytes_ = offset;
      memory_.reset(static_cast<std::uint8_t*>(
          ::operator new(static_cast<std::size_t>(offset), std::align_val_t{kAlignment})));
      base = memory_.get();
    }
  }
  std::memset(base, 0, static_cast<std::size_t>(bytes_));
}

}  // namespace rollouts
