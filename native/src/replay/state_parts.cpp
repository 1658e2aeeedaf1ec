// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/state_parts.h"

#include <cmath>
#include <cstring>

#include "rollouts/support/errors.h"

namespace rollouts::replay {

std::int64_t GetCount(StateReader& reader) {
  const auto count = reader.Get<std::int64_t>();
  if (count < 0 || static_cast<std::uint64_t>(count) > reader.rest().size()) {
    throw SpecError("has a count that cannot be");
  }
  return count;
}

namespace {

void CheckState(bool fits) {
  if (!fits) throw SpecError("has parts that do not fit each other");
}

// --- chunks ------------------------------------------------------------------------------

// Calls visit(data, bytes) for each used part of a chunk's memory.
template <typename Visit>
void VisitMemory(const ChunkLayout& layout, std::uint8_t* data, std::int32_t num_rows,
                 const std::vector<Chunk::Frames>& frames, const Visit& visit) {
  // records lie at the front, frames behind them by column: what is unused is left out
  visit(data, num_rows * layout.row_bytes);
  for (std::size_t c = 0; c < layout.columns.size(); ++c) {
    const ChunkLayout::Column& column = layout.columns[c];
    if (column.stack > 1) visit(data + column.offset, column.bytes * frames[c].count);
  }
}

// Into a chunk that nobody else knows yet.
void GetChunk(StateReader& reader, const ChunkLayout& layout, Chunk& chunk) {
  chunk.stream = reader.Get<std::int64_t>();
  chunk.number = reader.Get<std::int64_t>();
  chunk.first_row = reader.Get<std::int64_t>();
  chunk.num_rows = reader.Get<std::int32_t>();
  // what is read into memory is bounded by what the chunk has room for
  CheckState(chunk.num_rows >= 0 && chunk.num_rows <= layout.chunk_rows);
  for (std::size_t c = 0; c < layout.columns.size(); ++c) {
    Chunk::Frames& frames = chunk.frames[c];
    frames.first = reader.Get<std::int64_t>();
    frames.count = reader.Get<std::int32_t>();
    CheckState(frames.count >= 0 && frames.count <= layout.columns[c].capacity);
  }
  VisitMemory(layout, chunk.data, chunk.num_rows, chunk.frames, [&](std::uint8_t* data, std::int64_t bytes) {
    const auto from = reader.GetBytes(static_cast<std::uint64_t>(bytes));
    if (bytes > 0) std::memcpy(data, from.data(), from.size());
  });
}

}  // namespace

std::int64_t ChunkImage::bytes(const ChunkLayout& layout) const {
  constexpr std::int64_t kNumbers = 3 * sizeof(std::int64_t) + sizeof(std::int32_t);
  constexpr std::int64_t kFrames = sizeof(std::int64_t) + sizeof(std::int32_t);
  std::int64_t total = kNumbers + kFrames * std::ssize(frames);
  VisitMemory(layout, chunk->data, num_rows, frames,
              [&](const std::uint8_t*, std::int64_t bytes) { total += bytes; });
  return total;
}

void PutChunk(StateWriter& writer, const ChunkLayout& layout, const ChunkImage& image) {
  writer.Put(image.stream);
  writer.Put(image.number);
  writer.Put(image.first_row);
  writer.Put(image.num_rows);
  for (const Chunk::Frames& frames : image.frames) {
    writer.Put(frames.first);
    writer.Put(frames.count);
  }
  VisitMemory(layout, image.chunk->data, image.num_rows, image.frames,
              [&](const std::uint8_t* data, std::int64_t bytes) {
                writer.PutBytes({data, static_cast<std::size_t>(bytes)});
              });
}

LoadedChunks::~LoadedChunks() {
  for (Chunk* const chunk : chunks_) allocator_.Unref(chunk);
}

void LoadedChunks::Load(StateReader& reader, const ChunkLayout& layout) {
  const std::int64_t count = GetCount(reader);
  chunks_.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    chunks_.push_back(allocator_.Take());
    GetChunk(reader, layout, *chunks_.back());
    // chunks are saved in order of streams and numbers, so neighbours are linked
    if (i > 0 && Follows(i)) chunks_[i - 1]->next = chunks_[i];
  }
}

// Whether chunk i is the next one of its stream after chunk i - 1.
bool LoadedChunks::Follows(std::int64_t i) const {
  return chunks_[i]->stream == chunks_[i - 1]->stream &&
         chunks_[i]->number == chunks_[i - 1]->number + 1 &&
         chunks_[i]->first_row == chunks_[i - 1]->first_row + chunks_[i - 1]->num_rows;
}

