// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/buffer_ring.h"

#include <algorithm>

namespace rollouts {
namespace {

// The number of buffers that a pool keeps whether or not it needs them.
constexpr std::size_t kKeptSlots = 4;

}  // namespace

void BufferRing::Open(std::int64_t last_sequence) {
  for (; opened_ <= last_sequence; ++opened_) {
    // a buffer whose arrays a caller still holds is not idle
    auto slot = std::find_if(slots_.begin(), slots_.end(),
                             [](const Slot& candidate) { return candidate.Idle(); });
    if (slot == slots_.end()) {
      // all buffers are held, or the pool has just begun
      slots_.push_back({std::make_shared<BatchBuffer>(spec_, layout_)});
      slot = slots_.end() - 1;
    } else {
      FreeIdle(slot);
    }
    slot->open = true;
    slot->buffer->Begin();
    // release: a worker that finds the buffer sees it begun
    open_[opened_ % open_.size()].store(slot->buffer.get(), std::memory_order_release);
  }
}

// Frees buffers after a caller held many batches and dropped them: one idle buffer besides `next`
// is enough. `next` stays valid.
void BufferRing::FreeIdle(std::vector<Slot>::iterator& next) {
  if (slots_.size() <= kKeptSlots) return;
  const BatchBuffer* const keep = next->buffer.get();
  std::int32_t idle = 0;
  // keeps the buffer used next, all that are held, and the first idle ones
  std::erase_if(slots_, [&](const Slot& slot) {
    if (slot.buffer.get() == keep || !slot.Idle() || ++idle == 1) return false;
    slot.buffer->users.reset();  // users hold the buffer, which holds them: ends the cycle
    return true;
  });
  next = Find(keep);
}

std::vector<BufferRing::Slot>::iterator BufferRing::Find(const BatchBuffer* buffer) {
  return std::find_if(slots_.begin(), slots_.end(),
                      [&](const Slot& slot) { return slot.buffer.get() == buffer; });
}

std::shared_ptr<BatchBuffer> BufferRing::HandOut(const BatchBuffer* buffer) {
  const auto slot = Find(buffer);
  ++slot->handed_out;
  return slot->buffer;
}

void BufferRing::Release(const BatchBuffer* buffer) {
  const auto slot = Find(buffer);
  // Clear may have removed the buffer meanwhile
  if (slot != slots_.end()) --slot->handed_out;
}

void BufferRing::Discard(std::int64_t sequence) {
  for (; sequence < opened_; ++sequence) {
    const auto slot = Find(Of(sequence));
    // without this, the next batch in this buffer would take old rows for finished ones
    slot->buffer->Discard();
    slot->open = false;
  }
}

std::vector<std::shared_ptr<BatchBuffer>> BufferRing::Clear() {
  std::vector<std::shared_ptr<BatchBuffer>> buffers;
  for (Slot& slot : slots_) {
    // those handed out stay with their receivers; CpuPool::Release resets their users
    if (slot.handed_out == 0) buffers.push_back(std::move(slot.buffer));
  }
  slots_.clear();
  return buffers;
}

std::int64_t BufferRing::bytes() const {
  std::int64_t total = 0;
  for (const Slot& slot : slots_) total += slot.buffer->bytes();
  return total;
}

}  // namespace rollouts
