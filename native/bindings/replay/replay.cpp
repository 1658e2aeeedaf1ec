// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "bindings/replay/replay_arrays.h"
#include "bindings/replay/replay_batch.h"
#include "bindings/replay/replay_state.h"
#include "bindings/replay/replay_writer.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using replay::Clock;
using replay::ReplayStore;
using replay::Sampled;

// The time between two checks for signals (Ctrl-C) while a call waits.
constexpr std::chrono::milliseconds kSignalInterval{50};

// A time limit for a wait that is made in parts, with checks for signals between them.
class Deadline {
 public:
  explicit Deadline(std::optional<double> timeout_s) {
    // a longer wait is for ever, and would overflow the clock
    constexpr double kLongest = 1e9;  // s
    if (timeout_s && !(*timeout_s >= 0)) {
      throw SpecError("timeout_s is " + std::to_string(*timeout_s) + ", expected 0 or more seconds");
    }
    if (timeout_s && *timeout_s < kLongest) {
      end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(*timeout_s));
    }
  }
  bool passed() const { return end_ && Clock::now() >= *end_; }
  Clock::time_point next() const {
    const Clock::time_point soon = Clock::now() + kSignalInterval;
    return end_ ? std::min(*end_, soon) : soon;
  }

 private:
  std::optional<Clock::time_point> end_;
};

// Ctrl-C raises KeyboardInterrupt here.
void LookAtSignals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Sampled items, whose references are dropped with the object.
struct Batch {
  explicit Batch(ReplayStore& owner) : store(owner) {}
  ~Batch() { store.Drop(items); }
  ReplayStore& store;
  std::vector<Sampled> items;
};

// A store as a Python object: arguments are read with the GIL, the work is done without it.
class PyReplayStore {
 public:
  PyReplayStore(const py::sequence& columns, const py::sequence& tables,
                const replay::StoreOptions& options)
      : store_(std::make_shared<ReplayStore>(ReadColumns(columns), ReadTables(tables), options)) {}
  ~PyReplayStore() {
    // a forked child has neither the store's threads nor the waiting ones, so nothing can be joined
    if (getpid() != pid_) new std::shared_ptr<ReplayStore>(store_);
  }

  const std::shared_ptr<ReplayStore>& shared() const { return store_; }
  ReplayStore& store() const {
    if (getpid() != pid_) {
      throw ProtocolError("the replay store was made before a fork; make one in this process");
    }
    return *store_;
  }

  py::array Append(const py::object& stream_id, const py::dict& columns, const py::object& first,
                   const py::object& ended, const py::object& final, const py::object& valid) {
    ReplayStore& store = this->store();
    // owns the arrays, so that they stay while the GIL is released
    const AppendArguments arguments(store.layout(), stream_id, columns, first, ended, final, valid);
    py::array_t<std::int64_t> rows(arguments.shape());
    const std::span<std::int64_t> to(rows.mutable_data(), static_cast<std::size_t>(rows.size()));
    {
      const ReleaseGil release;
      store.Append(arguments.batch(), to);
    }
    return rows;
  }

  py::array Insert(const std::string& name, const py::object& stream_id, const py::object& start,
                   const py::object& length, const py::object& priority,
                   std::optional<double> timeout_s) {
    ReplayStore& store = this->store();
    const Deadline deadline(timeout_s);
    const std::size_t table = store.TableIndex(name);
    const Int64Array streams = ReadIds(stream_id, "stream_id");
    const Int64Array starts = ReadIds(start, "start");
    if (starts.size() != streams.size()) {
      throw SpecError("start has " + std::to_string(starts.size()) + " entries, expected " +
                      std::to_string(streams.size()) + ": one per stream_id");
    }
    const auto count = static_cast<std::size_t>(streams.size());
    const auto lengths = ReadLengths(length, count);
    const std::vector<std::int32_t> ats(count, 0);
    const DoubleArray priorities = ReadPriorities(priority, count, store.table(table).most_priority());
    Int64Array keys(static_cast<py::ssize_t>(count));
    const std::span<std::int64_t> to(keys.mutable_data(), count);

    ReplayStore::Runs runs = store.NewRuns();
    bool referred = false;
    for (;;) {
      {
        const ReleaseGil release;
        // done only once: by the time the limiter admits the last items, the rows may be too old
        if (!referred) store.Refer(table, Span(streams), Span(starts), lengths, ats, runs);
        referred = true;
        store.Insert(table, runs, Span(priorities), deadline.next(), to);
      }
      if (runs.taken() == count || deadline.passed()) break;
      LookAtSignals();
    }
    if (runs.taken() == count) return keys;
    return py::array(keys[py::slice(0, static_cast<py::ssize_t>(runs.taken()), 1)]);
  }

