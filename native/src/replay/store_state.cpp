// SPDX-License-Identifier: Apache-2.0
// Saved states of a replay store.
//
//   magic "rreplay1"  8 bytes     version    uint32    zero  uint32
//   body bytes        uint64      checksum   uint64, of all words of the body
//   body: what the store is made of; chunks; streams; tables
//
// Numbers are little-endian. The checksum finds damage, not forgery.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "rollouts/pool/errors.h"
#include "rollouts/pool/state.h"
#include "rollouts/replay/replay_store.h"

namespace rollouts::replay {
namespace {

constexpr char kMagic[8] = {'r', 'r', 'e', 'p', 'l', 'a', 'y', '1'};
constexpr std::uint32_t kVersion = 1;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t zero;
  std::uint64_t body_bytes;
  std::uint64_t checksum;
};
static_assert(sizeof(Header) == 32);
static_assert(std::endian::native == std::endian::little, "states are little-endian");

// Four interleaved hashes of 64-bit words, each a bijection of its last word: a change within
// one word always shows. As fast as memory, unlike FNV-1a's one byte at a time.
std::uint64_t Checksum(std::span<const std::uint8_t> bytes) {
  constexpr std::uint64_t kPrime = 0x9E3779B185EBCA87u;
  std::uint64_t lane[4] = {1, 2, 3, bytes.size()};
  const auto add = [&](std::size_t i, std::uint64_t word) {
    lane[i] = std::rotl((lane[i] ^ word) * kPrime, 29);
  };
  std::size_t at = 0;
  for (; at + 32 <= bytes.size(); at += 32) {
    std::uint64_t words[4];
    std::memcpy(words, bytes.data() + at, 32);
    for (std::size_t i = 0; i < 4; ++i) add(i, words[i]);
  }
  for (; at < bytes.size(); ++at) add(at % 4, bytes[at]);
  std::uint64_t sum = 0;
  for (const std::uint64_t value : lane) sum = std::rotl((sum ^ value) * kPrime, 31);
  return sum;
}

void PutText(StateWriter& writer, const std::string& text) {
  writer.Put(static_cast<std::uint64_t>(text.size()));
  writer.PutBytes({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

void PutSelector(StateWriter& writer, const SelectorSpec& spec) {
  writer.Put(static_cast<std::int32_t>(spec.kind));
  writer.Put(spec.exponent);
}

// What a store must be made of to understand another one's state.
std::vector<std::uint8_t> Fingerprint(const ChunkLayout& layout,
                                      const std::vector<std::unique_ptr<Table>>& tables) {
  std::vector<std::uint8_t> bytes;
  StateWriter writer(bytes);
  writer.Put(layout.chunk_rows);
  for (const ColumnSpec& spec : layout.specs) {
    PutText(writer, spec.name);
    PutText(writer, spec.dtype);
    writer.Put(static_cast<std::uint64_t>(spec.shape.size()));
    for (const std::int64_t extent : spec.shape) writer.Put(extent);
    writer.Put(spec.stack);
    writer.Put(static_cast<std::uint8_t>(spec.padding));
  }
  for (const auto& table : tables) {
    const TableSpec& spec = table->spec();
    PutText(writer, spec.name);
    writer.Put(spec.max_size);
    PutSelector(writer, spec.sampler);
    PutSelector(writer, spec.remover);
    writer.Put(spec.max_times_sampled);
    writer.Put(spec.limiter.samples_per_insert);
    writer.Put(spec.limiter.min_size);
    writer.Put(spec.limiter.min_diff);
    writer.Put(spec.limiter.max_diff);
  }
  return bytes;
}

// A count that is followed by at least as many bytes.
std::int64_t GetCount(StateReader& reader) {
  const auto count = reader.Get<std::int64_t>();
  if (count < 0 || static_cast<std::uint64_t>(count) > reader.rest().size()) {
    throw SpecError("has a count that cannot be");
  }
  return count;
}

void CheckState(bool fits) {
  if (!fits) throw SpecError("has parts that do not fit each other");
}

// --- chunks ------------------------------------------------------------------------------

// The chunks of a state, in the order of streams and of their numbers.
using ChunkIndex = std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>;

// Calls visit(data, bytes) for each used part of a chunk's memory.
template <typename Visit>
void VisitMemory(const ChunkLayout& layout, const Chunk& chunk, const Visit& visit) {
  const std::int64_t rows = chunk.num_rows;
  for (std::size_t c = 0; c < layout.columns.size(); ++c) {
    const ChunkLayout::Column& column = layout.columns[c];
    visit(chunk.data + column.offset, column.bytes * (column.stack > 1 ? chunk.frames[c].count : rows));
    if (column.stack == 1) continue;
    visit(chunk.data + column.newest_offset, rows * 8);
    visit(chunk.data + column.deltas_offset, rows * column.stack);
  }
  visit(chunk.data + layout.flags_offset, rows);
}

void PutChunk(StateWriter& writer, const ChunkLayout& layout, const Chunk& chunk) {
  writer.Put(chunk.stream);
  writer.Put(chunk.number);
  writer.Put(chunk.first_row);
  writer.Put(chunk.num_rows);
  for (const Chunk::Frames& frames : chunk.frames) {
    writer.Put(frames.first);
    writer.Put(frames.count);
  }
  VisitMemory(layout, chunk, [&](const std::uint8_t* data, std::int64_t bytes) {
    writer.PutBytes({data, static_cast<std::size_t>(bytes)});
  });
}

void GetChunk(StateReader& reader, const ChunkLayout& layout, Chunk& chunk) {
  chunk.stream = reader.Get<std::int64_t>();
  chunk.number = reader.Get<std::int64_t>();
  chunk.first_row = reader.Get<std::int64_t>();
  chunk.num_rows = reader.Get<std::int32_t>();
  CheckState(chunk.num_rows >= 0 && chunk.num_rows <= layout.chunk_rows);
  for (std::size_t c = 0; c < layout.columns.size(); ++c) {
    Chunk::Frames& frames = chunk.frames[c];
    frames.first = reader.Get<std::int64_t>();
    frames.count = reader.Get<std::int32_t>();
    CheckState(frames.count >= 0 && frames.count <= layout.columns[c].capacity);
  }
  VisitMemory(layout, chunk, [&](std::uint8_t* data, std::int64_t bytes) {
    const auto from = reader.GetBytes(static_cast<std::uint64_t>(bytes));
    if (bytes > 0) std::memcpy(data, from.data(), from.size());
  });
}

// Chunks taken for a state that is being loaded; given back with it.
class LoadedChunks {
 public:
  explicit LoadedChunks(ChunkAllocator& allocator) : allocator_(allocator) {}
  ~LoadedChunks() {
    for (Chunk* const chunk : chunks_) allocator_.Unref(chunk);
  }
  LoadedChunks(const LoadedChunks&) = delete;
  LoadedChunks& operator=(const LoadedChunks&) = delete;

  void Load(StateReader& reader, const ChunkLayout& layout) {
    const std::int64_t count = GetCount(reader);
    chunks_.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      chunks_.push_back(allocator_.Take());
      GetChunk(reader, layout, *chunks_.back());
      if (i == 0) continue;
      Chunk& before = *chunks_[i - 1];
      if (Follows(i)) before.next = chunks_[i];
    }
  }
  // Whether chunk i is the next one of its stream after chunk i - 1.
  bool Follows(std::int64_t i) const {
    return chunks_[i]->stream == chunks_[i - 1]->stream &&
           chunks_[i]->number == chunks_[i - 1]->number + 1 &&
           chunks_[i]->first_row == chunks_[i - 1]->first_row + chunks_[i - 1]->num_rows;
  }
  // `count` chunks of one stream that follow each other.
  void CheckRange(std::int64_t first, std::int64_t count, std::int64_t stream) const {
    CheckState(count >= 1 && first >= 0 && first <= std::ssize(chunks_) - count);
    CheckState(chunks_[first]->stream == stream);
    for (std::int64_t i = first + 1; i < first + count; ++i) CheckState(Follows(i));
  }
  Chunk* at(std::int64_t i) const { return chunks_[static_cast<std::size_t>(i)]; }

 private:
  ChunkAllocator& allocator_;
  std::vector<Chunk*> chunks_;
};

// --- streams -----------------------------------------------------------------------------

void PutStream(StateWriter& writer, const Stream& stream, const ChunkIndex& index) {
  const Stream::Saved saved = stream.Save();
  writer.Put(saved.next_row);
  writer.Put(saved.oldest_row);
  writer.Put(saved.next_chunk);
  writer.Put(static_cast<std::uint8_t>(saved.next_is_first));
  for (const std::int64_t frame : saved.next_frame) writer.Put(frame);
  writer.Put(static_cast<std::int64_t>(saved.chunks.size()));
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
  CheckState(chunks.at(first)->first_row <= saved.oldest_row &&
             last.num_rows > 0 && last.first_row + last.num_rows == saved.next_row &&
             last.number + 1 == saved.next_chunk);
  for (std::int64_t i = first; i < first + count; ++i) saved.chunks.push_back(chunks.at(i));
  return saved;
}

// --- tables ------------------------------------------------------------------------------

void PutTable(StateWriter& writer, const Table::Contents& contents, const ChunkIndex& index) {
  writer.Put(contents.limiter.inserts());
  writer.Put(contents.limiter.samples());
  writer.Put(contents.limiter.deletes());
  writer.Put(contents.random.seed());
  writer.Put(contents.random.draws());
  writer.Put(contents.max_priority);
  writer.Put(std::int64_t{contents.num_slots});
  for (std::int32_t slot = 0; slot < contents.num_slots; ++slot) {
    const Table::Item& item = contents.items[slot];
    writer.Put(item.generation);
    writer.Put(static_cast<std::uint8_t>(item.live));
    if (!item.live) continue;
    writer.Put(index.at({item.run.stream, item.run.first->number}));
    writer.Put(item.run.num_chunks);
    writer.Put(item.run.length);
    writer.Put(item.run.stream);
    writer.Put(item.run.start);
    writer.Put(item.priority);
    writer.Put(item.insert_index);
    writer.Put(item.times_sampled);
  }
  for (const std::int32_t slot : contents.free_slots) writer.Put(slot);
  contents.sampler->Save(writer);
  contents.remover->Save(writer);
}

void GetItem(StateReader& reader, const LoadedChunks& chunks, Table::Item& item) {
  const auto first = reader.Get<std::int64_t>();
  item.run.num_chunks = reader.Get<std::int32_t>();
  item.run.length = reader.Get<std::int32_t>();
  item.run.stream = reader.Get<std::int64_t>();
  item.run.start = reader.Get<std::int64_t>();
  item.priority = reader.Get<double>();
  item.insert_index = reader.Get<std::int64_t>();
  item.times_sampled = reader.Get<std::int32_t>();
  chunks.CheckRange(first, item.run.num_chunks, item.run.stream);
  const Chunk& last = *chunks.at(first + item.run.num_chunks - 1);
  item.run.first = chunks.at(first);
  CheckState(item.run.length >= 1 && item.run.start >= item.run.first->first_row &&
             item.run.start + item.run.length <= last.first_row + last.num_rows);
  CheckState(item.priority >= 0 && std::isfinite(item.priority) && item.times_sampled >= 0);
}

// The items have no references on their chunks yet.
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
  CheckState(contents->limiter.size() == contents->size);
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(num_slots), 0);
  for (std::int64_t i = contents->size; i < num_slots; ++i) {
    const auto slot = reader.Get<std::int32_t>();
    CheckState(slot >= 0 && slot < num_slots && !contents->items[slot].live && !seen[slot]);
    seen[slot] = 1;
    contents->free_slots.push_back(slot);
  }
  contents->sampler->Load(reader, slots, priorities);
  contents->remover->Load(reader, slots, priorities);
  return contents;
}

// The body of a state, once its header and checksum are right.
std::span<const std::uint8_t> OpenBody(std::span<const std::uint8_t> state) {
  Header header;
  if (state.size() < sizeof(header) || std::memcmp(state.data(), kMagic, sizeof(kMagic)) != 0) {
    throw SpecError("is none: expected bytes that save_state returned");
  }
  std::memcpy(&header, state.data(), sizeof(header));
  if (header.version != kVersion) {
    throw SpecError("has format version " + std::to_string(header.version) +
                    ", this version of rollouts reads " + std::to_string(kVersion));
  }
  const auto body = state.subspan(sizeof(header));
  if (header.zero != 0 || header.body_bytes != body.size()) {
    throw SpecError("is truncated or damaged: it has " + std::to_string(state.size()) +
                    " bytes, its header says otherwise");
  }
  if (header.checksum != Checksum(body)) throw SpecError("is damaged: its checksum is wrong");
  return body;
}

}  // namespace

