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

// Tells whether anyone outside the pool still holds a buffer's memory. The bindings implement it
// with NumPy reference counts.
class BufferUsers {
 public:
  virtual ~BufferUsers() = default;
  virtual bool None() const = 0;
};

struct BatchLayout {
  std::int32_t rows = 0;
  bool with_final_obs = false;
  bool out_of_order = false;  // rows may be finished before earlier ones
};

// Memory for rows of environments' outputs. Worker threads write disjoint rows; the receiver reads
// them.
class BatchBuffer {
 public:
  BatchBuffer(const EnvSpec& spec, const BatchLayout& layout);
  BatchBuffer(const BatchBuffer&) = delete;
  BatchBuffer& operator=(const BatchBuffer&) = delete;

  // The buffer's own arrays.
  const BatchView& view() const { return view_; }
  // The place where the rows are written: view(), or in part a caller's arrays.
  const BatchView& target() const { return target_; }
  std::int32_t rows() const { return layout_.rows; }
  std::int64_t bytes() const { return bytes_; }

  // True when the pool may write into the buffer again. Call on the API thread.
  bool Reusable() const { return !users || users->None(); }

  // Starts an empty batch, whose rows go to the buffer's own arrays. All rows of the last batch
  // must have been taken or discarded.
  void Begin();
  void Discard();

  // Sends this batch's rows to those arrays that are not null. Call before the first row is
  // written.
  void Redirect(const BatchView& arrays);

  // Copies rows [from, from + count) of another batch, from where they were written.
  void CopyRows(const BatchBuffer& other, std::int32_t from, std::int32_t count, std::int32_t to);

  // Publishes finished rows [first, first + count) and returns how many are finished so far. This
  // count is changed last: once it is complete, no thread that finishes rows touches the buffer.
  std::int32_t Finish(std::int64_t first, std::int32_t count) {
    if (ready_) ready_[first].store(count, std::memory_order_seq_cst);
    return written_.fetch_add(count, std::memory_order_seq_cst) + count;
  }
  // Rows finished so far, in any order.
  std::int32_t written() const { return written_.load(std::memory_order_seq_cst); }

  // For buffers filled out of order. Ready returns how many rows from `row` on, the first that was
  // not taken, were finished together; 0 where that row is not finished. Take marks some of them as
  // taken.
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
  // indexed by the first row of each chunk: the chunk's number of rows while it is finished and not
  // taken
  std::unique_ptr<std::atomic<std::int32_t>[]> ready_;
};

}  // namespace rollouts
