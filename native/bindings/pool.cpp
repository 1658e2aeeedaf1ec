// SPDX-License-Identifier: Apache-2.0
// CpuPool for Python. Arrays handed out are views of the pool's buffers: they are
// made once per buffer, and a buffer is written again only when nobody but the
// pool holds them.
#include "rollouts/pool/cpu_pool.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "bindings.h"
#include "rollouts/pool/registry.h"
#include "rollouts/pool/state.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using Clock = CpuPool::Clock;

// Signals (Ctrl-C) are looked at this often while a call waits.
constexpr std::chrono::milliseconds kSignalInterval{50};

std::string ShapeString(const py::array& array) {
  return py::str(array.attr("shape")).cast<std::string>();
}

// The arrays of one buffer, kept as long as the pool keeps the buffer.
class NumpyUsers final : public BufferUsers {
 public:
  explicit NumpyUsers(py::tuple arrays) : arrays_(std::move(arrays)) {}
  ~NumpyUsers() override {
    const py::gil_scoped_acquire gil;
    arrays_ = py::tuple();
  }
  // Views and tensors made of an array hold a reference to it. Needs the GIL.
  bool None() const override {
    if (Py_REFCNT(arrays_.ptr()) > 1) return false;
    for (const py::handle array : arrays_) {
      if (!array.is_none() && Py_REFCNT(array.ptr()) > 1) return false;
    }
    return true;
  }
  const py::tuple& arrays() const { return arrays_; }

 private:
  py::tuple arrays_;
};

// (obs, reward, terminated, truncated, env_id, episode_return, episode_length,
//  final_obs or None, *infos) over a buffer's memory.
py::tuple MakeArrays(const std::shared_ptr<BatchBuffer>& buffer, const EnvSpec& spec) {
  const py::capsule owner(new std::shared_ptr<BatchBuffer>(buffer), [](void* pointer) {
    delete static_cast<std::shared_ptr<BatchBuffer>*>(pointer);
  });
  const BatchView& view = buffer->view();
  const py::ssize_t rows = buffer->rows();
  std::vector<py::ssize_t> obs_shape{rows};
  for (std::int32_t i = 0; i < spec.observation.ndim; ++i) {
    obs_shape.push_back(spec.observation.shape[i]);
  }
  const auto column = [&](const py::dtype& dtype, const void* data) {
    return py::array(dtype, {rows}, {}, data, owner);
  };
  const auto obs = [&](const void* data) -> py::object {
    if (!data) return py::none();
    return py::array(NumpyDType(spec.observation.dtype), obs_shape, {}, data, owner);
  };
  py::tuple arrays(8 + spec.num_infos);
  arrays[0] = obs(view.obs);
  arrays[1] = column(py::dtype::of<double>(), view.reward);
  arrays[2] = column(py::dtype::of<bool>(), view.terminated);
  arrays[3] = column(py::dtype::of<bool>(), view.truncated);
  arrays[4] = column(py::dtype::of<std::int32_t>(), view.env_id);
  arrays[5] = column(py::dtype::of<double>(), view.episode_return);
  arrays[6] = column(py::dtype::of<std::int32_t>(), view.episode_length);
  arrays[7] = obs(view.final_obs);
  for (std::int32_t i = 0; i < spec.num_infos; ++i) {
    arrays[8 + i] = column(NumpyDType(spec.infos[i].dtype), view.infos[i]);
  }
  return arrays;
}

class PyPool {
 public:
  PyPool(const std::string& id, const py::dict& env_options, const PoolOptions& options) {
    const RegistryEntry& entry = FindEntry(id);
    const Options native_options = OptionsFromDict(env_options);
    state_kind_ = MakeStateKind(entry.type, entry.all_options(native_options));
    {
      const py::gil_scoped_release release;
      pool_ = std::make_unique<CpuPool>(entry.make_batch(native_options, options.num_envs), options);
    }
  }

  CpuPool& pool() { return *pool_; }

  void Send(const py::object& actions, const py::object& env_id) {
    std::vector<std::int32_t> ids;
    std::span<const std::int32_t> envs = pool_->all_envs();
    if (!env_id.is_none()) {
      ids = ReadEnvIds(env_id);
      envs = ids;
    }
    // conversion may run Python code, which may use the pool: it comes before CheckSend
    if (pool_->spec().action.n > 0) {
      SendDiscrete(actions, envs);
    } else {
      SendBox(actions, envs);
    }
  }