void LoadedChunks::CheckRange(std::int64_t first, std::int64_t count, std::int64_t stream) const {
  // written so that no sum can overflow
  CheckState(count >= 1 && first >= 0 && first <= std::ssize(chunks_) - count);
  CheckState(chunks_[first]->stream == stream);
  for (std::int64_t i = first + 1; i < first + count; ++i) CheckState(Follows(i));
}

// --- streams -----------------------------------------------------------------------------

void PutStream(StateWriter& writer, const Stream& stream, const ChunkIndex& index) {
  const Stream::Saved saved = stream.Save();
  writer.Put(saved.next_row);
  writer.Put(saved.oldest_row);
  writer.Put(saved.next_chunk);
  writer.Put(static_cast<std::uint8_t>(saved.next_is_first));
  for (const std::int64_t frame : saved.next_frame) writer.Put(frame);
  writer.Put(static_cast<std::int64_t>(saved.chunks.size()));
  // chunks of a stream follow each other in the file, so the first and their count say all
  const std::int64_t first =
      saved.chunks.empty() ? 0 : index.at({stream.id(), saved.chunks.front()->number});
  writer.Put(first);
}

Stream::Saved GetStream(StateReader& reader, std::int64_t id, std::size_t num_columns,
                        const LoadedChunks& chunks) {
  Stream::Saved saved;
  saved.next_row = reader.Get<std::int64_t>();
  saved.oldest_row = reader.Get<std::int64_t>();
  saved.next_chunk = reader.Get<std::int64_t>();
  saved.next_is_first = reader.Get<std::uint8_t>() != 0;
  for (std::size_t c = 0; c < num_columns; ++c) saved.next_frame.push_back(reader.Get<std::int64_t>());
  const auto count = reader.Get<std::int64_t>();
  const auto first = reader.Get<std::int64_t>();
  CheckState(saved.oldest_row >= 0 && saved.oldest_row <= saved.next_row && count >= 0);
  if (count == 0) return saved;
  chunks.CheckRange(first, count, id);
  const Chunk& last = *chunks.at(first + count - 1);
  // the last chunk is the one that is written next: it must end where the stream does
  CheckState(chunks.at(first)->first_row <= saved.oldest_row &&
             last.num_rows > 0 && last.first_row + last.num_rows == saved.next_row &&
             last.number + 1 == saved.next_chunk);
  for (std::int64_t i = first; i < first + count; ++i) saved.chunks.push_back(chunks.at(i));
  return saved;
}

// --- tables ------------------------------------------------------------------------------

namespace {

// A run's chunks follow each other, so the first one's number says which they are.
void PutRun(StateWriter& writer, const RowRun& run, const ChunkIndex& index) {
  writer.Put(index.at({run.stream, run.first->number}));
  writer.Put(run.num_chunks);
  writer.Put(run.length);
  writer.Put(run.stream);
  writer.Put(run.start);
}

RowRun GetRun(StateReader& reader, const LoadedChunks& chunks) {
  RowRun run;
  const auto first = reader.Get<std::int64_t>();
  run.num_chunks = reader.Get<std::int32_t>();
  run.length = reader.Get<std::int32_t>();
  run.stream = reader.Get<std::int64_t>();
  run.start = reader.Get<std::int64_t>();
  chunks.CheckRange(first, run.num_chunks, run.stream);
  const Chunk& last = *chunks.at(first + run.num_chunks - 1);
  run.first = chunks.at(first);
  // all rows of a run lie in its chunks
  CheckState(run.length >= 1 && run.start >= run.first->first_row &&
             run.start + run.length <= last.first_row + last.num_rows);
  return run;
}

// Drawn and not handed out yet: the next call of Sample returns it.
void PutSample(StateWriter& writer, const Sampled& sampled, const ChunkIndex& index) {
  PutRun(writer, sampled.run, index);
  for (const std::int64_t number : {sampled.key, sampled.insert_index, sampled.table_size,
                                    sampled.num_inserts}) {
    writer.Put(number);
  }
  writer.Put(sampled.probability);
  writer.Put(sampled.priority);
  writer.Put(sampled.times_sampled);
}

Sampled GetSample(StateReader& reader, const LoadedChunks& chunks) {
  Sampled sampled{.run = GetRun(reader, chunks)};
  for (std::int64_t* const number : {&sampled.key, &sampled.insert_index, &sampled.table_size,
                                     &sampled.num_inserts}) {
    *number = reader.Get<std::int64_t>();
  }
  sampled.probability = reader.Get<double>();
  sampled.priority = reader.Get<double>();
  sampled.times_sampled = reader.Get<std::int32_t>();
  return sampled;
}

}  // namespace

