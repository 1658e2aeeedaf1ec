// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/state_parts.h"

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

// Rows and frames of a stream have numbers below this, so that no sum of them overflows.
constexpr std::int64_t kMostNumber = std::int64_t{1} << 62;

void CheckState(bool fits) {
  if (!fits) throw SpecError("has parts that do not fit each other");
}

std::int64_t GetNumber(StateReader& reader) {
  const auto number = reader.Get<std::int64_t>();
  CheckState(number >= 0 && number < kMostNumber);
  return number;
}

// --- chunks ------------------------------------------------------------------------------

// Calls visit(data, bytes) for each used part of a chunk's memory.
template <typename Visit>
void VisitMemory(const ChunkLayout& layout, std::uint8_t* data, std::int32_t num_rows,
                 const std::vector<Chunk::Frames>& frames, const Visit& visit) {
  // records lie at the front, then the frames of each column; unused memory is left out
  visit(data, num_rows * layout.row_bytes);
  for (std::size_t c = 0; c < layout.columns.size(); ++c) {
    const ChunkLayout::Column& column = layout.columns[c];
    if (column.stack > 1) visit(data + column.offset, column.bytes * frames[c].count);
  }
}

// Reads a chunk into `chunk`, which no other thread uses yet.
void GetChunk(StateReader& reader, const ChunkLayout& layout, Chunk& chunk) {
  chunk.stream = GetNumber(reader);
  chunk.number = GetNumber(reader);
  chunk.first_row = GetNumber(reader);
  chunk.num_rows = reader.Get<std::int32_t>();
  // bounded by the room in the chunk, into which the rows are read
  CheckState(chunk.num_rows >= 1 && chunk.num_rows <= layout.chunk_rows);
  for (std::size_t c = 0; c < layout.columns.size(); ++c) {
    Chunk::Frames& frames = chunk.frames[c];
    frames.first = GetNumber(reader);
    frames.count = reader.Get<std::int32_t>();
    CheckState(frames.count >= 0 && frames.count <= layout.columns[c].capacity);
  }
  VisitMemory(layout, chunk.data, chunk.num_rows, chunk.frames, [&](std::uint8_t* data, std::int64_t bytes) {
    const auto from = reader.GetBytes(static_cast<std::uint64_t>(bytes));
    if (bytes > 0) std::memcpy(data, from.data(), from.size());
  });
}

// The number of the oldest frame that a row of a stacked column shows; `none` where it shows only
// zeros. Throws where frames are out of order, or missing in the row's chunk and those before it.
std::int64_t OldestFrame(const ChunkLayout::Column& column, const Chunk::Frames& frames,
                         const std::uint8_t* record, std::int64_t none) {
  std::int64_t newest;
  std::memcpy(&newest, record + column.newest_offset, sizeof(newest));
  CheckState(newest >= frames.first - 1 && newest < frames.first + frames.count);
  std::int64_t oldest = none;
  std::int64_t before = 0;
  bool any = false;
  for (std::int32_t k = 0; k < column.stack; ++k) {
    const std::uint8_t delta = record[column.deltas_offset + k];
    if (delta == ChunkLayout::kNoFrame) continue;
    const std::int64_t number = newest - delta;
    CheckState(delta < column.stack && number >= before);
    before = number;
    if (!any) oldest = number;
    any = true;
  }
  return oldest;
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

void LoadedChunks::Load(StateReader& reader) {
  const std::int64_t count = GetCount(reader);
  chunks_.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    chunks_.push_back(allocator_.Take());
    GetChunk(reader, layout_, *chunks_.back());
    // chunks are saved in the order of streams and numbers, so consecutive ones are linked
    if (i > 0 && Follows(i)) chunks_[i - 1]->next = chunks_[i];
    if (layout_.has_stacks) CheckFrames(i);
  }
}

// Tells if chunk i is the next one of its stream after chunk i - 1.
bool LoadedChunks::Follows(std::int64_t i) const {
  const Chunk& chunk = *chunks_[i];
  const Chunk& before = *chunks_[i - 1];
  for (std::size_t c = 0; c < chunk.frames.size(); ++c) {
    if (chunk.frames[c].first != before.frames[c].first + before.frames[c].count) return false;
  }
  return chunk.stream == before.stream && chunk.number == before.number + 1 &&
         chunk.first_row == before.first_row + before.num_rows;
}

