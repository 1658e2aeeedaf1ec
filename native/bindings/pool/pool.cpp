// SPDX-License-Identifier: Apache-2.0
// CpuPool for Python. Arrays handed out are views of the pool's buffers: they are made once per
// buffer, and a buffer is overwritten only when nobody but the pool holds its arrays.
#include "rollouts/pool/cpu_pool.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "bindings/interrupts.h"
#include "bindings/pool/actions.h"
#include "bindings/pool/collect.h"
#include "bindings/pool/pool_options.h"
#include "bindings/pool/pool_stats.h"
#include "bindings/pool/wait.h"
#include "bindings/pool/wrappers.h"
#include "bindings/pool/xla.h"
#include "rollouts/registry/registry.h"
#include "rollouts/support/state.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using Clock = CpuPool::Clock;
using BoolArray = py::array_t<bool, py::array::c_style>;
using DoubleArray = py::array_t<double, py::array::c_style>;

// One pool as a Python object. Its methods hold the GIL except while they wait.
class PyPool {
 public:
  PyPool(std::vector<Segment> segments, const OptionColumns& env_options,
         const Wrappers& wrappers, const PoolOptions& options)
      : segments_(std::move(segments)) {
    const ReleaseGil release;
    // without the GIL, as environments may take seconds to make
    pool_ = std::make_shared<CpuPool>(MakeEnvBatch(segments_, env_options, wrappers), options);
  }

  // Closes the pool: a computation of XLA that still uses it then gets an error.
  ~PyPool() {
    const ReleaseGil release(interrupted_);
    if (pool_) pool_->Close();
  }
  PyPool(const PyPool&) = delete;

  CpuPool& pool() { return *pool_; }

  std::uint32_t XlaHandle() { return xla_number_.Of(pool_); }
  std::int64_t num_xla_calls() const { return xla_number_.num_calls(); }

  void Send(const py::object& actions, const py::object& env_id, const py::object& out) {
    // without ids all are sent; the pool recognises this by the span's address
    std::vector<std::int32_t> ids;
    std::span<const std::int32_t> envs = pool_->all_envs();
    if (!env_id.is_none()) {
      ids = ReadEnvIds(*pool_, env_id);
      envs = ids;
    }
    std::optional<OutArrays> arrays;
    if (!out.is_none()) arrays.emplace(out, pool_->spec(), envs.size(), SameStep());
    SendActions(*pool_, actions, envs, arrays ? &arrays->view() : nullptr);
    // kept until the batch is received, because threads write there until then
    if (arrays && !envs.empty()) out_ = std::move(arrays);
  }

  py::tuple Recv(std::optional<double> timeout_s) {
    return Receive(timeout_s, "recv", [&](Clock::time_point deadline) { return pool_->Recv(deadline); });
  }

  py::tuple RecvRows(std::int32_t min, std::int32_t max, std::optional<double> timeout_s) {
    return Receive(timeout_s, "recv", [&](Clock::time_point deadline) {
      return pool_->RecvRows(deadline, {min, max});
    });
  }

  py::tuple RecvAll(std::optional<double> timeout_s) {
    return Receive(timeout_s, "drain",
                   [&](Clock::time_point deadline) { return pool_->RecvAll(deadline); });
  }

  py::tuple Step(const py::object& actions, const py::object& env_id, const py::object& out) {
    Send(actions, env_id, out);
    return Recv(std::nullopt);
  }

  // [(env_id, message)] of the rows received last; empty unless on_env_error is "reset".
  py::list TakeFailures() { return std::exchange(failures_, py::list()); }

  // Checks a reset before the caller changes anything that it would have to undo.
  void CheckReset(const std::optional<BoolArray>& mask) const {
    CheckMask(mask);
    pool_->CheckReset(MaskData(mask));
  }

  void SendReset(const std::optional<BoolArray>& mask) {
    CheckMask(mask);
    pool_->SendReset(MaskData(mask));
  }

  void Change(const std::optional<BoolArray>& mask, const py::dict& options,
              const py::list& model) {
    CheckMask(mask);
    pool_->Change(MaskData(mask), {OptionColumnsFromDict(options),
                                   ReadModelColumns(model, pool_->options().num_envs)});
  }

  // Waits until nothing is in flight, and drops what was not received.
  void Discard(std::optional<double> timeout_s) {
    WaitForPool(*pool_, timeout_s, "reset", interrupted_,
                [&](Clock::time_point deadline) { return pool_->Drain(deadline); });
    // drained: no thread writes there any more
    out_.reset();
  }

  // Raw bytes of a light environment, for tests.
  py::bytes GetState(std::int32_t env) {
    const auto state = pool_->StateBytes(env);
    return py::bytes(reinterpret_cast<const char*>(state.data()), state.size());
  }

