// SPDX-License-Identifier: Apache-2.0
// One reusable batch: all arrays of a recv in a single aligned allocation.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "rollouts/core/batch_view.h"

namespace rollouts {

// Tells whether anyone outside the pool still looks at a buffer's memory. The
// bindings implement it over NumPy reference counts.
class BufferUsers {
 public:
  virtual ~BufferUsers() = default;
  virtual bool None() const = 0;
};

// Memory for `rows` rows of an environment's outputs. Written by worker threads
// (disjoint rows), read by whoever received it.
class BatchBuffer {
 public:
  BatchBuffer(const EnvSpec& spec, std::int32_t rows, bool with_final_obs);

  const BatchView& view() const { return view_; }
  std::int32_t rows() const { return rows_; }
  std::int64_t bytes() const { return bytes_; }

  // True when the pool may write into the buffer again. Call on the API thread.
  bool Reusable() const { return !users || users->None(); }

  // Rows completely written so far; released by the writer, acquired by Recv.
  std::atomic<std::int32_t> written{0};

  // Set by the bindings the first time the buffer is handed out.
  std::unique_ptr<BufferUsers> users;

 private:
  struct Free {
    void operator()(std::uint8_t* memory) const { ::operator delete(memory, std::align_val_t{64}); }
  };
  std::int32_t rows_;
  std::int64_t bytes_ = 0;
  std::unique_ptr<std::uint8_t, Free> memory_;
  BatchView view_;
};

}  // namespace rollouts