  py::dict Sample(const std::string& name, PyGatherPlan& plan, std::int64_t batch_size,
                  std::optional<double> timeout_s, const py::object& out) {
    ReplayStore& store = this->store();
    const Deadline deadline(timeout_s);
    replay::Table& table = store.table(store.TableIndex(name));
    if (batch_size < 1) {
      throw SpecError("batch_size is " + std::to_string(batch_size) + ", expected 1 or more");
    }
    // checked first, so that nothing is drawn for arrays that do not fit
    const py::dict given = CheckedOut(plan, out, batch_size);

    Batch batch(store);
    try {
      // made before anything is drawn, because there may be too little memory
      const auto arrays = plan.Arrays(batch_size);
      for (;;) {
        {
          const ReleaseGil release;
          // samples drawn before the deadline stay with the table, for the next call
          if (table.Sample(batch_size, deadline.next(), batch.items)) break;
        }
        if (deadline.passed()) ThrowTimeout(table, batch_size, *timeout_s);
        LookAtSignals();
      }
      return Collect(plan, *arrays, batch, given, table.random_seed());
    } catch (const std::bad_alloc&) {
      throw replay::StoreFullError("sample: there is no memory for a batch of batch_size = " +
                                   std::to_string(batch_size) + " items");
    }
  }

  py::dict Gather(const std::string& name, PyGatherPlan& plan, const py::object& keys) {
    ReplayStore& store = this->store();
    const Int64Array wanted = ReadIds(keys, "keys");
    const py::dict given = CheckedOut(plan, py::none(), wanted.size());
    Batch batch(store);
    replay::Table& table = store.table(store.TableIndex(name));
    {
      const ReleaseGil release;
      table.Look(Span(wanted), batch.items);
    }
    // does not count as a sample for the limiter
    return Collect(plan, *plan.Arrays(std::ssize(batch.items)), batch, given, table.random_seed());
  }

  std::int64_t UpdatePriorities(const std::string& name, const py::object& keys,
                                const py::object& priority) {
    ReplayStore& store = this->store();
    replay::Table& table = store.table(store.TableIndex(name));
    const Int64Array wanted = ReadIds(keys, "keys");
    // for insert, None means the highest priority; here it would be a mistake
    if (priority.is_none()) throw DTypeError("priority is None, expected an array of numbers");
    const DoubleArray priorities = ReadPriorities(priority, static_cast<std::size_t>(wanted.size()),
                                                  table.most_priority());
    const ReleaseGil release;
    return table.UpdatePriorities(Span(wanted), Span(priorities));
  }

  std::int64_t Delete(const std::string& name, const py::object& keys) {
    ReplayStore& store = this->store();
    replay::Table& table = store.table(store.TableIndex(name));
    const Int64Array wanted = ReadIds(keys, "keys");
    const ReleaseGil release;
    return table.Delete(Span(wanted));
  }

  py::tuple StreamRows(const py::object& stream_id) {
    const Int64Array streams = ReadIds(stream_id, "stream_id");
    Int64Array oldest(streams.size());
    Int64Array next(streams.size());
    const auto count = static_cast<std::size_t>(streams.size());
    store().StreamRows(Span(streams), {oldest.mutable_data(), count}, {next.mutable_data(), count});
    return py::make_tuple(oldest, next);
  }

 private:
  py::dict CheckedOut(const PyGatherPlan& plan, const py::object& out,
                      std::int64_t batch_size) const {
    if (plan.store() != store_.get()) throw SpecError("the plan was made for another replay store");
    const py::dict given = out.is_none() ? py::dict() : out.cast<py::dict>();
    plan.CheckOut(given, batch_size);
    return given;
  }

  static py::dict Collect(PyGatherPlan& plan, const BatchArrays& arrays, Batch& batch,
                          const py::dict& out, std::uint64_t seed) {
    py::dict result = arrays.Views(out);
    // with the GIL, because it reads `out`
    const std::vector<std::uint8_t*> pointers = arrays.FieldPointers(out);
    const ReleaseGil release;
    if (const replay::Hindsight* goals = plan.plan().hindsight()) goals->Prepare(batch.items, seed);
    arrays.WriteInfo(batch.items);
    batch.store.Gather(plan.plan(), batch.items, pointers);
    return result;
  }

