// SPDX-License-Identifier: Apache-2.0
// The plug-in side of abi.h: an environment's header, this one and `ROLLOUTS_PLUGIN(Type)` are the
// source of a shared library, which the system's compiler makes for `rollouts.register_env`.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rollouts/plugin/abi.h"
#include "rollouts/plugin/contract.h"
#include "rollouts/plugin/plugin_values.h"
#include "rollouts/pool/light_env_batch.h"
#include "rollouts/pool/multi_agent_batch.h"
#include "rollouts/support/options_definitions.h"
#include "rollouts/support/page_memory_definitions.h"

namespace rollouts {

[[gnu::flatten]] void DrawBlocks(Draws& draws, std::int32_t count) { DrawAll(draws, count); }

// Thrown to leave the run, where a function of the library's side failed.
struct Abandoned {};

// Runs a call of the table; no exception leaves it.
template <typename Call>
PluginResult Guarded(ErrorSink error, Call&& call) noexcept {
  try {
    call();
    return kPluginOk;
  } catch (const Abandoned&) {
    return kPluginAbandoned;
  } catch (const SpecError& wrong) {
    error.put(error.to, wrong.what());
    return kPluginSpecError;
  } catch (const std::exception& failure) {
    error.put(error.to, failure.what());
  } catch (...) {
    error.put(error.to, "an exception that is not a std::exception");
  }
  return kPluginFailed;
}

// Rows that the library's side hands out.
class TableRows final : public RowSource {
 public:
  explicit TableRows(PluginRowSource calls) : calls_(calls) {}

  Rows Take(std::int32_t count) override {
    PluginRows rows;
    if (!calls_.take(calls_.source, count, &rows)) throw Abandoned();
    return {rows.view, rows.first, rows.count, rows.buffer};
  }
  void Finish(const Rows& rows) override {
    const PluginRows same{rows.view, rows.first, rows.count, rows.buffer};
    if (!calls_.finish(calls_.source, &same)) throw Abandoned();
  }
  void Fail(std::int32_t env, const std::string& message) override {
    if (!calls_.fail(calls_.source, env, message.c_str())) throw Abandoned();
  }

 private:
  const PluginRowSource calls_;
};

// Differences between environments with one agent and with several.
template <typename Env>
struct BatchOf {
  using Type = LightEnvBatch<Env>;
  static_assert(LightContract<Env>::kHolds);

  static EnvSpec Spec(const typename Env::Config& config) {
    const EnvSpec spec = SpecUnder<Env>(config);
    EnvSpec others = spec;
    others.observation = Env::kSpec.observation;
    const std::string difference = SpecDifference(Env::kSpec, others);
    if (!difference.empty()) {
      throw SpecError("MakeSpec changes the " + difference +
                      " of kSpec, and may change the observation alone");
    }
    // blocks of environments are laid out by kSpec
    if (Vectorized<Env> && !SameSpace(spec.observation, Env::kSpec.observation)) {
      throw SpecError("MakeSpec changes the observation of kSpec, which kVectorized does not allow");
    }
    return spec;
  }
  static constexpr std::int32_t ActionElement() { return ElementOf<typename Env::Action>(); }
  static std::unique_ptr<Type> Make(std::vector<typename Env::Config> configs,
                                    std::int32_t num_envs) {
    return std::make_unique<Type>(std::move(configs), num_envs, Kernels());
  }

  // flattened, because a call left in the loop would prevent the vectorisation
  template <typename ConfigsOf>
  [[gnu::flatten]] static void Step(const ConfigsOf& configs, EnvBlock<Env>& block,
                                    std::int32_t count) {
    StepBlock<Env>(configs, block, count);
  }
  template <typename ConfigsOf>
  [[gnu::flatten]] static void Observe(const ConfigsOf& configs, const EnvBlock<Env>& block,
                                       std::int32_t count, typename Env::Obs* obs) {
    ObserveBlock<Env>(configs, block, count, obs);
  }
  template <typename ConfigsOf>
  [[gnu::flatten]] static void Tell(const ConfigsOf& configs, const EnvBlock<Env>& block,
                                    std::int32_t count, void* const* columns, std::int64_t row) {
    TellBlock<Env>(configs, block, count, columns, row);
  }
  static BlockKernels<Env> Kernels() {
    if constexpr (Vectorized<Env>) {
      using Same = SameConfig<Env>;
      using Each = ConfigLanes<Env>;
      return {Step<Same>, Observe<Same>, Tell<Same>, Step<Each>, Observe<Each>, Tell<Each>};
    } else {
      return {};
    }
  }
};

template <typename Env>
  requires kHasAgents<Env>
struct BatchOf<Env> {
  static_assert(AgentsContract<Env>::kHolds);
  using Type = MultiAgentBatch<Env>;

