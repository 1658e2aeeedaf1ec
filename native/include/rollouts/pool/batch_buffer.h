// SPDX-License-Identifier: Apache-2.0
// One reusable batch: all arrays of a recv in a single allocation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "rollouts/core/batch_view.h"
#include "rollouts/support/page_memory.h"

namespace rollouts {

// Tells whether anyone outside the pool still looks at a buffer's memory. The
// bindings implement it over NumPy reference counts.
class BufferUsers {
 public:
  virtual ~BufferUsers() = default;
  virtual bool None() const = 0;
};

struct BatchLayout {
  std::int32_t rows = 0;
  bool with_final_obs = false;
  bool out_of_order = false;  // rows may be finished before those ahead of them
};

// Memory for rows of an environment's outputs. Written by worker threads
// (disjoint rows), read by its receiver.
class BatchBuffer {
 public:
  BatchBuffer(const EnvSpec& spec, const BatchLayout& layout);
  BatchBuffer(const BatchBuffer&) = delete;
  BatchBuffer& operator=(const BatchBuffer&) = delete;

  // The buffer's own arrays.
  const BatchView& view() const { return view_; }
  // The rows' place: view(), or in part a caller's arrays.
  const BatchView& target() const { return target_; }
  std::int32_t rows() const { return layout_.rows; }
  std::int64_t bytes() const { return bytes_; }

  // True when the pool may write into the buffer again. Call on the API thread.
  bool Reusable() const { return !users || users->None(); }

  // Starts a batch of no rows, which go to the buffer's own arrays. All rows of the last
  // one were taken or discarded.
  void Begin();
  void Discard();

  // Sends this batch's rows to the arrays that are not null; before the first is written.
  void Redirect(const BatchView& arrays);

  // Copies rows [from, from + count) of another batch, from where they were written.
  void CopyRows(const BatchBuffer& other, std::int32_t from, std::int32_t count, std::int32_t to);

  // Publishes finished rows [first, first + count); returns how many there are so far. The
  // count comes last: once it is complete, no thread that finishes rows touches the buffer.
  std::int32_t Finish(std::int64_t first, std::int32_t count) {
    if (ready_) ready_[first].store(count, std::memory_order_seq_cst);
    return written_.fetch_add(count, std::memory_order_seq_cst) + count;
  }
  // Rows finished so far, in any order.
  std::int32_t written() const { return written_.load(std::memory_order_seq_cst); }

  // For buffers filled out of order: how many rows from `row` on, the first of those not
  // taken, were finished together (0: that row is not finished), and taking some of them.
  std::int32_t Ready(std::int64_t row) const {
    return ready_[row].load(std::memory_order_seq_cst);
  }
  void Take(std::int64_t row, std::int32_t count);

  // Set by the bindings the first time the buffer is handed out.
  std::unique_ptr<BufferUsers> users;

 private:
  using Groups = std::array<GroupView, EnvSpec::kMaxGroups>;

  template <typename Visit>
  void VisitArrays(BatchView& view, Visit&& visit) const;
  template <typename Visit>
  void VisitGroups(Groups& groups, Visit&& visit) const;

  const EnvSpec spec_;
  const BatchLayout layout_;
  std::int64_t bytes_ = 0;
  std::optional<PageMemory> memory_;
  Groups groups_{};  // what view_ and target_ point to
  Groups target_groups_{};
  BatchView view_;
  BatchView target_;
  std::atomic<std::int32_t> written_{0};
  // at the first row of each chunk that was finished and not taken: its rows
  std::unique_ptr<std::atomic<std::int32_t>[]> ready_;
};

}  // namespace rollouts
