// SPDX-License-Identifier: Apache-2.0
#include "rollouts/registry/registry.h"

#include <utility>

#include "entries.h"
#include "rollouts/pool/mixed_env_batch.h"

namespace rollouts {
namespace {

// Environments of one id. `first_row`: where its own begin in columns of options.
std::unique_ptr<EnvBatch> MakeSegment(const Segment& segment, const OptionColumns& options,
                                      std::int32_t first_row) {
  if (segment.internal.empty()) {
    return segment.entry->make_batch(options, first_row, segment.num_envs);
  }
  OptionColumns all = options;
  // what an id stands for, such as a game, beside what the user chose
  all.insert(segment.internal.begin(), segment.internal.end());
  return segment.entry->make_batch(all, first_row, segment.num_envs);
}

}  // namespace

const std::vector<RegistryEntry>& Registry() {
  // made at the first call, not when the module loads
  static const std::vector<RegistryEntry> entries = [] {
    std::vector<RegistryEntry> all = LightEntries();
    for (RegistryEntry& entry : HeavyEntries()) all.push_back(std::move(entry));
    for (RegistryEntry& entry : AgentEntries()) all.push_back(std::move(entry));
    return all;
  }();
  return entries;
}

const RegistryEntry& FindEntry(const std::string& id) {
  for (const RegistryEntry& entry : Registry()) {
    if (entry.id == id) return entry;
  }
  throw SpecError("unknown environment '" + id + "'; rollouts.env_ids() lists what there is");
}

std::unique_ptr<EnvBatch> MakeEnvBatch(std::span<const Segment> segments,
                                       const OptionColumns& options) {
  // the usual case costs no call through another batch
  if (segments.size() == 1) return MakeSegment(segments[0], options, 0);
  std::vector<MixedEnvBatch::Part> parts;
  std::int32_t first = 0;
  for (const Segment& segment : segments) {
    // rows of options are the pool's: each part begins where the one before ends
    parts.push_back({first, segment.num_envs, segment.max_episode_steps,
                     MakeSegment(segment, options, first)});
    first += segment.num_envs;
  }
  return std::make_unique<MixedEnvBatch>(std::move(parts));
}

}  // namespace rollouts