  static EnvSpec Spec(const typename Env::Config& config) { return Env::MakeSpec(config); }
  static constexpr std::int32_t ActionElement() { return kNoElement; }
  static std::unique_ptr<Type> Make(const std::vector<typename Env::Config>& configs,
                                    std::int32_t num_envs) {
    return std::make_unique<Type>(configs, num_envs, AgentKernels<Env>{Step, Observe});
  }
  [[gnu::flatten]] static void Step(const WorldRef<Env>& world) {
    AgentLoops<Env>::template Phases<0>(world);
  }
  [[gnu::flatten]] static void Observe(const WorldRef<Env>& world, std::int32_t first,
                                       std::int32_t count, typename Env::Obs* obs,
                                       std::int64_t size) {
    AgentLoops<Env>::Observe(world, first, count, obs, size);
  }
};

// The functions of the table.
template <typename Env>
struct PluginOf {
  using Batch = typename BatchOf<Env>::Type;
  // The function that Prepare returned; it alone touches the batch.
  using Prepared = std::function<void()>;

  static Batch& At(void* batch) { return *static_cast<Batch*>(batch); }
  static const Batch& At(const void* batch) { return *static_cast<const Batch*>(batch); }
  static std::span<const std::uint8_t> Bytes(const std::uint8_t* bytes, std::int64_t count) {
    return {bytes, static_cast<std::size_t>(count)};
  }

