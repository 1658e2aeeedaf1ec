// SPDX-License-Identifier: Apache-2.0
// replay/stream.h: rows as one writer appends them, and what is forgotten of them.
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "units.h"
#include "units_rows.h"

namespace rollouts::replay {
namespace {

using units::MessageOf;

// Rows of one int64, in chunks of four.
struct Plain : Rows {
  explicit Plain(std::int64_t max_bytes = 0) : Rows({NumberColumn("x")}, 4, max_bytes) {}

  std::int64_t Append(std::int64_t number, std::uint8_t flags = 0) {
    return AppendNumber(number, flags);
  }
  // The numbers of rows [first, next_row), as they lie in memory.
  std::vector<std::int64_t> Numbers(std::int64_t first) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t row = first; row < stream.next_row(); ++row) numbers.push_back(NumberAt(row));
    return numbers;
  }
};

using Values = std::vector<std::int64_t>;

TEST(Stream, RowsAreNumberedAndFillChunkAfterChunk) {
  Plain rows;
  for (std::int64_t row = 0; row < 10; ++row) CHECK_EQ(rows.Append(7 * row), row);
  CHECK_EQ(rows.stream.next_row(), 10);
  CHECK_EQ(rows.stream.oldest_row(), 0);
  const auto& chunks = rows.stream.chunks();
  CHECK_EQ(chunks.size(), std::size_t{3});
  for (std::int64_t i = 0; i < 3; ++i) {
    const Chunk& chunk = *chunks[static_cast<std::size_t>(i)];
    CHECK_EQ(chunk.first_row, 4 * i);
    CHECK_EQ(chunk.number, i);
    CHECK_EQ(chunk.num_rows, i < 2 ? 4 : 2);
    CHECK_EQ(chunk.stream, 5);
    CHECK(chunk.next == (i < 2 ? chunks[static_cast<std::size_t>(i + 1)] : nullptr));
  }
  CHECK(rows.Numbers(0) == (Values{0, 7, 14, 21, 28, 35, 42, 49, 56, 63}));
}

TEST(Stream, AnEpisodeBeginsAtFirstAndBehindAFinalRowAndWhereItIsSaid) {
  Plain rows;
  for (const std::uint8_t flags : {0, 0, int{kFinalRow}, 0, int{kFirstRow}, 0}) rows.Append(1, flags);
  const std::vector<int> expected{kFirstRow, 0, kFinalRow, kFirstRow, kFirstRow, 0};
  for (std::int64_t row = 0; row < 6; ++row) {
    CHECK_EQ(int{rows.FlagsAt(row)}, expected[static_cast<std::size_t>(row)]);
  }
}

TEST(Stream, AColumnThatIsNotGivenIsZeros) {
  Plain rows;
  rows.Append(-1), rows.Append(-1);
  // rewound, so that the next row lies where there were other numbers
  const Stream::Mark mark{1, false};
  rows.stream.Rewind(mark);
  CHECK_EQ(rows.stream.AppendRow({.columns = {{}}, .row = 3}, 0), 1);
  CHECK(rows.Numbers(0) == (Values{-1, 0}));
}

TEST(Stream, TrimmingFreesChunksThatNoRowNeeds) {
  Plain rows;
  for (std::int64_t row = 0; row < 12; ++row) rows.Append(row);
  CHECK_EQ(rows.allocator.num_used(), 3);
  rows.stream.Trim(12);
  CHECK_EQ(rows.stream.oldest_row(), 0);
  rows.stream.Trim(9);
  // row 3 is the last of the first chunk
  CHECK_EQ(rows.stream.oldest_row(), 3);
  CHECK_EQ(rows.allocator.num_used(), 3);
  rows.stream.Trim(8);
  CHECK_EQ(rows.allocator.num_used(), 2);
  rows.stream.Trim(100);  // nothing comes back
  CHECK_EQ(rows.stream.oldest_row(), 4);
  CHECK(rows.Numbers(4) == (Values{4, 5, 6, 7, 8, 9, 10, 11}));
  rows.stream.Trim(0);
  CHECK_EQ(rows.stream.oldest_row(), 12);
  CHECK_EQ(rows.Append(12), 12);
}

TEST(Stream, AnItemKeepsItsChunksWhateverTheStreamForgets) {
  Plain rows;
  for (std::int64_t row = 0; row < 10; ++row) rows.Append(row);
  const RowRun within = rows.stream.Refer(9, 1), across = rows.stream.Refer(2, 5);
  CHECK_EQ(within.num_chunks, 1);
  CHECK_EQ(across.num_chunks, 2);
  CHECK_EQ(across.start, 2);
  CHECK_EQ(across.length, 5);
  CHECK_EQ(across.stream, 5);
  rows.stream.Forget();
  CHECK_EQ(rows.allocator.num_used(), 3);
  across.Unref(rows.allocator);
  CHECK_EQ(rows.allocator.num_used(), 1);
  within.Unref(rows.allocator);
  CHECK_EQ(rows.allocator.num_used(), 0);
}