std::vector<std::uint8_t> ReplayStore::SaveState() {
  const std::unique_lock<std::shared_mutex> lock(state_mutex_);
  std::vector<std::unique_lock<std::mutex>> table_locks;
  for (const auto& table : tables_) table_locks.emplace_back(table->mutex());

  std::map<std::pair<std::int64_t, std::int64_t>, const Chunk*> chunks;
  const auto note = [&](const Chunk* chunk) { chunks[{chunk->stream, chunk->number}] = chunk; };
  for (const auto& stream : streams_) {
    for (const Chunk* const chunk : stream->chunks()) note(chunk);
  }
  for (const auto& table : tables_) {
    for (const Table::Item& item : table->contents().items) {
      if (!item.live) continue;
      const Chunk* chunk = item.run.first;
      note(chunk);
      for (std::int32_t i = 1; i < item.run.num_chunks; ++i) note(chunk = chunk->next);
    }
  }

  std::vector<std::uint8_t> state(sizeof(Header));
  state.reserve(chunks.size() * static_cast<std::size_t>(layout_.chunk_bytes + 256) + (1 << 16));
  StateWriter writer(state);
  const std::vector<std::uint8_t> fingerprint = Fingerprint(layout_, tables_);
  writer.Put(static_cast<std::int64_t>(fingerprint.size()));
  writer.PutBytes(fingerprint);
  writer.Put(static_cast<std::int64_t>(chunks.size()));
  ChunkIndex index;
  for (const auto& [place, chunk] : chunks) {
    index.emplace(place, std::ssize(index));
    PutChunk(writer, layout_, *chunk);
  }
  writer.Put(static_cast<std::int64_t>(streams_.size()));
  for (const auto& stream : streams_) PutStream(writer, *stream, index);
  for (const auto& table : tables_) PutTable(writer, table->contents(), index);

  Header header{{}, kVersion, 0, state.size() - sizeof(Header), 0};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.checksum = Checksum(std::span<const std::uint8_t>(state).subspan(sizeof(Header)));
  std::memcpy(state.data(), &header, sizeof(header));
  return state;
}