  void SetState(std::int32_t env, const std::string& bytes) {
    const auto state = pool_->StateBytes(env);
    if (bytes.size() != state.size()) {
      throw SpecError("state has " + std::to_string(bytes.size()) + " bytes, expected " +
                      std::to_string(state.size()));
    }
    std::memcpy(state.data(), bytes.data(), bytes.size());
  }

  // Saved states in sealed form, so that loading detects states of other environments.
  py::list SaveStates(const py::object& env_id) {
    const std::vector<std::int32_t> envs = ReadEnvIds(*pool_, env_id);
    py::list states;
    for (const std::int32_t env : envs) {
      const auto sealed = SealState(KindOf(env), pool_->SaveState(env));
      states.append(py::bytes(reinterpret_cast<const char*>(sealed.data()), sealed.size()));
    }
    return states;
  }

  py::list Render(const py::object& env_id) {
    py::list frames;
    for (const std::int32_t env : ReadEnvIds(*pool_, env_id)) {
      frames.append(FrameArray(pool_->Render(env)));
    }
    return frames;
  }

  py::list ReadWorlds(const py::object& env_id, bool first) {
    py::list worlds;
    for (const std::int32_t env : ReadEnvIds(*pool_, env_id)) {
      worlds.append(WorldDict(pool_->ReadWorld(env, first)));
    }
    return worlds;
  }

  // The caller's list keeps the bytes, which nobody can change, alive.
  void LoadStates(const py::object& env_id, const std::vector<py::bytes>& sealed) {
    const std::vector<std::int32_t> envs = ReadEnvIds(*pool_, env_id);
    if (sealed.size() != envs.size()) {
      throw SpecError("got " + std::to_string(sealed.size()) + " states for " +
                      std::to_string(envs.size()) + " environments");
    }
    // all states are opened before the first is loaded
    std::vector<std::span<const std::uint8_t>> states;
    for (std::size_t i = 0; i < envs.size(); ++i) {
      const std::string_view bytes = sealed[i];
      try {
        states.push_back(
            OpenState(KindOf(envs[i]),
                      {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}));
      } catch (const SpecError& error) {
        throw SpecError("state " + std::to_string(i) + " " + error.what());
      }
    }
    // emulators take a while to load
    const ReleaseGil release;
    pool_->LoadStates(envs, states);
  }

  // The last actions (n, *action_shape) sent to environments at rest.
  py::array ActionRows(const py::object& env_id) {
    const std::vector<std::int32_t> envs = ReadEnvIds(*pool_, env_id);
    // only for Box actions, which are kept as float32
    const auto size = static_cast<std::size_t>(pool_->action_bytes()) / sizeof(float);
    py::array_t<float> actions({envs.size(), size});
    pool_->ReadActions(envs, reinterpret_cast<std::uint8_t*>(actions.mutable_data()));
    return actions;
  }

  // Sets rewards and ends that a user's model computes in Python after the step.
  void EndSteps(const py::object& env_id, const DoubleArray& reward, const BoolArray& terminated) {
    const std::vector<std::int32_t> envs = ReadEnvIds(*pool_, env_id);
    if (reward.size() != std::ssize(envs) || terminated.size() != std::ssize(envs)) {
      throw SpecError("reward and terminated need one number for each environment");
    }
    pool_->EndSteps(envs, reward.data(), reinterpret_cast<const std::uint8_t*>(terminated.data()));
  }

  py::tuple ShowIdle(const py::object& env_id, bool begin) {
    const std::vector<std::int32_t> envs = ReadEnvIds(*pool_, env_id);
    CpuPool::Received received;
    {
      const ReleaseGil release;
      // without the GIL, as an engine may take long to begin an episode
      received = pool_->ShowIdle(envs, begin);
    }
    return Rows(MakeArrays(received.buffer, pool_->spec()), received);
  }

  void Close() {
    {
      const ReleaseGil release(interrupted_);
      pool_->Close();
    }
    out_.reset();  // no thread writes there any more
    watch_.reset();
  }

 private:
  bool SameStep() const {
    return pool_->options().rules.autoreset == AutoresetMode::kSameStep;
  }