void PutTable(StateWriter& writer, const Table::Contents& contents, const ChunkIndex& index) {
  writer.Put(contents.limiter.inserts());
  writer.Put(contents.limiter.samples());
  writer.Put(contents.limiter.deletes());
  // random numbers are a seed and how many were drawn: samples go on as they would have
  writer.Put(contents.random.seed());
  writer.Put(contents.random.draws());
  writer.Put(contents.max_priority);
  writer.Put(std::int64_t{contents.num_slots});
  for (std::int32_t slot = 0; slot < contents.num_slots; ++slot) {
    const Table::Item& item = contents.items[slot];
    writer.Put(item.generation);
    writer.Put(static_cast<std::uint8_t>(item.live));
    // of an unused slot only its generation counts, so that old keys stay unknown
    if (!item.live) continue;
    PutRun(writer, item.run, index);
    writer.Put(item.priority);
    writer.Put(item.insert_index);
    writer.Put(item.times_sampled);
  }
  // in their order: it says which slot, and so which key, the next item gets
  for (const std::int32_t slot : contents.free_slots) writer.Put(slot);
  contents.sampler->Save(writer);
  contents.remover->Save(writer);
  writer.Put(static_cast<std::int64_t>(contents.drawn.size()));
  for (const Sampled& sampled : contents.drawn) PutSample(writer, sampled, index);
}

namespace {

void GetItem(StateReader& reader, const LoadedChunks& chunks, Table::Item& item) {
  item.run = GetRun(reader, chunks);
  item.priority = reader.Get<double>();
  item.insert_index = reader.Get<std::int64_t>();
  item.times_sampled = reader.Get<std::int32_t>();
  // a negative or infinite weight would spoil every sum above it
  CheckState(item.priority >= 0 && std::isfinite(item.priority) && item.times_sampled >= 0);
}

}  // namespace

std::unique_ptr<Table::Contents> GetTable(StateReader& reader, const TableSpec& spec,
                                          const LoadedChunks& chunks) {
  auto contents = Table::MakeContents(spec);
  const auto inserts = reader.Get<std::int64_t>();
  const auto samples = reader.Get<std::int64_t>();
  contents->limiter.Load(inserts, samples, reader.Get<std::int64_t>());
  const auto seed = reader.Get<std::uint64_t>();
  contents->random = TableRandom(seed, reader.Get<std::uint64_t>());
  contents->max_priority = reader.Get<double>();
  const std::int64_t num_slots = GetCount(reader);
  // before memory is asked for, which a damaged count would take all of
  CheckState(num_slots <= spec.max_size);
  contents->num_slots = static_cast<std::int32_t>(num_slots);
  if (num_slots > 0) contents->GrowTo(contents->num_slots);

  std::vector<std::int32_t> slots;
  std::vector<double> priorities;
  for (std::int32_t slot = 0; slot < num_slots; ++slot) {
    Table::Item& item = contents->items[slot];
    item.generation = reader.Get<std::uint32_t>();
    item.live = reader.Get<std::uint8_t>() != 0;
    if (!item.live) continue;
    GetItem(reader, chunks, item);
    slots.push_back(slot);
    priorities.push_back(item.priority);
    contents->uses += item.times_sampled;
  }
  contents->size = std::ssize(slots);
  // the limiter's own count of what is in the table
  CheckState(contents->limiter.size() == contents->size);
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(num_slots), 0);
  for (std::int64_t i = contents->size; i < num_slots; ++i) {
    const auto slot = reader.Get<std::int32_t>();
    // each slot is an item's or free, and none is both
    CheckState(slot >= 0 && slot < num_slots && !contents->items[slot].live && !seen[slot]);
    seen[slot] = 1;
    contents->free_slots.push_back(slot);
  }
  contents->sampler->Load(reader, slots, priorities);
  contents->remover->Load(reader, slots, priorities);
  const std::int64_t num_drawn = GetCount(reader);
  for (std::int64_t i = 0; i < num_drawn; ++i) contents->drawn.push_back(GetSample(reader, chunks));
  return contents;
}

}  // namespace rollouts::replay