  static void Put(ByteSink out, const std::vector<std::uint8_t>& bytes) {
    out.put(out.to, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  }

  static PluginResult DefaultOptions(OptionSink options, ErrorSink error) {
    return Guarded(error, [&] { PutOptions(ListOptions<Env>({}), options); });
  }
  static PluginResult MakeSpec(PluginColumns options, EnvSpec* spec, ErrorSink error) {
    return Guarded(error, [&] {
      *spec = BatchOf<Env>::Spec(ReadConfig<Env>(ColumnsFromPlugin(options), 0));
    });
  }
  static PluginResult Make(PluginColumns options, std::int32_t first_row, std::int32_t num_envs,
                           void** batch, ErrorSink error) {
    return Guarded(error, [&] {
      auto configs = ReadConfigs<Env>(ColumnsFromPlugin(options), first_row, num_envs);
      *batch = BatchOf<Env>::Make(std::move(configs), num_envs).release();
    });
  }
  static PluginResult PutConfigs(PluginColumns options, std::int32_t num_envs, ByteSink out,
                                 ErrorSink error) {
    return Guarded(error, [&] {
      const auto configs = ReadConfigs<Env>(ColumnsFromPlugin(options), 0, num_envs);
      if constexpr (!kHasAgents<Env>) CheckDeviceSpecs<Env>(configs);
      Put(out, BytesOf(configs));
    });
  }
  static PluginResult Worlds(PluginColumns options, std::int32_t num_envs,
                             std::int64_t* world_bytes, ByteSink tables, ErrorSink error) {
    return Guarded(error, [&] {
      if constexpr (kHasAgents<Env>) {
        const auto facts =
            DescribeWorlds<Env>(ReadConfigs<Env>(ColumnsFromPlugin(options), 0, num_envs));
        *world_bytes = facts.world_bytes;
        Put(tables, BytesOf(facts.tables));
      }
    });
  }
  static constexpr std::int32_t AgentsBytes() {
    if constexpr (kHasAgents<Env>) {
      return sizeof(typename Env::Agents);
    } else {
      return 0;
    }
  }
  // Numbers of a State: Reals where they have names, else words of 32 bits.
  static constexpr std::int32_t StateFields() {
    if constexpr (kHasAgents<Env>) {
      return 0;
    } else {
      return sizeof(typename Env::State) / (Watched<Env> ? sizeof(Real) : 4);
    }
  }
  static void Destroy(void* batch) { delete &At(batch); }
  static void Spec(const void* batch, EnvSpec* spec) { *spec = At(batch).spec(); }
  static PluginResult MakeEnvs(void* batch, std::int32_t first, std::int32_t count,
                               ErrorSink error) {
    return Guarded(error, [&] { At(batch).Make(first, count); });
  }
  static EpisodeClock* Clock(void* batch, std::int32_t env) { return &At(batch).clock(env); }
  static PluginResult Run(void* batch, const std::int32_t* envs, std::int64_t num_envs,
                          const PluginWork* work, PluginRowSource rows, ErrorSink error) {
    return Guarded(error, [&] {
      TableRows source(rows);
      At(batch).Run({envs, static_cast<std::size_t>(num_envs)},
                    {work->commands, work->actions, work->action_bytes, work->rules}, source);
    });
  }
  static std::uint8_t* StateBytes(void* batch, std::int32_t env, std::int64_t* num_bytes) {
    const std::span<std::uint8_t> state = At(batch).StateBytes(env);
    *num_bytes = static_cast<std::int64_t>(state.size());
    return state.data();
  }
  static PluginResult SaveState(const void* batch, std::int32_t env, ByteSink out,
                                ErrorSink error) {
    return Guarded(error, [&] {
      std::vector<std::uint8_t> bytes;
      At(batch).SaveState(env, bytes);
      Put(out, bytes);
    });
  }
  static PluginResult CheckState(const void* batch, std::int32_t env, const std::uint8_t* bytes,
                                 std::int64_t num_bytes, ErrorSink error) {
    return Guarded(error, [&] { At(batch).CheckState(env, Bytes(bytes, num_bytes)); });
  }
  static PluginResult LoadState(void* batch, std::int32_t env, const std::uint8_t* bytes,
                                std::int64_t num_bytes, ErrorSink error) {
    return Guarded(error, [&] { At(batch).LoadState(env, Bytes(bytes, num_bytes)); });
  }
  static PluginResult OptionsOf(const void* batch, std::int32_t env, OptionSink options,
                                ErrorSink error) {
    return Guarded(error, [&] { PutOptions(At(batch).OptionsOf(env), options); });
  }
  static PluginResult ReadWorld(const void* batch, std::int32_t env, std::int32_t first,
                                ArraySink arrays, ErrorSink error) {
    return Guarded(error, [&] {
      for (const WorldArray& array : At(batch).ReadWorld(env, first != 0)) {
        arrays.put(arrays.to, array.name.c_str(), array.dtype, array.shape.data(),
                   static_cast<std::int32_t>(array.shape.size()), array.bytes.data(),
                   static_cast<std::int64_t>(array.bytes.size()));
      }
    });
  }
  static PluginResult Prepare(void* batch, const std::int32_t* envs, std::int64_t num_envs,
                              PluginColumns options, std::int32_t first_row, void** prepared,
                              ErrorSink error) {
    return Guarded(error, [&] {
      const EnvChanges changes{ColumnsFromPlugin(options), {}};
      *prepared = new Prepared(At(batch).Prepare({envs, static_cast<std::size_t>(num_envs)},
                                                 changes, first_row));
    });
  }
  static void PutInPlace(void* prepared) { (*static_cast<Prepared*>(prepared))(); }
  static void DropPrepared(void* prepared) { delete static_cast<Prepared*>(prepared); }

  static constexpr PluginTable kTable = {
      .layout = {.version = kPluginVersion, .table_bytes = sizeof(PluginTable)},
      .multi_agent = kHasAgents<Env>,
      .obs_element = ElementOf<typename Env::Obs>(),
      .action_element = BatchOf<Env>::ActionElement(),
      .state_fields = StateFields(),
      .real_state = Watched<Env>,
      .config_bytes = sizeof(typename Env::Config),
      .configs = PutConfigs,
      .agents_bytes = AgentsBytes(),
      .worlds = Worlds,
      .default_options = DefaultOptions,
      .make_spec = MakeSpec,
      .make = Make,
      .destroy = Destroy,
      .spec = Spec,
      .make_envs = MakeEnvs,
      .clock = Clock,
      .run = Run,
      .state_bytes = StateBytes,
      .save_state = SaveState,
      .check_state = CheckState,
      .load_state = LoadState,
      .options_of = OptionsOf,
      .read_world = ReadWorld,
      .prepare = Prepare,
      .put_in_place = PutInPlace,
      .drop_prepared = DropPrepared,
  };
};

}  // namespace rollouts

// `...`: a type, named as inside namespace rollouts or as outside all namespaces; ambiguous where
// both have one.
#define ROLLOUTS_PLUGIN(...)                                                     \
  namespace rollouts_seen {                                                      \
  using namespace rollouts;                                                      \
  using PluginEnvironment = __VA_ARGS__;                                         \
  }                                                                              \
  extern "C" __attribute__((visibility("default"))) const rollouts::PluginTable* \
  rollouts_plugin() {                                                            \
    return &rollouts::PluginOf<rollouts_seen::PluginEnvironment>::kTable;        \
  }
