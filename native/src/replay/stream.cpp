// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/stream.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace rollouts::replay {
namespace {

// The most bytes of a row that are prefetched.
constexpr std::int64_t kMostAhead = 8 * kCacheLine;

bool IsZero(const std::uint8_t* bytes, std::int64_t count) {
  // a block that equals itself shifted by one byte, and starts with zero, is all zero
  return bytes[0] == 0 && std::memcmp(bytes, bytes + 1, static_cast<std::size_t>(count - 1)) == 0;
}

// A copy that is fast for the sizes of rewards, flags and actions.
inline void CopyValue(std::uint8_t* to, const std::uint8_t* from, std::int64_t bytes) {
  switch (bytes) {
    case 1: *to = *from; return;
    case 4: std::memcpy(to, from, 4); return;
    case 8: std::memcpy(to, from, 8); return;
    default: std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

}  // namespace

Stream::Stream(const ChunkLayout& layout, ChunkAllocator& allocator, std::int64_t id)
    : layout_(layout), allocator_(allocator), id_(id) {
  next_frame_.resize(layout.columns.size());
  stacks_.resize(layout.columns.size());
  for (std::size_t c = 0; c < stacks_.size(); ++c) {
    const std::int32_t stack = layout.columns[c].stack;
    // all frames are zeros until the first row
    if (stack > 1) stacks_[c] = {std::vector<const std::uint8_t*>(stack), std::vector<std::int64_t>(stack, -1)};
  }
}

Stream::~Stream() { DropChunksBefore(chunks_.size()); }

std::int64_t Stream::AppendRow(const RowSource& source, std::uint8_t flags) {
  const bool first = next_is_first_ || (flags & kFirstRow) != 0;
  // the only step that may throw: nothing of the row is written yet
  if (!last_chunk_ || !HasRoom()) OpenChunk();
  Chunk& chunk = *last_chunk_;
  std::uint8_t* const record = RecordOf(layout_, chunk, chunk.num_rows);

  for (std::size_t c = 0; c < layout_.columns.size(); ++c) {
    const ChunkLayout::Column& column = layout_.columns[c];
    const std::uint8_t* const value = source.value(c);
    if (column.stack > 1) {
      if (source.columns[c].whole_stack) {
        AppendStack(c, value, first);
      } else {
        AppendFrame(c, value, first);
      }
      WriteNumbers(c, record);
    } else if (value) {
      CopyValue(record + column.offset, value, column.bytes);
    } else {
      std::memset(record + column.offset, 0, static_cast<std::size_t>(column.bytes));
    }
  }
  // an episode begins where the caller marks it, or after a final row
  record[layout_.flags_offset] = static_cast<std::uint8_t>(flags | (first ? kFirstRow : 0));
  next_is_first_ = (flags & kFinalRow) != 0;
  ++chunk.num_rows;
  // the stream's next row comes after those of all other streams: its memory is prefetched now
  PrefetchRow();
  return next_row_++;
}

void Stream::PrefetchRow() const {
  if (!last_chunk_) return;
  const std::uint8_t* const record = RecordOf(layout_, *last_chunk_, last_chunk_->num_rows);
  const std::int64_t ahead = std::min(layout_.row_bytes, kMostAhead);
  for (std::int64_t at = 0; at < ahead; at += kCacheLine) __builtin_prefetch(record + at, 1);
  __builtin_prefetch(record + ahead - 1, 1);
}

bool Stream::HasRoom() const {
  const Chunk& chunk = *last_chunk_;
  if (chunk.num_rows >= layout_.chunk_rows) return false;
  if (!layout_.has_stacks) return true;
  for (std::size_t c = 0; c < layout_.columns.size(); ++c) {
    const ChunkLayout::Column& column = layout_.columns[c];
    // a row may bring a whole stack of new frames
    if (column.stack > 1 && column.capacity - chunk.frames[c].count < column.stack) return false;
  }
  return true;
}

void Stream::OpenChunk() {
  Chunk* const chunk = allocator_.Take();
  chunk->stream = id_;
  chunk->number = next_chunk_++;
  chunk->first_row = next_row_;
  // frames are numbered per stream, so that a row may use frames of an earlier chunk
  for (std::size_t c = 0; c < chunk->frames.size(); ++c) chunk->frames[c] = {next_frame_[c], 0};
  if (last_chunk_) last_chunk_->next = chunk;
  chunks_.push_back(chunk);
  NoteChunks();
}

// Keeps those frames of the last row that this row shows again, and stores the others.
void Stream::AppendStack(std::size_t c, const std::uint8_t* value, bool first) {
  const ChunkLayout::Column& column = layout_.columns[c];
  StackState& stack = stacks_[c];
  const std::int32_t shift = FindShift(c, value, first);
  const std::int32_t kept = column.stack - shift;
  // the stack moves on: the frame at k + shift is now at k
  for (std::int32_t k = 0; k < kept; ++k) {
    stack.frames[k] = stack.frames[k + shift];
    stack.numbers[k] = stack.numbers[k + shift];
  }
  for (std::int32_t k = kept; k < column.stack; ++k) {
    const std::uint8_t* const frame = value + k * column.bytes;
    // frames can be padding only where an episode starts
    const bool may_pad = shift > 1;
    if (may_pad && IsZero(frame, column.bytes)) {
      stack.frames[k] = nullptr;
      stack.numbers[k] = -1;
    } else if (may_pad && k > kept && stack.frames[k - 1] &&
               SameFrame(c, frame, stack.frames[k - 1])) {
      // a frame that is repeated, as after resets, is stored once
      stack.frames[k] = stack.frames[k - 1];
      stack.numbers[k] = stack.numbers[k - 1];
    } else {
      StoreFrame(c, k, frame);
    }
  }
}

// The number of frames that the stack moved on by since the last row; all of them where no frame
// is shown again.
std::int32_t Stream::FindShift(std::size_t c, const std::uint8_t* value, bool first) const {
  const ChunkLayout::Column& column = layout_.columns[c];
  const StackState& stack = stacks_[c];
  if (chunks_.front()->num_rows == 0 && chunks_.size() == 1) return column.stack;  // no last row
  const auto moved_by = [&](std::int32_t shift) {
    for (std::int32_t k = column.stack - shift - 1; k >= 0; --k) {
      if (!SameFrame(c, value + k * column.bytes, stack.frames[k + shift])) return false;
    }
    return true;
  };
  // within an episode one frame is new; at an episode's start all frames may be unchanged
  if (!first && moved_by(1)) return 1;
  for (std::int32_t shift = 0; shift < column.stack; ++shift) {
    if ((first || shift != 1) && moved_by(shift)) return shift;
  }
  return column.stack;
}

bool Stream::SameFrame(std::size_t c, const std::uint8_t* frame, const std::uint8_t* stored) const {
  const std::int64_t bytes = layout_.columns[c].bytes;
  if (!stored) return IsZero(frame, bytes);
  return std::memcmp(frame, stored, static_cast<std::size_t>(bytes)) == 0;
}

// Appends a single frame: the column's padding fills the places before it in an episode.
void Stream::AppendFrame(std::size_t c, const std::uint8_t* frame, bool first) {
  const ChunkLayout::Column& column = layout_.columns[c];
  StackState& stack = stacks_[c];
  const std::int32_t last = column.stack - 1;
  if (first) {
    // zeros in the places before it, unless the frame is repeated below
    std::fill(stack.frames.begin(), stack.frames.end(), nullptr);
    std::fill(stack.numbers.begin(), stack.numbers.end(), -1);
  } else {
    std::copy(stack.frames.begin() + 1, stack.frames.end(), stack.frames.begin());
    std::copy(stack.numbers.begin() + 1, stack.numbers.end(), stack.numbers.begin());
  }
  StoreFrame(c, last, frame);
  if (first && column.padding == Padding::kRepeat) {
    std::fill(stack.frames.begin(), stack.frames.end(), stack.frames[last]);
    std::fill(stack.numbers.begin(), stack.numbers.end(), stack.numbers[last]);
  }
}

void Stream::StoreFrame(std::size_t c, std::int32_t place, const std::uint8_t* frame) {
  const ChunkLayout::Column& column = layout_.columns[c];
  Chunk& chunk = *last_chunk_;
  std::uint8_t* const to = chunk.data + column.offset + chunk.frames[c].count++ * column.bytes;
  std::memcpy(to, frame, static_cast<std::size_t>(column.bytes));
  stacks_[c].frames[place] = to;
  stacks_[c].numbers[place] = next_frame_[c]++;
}

void Stream::WriteNumbers(std::size_t c, std::uint8_t* record) {
  const ChunkLayout::Column& column = layout_.columns[c];
  const std::int64_t newest = next_frame_[c] - 1;
  std::memcpy(record + column.newest_offset, &newest, sizeof(newest));
  std::uint8_t* const deltas = record + column.deltas_offset;
  for (std::int32_t k = 0; k < column.stack; ++k) {
    const std::int64_t number = stacks_[c].numbers[k];
    // a row has all frames stored since its oldest one, so that a delta is below `stack`
    assert(number < 0 || newest - number < column.stack);
    deltas[k] = number < 0 ? ChunkLayout::kNoFrame : static_cast<std::uint8_t>(newest - number);
  }
}

// Reads the numbers that WriteNumbers wrote for the last row.
void Stream::ReadStacks() {
  for (std::size_t c = 0; c < stacks_.size(); ++c) {
    const ChunkLayout::Column& column = layout_.columns[c];
    if (column.stack == 1) continue;
    std::fill(stacks_[c].frames.begin(), stacks_[c].frames.end(), nullptr);
    std::fill(stacks_[c].numbers.begin(), stacks_[c].numbers.end(), -1);
    if (!last_chunk_) continue;
    const Chunk& chunk = *last_chunk_;
    const std::uint8_t* const record = RecordOf(layout_, chunk, chunk.num_rows - 1);
    std::int64_t newest;
    std::memcpy(&newest, record + column.newest_offset, sizeof(newest));
    for (std::int32_t k = 0; k < column.stack; ++k) {
      const std::uint8_t delta = record[column.deltas_offset + k];
      if (delta == ChunkLayout::kNoFrame) continue;
      const std::int64_t number = newest - delta;
      // most often the frame is in the last chunk, else not far before it
      std::size_t index = chunks_.size() - 1;
      while (index > 0 && chunks_[index]->frames[c].first > number) --index;
      const Chunk& holder = *chunks_[index];
      // the frame may have been freed with the row that it belonged to
      if (number < holder.frames[c].first) continue;
      stacks_[c].numbers[k] = number;
      stacks_[c].frames[k] =
          holder.data + column.offset + (number - holder.frames[c].first) * column.bytes;
    }
  }
}

std::size_t Stream::ChunkOfRow(std::int64_t row) const {
  std::size_t index = chunks_.size() - 1;
  while (chunks_[index]->first_row > row) --index;
  return index;
}

// The first chunk that row `row` or a later one needs: it holds the oldest frame of `row`.
std::size_t Stream::FirstChunkFor(std::int64_t row) const {
  const std::size_t own = ChunkOfRow(row);
  const Chunk& chunk = *chunks_[own];
  const std::uint8_t* const record = RecordOf(layout_, chunk, row - chunk.first_row);
  std::size_t index = own;
  for (std::size_t c = 0; c < layout_.columns.size(); ++c) {
    const ChunkLayout::Column& column = layout_.columns[c];
    if (column.stack == 1) continue;
    const std::uint8_t* const deltas = record + column.deltas_offset;
    std::int64_t oldest;
    std::memcpy(&oldest, record + column.newest_offset, sizeof(oldest));
    std::uint8_t furthest = 0;
    bool any = false;
    for (std::int32_t k = 0; k < column.stack; ++k) {
      if (deltas[k] == ChunkLayout::kNoFrame) continue;
      furthest = std::max(furthest, deltas[k]);
      any = true;
    }
    if (!any) continue;
    // the number of the oldest frame, by which its chunk is found
    oldest -= furthest;
    while (chunks_[index]->frames[c].first > oldest) --index;
  }
  return index;
}

RowRun Stream::ReferChunks(std::int64_t start, std::int32_t length) const {
  const std::size_t last = ChunkOfRow(start + length - 1);
  const std::size_t first = FirstChunkFor(start);
  // chunks in between are found by `next`, which is fixed once both chunks exist
  const RowRun run{chunks_[first], static_cast<std::int32_t>(last - first + 1), length, id_,
                   start, 0};
  run.Ref();
  return run;
}

void Stream::DropChunksBefore(std::size_t index) {
  const auto end = chunks_.begin() + static_cast<std::ptrdiff_t>(index);
  for (auto chunk = chunks_.begin(); chunk != end; ++chunk) Unref(*chunk);
  chunks_.erase(chunks_.begin(), end);
  NoteChunks();
}

void Stream::Rewind(const Mark& mark) {
  next_row_ = mark.next_row;
  next_is_first_ = mark.next_is_first;
  while (!chunks_.empty() && chunks_.back()->first_row >= next_row_) {
    next_chunk_ = chunks_.back()->number;
    for (std::size_t c = 0; c < next_frame_.size(); ++c) next_frame_[c] = chunks_.back()->frames[c].first;
    // a chunk that only the failed call has used: its numbers are given again
    Unref(chunks_.back());
    chunks_.pop_back();
  }
  NoteChunks();
  if (last_chunk_) {
    Chunk& chunk = *last_chunk_;
    // rows and frames after the mark stay in memory, and are overwritten
    chunk.num_rows = static_cast<std::int32_t>(next_row_ - chunk.first_row);
    for (std::size_t c = 0; c < next_frame_.size(); ++c) {
      const ChunkLayout::Column& column = layout_.columns[c];
      if (column.stack == 1) continue;
      std::memcpy(&next_frame_[c],
                  RecordOf(layout_, chunk, chunk.num_rows - 1) + column.newest_offset,
                  sizeof(std::int64_t));
      chunk.frames[c].count = static_cast<std::int32_t>(++next_frame_[c] - chunk.frames[c].first);
    }
  }
  ReadStacks();
}

void Stream::Forget() {
  DropChunksBefore(chunks_.size());
  // row numbers continue, because items still have the old ones
  oldest_row_ = next_row_;
  next_is_first_ = true;
  ReadStacks();
}

Stream::Saved Stream::Save() const {
  return {next_row_, oldest_row_, next_chunk_, next_frame_, next_is_first_, chunks_};
}

void Stream::Load(Saved saved) {
  DropChunksBefore(chunks_.size());
  chunks_ = std::move(saved.chunks);
  NoteChunks();
  next_row_ = saved.next_row;
  oldest_row_ = saved.oldest_row;
  next_chunk_ = saved.next_chunk;
  next_frame_ = std::move(saved.next_frame);
  next_is_first_ = saved.next_is_first;
  ReadStacks();
}

}  // namespace rollouts::replay
