// SPDX-License-Identifier: Apache-2.0
// replay/: rate limiters, columns and chunks.
#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "rollouts/replay/chunk.h"
#include "rollouts/replay/rate_limiter.h"
#include "rollouts/support/errors.h"
#include "units.h"

namespace rollouts::replay {
namespace {

using units::Contains;
using units::MessageOf;

TEST(RateLimiter, AMinSizeAloneDecidesNothingElse) {
  RateLimiter limiter(RateLimiterSpec::MinSize(3));
  for (int i = 0; i < 3; ++i) {
    CHECK(!limiter.CanSample(1));
    CHECK_EQ(limiter.AdmittedSamples(5), 0);
    CHECK(limiter.CanInsert(1));
    limiter.Insert();
  }
  CHECK(limiter.CanSample(1'000'000'000));
  CHECK_EQ(limiter.AdmittedSamples(1'000), 1'000);
  CHECK(limiter.CanInsert(1'000'000'000));
  limiter.Delete();
  CHECK(!limiter.CanSample(1));
}

TEST(RateLimiter, AQueueHoldsWhatWasNotSampled) {
  RateLimiter limiter(RateLimiterSpec::Queue(2));
  CHECK(!limiter.CanSample(1));
  limiter.Insert();
  CHECK(limiter.CanSample(1) && !limiter.CanSample(2));
  limiter.Insert();
  CHECK(!limiter.CanInsert(1));
  CHECK_EQ(limiter.AdmittedSamples(9), 2);
  limiter.Sample(), limiter.Delete();
  CHECK(limiter.CanInsert(1) && !limiter.CanInsert(2));
}

TEST(RateLimiter, ARatioKeepsTheDifferenceWithinItsBounds) {
  for (const double per_insert : {0.5, 1.0, 4.0}) {
    const double filled = 10 * per_insert, width = 2 * std::max(1.0, per_insert);
    RateLimiter limiter(
        RateLimiterSpec::SampleToInsertRatio(per_insert, 10, filled - width, filled + width));
    std::mt19937 random(2);
    int blocked = 0;
    for (int call = 0; call < 3000; ++call) {
      const bool samples = random() % 2;
      const bool can = samples ? limiter.CanSample(1) : limiter.CanInsert(1);
      // never are both blocked
      CHECK(limiter.CanSample(1) || limiter.CanInsert(1));
      blocked += !can;
      if (!can) continue;
      samples ? limiter.Sample() : limiter.Insert();
      if (limiter.size() < 10) continue;
      const double diff = static_cast<double>(limiter.inserts()) * per_insert -
                          static_cast<double>(limiter.samples());
      CHECK(diff >= filled - width && diff <= filled + width);
    }
    CHECK(blocked > 0);
  }
}

TEST(RateLimiter, AdmittedSamplesAreThoseThatCanBeOneByOne) {
  for (const double per_insert : {0.3, 1.0, 2.5}) {
    RateLimiter limiter(RateLimiterSpec::SampleToInsertRatio(per_insert, 1, -3, 20));
    for (int i = 0; i < 6; ++i) limiter.Insert();
    for (const std::int64_t n : {0, 1, 5, 100}) {
      RateLimiter one_by_one = limiter;
      std::int64_t admitted = 0;
      while (admitted < n && one_by_one.CanSample(1)) {
        one_by_one.Sample();
        ++admitted;
      }
      CHECK_EQ(limiter.AdmittedSamples(n), admitted);
    }
  }
}

TEST(RateLimiter, WhereTheRoomIsRoundedCanSampleDecides) {
  std::mt19937 random(6);
  for (int trial = 0; trial < 20'000; ++trial) {
    const double per_insert = static_cast<double>(1 + random() % 30) / 10;
    const double low = -static_cast<double>(random() % 100) / 10;
    RateLimiter limiter(RateLimiterSpec::SampleToInsertRatio(per_insert, 1, low, low + 99));
    limiter.Load(1 + random() % 20, 0, 0);
    const std::int64_t admitted = limiter.AdmittedSamples(1000);
    CHECK(admitted == 0 || limiter.CanSample(admitted));
    CHECK(admitted + 1 >= 1000 || !limiter.CanSample(admitted + 2));
  }
}

TEST(RateLimiter, CountsAreLoadedAndForgotten) {
  RateLimiter limiter(RateLimiterSpec::Queue(5));
  limiter.Load(7, 3, 3);
  CHECK_EQ(limiter.size(), 4);
  CHECK_EQ(limiter.inserts() + limiter.samples() + limiter.deletes(), 13);
  CHECK_EQ(limiter.AdmittedSamples(9), 4);
  limiter.Reset();
  CHECK_EQ(limiter.size(), 0);
  CHECK(!limiter.CanSample(1));
}

TEST(RateLimiter, BoundsThatBlockBothSidesForEverAreRefused) {
  const auto said = [](double per_insert, std::int64_t min_size, double low, double high) {
    return MessageOf<SpecError>(
        [&] { RateLimiterSpec::SampleToInsertRatio(per_insert, min_size, low, high); });
  };
  CHECK(Contains(said(1, 0, 0, 9), "min_size is 0, expected 1 or more items"));
  CHECK(Contains(said(0, 1, 0, 9), "samples_per_insert is 0"));
  CHECK(Contains(said(std::nan(""), 1, 0, 9), "samples_per_insert is"));
  CHECK(Contains(said(3, 9, 0, 5.9), "expected at least 6"));
  CHECK(Contains(said(1, 9, 0, std::nan("")), "could both be blocked for ever"));
  CHECK(Contains(said(2, 3, 6.5, 99), "expected at most samples_per_insert * min_size = 6"));
  RateLimiterSpec::SampleToInsertRatio(3, 2, 0, 6);
  CHECK(Contains(MessageOf<SpecError>([] { RateLimiterSpec::Queue(0); }), "queue's size is 0"));
  CHECK(Contains(MessageOf<SpecError>([] { RateLimiterSpec::MinSize(0); }), "min_size is 0"));
}

ColumnSpec Column(std::string name, std::int64_t item_bytes, std::vector<std::int64_t> shape = {},
                  std::int32_t stack = 1) {
  return {.name = std::move(name),
          .dtype = "|u1",
          .item_bytes = item_bytes,
          .shape = std::move(shape),
          .stack = stack};
}

TEST(ChunkLayout, RecordsHaveEveryColumnOnce) {
  const ChunkLayout layout({Column("a", 8), Column("b", 4, {3}), Column("c", 1, {5, 2}, 4)}, 10);
  CHECK(layout.has_stacks);
  // a, b, the newest frame's number and the distances of four, flags
  const std::vector<std::pair<std::int64_t, std::int64_t>> parts{
      {layout.columns[0].offset, 8},          {layout.columns[1].offset, 12},
      {layout.columns[2].newest_offset, 8},   {layout.columns[2].deltas_offset, 4},
      {layout.flags_offset, 1}};
  std::set<std::int64_t> bytes;
  for (const auto& [offset, size] : parts) {
    for (std::int64_t i = 0; i < size; ++i) CHECK(bytes.insert(offset + i).second);
  }
  CHECK(*bytes.rbegin() < layout.row_bytes);
  CHECK_EQ(layout.row_bytes, 40);
  CHECK(!ChunkLayout({Column("a", 8)}, 1).has_stacks);
}

TEST(ChunkLayout, FramesLieBehindTheRecordsWithRoomForAWholeStack) {
  const ChunkLayout layout({Column("x", 1, {7}, 3), Column("y", 2, {5}, 2)}, 4);
  std::int64_t end = layout.row_bytes * 4;
  for (const ChunkLayout::Column& column : layout.columns) {
    CHECK(column.offset >= end);
    CHECK_EQ(column.offset % kCacheLine, 0);
    CHECK_EQ(column.capacity, 4 + column.stack - 1);
    end = column.offset + column.bytes * column.capacity;
  }
  CHECK(end <= layout.chunk_bytes);
  CHECK_EQ(layout.chunk_bytes % kCacheLine, 0);
}

TEST(ChunkLayout, ColumnsThatNoRowHasAreRefused) {
  const auto said = [](std::vector<ColumnSpec> specs, std::int32_t rows = 4) {
    return MessageOf<SpecError>([&] { ChunkLayout(std::move(specs), rows); });
  };
  CHECK_EQ(said({}), "columns is empty, expected at least one");
  CHECK_EQ(said({Column("a", 1), Column("a", 2)}), "column 'a' is there twice");
  CHECK(Contains(said({Column("", 1)}), "a name is not empty"));
  CHECK(Contains(said({Column("@t", 1)}), "has no @ in front"));
  CHECK_EQ(said({Column("a", 1, {3, 0})}), "column 'a' has rows of no bytes");
  CHECK_EQ(said({Column("a", 1, {}, 65)}), "column 'a' has stack 65, expected 1 to 64");
  CHECK(Contains(said({Column("a", 1, {}, 0)}), "has stack 0"));
  CHECK(Contains(said({Column("a", 1)}, 0), "chunk_rows is 0, expected 1 to 1048576"));
  CHECK(Contains(said({Column("a", 1)}, (1 << 20) + 1), "chunk_rows is 1048577"));
}

TEST(ChunkAllocator, ChunksComeBackWithTheirLastReference) {
  const ChunkLayout layout({Column("a", 8)}, 4);
  ChunkAllocator allocator(layout, 0, "");
  Chunk* const chunk = allocator.Take();
  CHECK_EQ(chunk->refs.load(), 1);
  ChunkAllocator::Ref(chunk);
  allocator.Unref(chunk);
  CHECK_EQ(allocator.num_used(), 1);
  ChunkAllocator::Ref(chunk);
  allocator.Unref(chunk, 2);
  CHECK_EQ(allocator.num_used(), 0);
  chunk->num_rows = 3;
  chunk->next = chunk;
  // the same one again, empty
  CHECK(allocator.Take() == chunk);
  CHECK_EQ(chunk->num_rows, 0);
  CHECK(chunk->next == nullptr);
  CHECK_EQ(allocator.num_allocated(), 1);
  CHECK_EQ(chunk->frames.size(), std::size_t{1});
}

TEST(ChunkAllocator, ChunksAreMemoryOfTheirOwn) {
  const ChunkLayout layout({Column("a", 8, {100})}, 8);
  ChunkAllocator allocator(layout, 0, "");
  std::set<std::uint8_t*> data;
  for (int i = 0; i < 2000; ++i) {
    std::uint8_t* const begin = allocator.Take()->data;
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(begin) % kCacheLine, std::uintptr_t{0});
    CHECK_EQ(int{begin[0]} + begin[layout.chunk_bytes - 1], 0);
    begin[0] = begin[layout.chunk_bytes - 1] = 1;
    data.insert(begin);
  }
  const std::uint8_t* before = nullptr;
  for (const std::uint8_t* begin : data) {
    CHECK(before == nullptr || begin - before >= layout.chunk_bytes);
    before = begin;
  }
  CHECK_EQ(data.size(), std::size_t{2000});
}

TEST(ChunkAllocator, ABoundIsKeptAndRaisedForAWhile) {
  const ChunkLayout layout({Column("a", 8)}, 8);
  ChunkAllocator allocator(layout, 3 * layout.chunk_bytes + 1, "");
  std::vector<Chunk*> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(allocator.Take());
  const auto said = MessageOf<StoreFullError>([&] { allocator.Take(); });
  CHECK(Contains(said, "has all of its " + std::to_string(3 * layout.chunk_bytes) + " bytes"));
  allocator.Spare(1);
  taken.push_back(allocator.Take());
  allocator.Spare(-1);
  MessageOf<StoreFullError>([&] { allocator.Take(); });
  allocator.Unref(taken[0]);
  CHECK(allocator.Take() == taken[0]);
  CHECK_EQ(allocator.num_allocated(), 4);
}

TEST(ChunkAllocator, ABoundBelowAChunkIsRefused) {
  const ChunkLayout layout({Column("a", 8)}, 8);
  const auto said =
      MessageOf<SpecError>([&] { ChunkAllocator(layout, layout.chunk_bytes - 1, ""); });
  CHECK(Contains(said, "expected 0 (no bound) or at least one chunk of"));
  ChunkAllocator(layout, layout.chunk_bytes, "").Take();
}

TEST(RowRun, ReferencesReachEveryChunkOfTheRun) {
  const ChunkLayout layout({Column("a", 8)}, 4);
  ChunkAllocator allocator(layout, 0, "");
  Chunk* const first = allocator.Take();
  Chunk* const second = first->next = allocator.Take();
  Chunk* const third = second->next = allocator.Take();
  const RowRun run{.first = first, .num_chunks = 2};
  run.Ref();
  CHECK_EQ(first->refs.load(), 2);
  CHECK_EQ(second->refs.load(), 2);
  CHECK_EQ(third->refs.load(), 1);
  for (Chunk* chunk : {first, second}) allocator.Unref(chunk);
  CHECK_EQ(allocator.num_used(), 3);
  run.Unref(allocator);
  CHECK_EQ(allocator.num_used(), 1);
}

}  // namespace
}  // namespace rollouts::replay
