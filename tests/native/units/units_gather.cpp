// SPDX-License-Identifier: Apache-2.0
// replay/gather.h: which rows of an item are where in a batch.
#include <cstring>
#include <string>
#include <vector>

#include "rollouts/replay/gather.h"
#include "rollouts/support/errors.h"
#include "units.h"
#include "units_rows.h"

namespace rollouts::replay {
namespace {

using units::MessageOf;

// Rows 0 to 9 with the numbers 100 to 109, in chunks of four; two episodes end at rows 4 and 8.
struct Numbered : Rows {
  Numbered() : Rows({NumberColumn("x")}, 4, 0) {
    for (std::int64_t row = 0; row < 10; ++row) AppendNumber(100 + row, row % 4 == 0 && row > 0 ? kFinalRow : 0);
  }
  Sampled Item(std::int64_t start, std::int32_t length) {
    return {.run = stream.Refer(start, length)};
  }
  // One field of a batch, as numbers of `T`.
  template <typename T = std::int64_t>
  std::vector<T> Gathered(const FieldSpec& field, const std::vector<Sampled>& batch,
                          bool time_major = false) {
    const GatherPlan plan(layout, {field}, time_major);
    const std::int64_t rows = plan.fields()[0].rows();
    std::vector<T> values(batch.size() * static_cast<std::size_t>(rows), T{7});
    std::uint8_t* out[] = {reinterpret_cast<std::uint8_t*>(values.data())};
    plan.Gather(batch, 0, std::ssize(batch), out);
    return values;
  }
};

using Longs = std::vector<std::int64_t>;
using Bytes = std::vector<std::uint8_t>;

TEST(GatherPlan, RowsAreCountedFromTheItemsFirstOrItsEnd) {
  Numbered rows;
  const std::vector<Sampled> batch{rows.Item(1, 2), rows.Item(3, 6)};
  CHECK((rows.Gathered({"f", "x", 0, 0}, batch) == Longs{101, 103}));
  CHECK((rows.Gathered({"f", "x", 1, 0}, batch) == Longs{102, 104}));
  CHECK((rows.Gathered({"f", "x", -1, 0}, batch) == Longs{102, 108}));
  CHECK((rows.Gathered({"f", "x", -2, 2}, batch) == Longs{101, 102, 107, 108}));
}

TEST(GatherPlan, RowsBeyondAnItemAreZerosAndSaidToBe) {
  Numbered rows;
  const std::vector<Sampled> batch{rows.Item(1, 2), rows.Item(6, 4)};
  CHECK((rows.Gathered({"f", "x", 0, 4}, batch) == Longs{101, 102, 0, 0, 106, 107, 108, 109}));
  CHECK((rows.Gathered<std::uint8_t>({"f", "@valid", 0, 4}, batch) == Bytes{1, 1, 0, 0, 1, 1, 1, 1}));
  CHECK((rows.Gathered({"f", "@row", 0, 4}, batch) == Longs{1, 2, -1, -1, 6, 7, 8, 9}));
  // before its first row, too
  CHECK((rows.Gathered({"f", "@row", -3, 3}, batch) == Longs{-1, 1, 2, 7, 8, 9}));
  CHECK((rows.Gathered({"f", "x", -3, 2}, batch) == Longs{0, 101, 107, 108}));
}

TEST(GatherPlan, FlagsTellWhereEpisodesBeginAndEnd) {
  Numbered rows;
  const std::vector<Sampled> batch{rows.Item(0, 10)};
  CHECK((rows.Gathered<std::uint8_t>({"f", "@first", 0, 10}, batch) ==
         Bytes{1, 0, 0, 0, 0, 1, 0, 0, 0, 1}));
  CHECK((rows.Gathered<std::uint8_t>({"f", "@final", 0, 11}, batch) ==
         Bytes{0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0}));
}

TEST(GatherPlan, TimeComesFirstWhereItIsAskedFor) {
  Numbered rows;
  const std::vector<Sampled> batch{rows.Item(0, 3), rows.Item(5, 3)};
  CHECK((rows.Gathered({"f", "x", 0, 3}, batch) == Longs{100, 101, 102, 105, 106, 107}));
  CHECK((rows.Gathered({"f", "x", 0, 3}, batch, true) == Longs{100, 105, 101, 106, 102, 107}));
  CHECK((rows.Gathered({"f", "x", 1, 0}, batch, true) == Longs{101, 106}));
}

TEST(GatherPlan, APartOfABatchLeavesTheRestAlone) {
  Numbered rows;
  std::vector<Sampled> batch;
  for (std::int64_t i = 0; i < 9; ++i) batch.push_back(rows.Item(i, 1));
  const GatherPlan plan(rows.layout, {{"f", "x", 0, 0}}, false);
  Longs values(9, -1);
  std::uint8_t* out[] = {reinterpret_cast<std::uint8_t*>(values.data())};
  plan.Gather(batch, 2, 5, out);
  CHECK((values == Longs{-1, -1, 102, 103, 104, -1, -1, -1, -1}));
}

TEST(GatherPlan, ThreadsGatherWhatOneDoes) {
  Numbered rows;
  std::vector<Sampled> batch;
  for (std::int64_t i = 0; i < 4000; ++i) batch.push_back(rows.Item(i % 7, 3));
  // as many rows as make several ranges of 128 KiB
  const GatherPlan plan(rows.layout, {{"a", "x", 0, 20}, {"b", "@row", -1, 0}}, true);
  CHECK_EQ(plan.item_bytes(), 8 * 20 + 8);
  Longs one(80'000, 7), many(80'000, 8), last_of_one(4000, 7), last_of_many(4000, 8);
  const auto gather = [&](std::int32_t threads, Longs& first, Longs& second) {
    WorkerThreads workers(threads);
    std::uint8_t* out[] = {reinterpret_cast<std::uint8_t*>(first.data()),
                           reinterpret_cast<std::uint8_t*>(second.data())};
    plan.GatherAll(batch, out, workers);
  };
  gather(1, one, last_of_one);
  gather(3, many, last_of_many);
  CHECK(one == many);
  CHECK(last_of_one == last_of_many);
  CHECK_EQ(one[4000 + 6], 107);
  CHECK_EQ(last_of_one[6], 8);
}

TEST(GatherPlan, StacksAreJoinedOfFramesOfSeveralChunks) {
  Rows rows({FrameColumn(Padding::kZero), NumberColumn("x")}, 4, 0);
  for (std::uint8_t row = 0; row < 9; ++row) {
    const std::uint8_t frame[]{row, static_cast<std::uint8_t>(row + 100)};
    const std::int64_t number = row;
    rows.stream.AppendRow({.columns = {{.data = frame, .stride = 2},
                                       {.data = reinterpret_cast<const std::uint8_t*>(&number), .stride = 8}},
                           .row = 0},
                          0);
  }
  const std::vector<Sampled> batch{{.run = rows.stream.Refer(0, 2)}, {.run = rows.stream.Refer(8, 1)}};
  const GatherPlan plan(rows.layout, {{"stack", "frames", 0, 2}, {"number", "x", 0, 0}}, false);
  CHECK_EQ(plan.fields()[0].value_bytes, 6);
  Bytes stacks(4 * 6, 7);
  Longs numbers(2, 7);
  std::uint8_t* out[] = {stacks.data(), reinterpret_cast<std::uint8_t*>(numbers.data())};
  plan.Gather(batch, 0, 2, out);
  CHECK((stacks == Bytes{0, 0, 0, 0, 0, 100, 0, 0, 0, 100, 1, 101,  // the second row of the first
                         6, 106, 7, 107, 8, 108, 0, 0, 0, 0, 0, 0}));
  CHECK((numbers == Longs{0, 8}));
}

TEST(GatherPlan, ValuesOfEverySizeAreWhole) {
  for (const std::int64_t bytes : {1, 2, 4, 7, 8, 9, 64, 100}) {
    Rows rows({{.name = "v", .dtype = "|u1", .item_bytes = 1, .shape = {bytes}}}, 4, 0);
    Bytes value(static_cast<std::size_t>(bytes) * 6);
    for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<std::uint8_t>(i % 251 + 1);
    for (std::int64_t row = 0; row < 6; ++row) {
      rows.stream.AppendRow({.columns = {{.data = value.data(), .stride = bytes}}, .row = row}, 0);
    }
    const std::vector<Sampled> batch{{.run = rows.stream.Refer(0, 6)}};
    Bytes found(value.size() + 1, 255);
    std::uint8_t* out[] = {found.data()};
    GatherPlan(rows.layout, {{"f", "v", 0, 6}}, false).Gather(batch, 0, 1, out);
    CHECK_EQ(int{found.back()}, 255);
    found.pop_back();
    CHECK(found == value);
  }
}

TEST(GatherPlan, FieldsThatCannotBeAreRefused) {
  const Rows rows({NumberColumn("x"), NumberColumn("y")}, 4, 0);
  const auto said = [&](const std::vector<FieldSpec>& fields) {
    return MessageOf<SpecError>([&] { GatherPlan(rows.layout, fields, false); });
  };
  CHECK_EQ(said({{"a", "x", 0, 0}, {"a", "y", 0, 0}}), "field 'a' is there twice");
  CHECK_EQ(said({{"priority", "x", 0, 0}}), "field 'priority' has a name that sample() uses itself");
  CHECK_EQ(said({{"a", "x", 0, -1}}),
           "field 'a' has count -1, expected 0 (one row, no axis) or more");
  CHECK_EQ(said({{"a", "z", 0, 0}}),
           "field 'a' is of the unknown column 'z'; expected one of x, y, @valid, @first, @final, "
           "@row, @relabelled, @achieved");
}

}  // namespace
}  // namespace rollouts::replay