TEST(Stream, ManyItemsOfOneChunkAreCountedRight) {
  // references are taken in advance, 64 at a time
  Plain rows;
  rows.Append(1);
  std::vector<RowRun> runs;
  for (int i = 0; i < 150; ++i) runs.push_back(rows.stream.Refer(0, 1));
  rows.stream.Forget();
  for (const RowRun& run : runs) {
    CHECK_EQ(rows.allocator.num_used(), 1);
    run.Unref(rows.allocator);
  }
  CHECK_EQ(rows.allocator.num_used(), 0);
}

TEST(Stream, ForgettingGoesOnWithTheNumbersAndANewEpisode) {
  Plain rows;
  for (std::int64_t row = 0; row < 6; ++row) rows.Append(row);
  rows.stream.Forget();
  CHECK_EQ(rows.allocator.num_used(), 0);
  CHECK_EQ(rows.stream.oldest_row(), 6);
  CHECK_EQ(rows.Append(60), 6);
  CHECK_EQ(int{rows.FlagsAt(6)}, int{kFirstRow});
  CHECK_EQ(rows.stream.chunks()[0]->first_row, 6);
}

TEST(Stream, AFullStoreRefusesARowWithNothingAppended) {
  Plain rows(ChunkLayout({NumberColumn("x")}, 4).chunk_bytes);
  for (std::int64_t row = 0; row < 4; ++row) rows.Append(row);
  for (int again = 0; again < 2; ++again) {
    MessageOf<StoreFullError>([&] { rows.Append(4); });
    CHECK_EQ(rows.stream.next_row(), 4);
    CHECK(rows.Numbers(0) == (Values{0, 1, 2, 3}));
  }
  rows.stream.Forget();
  CHECK_EQ(rows.Append(4), 4);
}

TEST(Stream, RewindingComesBackToTheMark) {
  // marks within a chunk, at its end and at the beginning
  for (const std::int64_t at : {0, 2, 4, 5}) {
    Plain rows;
    for (std::int64_t row = 0; row < at; ++row) rows.Append(row, row == at - 1 ? kFinalRow : 0);
    const std::int64_t used = rows.allocator.num_used();
    const Stream::Mark mark = rows.stream.mark();
    for (std::int64_t row = 0; row < 9; ++row) rows.Append(-1);
    rows.stream.Rewind(mark);
    CHECK_EQ(rows.stream.next_row(), at);
    CHECK_EQ(rows.allocator.num_used(), used);
    for (std::int64_t row = at; row < 11; ++row) CHECK_EQ(rows.Append(row), row);
    CHECK_EQ(int{rows.FlagsAt(at)}, int{kFirstRow});
    Values all(11);
    std::iota(all.begin(), all.end(), 0);
    CHECK(rows.Numbers(0) == all);
    for (std::size_t i = 0; i < rows.stream.chunks().size(); ++i) {
      CHECK_EQ(rows.stream.chunks()[i]->number, static_cast<std::int64_t>(i));
    }
  }
}

TEST(Stream, WhatIsSavedIsLoadedIntoAnother) {
  Plain rows;
  for (std::int64_t row = 0; row < 6; ++row) rows.Append(row);
  rows.stream.Trim(3);
  Stream other(rows.layout, rows.allocator, 9);
  Stream::Saved saved = rows.stream.Save();
  for (Chunk* chunk : saved.chunks) ChunkAllocator::Ref(chunk);
  other.Load(saved);
  CHECK_EQ(other.next_row(), 6);
  CHECK_EQ(other.oldest_row(), 3);
  CHECK(!other.next_is_first());
  rows.stream.Forget();
  CHECK_EQ(rows.allocator.num_used(), 2);
  other.Forget();
  CHECK_EQ(rows.allocator.num_used(), 0);
}

// Stacks of three frames of two bytes, in chunks of four rows.
struct Stacked : Rows {
  explicit Stacked(Padding padding = Padding::kZero) : Rows({FrameColumn(padding)}, 4, 0) {}