  // Waits for rows, and returns them as views of their buffer's arrays.
  template <typename Attempt>
  py::tuple Receive(std::optional<double> timeout_s, const char* what, Attempt&& attempt) {
    CpuPool::Received received;
    WaitForPool(*pool_, timeout_s, what, interrupted_, [&](Clock::time_point deadline) {
      // no buffer: the attempt ran out of time
      received = attempt(deadline);
      return received.buffer != nullptr;
    });
    for (const auto& failure : received.failures) {
      failures_.append(py::make_tuple(failure.env_id, failure.message));
    }
    // a copy, which is not one of the pool's buffers, gets arrays of its own
    BatchBuffer& buffer = *received.buffer;
    if (!received.pooled) return Rows(MakeArrays(received.buffer, pool_->spec()), received);
    // the first time that this buffer is handed out: its arrays are made once
    if (!buffer.users) {
      buffer.users = std::make_unique<NumpyUsers>(MakeArrays(received.buffer, pool_->spec()));
    }
    const py::tuple arrays = static_cast<NumpyUsers&>(*buffer.users).arrays();
    // from here on the arrays' reference counts tell whether the buffer is in use
    pool_->Release(&buffer);
    // fresh views, so that a change of an array's shape or flags affects only the caller
    py::tuple rows = Rows(arrays, received);
    // the caller gets the arrays that it gave, not views of them
    if (out_) {
      out_->PutInto(rows);
      out_.reset();
    }
    return rows;
  }

  // One mark for each environment of the pool.
  void CheckMask(const std::optional<BoolArray>& mask) const {
    if (mask && (mask->ndim() != 1 || mask->shape(0) != pool_->options().num_envs)) {
      throw SpecError("reset_mask has shape " + ShapeString(*mask) + ", expected (" +
                      std::to_string(pool_->options().num_envs) + ",)");
    }
  }

  static const std::uint8_t* MaskData(const std::optional<BoolArray>& mask) {
    return mask ? reinterpret_cast<const std::uint8_t*>(mask->data()) : nullptr;
  }

  // The kind of saved states that an environment can load.
  StateKind KindOf(std::int32_t env) {
    Options options = pool_->OptionsOf(env);
    // where there is a choice of engines, each can load the states of the others
    if (!pool_->EngineOf(env).name.empty()) options.erase("engine");
    return MakeStateKind(EntryOf(segments_, env).type, options);
  }

  // Views of the rows that were received, in the order of MakeArrays; None stays None.
  static py::tuple Rows(const py::tuple& arrays, const CpuPool::Received& received) {
    py::tuple result(arrays.size());
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const py::object array = arrays[i];
      result[i] = array.is_none() ? array
                                  : RowsOf(py::reinterpret_borrow<py::array>(array), received.first,
                                           received.rows);
    }
    return result;
  }

  std::optional<InterruptWatch> watch_{std::in_place};
  bool interrupted_ = false;  // see WaitForPool
  std::optional<OutArrays> out_;  // outlives the pool's threads
  py::list failures_;
  std::shared_ptr<CpuPool> pool_;
  XlaNumber xla_number_;
  const std::vector<Segment> segments_;
};

py::object Collect(PyPool& self, const std::vector<const PyPolicy*>& policies,
                   const std::vector<py::dict>& arrays, const py::dict& rules,
                   const py::object& poll, const py::object& normalize) {
  return CollectRollouts(self.pool(), policies, arrays, rules, poll, normalize);
}

}  // namespace