void ReplayStore::LoadState(std::span<const std::uint8_t> state) try {
  CheckOpen("load_state");
  StateReader reader(OpenBody(state));
  const std::vector<std::uint8_t> fingerprint = Fingerprint(layout_, tables_);
  const auto theirs = reader.GetBytes(static_cast<std::uint64_t>(GetCount(reader)));
  if (!std::equal(theirs.begin(), theirs.end(), fingerprint.begin(), fingerprint.end())) {
    throw SpecError("is of a store with other columns, tables or chunk_rows than this one's");
  }

  // everything is read before anything changes
  LoadedChunks chunks(allocator_);
  chunks.Load(reader, layout_);
  std::vector<std::unique_ptr<Stream>> streams(static_cast<std::size_t>(GetCount(reader)));
  std::vector<Stream::Saved> saved;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const auto id = static_cast<std::int64_t>(i);
    saved.push_back(GetStream(reader, id, layout_.columns.size(), chunks));
    streams[i] = std::make_unique<Stream>(layout_, allocator_, id, options_.history_rows);
  }
  std::vector<std::unique_ptr<Table::Contents>> contents;
  for (const auto& table : tables_) contents.push_back(GetTable(reader, table->spec(), chunks));
  if (!reader.rest().empty()) throw SpecError("has bytes that belong to nothing");

  const std::unique_lock<std::shared_mutex> lock(state_mutex_);
  std::vector<std::unique_lock<std::mutex>> table_locks;
  for (const auto& table : tables_) table_locks.emplace_back(table->mutex());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    for (Chunk* const chunk : saved[i].chunks) ChunkAllocator::Ref(chunk);
    streams[i]->Load(std::move(saved[i]));
  }
  streams_ = std::move(streams);
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    for (const Table::Item& item : contents[i]->items) {
      if (item.live) item.run.Ref();
    }
    tables_[i]->Replace(std::move(contents[i]));
  }
} catch (const SpecError& error) {
  throw SpecError(std::string("load_state: the state ") + error.what());
}

}  // namespace rollouts::replay