  [[noreturn]] static void ThrowTimeout(const replay::Table& table, std::int64_t batch_size,
                                        double timeout_s) {
    const replay::TableInfo info = table.Info();
    const std::string message =
        "sample: no " + std::to_string(batch_size) + " samples of table '" + table.spec().name +
        "' within " + std::to_string(timeout_s) + " s; it has " + std::to_string(info.size) +
        " items, after " + std::to_string(info.inserts) + " inserts and " +
        std::to_string(info.samples) + " samples";
    PyErr_SetString(PyExc_TimeoutError, message.c_str());
    throw py::error_already_set();
  }

  // the process that has the store's threads
  const pid_t pid_ = getpid();
  const std::shared_ptr<ReplayStore> store_;
};

py::dict InfoDict(replay::Table& table) {
  const replay::TableInfo info = table.Info();
  const replay::TableSpec& spec = table.spec();
  py::dict result;
  result["name"] = spec.name;
  result["size"] = info.size;
  result["max_size"] = spec.max_size;
  result["num_inserts"] = info.inserts;
  result["num_samples"] = info.samples;
  result["num_deletes"] = info.deletes;
  result["max_times_sampled"] = spec.max_times_sampled;
  result["max_priority"] = info.max_priority;
  result["sampler"] = replay::NameOf(spec.sampler.kind);
  result["remover"] = replay::NameOf(spec.remover.kind);
  result["samples_per_insert"] = spec.limiter.samples_per_insert;
  result["min_size"] = spec.limiter.min_size;
  result["min_diff"] = spec.limiter.min_diff;
  result["max_diff"] = spec.limiter.max_diff;
  result["num_waiting_inserts"] = info.waiting_inserts;
  result["num_waiting_samples"] = info.waiting_samples;
  return result;
}

// Memory of columns only: items and selectors are not counted.
py::dict MemoryDict(const ReplayStore& store) {
  const replay::MemoryUse use = store.memory();
  py::dict result;
  result["used_bytes"] = use.used_chunks * store.layout().chunk_bytes;
  result["allocated_bytes"] = use.allocated_chunks * store.layout().chunk_bytes;
  result["num_chunks"] = use.used_chunks;
  result["chunk_bytes"] = store.layout().chunk_bytes;
  result["chunk_rows"] = store.layout().chunk_rows;
  return result;
}