  py::tuple Recv(std::optional<double> timeout_s) {
    CpuPool::Received received;
    Wait(timeout_s, "recv", [&](Clock::time_point deadline) {
      received = pool_->Recv(deadline);
      return received.buffer != nullptr;
    });
    BatchBuffer& buffer = *received.buffer;
    if (!buffer.users) {
      buffer.users = std::make_unique<NumpyUsers>(MakeArrays(received.buffer, pool_->spec()));
    }
    const py::tuple arrays = static_cast<NumpyUsers&>(*buffer.users).arrays();
    pool_->Release(&buffer);
    // fresh views: what the caller does to an array's shape or flags stays with the caller
    return FirstRows(arrays, received.rows);
  }

  py::tuple Step(const py::object& actions, const py::object& env_id) {
    Send(actions, env_id);
    return Recv(std::nullopt);
  }

  void SendReset(const std::optional<py::array_t<bool, py::array::c_style>>& mask) {
    if (mask && (mask->ndim() != 1 || mask->shape(0) != pool_->options().num_envs)) {
      throw SpecError("reset_mask has shape " + ShapeString(*mask) + ", expected (" +
                      std::to_string(pool_->options().num_envs) + ",)");
    }
    pool_->SendReset(mask ? reinterpret_cast<const std::uint8_t*>(mask->data()) : nullptr);
  }

  void Drain(std::optional<double> timeout_s) {
    Wait(timeout_s, "drain", [&](Clock::time_point deadline) { return pool_->Drain(deadline); });
  }

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

  py::list SaveStates(const py::object& env_id) {
    const std::vector<std::int32_t> envs = ReadEnvIds(env_id);
    py::list states;
    for (const std::int32_t env : envs) {
      const auto sealed = SealState(state_kind_, pool_->SaveState(env));
      states.append(py::bytes(reinterpret_cast<const char*>(sealed.data()), sealed.size()));
    }
    return states;
  }

  // The caller's list keeps the bytes, which nobody can change, alive.
  void LoadStates(const py::object& env_id, const std::vector<py::bytes>& sealed) {
    const std::vector<std::int32_t> envs = ReadEnvIds(env_id);
    if (sealed.size() != envs.size()) {
      throw SpecError("got " + std::to_string(sealed.size()) + " states for " +
                      std::to_string(envs.size()) + " environments");
    }
    std::vector<std::span<const std::uint8_t>> states;
    for (std::size_t i = 0; i < envs.size(); ++i) {
      const std::string_view bytes = sealed[i];
      try {
        states.push_back(OpenState(
            state_kind_, {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}));
      } catch (const SpecError& error) {
        throw SpecError("state " + std::to_string(i) + " " + error.what());
      }
    }
    // emulators take a while to load
    const py::gil_scoped_release release;
    pool_->LoadStates(envs, states);
  }

  void Close() {
    const py::gil_scoped_release release;
    pool_->Close();
  }