  void AppendFrame(std::uint8_t frame, std::uint8_t flags = 0) {
    const std::uint8_t bytes[]{frame, static_cast<std::uint8_t>(frame + 100)};
    stream.AppendRow({.columns = {{.data = bytes, .stride = 0}}, .row = 0}, flags);
  }
  void AppendStack(const std::vector<int>& frames, std::uint8_t flags = 0) {
    std::vector<std::uint8_t> bytes;
    for (const int frame : frames) {
      bytes.push_back(static_cast<std::uint8_t>(frame));
      bytes.push_back(static_cast<std::uint8_t>(frame == 0 ? 0 : frame + 100));
    }
    stream.AppendRow({.columns = {{.data = bytes.data(), .stride = 0, .whole_stack = true}}, .row = 0}, flags);
  }
  std::int64_t NumFrames() const {
    const Chunk& last = *stream.chunks().back();
    return last.frames[0].first + last.frames[0].count;
  }
};

using Frames = std::vector<int>;

TEST(Stream, SingleFramesBecomeStacksThatBeginWithZeros) {
  Stacked rows;
  for (const std::uint8_t frame : {1, 2, 3, 4, 5}) rows.AppendFrame(frame);
  rows.AppendFrame(6, kFirstRow);
  rows.AppendFrame(7);
  CHECK(rows.StackAt(0) == (Frames{0, 0, 1}));
  CHECK(rows.StackAt(1) == (Frames{0, 1, 2}));
  CHECK(rows.StackAt(4) == (Frames{3, 4, 5}));  // its frames are in two chunks
  CHECK(rows.StackAt(5) == (Frames{0, 0, 6}));
  CHECK(rows.StackAt(6) == (Frames{0, 6, 7}));
  CHECK_EQ(rows.NumFrames(), 7);
}

TEST(Stream, RepeatedPaddingIsStoredOnce) {
  Stacked rows(Padding::kRepeat);
  rows.AppendFrame(1);
  rows.AppendFrame(2);
  CHECK(rows.StackAt(0) == (Frames{1, 1, 1}));
  CHECK(rows.StackAt(1) == (Frames{1, 1, 2}));
  CHECK_EQ(rows.NumFrames(), 2);
}

TEST(Stream, WholeStacksCostTheirNewFrames) {
  Stacked rows;
  rows.AppendStack({0, 0, 1});
  CHECK_EQ(rows.NumFrames(), 1);  // zeros cost nothing
  rows.AppendStack({0, 1, 2}), rows.AppendStack({1, 2, 3});
  CHECK_EQ(rows.NumFrames(), 3);
  rows.AppendStack({1, 2, 3}, kFirstRow);  // a reset that shows the same again
  CHECK_EQ(rows.NumFrames(), 3);
  rows.AppendStack({9, 9, 9}, kFirstRow);
  CHECK_EQ(rows.NumFrames(), 4);
  rows.AppendStack({4, 5, 6});  // no stack that goes on: its bits are kept all the same
  CHECK_EQ(rows.NumFrames(), 7);
  const std::vector<Frames> expected{{0, 0, 1}, {0, 1, 2}, {1, 2, 3}, {1, 2, 3}, {9, 9, 9}, {4, 5, 6}};
  for (std::size_t row = 0; row < 6; ++row) {
    CHECK(rows.StackAt(static_cast<std::int64_t>(row)) == expected[row]);
  }
}

TEST(Stream, AChunkStaysWhileARowNeedsItsFrames) {
  Stacked rows;
  for (std::uint8_t frame = 1; frame <= 6; ++frame) rows.AppendFrame(frame);
  // row 4 is in the second chunk and shows frames 3 to 5
  rows.stream.Trim(2);
  CHECK_EQ(rows.allocator.num_used(), 2);
  CHECK(rows.StackAt(4) == (Frames{3, 4, 5}));
  const RowRun run = rows.stream.Refer(4, 1);
  CHECK_EQ(run.num_chunks, 2);
  run.Unref(rows.allocator);
  rows.AppendFrame(7);
  rows.stream.Trim(1);
  CHECK_EQ(rows.allocator.num_used(), 1);
}

TEST(Stream, RewoundStacksGoOnFromTheMark) {
  Stacked rows;
  for (std::uint8_t frame = 1; frame <= 3; ++frame) rows.AppendFrame(frame);
  const Stream::Mark mark = rows.stream.mark();
  for (std::uint8_t frame = 90; frame <= 96; ++frame) rows.AppendFrame(frame);
  rows.stream.Rewind(mark);
  CHECK_EQ(rows.NumFrames(), 3);
  for (std::uint8_t frame = 4; frame <= 6; ++frame) rows.AppendFrame(frame);
  CHECK(rows.StackAt(3) == (Frames{2, 3, 4}));
  CHECK(rows.StackAt(5) == (Frames{4, 5, 6}));
}

}  // namespace
}  // namespace rollouts::replay