// Checks that each row's frames are found going forward from the chunk with its run's oldest frame:
// no row shows an older frame than the row before it.
void LoadedChunks::CheckFrames(std::int64_t i) {
  const Chunk& chunk = *chunks_[i];
  if (i == 0 || !Follows(i)) last_oldest_.assign(layout_.columns.size(), 0);
  for (std::int64_t row = 0; row < chunk.num_rows; ++row) {
    const std::uint8_t* const record = RecordOf(layout_, chunk, row);
    for (std::size_t c = 0; c < layout_.columns.size(); ++c) {
      const ChunkLayout::Column& column = layout_.columns[c];
      if (column.stack == 1) continue;
      const std::int64_t oldest = OldestFrame(column, chunk.frames[c], record, last_oldest_[c]);
      CheckState(oldest >= last_oldest_[c]);
      last_oldest_[c] = oldest;
    }
  }
}

void LoadedChunks::CheckStreams(std::int64_t num_streams) const {
  for (const Chunk* const chunk : chunks_) CheckState(chunk->stream < num_streams);
}

void LoadedChunks::CheckRange(std::int64_t first, std::int64_t count, std::int64_t stream) const {
  // written such that no sum can overflow
  CheckState(count >= 1 && first >= 0 && first <= std::ssize(chunks_) - count);
  CheckState(chunks_[first]->stream == stream);
  for (std::int64_t i = first + 1; i < first + count; ++i) CheckState(Follows(i));
}

// Throws unless rows [start, start + length) lie in chunks [first, first + count). These chunks
// also have to hold the frames that row `start` stacks: those of later rows are then there, too.
void LoadedChunks::CheckRows(std::int64_t first, std::int64_t count, std::int64_t start,
                             std::int64_t length) const {
  const Chunk& last = *chunks_[first + count - 1];
  CheckState(start >= chunks_[first]->first_row && start < kMostNumber &&
             start + length <= last.first_row + last.num_rows);
  if (!layout_.has_stacks) return;
  std::int64_t own = first;
  while (start >= chunks_[own]->first_row + chunks_[own]->num_rows) ++own;
  const Chunk& holder = *chunks_[own];
  const std::uint8_t* const record = RecordOf(layout_, holder, start - holder.first_row);
  for (std::size_t c = 0; c < layout_.columns.size(); ++c) {
    const ChunkLayout::Column& column = layout_.columns[c];
    if (column.stack == 1) continue;
    const std::int64_t from = chunks_[first]->frames[c].first;
    CheckState(OldestFrame(column, holder.frames[c], record, from) >= from);
  }
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
  // a stream's chunks follow each other in the file, so that the first and the count identify them
  const std::int64_t first =
      saved.chunks.empty() ? 0 : index.at({stream.id(), saved.chunks.front()->number});
  writer.Put(first);
}

Stream::Saved GetStream(StateReader& reader, std::int64_t id, std::size_t num_columns,
                        const LoadedChunks& chunks) {
  Stream::Saved saved;
  saved.next_row = GetNumber(reader);
  saved.oldest_row = GetNumber(reader);
  saved.next_chunk = GetNumber(reader);
  saved.next_is_first = reader.Get<std::uint8_t>() != 0;
  for (std::size_t c = 0; c < num_columns; ++c) saved.next_frame.push_back(GetNumber(reader));
  const auto count = reader.Get<std::int64_t>();
  const auto first = reader.Get<std::int64_t>();
  CheckState(saved.oldest_row <= saved.next_row && count >= 0);
  // the chunks must hold all rows that new items may refer to
  CheckState(count > 0 || saved.oldest_row == saved.next_row);
  if (count == 0) return saved;
  chunks.CheckRange(first, count, id);
  const Chunk& last = *chunks.at(first + count - 1);
  // the last chunk is written next, so it must end where the stream does
  CheckState(chunks.at(first)->first_row <= saved.oldest_row &&
             last.num_rows > 0 && last.first_row + last.num_rows == saved.next_row &&
             last.number + 1 == saved.next_chunk);
  if (saved.oldest_row < saved.next_row) {
    chunks.CheckRows(first, count, saved.oldest_row, saved.next_row - saved.oldest_row);
  }
  for (std::size_t c = 0; c < num_columns; ++c) {
    CheckState(saved.next_frame[c] == last.frames[c].first + last.frames[c].count);
  }
  for (std::int64_t i = first; i < first + count; ++i) saved.chunks.push_back(chunks.at(i));
  return saved;
}

