// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/state_snapshot.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "rollouts/support/state.h"

namespace rollouts::replay {
namespace {

// Least bytes of a piece: large enough for a file, small beside a store.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr std::uint64_t kPrime = 0x9E3779B185EBCA87u;

}  // namespace

// Four interleaved hashes of 64-bit words, each a bijection of its last word: a change within
// one word always shows. As fast as memory, unlike FNV-1a's one byte at a time.
void Checksum::AddBlock(const std::uint8_t* block) {
  for (std::size_t i = 0; i < 4; ++i) {
    std::uint64_t word;
    std::memcpy(&word, block + 8 * i, sizeof(word));
    lane_[i] = std::rotl((lane_[i] ^ word) * kPrime, 29);
  }
}

void Checksum::Add(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  const std::size_t kept = count_ % kBlock;
  count_ += bytes.size();
  // pieces end anywhere: what does not fill a block waits for the next one
  if (kept > 0) {
    const std::size_t taken = std::min(kBlock - kept, bytes.size());
    std::memcpy(rest_ + kept, bytes.data(), taken);
    bytes = bytes.subspan(taken);
    if (kept + taken < kBlock) return;
    AddBlock(rest_);
  }
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) AddBlock(bytes.data());
  if (!bytes.empty()) std::memcpy(rest_, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const {
  // a copy, so that more may be added after it was asked for
  Checksum last = *this;
  std::memset(last.rest_ + count_ % kBlock, 0, kBlock - count_ % kBlock);
  last.AddBlock(last.rest_);
  std::uint64_t sum = count_;
  for (const std::uint64_t value : last.lane_) sum = std::rotl((sum ^ value) * kPrime, 31);
  return sum;
}

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
  // the snapshot keeps chunks from being used again, which is not to fill a bounded store
  allocator_.Spare(std::ssize(chunks_));
}

StateSnapshot::~StateSnapshot() { GiveUp(chunks_.size()); }

// The chunks before number `count` are not needed any more.
void StateSnapshot::GiveUp(std::size_t count) {
  allocator_.Spare(static_cast<std::int64_t>(next_) - static_cast<std::int64_t>(count));
  for (; next_ < count; ++next_) allocator_.Unref(chunks_[next_].chunk);
}

std::vector<std::uint8_t> StateSnapshot::Next() {
  if (ended_) return {};
  std::vector<std::uint8_t> piece;
  if (!std::exchange(begun_, true)) piece = std::move(opening_);
  // the last chunk may end beyond the piece's size
  piece.reserve(piece.size() + kPieceBytes + static_cast<std::size_t>(layout_.chunk_bytes));
  StateWriter writer(piece);
  std::size_t next = next_;
  for (; next < chunks_.size() && piece.size() < kPieceBytes; ++next) {
    PutChunk(writer, layout_, chunks_[next]);
  }
  // handed out: the store may use their memory again
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