void BindPool(py::module_& module) {
  py::tuple names(kNumStepArrays);
  for (std::size_t i = 0; i < kNumStepArrays; ++i) names[i] = py::str(kStepArrays[i].name);
  module.attr("STEP_ARRAYS") = names;
  py::class_<PyPool>(module, "CpuPool",
                     "A batch of environments stepped by threads. rollouts.VectorEnv checks the "
                     "arguments and documents the behaviour.")
      .def(py::init([](const py::list& segments, const py::dict& env_options,
                       std::int32_t num_envs, std::int32_t batch_size, std::int32_t num_threads,
                       std::int32_t env_id_offset, std::uint64_t seed,
                       std::int32_t autoreset_mode, std::int32_t on_env_error,
                       const std::vector<std::int32_t>& pin_cpus, const py::dict& wrappers) {
             std::vector<Segment> read = ReadSegments(segments);
             // with several segments, each has a limit of its own
             const std::int32_t max_episode_steps = read.at(0).max_episode_steps;
             return std::make_unique<PyPool>(
                 std::move(read), OptionColumnsFromDict(env_options), ReadWrappers(wrappers),
                 MakePoolOptions(num_envs, batch_size, num_threads, env_id_offset, seed,
                                 autoreset_mode, max_episode_steps, on_env_error, pin_cpus));
           }),
           py::kw_only(), py::arg("segments"), py::arg("env_options"), py::arg("num_envs"),
           py::arg("batch_size"), py::arg("num_threads"), py::arg("env_id_offset"),
           py::arg("seed"), py::arg("autoreset_mode"), py::arg("on_env_error"), py::arg("pin_cpus"),
           py::arg("wrappers"))
      .def("send", &PyPool::Send, py::arg("actions"), py::arg("env_id").none(true),
           py::arg("out").none(true))
      .def("collect", Collect, py::arg("policies"), py::arg("arrays"), py::arg("rules"),
           py::arg("poll"), py::arg("normalize"))
      .def("recv", &PyPool::Recv, py::arg("timeout_s").none(true))
      .def("recv_rows", &PyPool::RecvRows, py::arg("min"), py::arg("max"),
           py::arg("timeout_s").none(true))
      .def("recv_all", &PyPool::RecvAll, py::arg("timeout_s").none(true))
      .def("step", &PyPool::Step, py::arg("actions"), py::arg("env_id").none(true),
           py::arg("out").none(true))
      .def("take_failures", &PyPool::TakeFailures)
      .def("check_reset", &PyPool::CheckReset, py::arg("mask").none(true))
      .def("send_reset", &PyPool::SendReset, py::arg("mask").none(true))
      .def("change", &PyPool::Change, py::arg("mask").none(true), py::arg("options"),
           py::arg("model"))
      .def("read_model", [](PyPool& self, std::int32_t env, const std::string& field,
                            bool of_file) {
        return ModelToArray(self.pool().ReadModel(env, field, of_file));
      }, py::arg("env"), py::arg("field"), py::arg("of_file"))
      .def("model_fields", [](PyPool& self, std::int32_t env) {
        return self.pool().ModelFields(env);
      }, py::arg("env"))
      .def("env_options", [](PyPool& self) { return OptionsByName(self.pool()); })
      .def("discard", &PyPool::Discard, py::arg("timeout_s").none(true))
      .def("seed", [](PyPool& self, std::int32_t env, std::uint64_t seed) {
        self.pool().Seed(env, seed);
      })
      .def("stream_of", [](PyPool& self, std::int32_t env) {
        const CpuPool::Stream stream = self.pool().StreamOf(env);
        return py::make_tuple(stream.seed, stream.stream_id, stream.next_episode);
      }, py::arg("env"))
      .def("seek", [](PyPool& self, std::int32_t env, std::uint64_t seed, std::uint32_t stream_id,
                      std::uint32_t next_episode) {
        self.pool().Seek(env, {seed, stream_id, next_episode});
      }, py::arg("env"), py::arg("seed"), py::arg("stream_id"), py::arg("next_episode"))
      .def("get_state", &PyPool::GetState, py::arg("env"))
      .def("set_state", &PyPool::SetState, py::arg("env"), py::arg("state"))
      .def("save_states", &PyPool::SaveStates, py::arg("env_id"))
      .def("render", &PyPool::Render, py::arg("env_id"))
      .def("read_worlds", &PyPool::ReadWorlds, py::arg("env_id"), py::arg("first"))
      .def("load_states", &PyPool::LoadStates, py::arg("env_id"), py::arg("states"))
      .def("action_rows", &PyPool::ActionRows, py::arg("env_id"))
      .def("end_steps", &PyPool::EndSteps, py::arg("env_id"), py::arg("reward"),
           py::arg("terminated"))
      .def("show_idle", &PyPool::ShowIdle, py::arg("env_id"), py::arg("begin"))
      .def("read_statistics", [](PyPool& self, const std::string& of, bool fresh) {
        return ReadStatistics(self.pool(), of, fresh);
      }, py::arg("of"), py::arg("fresh"))
      .def("set_statistics", [](PyPool& self, const std::string& of, const py::object& mean,
                                const py::object& var, double count) {
        SetStatistics(self.pool(), of, mean, var, count);
      }, py::arg("of"), py::arg("mean"), py::arg("var"), py::arg("count"))
      .def("update_statistics", [](PyPool& self, bool updates) {
        UpdateStatistics(self.pool(), updates);
      }, py::arg("updates"))
      .def_property_readonly("updates_statistics", [](PyPool& self) { return self.pool().updates_statistics(); })
      .def("engines", [](PyPool& self) { return Engines(self.pool()); })
      .def("stats", [](PyPool& self) { return StatsDict(self.pool()); })
      .def("reset_stats", [](PyPool& self) { self.pool().ResetStats(); })
      .def("close", &PyPool::Close)
      .def("xla_handle", &PyPool::XlaHandle)
      .def_property_readonly("num_xla_calls", &PyPool::num_xla_calls)
      .def_property_readonly("info_names", [](PyPool& self) { return InfoNames(self.pool().spec()); })
      .def_property_readonly("num_in_flight", [](PyPool& self) { return self.pool().num_in_flight(); })
      .def_property_readonly("buffer_bytes", [](PyPool& self) { return self.pool().buffer_bytes(); })
      .def_property_readonly("closed", [](PyPool& self) { return self.pool().closed(); });
}

}  // namespace rollouts