// --- tables ------------------------------------------------------------------------------

namespace {

// Writes a run. Its chunks follow each other, so the number of the first one identifies them.
void PutRun(StateWriter& writer, const RowRun& run, const ChunkIndex& index) {
  writer.Put(index.at({run.stream, run.first->number}));
  writer.Put(run.num_chunks);
  writer.Put(run.length);
  writer.Put(run.stream);
  writer.Put(run.start);
  writer.Put(run.at);
}

RowRun GetRun(StateReader& reader, const LoadedChunks& chunks) {
  RowRun run;
  const auto first = reader.Get<std::int64_t>();
  run.num_chunks = reader.Get<std::int32_t>();
  run.length = reader.Get<std::int32_t>();
  run.stream = reader.Get<std::int64_t>();
  run.start = reader.Get<std::int64_t>();
  run.at = reader.Get<std::int32_t>();
  CheckState(run.length >= 1 && run.at >= 0 && run.at < run.length);
  chunks.CheckRange(first, run.num_chunks, run.stream);
  run.first = chunks.at(first);
  chunks.CheckRows(first, run.num_chunks, run.start, run.length);
  return run;
}

// Writes a sample that was drawn and not handed out yet: the next call of Sample returns it.
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
  // the seed and the number of draws determine a random stream: after a load, samples continue as
  // they would have
  writer.Put(contents.random.seed());
  writer.Put(contents.random.draws());
  writer.Put(contents.max_priority);
  writer.Put(std::int64_t{contents.num_slots});
  for (std::int32_t slot = 0; slot < contents.num_slots; ++slot) {
    const Table::Item& item = contents.items[slot];
    writer.Put(std::uint32_t{item.generation});
    writer.Put(static_cast<std::uint8_t>(item.live));
    // only the generation of an unused slot is saved, so that old keys stay invalid
    if (!item.live) continue;
    PutRun(writer, item.run, index);
    writer.Put(item.priority);
    writer.Put(item.insert_index);
    writer.Put(item.times_sampled);
  }
  // saved in order, because the order decides which slot, and so which key, the next item gets
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
  CheckState(item.times_sampled >= 0 && item.insert_index >= 0);
}

}  // namespace

std::unique_ptr<Table::Contents> GetTable(StateReader& reader, const TableSpec& spec,
                                          const LoadedChunks& chunks) {
  auto contents = Table::MakeContents(spec);
  // the limits of `insert`: a negative, infinite or too large weight would spoil every sum above it
  const double most_priority = MostPriority(spec.sampler, spec.remover);
  const auto inserts = GetNumber(reader);
  const auto samples = GetNumber(reader);
  contents->limiter.Load(inserts, samples, GetNumber(reader));
  const auto seed = reader.Get<std::uint64_t>();
  contents->random = TableRandom(seed, reader.Get<std::uint64_t>());
  contents->max_priority = reader.Get<double>();
  CheckState(contents->max_priority >= 0 && contents->max_priority <= most_priority);
  const std::int64_t num_slots = GetCount(reader);
  // checked before memory is allocated, which a damaged count could exhaust
  CheckState(num_slots <= spec.max_size);
  contents->num_slots = static_cast<std::int32_t>(num_slots);
  if (num_slots > 0) contents->GrowTo(contents->num_slots);

  std::vector<std::int32_t> slots;
  std::vector<double> priorities;
  for (std::int32_t slot = 0; slot < num_slots; ++slot) {
    Table::Item& item = contents->items[slot];
    const auto generation = reader.Get<std::uint32_t>();
    CheckState(generation <= Table::kGenerations);
    item.generation = generation & Table::kGenerations;
    item.live = reader.Get<std::uint8_t>() != 0;
    if (!item.live) continue;
    GetItem(reader, chunks, item);
    CheckState(item.priority >= 0 && item.priority <= most_priority);
    slots.push_back(slot);
    priorities.push_back(item.priority);
    contents->uses += item.times_sampled;
  }
  contents->size = std::ssize(slots);
  // the limiter's own count of the items in the table
  CheckState(contents->limiter.size() == contents->size);
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(num_slots), 0);
  for (std::int64_t i = contents->size; i < num_slots; ++i) {
    const auto slot = reader.Get<std::int32_t>();
    // each slot is either used by an item or free
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