 private:
  // Calls `attempt(deadline)` without the GIL until it says true, looking at
  // signals now and then. TimeoutError when timeout_s passed.
  template <typename Attempt>
  void Wait(std::optional<double> timeout_s, const char* what, Attempt&& attempt) {
    if (timeout_s && !(*timeout_s >= 0)) {
      throw SpecError("timeout_s must be None or a number >= 0, got " + std::to_string(*timeout_s));
    }
    // beyond a century is for ever, and does not overflow the clock
    const bool bounded = timeout_s && *timeout_s < 3e9;
    const auto start = Clock::now();
    const auto end =
        bounded ? start + std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(*timeout_s))
                : Clock::time_point::max();
    while (true) {
      bool finished;
      {
        const py::gil_scoped_release release;
        finished = attempt(std::min(end, Clock::now() + kSignalInterval));
      }
      if (finished) return;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (Clock::now() >= end) {
        const std::string message = std::string(what) + ": not ready within " +
                                    std::to_string(*timeout_s) + " s; " +
                                    std::to_string(pool_->num_in_flight()) +
                                    " environments are in flight";
        PyErr_SetString(PyExc_TimeoutError, message.c_str());
        throw py::error_already_set();
      }
    }
  }

  static py::tuple FirstRows(const py::tuple& arrays, std::int32_t rows) {
    const py::slice first(0, rows, 1);
    py::tuple result(arrays.size());
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const py::object array = arrays[i];
      result[i] = array.is_none() ? array : py::object(array[first]);
    }
    return result;
  }

  // Global ids as indices into this pool.
  std::vector<std::int32_t> ReadEnvIds(const py::object& env_id) const {
    const auto array = py::array::ensure(env_id);
    if (!array || array.ndim() != 1 || (array.dtype().kind() != 'i' && array.dtype().kind() != 'u')) {
      throw DTypeError("env_id must be a one-dimensional integer array, such as info['env_id']");
    }
    const auto ids = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>(array);
    std::vector<std::int32_t> envs(static_cast<std::size_t>(ids.size()));
    const std::int64_t offset = pool_->options().env_id_offset;
    for (std::size_t i = 0; i < envs.size(); ++i) {
      // ids outside 32 bits become an index that CheckSend refuses by name
      const std::int64_t env = ids.data()[i] - offset;
      envs[i] = env >= 0 && env < pool_->options().num_envs ? static_cast<std::int32_t>(env) : -1;
      if (envs[i] < 0) {
        throw SpecError("env_id " + std::to_string(ids.data()[i]) + " in row " +
                        std::to_string(i) + " is not in this pool: its ids are " +
                        std::to_string(offset) + " to " +
                        std::to_string(offset + pool_->options().num_envs - 1));
      }
    }
    return envs;
  }

  static py::array AsArray(const py::object& actions) {
    auto array = py::array::ensure(actions);
    if (!array) {
      PyErr_Clear();
      throw DTypeError("actions must be an array or a sequence of numbers, got " +
                       py::str(py::type::of(actions)).cast<std::string>());
    }
    if (array.ndim() == 0) {
      throw DTypeError("actions is a scalar, expected an array with one row per environment");
    }
    return array;
  }

  void CheckShape(const py::array& actions, std::size_t num_rows) const {
    const SpaceSpec& space = pool_->spec().action;
    std::vector<py::ssize_t> expected{static_cast<py::ssize_t>(num_rows)};
    expected.insert(expected.end(), space.shape, space.shape + space.ndim);
    const std::vector<py::ssize_t> got(actions.shape(), actions.shape() + actions.ndim());
    if (got == expected) return;
    throw SpecError("actions has shape " + ShapeString(actions) + ", expected " +
                    py::str(py::tuple(py::cast(expected))).cast<std::string>() +
                    ": one row per environment that is stepped");
  }

  template <typename Int>
  void CopyDiscreteAs(const py::array& actions, std::span<const std::int32_t> envs) {
    const auto n = static_cast<std::uint64_t>(pool_->spec().action.n);
    const auto* values = static_cast<const Int*>(actions.data());
    const auto out_of_range = [&](Int value) { return static_cast<std::uint64_t>(value) >= n; };
    // one pass that vectorises; the second only to name the row
    bool bad = false;
    for (std::size_t i = 0; i < envs.size(); ++i) bad |= out_of_range(values[i]);
    if (bad) {
      const Int* first = std::find_if(values, values + envs.size(), out_of_range);
      throw SpecError("action " + std::to_string(*first) + " in row " +
                      std::to_string(first - values) + " is out of range, expected 0 to " +
                      std::to_string(n - 1));
    }
    // Discrete actions rest as int32
    auto* rows = reinterpret_cast<std::int32_t*>(pool_->ActionRow(0));
    for (std::size_t i = 0; i < envs.size(); ++i) {
      rows[envs[i]] = static_cast<std::int32_t>(values[i]);
    }
  }

  void SendDiscrete(const py::object& given, std::span<const std::int32_t> envs) {
    py::array actions = AsArray(given);
    const char kind = actions.dtype().kind();
    if (kind != 'i' && kind != 'u') {
      throw DTypeError("actions has dtype " + py::str(actions.dtype()).cast<std::string>() +
                       ", expected an integer dtype (the action space is Discrete)");
    }
    CheckShape(actions, envs.size());
    if (py::isinstance<py::array_t<std::int32_t, py::array::c_style>>(actions)) {
      pool_->CheckSend(envs);
      CopyDiscreteAs<std::int32_t>(actions, envs);
    } else {
      using Int64 = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;
      const auto converted = Int64(actions);
      pool_->CheckSend(envs);
      CopyDiscreteAs<std::int64_t>(converted, envs);
    }
    pool_->Send(envs);
  }

  void SendBox(const py::object& given, std::span<const std::int32_t> envs) {
    py::array actions = AsArray(given);
    const char kind = actions.dtype().kind();
    if (kind != 'f' && kind != 'i' && kind != 'u') {
      throw DTypeError("actions has dtype " + py::str(actions.dtype()).cast<std::string>() +
                       ", expected float32 (the action space is a Box)");
    }
    CheckShape(actions, envs.size());
    using Float = py::array_t<float, py::array::c_style | py::array::forcecast>;
    const auto rows = Float(actions);
    pool_->CheckSend(envs);
    const auto size = static_cast<std::size_t>(pool_->spec().action.size());
    const float* values = rows.data();
    // one pass that vectorises; the second only to name the row
    const auto is_bad = [](float x) { return !(std::fabs(x) <= std::numeric_limits<float>::max()); };
    bool bad = false;
    for (std::size_t i = 0; i < envs.size() * size; ++i) bad |= is_bad(values[i]);
    if (bad) {
      const auto at = std::find_if(values, values + envs.size() * size, is_bad) - values;
      throw SpecError("action in row " + std::to_string(at / size) + ", element " +
                      std::to_string(at % size) + " is " + std::to_string(values[at]) +
                      ", expected a finite number");
    }
    for (std::size_t i = 0; i < envs.size(); ++i) {
      std::copy_n(values + i * size, size, reinterpret_cast<float*>(pool_->ActionRow(envs[i])));
    }
    pool_->Send(envs);
  }

  std::unique_ptr<CpuPool> pool_;
  StateKind state_kind_;
};