void BindStore(py::module_& module) {
  using Self = PyReplayStore;
  const auto table_of = [](Self& self, const std::string& name) -> replay::Table& {
    return self.store().table(self.store().TableIndex(name));
  };
  py::class_<Self>(module, "ReplayStore",
                   "Steps of many streams, stored once, and tables of items that refer to them.")
      .def(py::init([](const py::sequence& columns, const py::sequence& tables,
                       std::int64_t num_streams, std::int32_t chunk_rows, std::int64_t history_rows,
                       std::int64_t max_bytes, std::int32_t num_threads, const std::string& path) {
             return std::make_unique<Self>(
                 columns, tables,
                 replay::StoreOptions{num_streams, chunk_rows, history_rows, max_bytes, num_threads, path});
           }),
           py::arg("columns"), py::arg("tables"), py::kw_only(), py::arg("num_streams") = 0,
           py::arg("chunk_rows") = 64, py::arg("history_rows") = 256, py::arg("max_bytes") = 0,
           py::arg("num_threads") = 1, py::arg("path") = "")
      .def("add_streams", [](Self& self, std::int64_t n) { return self.store().AddStreams(n); }, py::arg("n"))
      .def("append", &Self::Append, py::arg("stream_id"), py::arg("columns"), py::kw_only(),
           py::arg("first") = py::none(), py::arg("ended") = py::none(),
           py::arg("final") = py::none(), py::arg("valid") = py::none())
      .def("stream_rows", &Self::StreamRows, py::arg("stream_id"))
      .def("end_streams", [](Self& self, const py::object& stream_id) {
        self.store().EndStreams(Span(ReadIds(stream_id, "stream_id")));
      }, py::arg("stream_id"))
      .def("insert", &Self::Insert, py::arg("table"), py::arg("stream_id"), py::arg("start"),
           py::arg("length"), py::arg("priority") = py::none(), py::kw_only(),
           py::arg("timeout_s") = py::none())
      .def("sample", &Self::Sample, py::arg("table"), py::arg("plan"), py::arg("batch_size"),
           py::kw_only(), py::arg("timeout_s") = py::none(), py::arg("out") = py::none())
      .def("gather", &Self::Gather, py::arg("table"), py::arg("plan"), py::arg("keys"))
      .def("update_priorities", &Self::UpdatePriorities, py::arg("table"), py::arg("keys"),
           py::arg("priority"))
      .def("delete", &Self::Delete, py::arg("table"), py::arg("keys"))
      .def("reset", [=](Self& self, const std::string& table) { table_of(self, table).Reset(); },
           py::arg("table"))
      .def("keys", [=](Self& self, const std::string& table) {
        const std::vector<std::int64_t> keys = table_of(self, table).Keys();
        return py::array_t<std::int64_t>(static_cast<py::ssize_t>(keys.size()), keys.data());
      }, py::arg("table"))
      .def("info", [=](Self& self, const std::string& table) { return InfoDict(table_of(self, table)); },
           py::arg("table"))
      .def("can_insert", [=](Self& self, const std::string& table, std::int64_t n) {
        return table_of(self, table).CanInsert(n);
      }, py::arg("table"), py::arg("n") = 1)
      .def("can_sample", [=](Self& self, const std::string& table, std::int64_t n) {
        return table_of(self, table).CanSample(n);
      }, py::arg("table"), py::arg("n") = 1)
      .def("memory", [](Self& self) { return MemoryDict(self.store()); })
      .def("save_state", [](Self& self) {
        ReplayStore& store = self.store();
        std::vector<std::uint8_t> state;
        {
          const ReleaseGil release;
          state = store.SaveState();
        }
        return AsArray(std::move(state));
      })
      .def("state_pieces", [](Self& self) {
        ReplayStore& store = self.store();
        const ReleaseGil release;
        // the pieces keep the store alive: the caller may drop it before reading the last one
        return PyStatePieces(self.shared(), store.Snapshot());
      })
      .def("load_state", [](Self& self, const py::buffer& state) {
        // read in place, such as from a mapped file
        const py::buffer_info view = state.request();
        if (view.ndim != 1 || view.itemsize != 1) {
          throw DTypeError("state must be bytes or a one-dimensional uint8 array");
        }
        ReplayStore& store = self.store();
        const ReleaseGil release;
        store.LoadState({static_cast<const std::uint8_t*>(view.ptr), static_cast<std::size_t>(view.size)});
      }, py::arg("state"))
      .def("close", [](Self& self) { self.store().Close(); })
      .def_property_readonly("num_streams", [](Self& self) { return self.store().num_streams(); })
      .def_property_readonly("tables", [](Self& self) {
        py::tuple names(self.store().num_tables());
        for (std::size_t i = 0; i < names.size(); ++i) names[i] = self.store().table(i).spec().name;
        return names;
      })
      .def_property_readonly("closed", [](Self& self) { return self.store().closed(); });
}

}  // namespace

void BindReplay(py::module_& module) {
  py::register_local_exception_translator([](std::exception_ptr pending) {
    try {
      if (pending) std::rethrow_exception(pending);
    } catch (const replay::StoreFullError& error) {
      // Python's own exception, in place of one of rollouts
      PyErr_SetString(PyExc_MemoryError, error.what());
    }
  });
  BindStore(module);
  BindStatePieces(module);
  py::class_<PyGatherPlan>(module, "GatherPlan", "Which rows of an item make which array of a batch.")
      .def(py::init([](const PyReplayStore& store, const py::sequence& fields, bool time_major,
                       const py::object& hindsight) {
             return std::make_unique<PyGatherPlan>(store.shared(), fields, time_major, hindsight);
           }),
           py::arg("store"), py::arg("fields"), py::kw_only(), py::arg("time_major") = false,
           py::arg("hindsight") = py::none());
  py::class_<PyReplayWriter> writer(module, "ReplayWriter", "Turns steps into rows and items.");
  writer.def(py::init([](const PyReplayStore& store, const py::sequence& kinds,
                         std::int64_t history_rows, const py::object& convert) {
    return std::make_unique<PyReplayWriter>(store.shared(), ReadItemKinds(kinds), history_rows,
                                            convert);
  }));
  BindWriterMethods(writer);
  module.def("most_priority", [](double exponent) {
    return replay::MostPriority({replay::SelectorKind::kPrioritized, exponent});
  });
}

}  // namespace rollouts
