// SPDX-License-Identifier: Apache-2.0
#include "rollouts/registry/registry.h"

#include <deque>
#include <utility>

#include "entries.h"
#include "plugin/plugin_batch.h"
#include "rollouts/pool/mixed_env_batch.h"
#include "rollouts/support/mutex.h"
#include "rollouts/wrappers/wrapped_env_batch.h"

namespace rollouts {
namespace {

// Makes the environments of one id. `first_row`: where its rows begin in columns of options.
std::unique_ptr<EnvBatch> MakeSegment(const Segment& segment, const OptionColumns& options,
                                      std::int32_t first_row) {
  if (segment.internal.empty()) {
    return segment.entry->make_batch(options, first_row, segment.num_envs);
  }
  OptionColumns all = options;
  // options that belong to the id, such as a game, in addition to the user's
  all.insert(segment.internal.begin(), segment.internal.end());
  return segment.entry->make_batch(all, first_row, segment.num_envs);
}

// All entries. Entries are added and never removed.
struct Table {
  Mutex mutex;
  std::deque<RegistryEntry> entries ROLLOUTS_GUARDED_BY(mutex);  // they keep their addresses

  Table() {
    for (const auto make : {LightEntries, HeavyEntries, AgentEntries}) {
      for (RegistryEntry& entry : make()) entries.push_back(std::move(entry));
    }
  }
};

Table& EntryTable() {
  // made at the first call, not when the module loads
  static Table table;
  return table;
}

}  // namespace

std::vector<const RegistryEntry*> Registry() {
  Table& table = EntryTable();
  const MutexLock lock(table.mutex);
  std::vector<const RegistryEntry*> entries;
  for (const RegistryEntry& entry : table.entries) entries.push_back(&entry);
  return entries;
}

OwnNames NamesOf(const std::string& library) {
  const PluginTable& plugin = LoadPlugin(library);
  OwnNames names;
  for (const auto& [name, value] : PluginOptions(plugin)) names.options.push_back(name);
  const EnvSpec spec = PluginSpec(plugin, {});
  for (std::int32_t i = 0; i < spec.num_infos; ++i) names.infos.emplace_back(spec.infos[i].name);
  return names;
}

void RegisterEnv(const OwnEnv& env) {
  const PluginTable& plugin = LoadPlugin(env.library);
  PluginSpec(plugin, {});
  Table& table = EntryTable();
  const MutexLock lock(table.mutex);
  for (const RegistryEntry& entry : table.entries) {
    if (entry.id == env.id) throw SpecError("there is an environment '" + env.id + "' already");
  }
  DeviceLayout device{
      .state_fields = plugin.state_fields,
      .real_state = plugin.real_state != 0,
      .config_bytes = plugin.config_bytes,
      .configs =
          [&plugin](const OptionColumns& options, std::int32_t num_envs) {
            return PluginConfigs(plugin, options, num_envs);
          },
      .worlds = {}};
  if (plugin.multi_agent) {
    device.worlds = [&plugin](const OptionColumns& options, std::int32_t num_envs) {
      return PluginWorlds(plugin, options, num_envs);
    };
  }
  table.entries.push_back(
      {env.id, env.max_episode_steps, env.reward_threshold, /*cpu_only=*/false, env.header,
       env.type, [&plugin] { return PluginOptions(plugin); },
       [&plugin](const OptionColumns& options) { return PluginSpec(plugin, options); },
       [&plugin](const OptionColumns& options, std::int32_t first_row, std::int32_t num_envs) {
         return MakePluginBatch(plugin, options, first_row, num_envs);
       },
       plugin.multi_agent != 0, std::move(device)});
}

const RegistryEntry& FindEntry(const std::string& id) {
  for (const RegistryEntry* entry : Registry()) {
    if (entry->id == id) return *entry;
  }
  throw SpecError("unknown environment '" + id + "'; rollouts.env_ids() lists what there is");
}

namespace {

std::unique_ptr<EnvBatch> MakeBareBatch(std::span<const Segment> segments,
                                        const OptionColumns& options) {
  // in the usual case no call goes through another batch
  if (segments.size() == 1) return MakeSegment(segments[0], options, 0);
  std::vector<MixedEnvBatch::Part> parts;
  std::int32_t first = 0;
  for (const Segment& segment : segments) {
    // option rows are numbered for the whole pool: each part begins where the one before ends
    parts.push_back({first, segment.num_envs, segment.max_episode_steps,
                     MakeSegment(segment, options, first)});
    first += segment.num_envs;
  }
  return std::make_unique<MixedEnvBatch>(std::move(parts));
}

}  // namespace

std::unique_ptr<EnvBatch> MakeEnvBatch(std::span<const Segment> segments,
                                       const OptionColumns& options, const Wrappers& wrappers) {
  std::unique_ptr<EnvBatch> envs = MakeBareBatch(segments, options);
  if (!wrappers.any()) return envs;
  std::int32_t num_envs = 0;
  for (const Segment& segment : segments) num_envs += segment.num_envs;
  return std::make_unique<WrappedEnvBatch>(std::move(envs), wrappers, num_envs);
}

}  // namespace rollouts
