// SPDX-License-Identifier: Apache-2.0
// Saved states of a replay store.
//
//   magic "rreplay1"  8 bytes     version  uint32    zero  uint32    body bytes  uint64
//   body: what the store is made of; chunks; streams; tables
//   checksum          uint64, of all that is before it
//
// Numbers are little-endian. The checksum finds damage, not forgery.
#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <utility>

#include "rollouts/replay/replay_store.h"
#include "rollouts/replay/state_parts.h"
#include "rollouts/replay/state_snapshot.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/state.h"

namespace rollouts::replay {
namespace {

constexpr char kMagic[8] = {'r', 'r', 'e', 'p', 'l', 'a', 'y', '1'};
constexpr std::uint32_t kVersion = 3;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t zero;
  std::uint64_t body_bytes;
};
static_assert(sizeof(Header) == 24);
static_assert(std::endian::native == std::endian::little, "states are little-endian");

void PutText(StateWriter& writer, const std::string& text) {
  writer.Put(static_cast<std::uint64_t>(text.size()));
  writer.PutBytes({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

void PutSelector(StateWriter& writer, const SelectorSpec& spec) {
  writer.Put(static_cast<std::int32_t>(spec.kind));
  writer.Put(spec.exponent);
}

// The parts that two stores must have in common to load each other's states.
std::vector<std::uint8_t> Fingerprint(const ChunkLayout& layout,
                                      const std::vector<std::unique_ptr<Table>>& tables) {
  std::vector<std::uint8_t> bytes;
  StateWriter writer(bytes);
  writer.Put(layout.chunk_rows);
  for (const ColumnSpec& spec : layout.specs) {
    PutText(writer, spec.name);
    PutText(writer, spec.dtype);
    // added with its length, so that two different shapes never give the same bytes
    writer.Put(static_cast<std::uint64_t>(spec.shape.size()));
    for (const std::int64_t extent : spec.shape) writer.Put(extent);
    writer.Put(spec.stack);
    writer.Put(static_cast<std::uint8_t>(spec.padding));
  }
  for (const auto& table : tables) {
    // adds all but the seed, because a state has its own
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

// Returns the body of a state, after checking its header and checksum.
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
  std::uint64_t theirs;
  // the lengths are checked first, because they give the place of the checksum
  if (header.zero != 0 || state.size() < sizeof(header) + sizeof(theirs) ||
      header.body_bytes != state.size() - sizeof(header) - sizeof(theirs)) {
    throw SpecError("is truncated or damaged: it has " + std::to_string(state.size()) +
                    " bytes, its header says otherwise");
  }
  const auto checked = state.first(state.size() - sizeof(theirs));
  std::memcpy(&theirs, state.data() + checked.size(), sizeof(theirs));
  Checksum checksum;
  checksum.Add(checked);
  if (theirs != checksum.value()) throw SpecError("is damaged: its checksum is wrong");
  return checked.subspan(sizeof(header));
}

// All chunks that streams, items and drawn samples need, each with one more reference.
std::vector<ChunkImage> TakeImages(const std::vector<std::unique_ptr<Stream>>& streams,
                                   const std::vector<std::unique_ptr<Table>>& tables) {
  // by stream and number, each once, however many items share a chunk
  std::map<std::pair<std::int64_t, std::int64_t>, Chunk*> chunks;
  const auto note = [&](Chunk* chunk) { chunks[{chunk->stream, chunk->number}] = chunk; };
  // a run's chunks are linked; its stream may not hold all of them any more
  const auto note_run = [&](const RowRun& run) {
    Chunk* chunk = run.first;
    note(chunk);
    for (std::int32_t i = 1; i < run.num_chunks; ++i) note(chunk = chunk->next);
  };
  for (const auto& stream : streams) {
    for (Chunk* const chunk : stream->chunks()) note(chunk);
  }
  for (const auto& table : tables) {
    for (const Table::Item& item : table->contents().items) {
      if (item.live) note_run(item.run);
    }
    for (const Sampled& sampled : table->contents().drawn) note_run(sampled.run);
  }
  std::vector<ChunkImage> images;
  images.reserve(chunks.size());
  for (const auto& [place, chunk] : chunks) {
    images.emplace_back(*chunk);
    ChunkAllocator::Ref(chunk);
  }
  return images;
}

}  // namespace

std::unique_ptr<StateSnapshot> ReplayStore::Snapshot() {
  const std::unique_lock<std::shared_mutex> lock(state_mutex_);
  std::vector<std::unique_lock<std::mutex>> table_locks;
  for (const auto& table : tables_) table_locks.emplace_back(table->mutex());

  std::vector<std::uint8_t> opening(sizeof(Header));
  StateWriter writer(opening);
  const std::vector<std::uint8_t> fingerprint = Fingerprint(layout_, tables_);
  writer.Put(static_cast<std::int64_t>(fingerprint.size()));
  writer.PutBytes(fingerprint);
  std::vector<ChunkImage> images = TakeImages(streams_, tables_);
  writer.Put(static_cast<std::int64_t>(images.size()));

  // streams and items name chunks by their place in the file
  ChunkIndex index;
  for (const ChunkImage& image : images) {
    index.emplace(std::pair(image.stream, image.number), std::ssize(index));
  }
  std::vector<std::uint8_t> closing;
  StateWriter end(closing);
  end.Put(static_cast<std::int64_t>(streams_.size()));
  for (const auto& stream : streams_) PutStream(end, *stream, index);
  for (const auto& table : tables_) PutTable(end, table->contents(), index);

  Header header{{}, kVersion, 0, opening.size() - sizeof(Header) + closing.size()};
  for (const ChunkImage& image : images) {
    // added up before a byte is written, so that a snapshot can return its size at once
    header.body_bytes += static_cast<std::uint64_t>(image.bytes(layout_));
  }
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  std::memcpy(opening.data(), &header, sizeof(header));
  return std::make_unique<StateSnapshot>(layout_, allocator_, std::move(images),
                                         std::move(opening), std::move(closing));
}

std::vector<std::uint8_t> ReplayStore::SaveState() {
  const std::unique_ptr<StateSnapshot> snapshot = Snapshot();
  std::vector<std::uint8_t> state;
  state.reserve(snapshot->bytes());
  for (;;) {
    const std::vector<std::uint8_t> piece = snapshot->Next();
    if (piece.empty()) return state;
    state.insert(state.end(), piece.begin(), piece.end());
  }
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
  LoadedChunks chunks(allocator_, layout_);
  chunks.Load(reader);
  // nobody else uses the chunks yet: an exception from here on gives them back
  std::vector<std::unique_ptr<Stream>> streams(static_cast<std::size_t>(GetCount(reader)));
  chunks.CheckStreams(std::ssize(streams));
  std::vector<Stream::Saved> saved;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const auto id = static_cast<std::int64_t>(i);
    saved.push_back(GetStream(reader, id, layout_.columns.size(), chunks));
    streams[i] = std::make_unique<Stream>(layout_, allocator_, id);
  }
  std::vector<std::unique_ptr<Table::Contents>> contents;
  for (const auto& table : tables_) contents.push_back(GetTable(reader, table->spec(), chunks));
  if (!reader.rest().empty()) throw SpecError("has bytes that belong to nothing");

  // nothing below throws because of the state's content: the store has the old state or the new one
  const std::unique_lock<std::shared_mutex> lock(state_mutex_);
  std::vector<std::unique_lock<std::mutex>> table_locks;
  for (const auto& table : tables_) table_locks.emplace_back(table->mutex());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    // `chunks` drops its references at the end, so the streams take their own
    for (Chunk* const chunk : saved[i].chunks) ChunkAllocator::Ref(chunk);
    streams[i]->Load(std::move(saved[i]));
  }
  streams_ = std::move(streams);
  // no stream is claimed: the exclusive lock waited until every claim had ended
  is_claimed_.assign(streams_.size(), 0);
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    for (const Table::Item& item : contents[i]->items) {
      if (item.live) item.run.Ref();
    }
    for (const Sampled& sampled : contents[i]->drawn) sampled.run.Ref();
    tables_[i]->Replace(std::move(contents[i]));
  }
} catch (const SpecError& error) {
  throw SpecError(std::string("load_state: the state ") + error.what());
}

}  // namespace rollouts::replay
