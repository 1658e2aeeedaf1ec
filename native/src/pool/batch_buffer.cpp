// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/batch_buffer.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

namespace rollouts {
namespace {

// Each array begins at a cache line, so that no two arrays share one.
constexpr std::int64_t kAlignment = 64;

std::int64_t Aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

// Calls visit(array, bytes of one row) for every array of a batch.
template <typename Visit>
void BatchBuffer::VisitArrays(BatchView& view, Visit&& visit) const {
  const std::int64_t obs_bytes = spec_.observation.bytes();
  // the largest first; each begins at a cache line
  visit(view.obs, obs_bytes);
  if (layout_.with_final_obs) visit(view.final_obs, obs_bytes);
  visit(view.reward, 8);
  visit(view.episode_return, 8);
  visit(view.env_id, 4);
  visit(view.episode_length, 4);
  visit(view.terminated, 1);
  visit(view.truncated, 1);
  for (std::int32_t i = 0; i < spec_.num_infos; ++i) {
    const std::int64_t row_bytes = SizeOf(spec_.infos[i].dtype) * spec_.infos[i].size();
    visit(view.infos[i], row_bytes);
    if (layout_.with_final_obs && spec_.reset_infos) visit(view.begun_infos[i], row_bytes);
  }
}

// Does the same for the groups of agents.
template <typename Visit>
void BatchBuffer::VisitGroups(Groups& groups, Visit&& visit) const {
  for (std::int32_t g = 0; g < spec_.num_groups; ++g) {
    GroupView& group = groups[g];
    const std::int64_t agents = group.num_agents;
    visit(group.obs, agents * group.obs_bytes);
    if (layout_.with_final_obs) visit(group.final_obs, agents * group.obs_bytes);
    visit(group.reward, agents * 8);
    visit(group.episode_return, agents * 8);
    visit(group.terminated, agents);
    visit(group.truncated, agents);
    visit(group.active, agents);
  }
}

BatchBuffer::BatchBuffer(const EnvSpec& spec, const BatchLayout& layout)
    : spec_(spec), layout_(layout) {
  view_.obs_bytes = spec.observation.bytes();
  for (std::int32_t g = 0; g < spec.num_groups; ++g) {
    groups_[g].obs_bytes = spec.groups[g].observation.bytes();
    groups_[g].num_agents = spec.groups[g].num_agents;
  }
  view_.num_groups = spec.num_groups;
  // one pass over the arrays for their size, and another to place them one after the other
  const auto count = [&](auto*&, std::int64_t row_bytes) {
    bytes_ += Aligned(layout.rows * row_bytes);
  };
  VisitArrays(view_, count);
  VisitGroups(groups_, count);
  std::uint8_t* next = memory_.emplace(static_cast<std::size_t>(bytes_)).data();
  const auto place = [&](auto*& array, std::int64_t row_bytes) {
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(next);
    next += Aligned(layout.rows * row_bytes);
  };
  VisitArrays(view_, place);
  VisitGroups(groups_, place);
  view_.groups = groups_.data();
  Begin();
  // zero: that row is not finished
  if (layout.out_of_order) {
    ready_ = std::make_unique<std::atomic<std::int32_t>[]>(static_cast<std::size_t>(layout.rows));
  }
}

void BatchBuffer::Begin() {
  // a caller's arrays are used for one batch only
  target_ = view_;
  std::copy_n(groups_.begin(), view_.num_groups, target_groups_.begin());
  target_.groups = target_groups_.data();
  written_.store(0, std::memory_order_relaxed);
}

void BatchBuffer::Discard() {
  // Begin need not clear ready_: Take has done so, row by row, for all received rows
  for (std::int32_t row = 0; ready_ && row < layout_.rows; ++row) {
    ready_[row].store(0, std::memory_order_relaxed);
  }
}

void BatchBuffer::Redirect(const BatchView& arrays) {
  const auto redirect = [](auto*& target, auto* array) {
    if (array) target = array;
  };
  redirect(target_.obs, arrays.obs);
  redirect(target_.final_obs, arrays.final_obs);
  redirect(target_.reward, arrays.reward);
  redirect(target_.terminated, arrays.terminated);
  redirect(target_.truncated, arrays.truncated);
  redirect(target_.env_id, arrays.env_id);
  redirect(target_.episode_return, arrays.episode_return);
  redirect(target_.episode_length, arrays.episode_length);
  for (std::int32_t g = 0; g < arrays.num_groups; ++g) {
    GroupView& target = target_groups_[g];
    const GroupView& given = arrays.groups[g];
    redirect(target.obs, given.obs);
    redirect(target.final_obs, given.final_obs);
    redirect(target.reward, given.reward);
    redirect(target.terminated, given.terminated);
    redirect(target.truncated, given.truncated);
    redirect(target.active, given.active);
    redirect(target.episode_return, given.episode_return);
  }
}

void BatchBuffer::CopyRows(const BatchBuffer& other, std::int32_t from, std::int32_t count,
                           std::int32_t to) {
  // where the rows were written, which may be a caller's arrays
  BatchView source = other.target_;
  Groups source_groups = other.target_groups_;
  std::vector<const std::uint8_t*> arrays;
  const auto list = [&](auto*& array, std::int64_t row_bytes) {
    arrays.push_back(reinterpret_cast<const std::uint8_t*>(array) + from * row_bytes);
  };
  VisitArrays(source, list);
  VisitGroups(source_groups, list);
  auto next = arrays.begin();
  const auto copy = [&](auto*& array, std::int64_t row_bytes) {
    std::memcpy(reinterpret_cast<std::uint8_t*>(array) + to * row_bytes, *next++,
                static_cast<std::size_t>(count * row_bytes));
  };
  VisitArrays(target_, copy);
  VisitGroups(target_groups_, copy);
}

void BatchBuffer::Take(std::int64_t row, std::int32_t count) {
  while (count > 0) {
    // relaxed, because Recv has seen these rows as Ready before it takes them
    const std::int32_t chunk = ready_[row].load(std::memory_order_relaxed);
    const std::int32_t taken = std::min(chunk, count);
    ready_[row].store(0, std::memory_order_relaxed);
    row += taken;
    count -= taken;
    // the rest of the chunk begins at a later row
    if (taken < chunk) ready_[row].store(chunk - taken, std::memory_order_relaxed);
  }
}

}  // namespace rollouts
