// SPDX-License-Identifier: Apache-2.0
// A replay store as it was at one moment, as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rollouts/replay/chunk.h"
#include "rollouts/replay/state_parts.h"
#include "rollouts/support/checksum.h"

namespace rollouts::replay {

// Hands the bytes out in pieces, so that a store need not fit into memory twice. The store goes on
// meanwhile: the chunks that were not handed out yet stay as they are, and the store may take that
// many chunks beyond its bound. Not thread-safe, and must not outlive the store.
class StateSnapshot {
 public:
  // Each of `chunks` has a reference, which the snapshot takes over. `opening`: the bytes before
  // them; `closing`: the bytes after them.
  StateSnapshot(const ChunkLayout& layout, ChunkAllocator& allocator,
                std::vector<ChunkImage> chunks, std::vector<std::uint8_t> opening,
                std::vector<std::uint8_t> closing);
  ~StateSnapshot();
  StateSnapshot(const StateSnapshot&) = delete;
  StateSnapshot& operator=(const StateSnapshot&) = delete;

  // The bytes of all pieces.
  std::uint64_t bytes() const { return bytes_; }
  // The next piece, of a few megabytes; empty at the end. Throws std::bad_alloc.
  std::vector<std::uint8_t> Next();

 private:
  void GiveUp(std::size_t count);

  const ChunkLayout& layout_;
  ChunkAllocator& allocator_;
  std::vector<ChunkImage> chunks_;
  std::vector<std::uint8_t> opening_;
  std::vector<std::uint8_t> closing_;
  std::uint64_t bytes_ = 0;
  std::size_t next_ = 0;  // chunk
  bool begun_ = false;
  bool ended_ = false;
  Checksum checksum_;
};

}  // namespace rollouts::replay
