// SPDX-License-Identifier: Apache-2.0
// Parts of a saved state of a replay store: chunks, streams and tables as bytes. Reading throws
// SpecError for impossible values.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "rollouts/replay/chunk.h"
#include "rollouts/replay/stream.h"
#include "rollouts/replay/table.h"
#include "rollouts/support/state.h"

namespace rollouts::replay {

// The index of each chunk in a state, by stream and chunk number.
using ChunkIndex = std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>;

// A chunk as it was at one moment; its writer may go on meanwhile.
struct ChunkImage {
  Chunk* chunk = nullptr;
  std::int64_t stream = 0;
  std::int64_t number = 0;
  std::int64_t first_row = 0;
  std::int32_t num_rows = 0;
  std::vector<Chunk::Frames> frames;

  explicit ChunkImage(Chunk& of)
      : chunk(&of), stream(of.stream), number(of.number), first_row(of.first_row),
        num_rows(of.num_rows), frames(of.frames) {}
  std::int64_t bytes(const ChunkLayout& layout) const;  // bytes that PutChunk appends
};

// Any thread may call this: the part of a chunk that an image covers does not change.
void PutChunk(StateWriter& writer, const ChunkLayout& layout, const ChunkImage& image);

// Chunks taken for a state that is being loaded; they are given back with this object.
class LoadedChunks {
 public:
  LoadedChunks(ChunkAllocator& allocator, const ChunkLayout& layout)
      : allocator_(allocator), layout_(layout) {}
  ~LoadedChunks();
  LoadedChunks(const LoadedChunks&) = delete;
  LoadedChunks& operator=(const LoadedChunks&) = delete;

  void Load(StateReader& reader);
  void CheckStreams(std::int64_t num_streams) const;
  // Checks that these are `count` chunks of one stream that follow each other.
  void CheckRange(std::int64_t first, std::int64_t count, std::int64_t stream) const;
  // Checks that these chunks hold the rows [start, start + length) and the frames of their stacks.
  void CheckRows(std::int64_t first, std::int64_t count, std::int64_t start,
                 std::int64_t length) const;
  Chunk* at(std::int64_t i) const { return chunks_[static_cast<std::size_t>(i)]; }

 private:
  bool Follows(std::int64_t i) const;
  void CheckFrames(std::int64_t i);

  ChunkAllocator& allocator_;
  const ChunkLayout& layout_;
  std::vector<Chunk*> chunks_;
  std::vector<std::int64_t> last_oldest_;  // by column: the oldest frame of the row read last
};

void PutStream(StateWriter& writer, const Stream& stream, const ChunkIndex& index);
// Reads a stream, without references on its chunks yet.
Stream::Saved GetStream(StateReader& reader, std::int64_t id, std::size_t num_columns,
                        const LoadedChunks& chunks);

void PutTable(StateWriter& writer, const Table::Contents& contents, const ChunkIndex& index);
// Reads items and samples, without references on their chunks yet.
std::unique_ptr<Table::Contents> GetTable(StateReader& reader, const TableSpec& spec,
                                          const LoadedChunks& chunks);

// Reads a count, which must be followed by at least as many bytes.
std::int64_t GetCount(StateReader& reader);

}  // namespace rollouts::replay