PoolOptions MakePoolOptions(std::int32_t num_envs, std::int32_t batch_size,
                            std::int32_t num_threads, std::int32_t env_id_offset,
                            std::uint64_t seed, std::int32_t autoreset_mode,
                            std::int32_t max_episode_steps) {
  PoolOptions options;
  options.num_envs = num_envs;
  options.batch_size = batch_size;
  options.num_threads = num_threads;
  options.env_id_offset = env_id_offset;
  options.seed = seed;
  options.rules.autoreset = static_cast<AutoresetMode>(autoreset_mode);
  options.rules.max_episode_steps = max_episode_steps;
  return options;
}

}  // namespace

void BindPool(py::module_& module) {
  py::class_<PyPool>(module, "CpuPool",
                     "A batch of environments stepped by threads. rollouts.VectorEnv checks the "
                     "arguments and documents the behaviour.")
      .def(py::init([](const std::string& id, const py::dict& env_options, std::int32_t num_envs,
                       std::int32_t batch_size, std::int32_t num_threads,
                       std::int32_t env_id_offset, std::uint64_t seed,
                       std::int32_t autoreset_mode, std::int32_t max_episode_steps) {
             return std::make_unique<PyPool>(
                 id, env_options,
                 MakePoolOptions(num_envs, batch_size, num_threads, env_id_offset, seed,
                                 autoreset_mode, max_episode_steps));
           }),
           py::kw_only(), py::arg("id"), py::arg("env_options"), py::arg("num_envs"),
           py::arg("batch_size"), py::arg("num_threads"), py::arg("env_id_offset"),
           py::arg("seed"), py::arg("autoreset_mode"), py::arg("max_episode_steps"))
      .def("send", &PyPool::Send, py::arg("actions"), py::arg("env_id").none(true))
      .def("recv", &PyPool::Recv, py::arg("timeout_s").none(true))
      .def("step", &PyPool::Step, py::arg("actions"), py::arg("env_id").none(true))
      .def("send_reset", &PyPool::SendReset, py::arg("mask").none(true))
      .def("drain", &PyPool::Drain, py::arg("timeout_s").none(true))
      .def("seed", [](PyPool& self, std::int32_t env, std::uint64_t seed) {
        self.pool().Seed(env, seed);
      })
      .def("get_state", &PyPool::GetState, py::arg("env"))
      .def("set_state", &PyPool::SetState, py::arg("env"), py::arg("state"))
      .def("save_states", &PyPool::SaveStates, py::arg("env_id"))
      .def("load_states", &PyPool::LoadStates, py::arg("env_id"), py::arg("states"))
      .def("close", &PyPool::Close)
      .def_property_readonly("info_names", [](PyPool& self) {
        py::tuple names(self.pool().spec().num_infos);
        for (std::int32_t i = 0; i < self.pool().spec().num_infos; ++i) {
          names[i] = py::str(self.pool().spec().infos[i].name);
        }
        return names;
      })
      .def_property_readonly("num_in_flight", [](PyPool& self) { return self.pool().num_in_flight(); })
      .def_property_readonly("buffer_bytes", [](PyPool& self) { return self.pool().buffer_bytes(); })
      .def_property_readonly("closed", [](PyPool& self) { return self.pool().closed(); });
}

}  // namespace rollouts
