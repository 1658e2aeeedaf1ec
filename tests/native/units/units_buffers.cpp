// SPDX-License-Identifier: Apache-2.0
// pool/: batch buffers, and the ring of them.
#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "rollouts/pool/batch_buffer.h"
#include "rollouts/pool/buffer_ring.h"
#include "units.h"

namespace rollouts {
namespace {

// Observations of three floats, an info of two doubles and one of a byte.
EnvSpec MakeSpec() {
  EnvSpec spec;
  spec.observation.ndim = 1;
  spec.observation.shape[0] = 3;
  spec.num_infos = 2;
  spec.infos[0] = {"x", DType::kFloat64, 2};
  spec.infos[1] = {"b", DType::kInt8};
  return spec;
}

BatchLayout Layout(std::int32_t rows, bool with_final_obs = false, bool out_of_order = false) {
  return {rows, with_final_obs, out_of_order};
}

TEST(BatchBuffer, ArraysBeginAtCacheLinesAndDoNotOverlap) {
  for (const std::int32_t rows : {1, 7, 64}) {
    const BatchBuffer buffer(MakeSpec(), Layout(rows, /*with_final_obs=*/true));
    const BatchView& view = buffer.view();
    const std::vector<std::pair<const void*, std::int64_t>> arrays{
        {view.obs, 12},          {view.final_obs, 12},     {view.reward, 8},
        {view.episode_return, 8}, {view.env_id, 4},         {view.episode_length, 4},
        {view.terminated, 1},    {view.truncated, 1},      {view.infos[0], 16},
        {view.infos[1], 1}};
    std::set<std::pair<std::uintptr_t, std::uintptr_t>> spans;
    for (const auto& [array, row_bytes] : arrays) {
      const auto first = reinterpret_cast<std::uintptr_t>(array);
      CHECK(first != 0 && first % 64 == 0);
      spans.insert({first, first + static_cast<std::uintptr_t>(rows * row_bytes)});
    }
    CHECK_EQ(spans.size(), arrays.size());
    std::uintptr_t end = 0;
    for (const auto& [first, last] : spans) {
      CHECK(first >= end);
      end = last;
    }
    CHECK(static_cast<std::int64_t>(end - spans.begin()->first) <= buffer.bytes());
    CHECK_EQ(view.obs_bytes, 12);
  }
}

TEST(BatchBuffer, HasFinalObservationsAndBegunInfosOnlyWhereTheyAreKept) {
  EnvSpec spec = MakeSpec();
  CHECK(BatchBuffer(spec, Layout(4)).view().final_obs == nullptr);
  CHECK(BatchBuffer(spec, Layout(4, true)).view().begun_infos[0] == nullptr);
  spec.reset_infos = true;
  CHECK(BatchBuffer(spec, Layout(4)).view().begun_infos[0] == nullptr);
  const BatchBuffer both(spec, Layout(4, true));
  CHECK(both.view().begun_infos[0] != nullptr && both.view().begun_infos[1] != nullptr);
  CHECK(both.view().begun_infos[1] != both.view().infos[1]);
  CHECK(both.bytes() > BatchBuffer(MakeSpec(), Layout(4, true)).bytes());
}

TEST(BatchBuffer, CountsFinishedRowsInAnyOrder) {
  BatchBuffer buffer(MakeSpec(), Layout(8));
  buffer.Begin();
  CHECK_EQ(buffer.written(), 0);
  CHECK_EQ(buffer.Finish(4, 3), 3);
  CHECK_EQ(buffer.Finish(0, 4), 7);
  CHECK_EQ(buffer.written(), 7);
  buffer.Begin();
  CHECK_EQ(buffer.written(), 0);
}

TEST(BatchBuffer, ChunksAreReadyAtTheirFirstRow) {
  BatchBuffer buffer(MakeSpec(), Layout(8, false, /*out_of_order=*/true));
  buffer.Begin();
  buffer.Finish(2, 3);
  CHECK_EQ(buffer.Ready(0), 0);
  CHECK_EQ(buffer.Ready(2), 3);
  CHECK_EQ(buffer.Ready(3), 0);
  buffer.Finish(0, 2);
  CHECK_EQ(buffer.Ready(0), 2);
}

TEST(BatchBuffer, TakingPartOfAChunkLeavesTheRestReady) {
  BatchBuffer buffer(MakeSpec(), Layout(8, false, true));
  buffer.Begin();
  buffer.Finish(0, 2);
  buffer.Finish(2, 5);
  // over the border of two chunks, and into the second
  buffer.Take(0, 4);
  CHECK_EQ(buffer.Ready(0), 0);
  CHECK_EQ(buffer.Ready(2), 0);
  CHECK_EQ(buffer.Ready(4), 3);
  buffer.Take(4, 3);
  for (std::int32_t row = 0; row < 8; ++row) CHECK_EQ(buffer.Ready(row), 0);
}

TEST(BatchBuffer, ADiscardedBatchLeavesNoRowReady) {
  BatchBuffer buffer(MakeSpec(), Layout(4, false, true));
  buffer.Begin();
  buffer.Finish(1, 2);
  buffer.Discard();
  buffer.Begin();
  for (std::int32_t row = 0; row < 4; ++row) CHECK_EQ(buffer.Ready(row), 0);
  CHECK_EQ(buffer.written(), 0);
}

TEST(BatchBuffer, RedirectedArraysAreForOneBatch) {
  BatchBuffer buffer(MakeSpec(), Layout(2, true));
  double reward[2] = {};
  std::int32_t env_id[2] = {};
  BatchView arrays;
  arrays.reward = reward;
  arrays.env_id = env_id;
  buffer.Begin();
  buffer.Redirect(arrays);
  CHECK(buffer.target().reward == reward && buffer.target().env_id == env_id);
  // what is null stays the buffer's own, and the view does not change
  CHECK(buffer.target().obs == buffer.view().obs);
  CHECK(buffer.target().final_obs == buffer.view().final_obs);
  CHECK(buffer.view().reward != reward);
  buffer.Begin();
  CHECK(buffer.target().reward == buffer.view().reward);
}

TEST(BatchBuffer, EveryRedirectedArrayIsTaken) {
  BatchBuffer buffer(MakeSpec(), Layout(1, true));
  std::uint8_t bytes[12], final_bytes[12], terminated[1], truncated[1];
  double reward[1], episode_return[1];
  std::int32_t env_id[1], episode_length[1];
  BatchView arrays;
  arrays.obs = bytes, arrays.final_obs = final_bytes;
  arrays.terminated = terminated, arrays.truncated = truncated;
  arrays.reward = reward, arrays.episode_return = episode_return;
  arrays.env_id = env_id, arrays.episode_length = episode_length;
  buffer.Begin();
  buffer.Redirect(arrays);
  const BatchView& target = buffer.target();
  CHECK(target.obs == bytes && target.final_obs == final_bytes);
  CHECK(target.terminated == terminated && target.truncated == truncated);
  CHECK(target.reward == reward && target.episode_return == episode_return);
  CHECK(target.env_id == env_id && target.episode_length == episode_length);
}

// Row i of every array says `base` + i.
void Fill(const BatchView& view, std::int32_t rows, std::int32_t base) {
  for (std::int32_t i = 0; i < rows; ++i) {
    const std::int32_t n = base + i;
    std::fill_n(view.ObsRow<float>(i), 3, static_cast<float>(n));
    std::fill_n(view.FinalObsRow<float>(i), 3, static_cast<float>(-n));
    view.reward[i] = view.episode_return[i] = n;
    view.env_id[i] = view.episode_length[i] = n;
    view.terminated[i] = view.truncated[i] = static_cast<std::uint8_t>(n % 2);
    std::fill_n(static_cast<double*>(view.infos[0]) + 2 * i, 2, n);
    static_cast<std::int8_t*>(view.infos[1])[i] = static_cast<std::int8_t>(n);
  }
}

TEST(BatchBuffer, CopiedRowsHaveAllColumnsAndNoOthersChange) {
  BatchBuffer from(MakeSpec(), Layout(6, true)), to(MakeSpec(), Layout(4, true));
  from.Begin(), to.Begin();
  Fill(from.view(), 6, 10);
  Fill(to.view(), 4, 50);
  to.CopyRows(from, 3, 2, 1);
  const BatchView& view = to.view();
  const std::int32_t expected[] = {50, 13, 14, 53};
  for (std::int32_t i = 0; i < 4; ++i) {
    const std::int32_t n = expected[i];
    CHECK_EQ(view.ObsRow<float>(i)[2], static_cast<float>(n));
    CHECK_EQ(view.FinalObsRow<float>(i)[0], static_cast<float>(-n));
    CHECK_EQ(view.reward[i], n);
    CHECK_EQ(view.episode_return[i], n);
    CHECK_EQ(view.env_id[i], n);
    CHECK_EQ(view.episode_length[i], n);
    CHECK_EQ(int{view.terminated[i]}, n % 2);
    CHECK_EQ(int{view.truncated[i]}, n % 2);
    CHECK_EQ(static_cast<double*>(view.infos[0])[2 * i + 1], n);
    CHECK_EQ(int{static_cast<std::int8_t*>(view.infos[1])[i]}, n);
  }
}

TEST(BatchBuffer, RowsAreCopiedFromAndToWhereTheyAreWritten) {
  BatchBuffer from(MakeSpec(), Layout(2)), to(MakeSpec(), Layout(2));
  from.Begin(), to.Begin();
  double source[2] = {1, 2}, result[2] = {};
  BatchView arrays;
  arrays.reward = source;
  from.Redirect(arrays);
  arrays.reward = result;
  to.Redirect(arrays);
  to.CopyRows(from, 0, 2, 0);
  CHECK_EQ(result[1], 2.0);
}

struct Users final : BufferUsers {
  explicit Users(const bool& none) : none_(none) {}
  bool None() const override { return none_; }
  const bool& none_;
};

TEST(BufferRing, OneBufferIsEnoughWhileNobodyHoldsIt) {
  BufferRing ring(MakeSpec(), Layout(2), 1);
  const std::int64_t one = BatchBuffer(MakeSpec(), Layout(2)).bytes();
  for (std::int64_t batch = 0; batch < 5; ++batch) {
    ring.Open(batch);
    CHECK_EQ(ring.opened(), batch + 1);
    const auto buffer = ring.HandOut(ring.Of(batch));
    ring.CloseBatch(buffer.get());
    ring.Release(buffer.get());
    CHECK_EQ(ring.bytes(), one);
  }
}

TEST(BufferRing, ABufferThatIsHandedOutOrOpenOrLookedAtIsNotUsedAgain) {
  BufferRing ring(MakeSpec(), Layout(2), 4);
  bool nobody_looks = false;
  ring.Open(0);
  const auto first = ring.HandOut(ring.Of(0));
  ring.CloseBatch(first.get());
  ring.Open(1);  // handed out
  CHECK(ring.Of(1) != first.get());
  first->users = std::make_unique<Users>(nobody_looks);
  ring.Release(first.get());
  ring.Open(2);  // looked at
  CHECK(ring.Of(2) != first.get() && ring.Of(2) != ring.Of(1));
  nobody_looks = true;
  ring.Open(3);
  CHECK(ring.Of(3) == first.get());
  ring.Open(3);  // nothing is opened twice
  CHECK_EQ(ring.opened(), 4);
}

TEST(BufferRing, ABatchThatTwoReceiveIsReleasedTwice) {
  BufferRing ring(MakeSpec(), Layout(2), 2);
  ring.Open(0);
  const auto buffer = ring.HandOut(ring.Of(0));
  ring.HandOut(buffer.get());
  ring.CloseBatch(buffer.get());
  ring.Release(buffer.get());
  ring.Open(1);
  CHECK(ring.Of(1) != buffer.get());
  ring.CloseBatch(ring.Of(1));
  ring.Release(buffer.get());
  ring.Open(2);
  CHECK(ring.Of(2) == buffer.get());
}

TEST(BufferRing, OpensAllBatchesUpToTheOneAskedFor) {
  BufferRing ring(MakeSpec(), Layout(2), 3);
  ring.Open(2);
  CHECK_EQ(ring.opened(), 3);
  CHECK((std::set<BatchBuffer*>{ring.Of(0), ring.Of(1), ring.Of(2)}.size() == 3));
}

TEST(BufferRing, DiscardedBatchesAreFreeAndHaveNoReadyRows) {
  BufferRing ring(MakeSpec(), Layout(2, false, true), 3);
  ring.Open(1);
  BatchBuffer* const second = ring.Of(1);
  second->Finish(0, 1);
  ring.Discard(1);
  ring.Open(2);
  CHECK(ring.Of(2) == second);
  CHECK_EQ(second->Ready(0), 0);
  CHECK_EQ(second->written(), 0);
}

TEST(BufferRing, BuffersThatWereHeldAndDroppedAreFreed) {
  BufferRing ring(MakeSpec(), Layout(2), 1);
  const std::int64_t one = BatchBuffer(MakeSpec(), Layout(2)).bytes();
  std::vector<std::shared_ptr<BatchBuffer>> held;
  for (std::int64_t batch = 0; batch < 10; ++batch) {
    ring.Open(batch);
    held.push_back(ring.HandOut(ring.Of(batch)));
    ring.CloseBatch(held.back().get());
  }
  CHECK_EQ(ring.bytes(), 10 * one);
  for (const auto& buffer : held) ring.Release(buffer.get());
  held.clear();
  ring.Open(10);
  // the open one, and one that waits
  CHECK_EQ(ring.bytes(), 2 * one);
  CHECK_EQ(ring.Of(10)->written(), 0);
}

TEST(BufferRing, ClearingReturnsWhatNobodyIsAboutToRelease) {
  BufferRing ring(MakeSpec(), Layout(2), 2);
  ring.Open(1);
  const auto held = ring.HandOut(ring.Of(0));
  const auto given_up = ring.Clear();
  CHECK_EQ(given_up.size(), std::size_t{1});
  CHECK(given_up[0] != held);
  CHECK_EQ(ring.bytes(), 0);
  ring.Release(held.get());  // comes late, and is fine
}

}  // namespace
}  // namespace rollouts
