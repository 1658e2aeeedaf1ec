// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/state_snapshot.h"

#include <utility>

#include "rollouts/support/state.h"

namespace rollouts::replay {
namespace {

// The least bytes of a piece: large enough for writing a file, small next to a store.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

}  // namespace

StateSnapshot::StateSnapshot(const ChunkLayout& layout, ChunkAllocator& allocator,
                             std::vector<ChunkImage> chunks, std::vector<std::uint8_t> opening,
                             std::vector<std::uint8_t> closing)
    : layout_(layout),
      allocator_(allocator),
      chunks_(std::move(chunks)),
      opening_(std::move(opening)),
      closing_(std::move(closing)),
      bytes_(opening_.size() + closing_.size() + sizeof(std::uint64_t)) {
  for (const ChunkImage& image : chunks_) {
    bytes_ += static_cast<std::uint64_t>(image.bytes(layout_));
  }
  // a bounded store must not become full because the snapshot keeps chunks from being used again
  allocator_.Spare(std::ssize(chunks_));
}

StateSnapshot::~StateSnapshot() { GiveUp(chunks_.size()); }

// Drops the references of the chunks before number `count`.
void StateSnapshot::GiveUp(std::size_t count) {
  allocator_.Spare(static_cast<std::int64_t>(next_) - static_cast<std::int64_t>(count));
  for (; next_ < count; ++next_) allocator_.Unref(chunks_[next_].chunk);
}

std::vector<std::uint8_t> StateSnapshot::Next() {
  if (ended_) return {};
  std::vector<std::uint8_t> piece;
  if (!std::exchange(begun_, true)) piece = std::move(opening_);
  // reserves room for the last chunk, which may end beyond the piece's size
  piece.reserve(piece.size() + kPieceBytes + static_cast<std::size_t>(layout_.chunk_bytes));
  StateWriter writer(piece);
  std::size_t next = next_;
  for (; next < chunks_.size() && piece.size() < kPieceBytes; ++next) {
    PutChunk(writer, layout_, chunks_[next]);
  }
  // these chunks were handed out, so the store may use their memory again
  GiveUp(next);
  if (next_ < chunks_.size()) {
    checksum_.Add(piece);
    return piece;
  }
  ended_ = true;
  writer.PutBytes(closing_);
  checksum_.Add(piece);
  writer.Put(checksum_.value());
  closing_ = {};
  return piece;
}

}  // namespace rollouts::replay
