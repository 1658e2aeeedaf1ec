// SPDX-License-Identifier: Apache-2.0
// The batch buffers of a pool, found by the number of the batch that they hold.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "rollouts/pool/batch_buffer.h"

namespace rollouts {

// Opens buffers for the batches being filled, and reuses a buffer that nothing holds any more. The
// pool's send lock guards everything but Of.
class BufferRing {
 public:
  // `max_open`: the most batches that are open at once.
  BufferRing(const EnvSpec& spec, const BatchLayout& layout, std::int32_t max_open)
      : spec_(spec), layout_(layout), open_(max_open) {}

  // Makes batches up to `last_sequence` writable.
  void Open(std::int64_t last_sequence);

  // Returns the buffer of an open batch. Lock-free, for the threads that fill it.
  BatchBuffer* Of(std::int64_t sequence) const {
    return open_[sequence % open_.size()].load(std::memory_order_acquire);
  }

  // Batches opened since construction.
  std::int64_t opened() const { return opened_; }

  // Shares an open buffer, which is not written again before Release.
  std::shared_ptr<BatchBuffer> HandOut(const BatchBuffer* buffer);

  // Undoes one HandOut: from then on the buffer's `users` tell whether it is in use.
  void Release(const BatchBuffer* buffer);

  // Notes that all rows of a batch were handed out.
  void CloseBatch(const BatchBuffer* buffer) { Find(buffer)->open = false; }

  // Closes batch `sequence` and those after it, whose rows will not be read.
  void Discard(std::int64_t sequence);

  // Gives up all buffers and returns those for which no Release is due: the caller resets their
  // `users`, without the pool's locks.
  std::vector<std::shared_ptr<BatchBuffer>> Clear();

  // Bytes of all buffers.
  std::int64_t bytes() const;

 private:
  struct Slot {
    std::shared_ptr<BatchBuffer> buffer;
    bool open = false;             // its rows are yet to be filled or handed out
    std::int32_t handed_out = 0;   // receivers that have not released it
    bool Idle() const { return !open && handed_out == 0 && buffer->Reusable(); }
  };

  std::vector<Slot>::iterator Find(const BatchBuffer* buffer);
  void FreeIdle(std::vector<Slot>::iterator& next);

  const EnvSpec spec_;
  const BatchLayout layout_;
  std::vector<Slot> slots_;
  std::int64_t opened_ = 0;
  std::vector<std::atomic<BatchBuffer*>> open_;  // sequence -> buffer
};

}  // namespace rollouts
