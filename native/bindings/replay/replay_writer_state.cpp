// SPDX-License-Identifier: Apache-2.0
// Saved states of a replay buffer's writer as named arrays, and its methods in Python.
#include <pybind11/stl.h>

#include <cstring>
#include <string>
#include <utility>

#include "bindings/replay/replay_writer.h"
#include "bindings/gil.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using replay::Episodes;
using replay::PendingItems;

// Absent where no priorities by step were ever given.
constexpr const char* kPriority = "streams.start_priority";

// Makes one array of a field of all structs, or of all elements.
template <typename To, typename From, typename Value>
py::array_t<To> ArrayOf(const std::vector<From>& from, Value&& value) {
  py::array_t<To> array(static_cast<py::ssize_t>(from.size()));
  To* const to = array.mutable_data();
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<To>(value(from[i]));
  return array;
}

template <typename To, typename From>
py::array_t<To> RestOf(const std::vector<From>& from, std::size_t taken) {
  // items that were taken stay in front until all were taken; they are not saved
  const std::vector<From> rest(from.begin() + static_cast<std::ptrdiff_t>(taken), from.end());
  return ArrayOf<To>(rest, [](From value) { return value; });
}

// Arrays come from a file: names, dtypes and sizes are checked, here and in Episodes::Load.
template <typename T>
std::vector<T> Read(const py::dict& state, const std::string& name) {
  if (!state.contains(name)) throw SpecError("the saved replay buffer has no array '" + name + "'");
  const auto array = py::array::ensure(state[name.c_str()]);
  // exactly this dtype, because a conversion could silently change numbers
  if (!array || !array.dtype().is(py::dtype::of<T>())) {
    PyErr_Clear();
    throw SpecError("the saved replay buffer's array '" + name + "' has another dtype");
  }
  const py::array_t<T, py::array::c_style> whole(array);
  return {whole.data(), whole.data() + whole.size()};
}

// Reads Python's bool or uint8 as bytes.
std::vector<std::uint8_t> ReadMarks(const py::dict& state, const std::string& name,
                                    std::size_t count) {
  const std::vector<bool> marks = [&] {
    std::vector<bool> result;
    if (!state.contains(name)) throw SpecError("the saved replay buffer has no array '" + name + "'");
    const py::array_t<bool, py::array::c_style | py::array::forcecast> array(state[name.c_str()]);
    result.assign(array.data(), array.data() + array.size());
    return result;
  }();
  if (marks.size() != count) throw SpecError("the saved replay buffer's '" + name + "' does not fit");
  return {marks.begin(), marks.end()};
}

// Reads what State() wrote about streams.
Episodes::Saved ReadStreams(const py::dict& state, const replay::ColumnSpec& obs) {
  Episodes::Saved saved;
  saved.env_id = Read<std::int64_t>(state, "streams.env_id");
  const std::size_t count = saved.env_id.size();
  const auto begin = Read<std::int64_t>(state, "streams.begin");
  const auto end = Read<std::int64_t>(state, "streams.end");
  const auto is_open = ReadMarks(state, "streams.is_open", count);
  const auto awaits_reset = ReadMarks(state, "streams.awaits_reset", count);
  const auto is_cut = ReadMarks(state, "streams.is_cut", count);
  const auto is_known = ReadMarks(state, "streams.is_known", count);
  if (begin.size() != count || end.size() != count) {
    throw SpecError("the saved replay buffer has arrays of streams that do not fit each other");
  }
  for (std::size_t i = 0; i < count; ++i) {
    saved.open.push_back({begin[i], end[i], is_open[i], awaits_reset[i], is_cut[i], is_known[i]});
  }
  // Episodes::Load checks their number
  saved.next_start = Read<std::int64_t>(state, "streams.next_start");
  if (!state.contains("streams.next_obs")) {
    throw SpecError("the saved replay buffer has no array 'streams.next_obs'");
  }
  const auto next_obs = py::array::ensure(state["streams.next_obs"], py::array::c_style);
  // bytes are taken unchanged, so the dtype must be exactly the column's
  if (!next_obs || py::str(next_obs.dtype().attr("str")).cast<std::string>() != obs.dtype) {
    PyErr_Clear();
    throw SpecError("the saved replay buffer's array 'streams.next_obs' has another dtype");
  }
  const auto* const bytes = static_cast<const std::uint8_t*>(next_obs.data());
  saved.next_obs.assign(bytes, bytes + next_obs.nbytes());
  if (state.contains(kPriority)) {
    const py::array priority(state[kPriority]);
    saved.history_rows = priority.ndim() == 2 ? priority.shape(1) : 0;
    saved.priority = Read<double>(state, kPriority);
  }
  return saved;
}

// Reads what State() wrote about one table's items that were not inserted yet.
PendingItems ReadPending(const py::dict& state, std::size_t table) {
  const std::string prefix = "backlog." + std::to_string(table) + ".";
  PendingItems items;
  items.stream = Read<std::int64_t>(state, prefix + "stream");
  items.start = Read<std::int64_t>(state, prefix + "start");
  for (const std::int64_t length : Read<std::int64_t>(state, prefix + "length")) {
    // saved as int64, like the other numbers
    items.length.push_back(static_cast<std::int32_t>(length));
  }
  items.at = Read<std::int32_t>(state, prefix + "at");
  items.priority = Read<double>(state, prefix + "priority");
  // the same place in all arrays belongs to one item
  const std::size_t count = items.stream.size();
  if (items.start.size() != count || items.length.size() != count || items.at.size() != count ||
      items.priority.size() != count) {
    throw SpecError("columns of the saved replay buffer's pending items do not fit each other");
  }
  return items;
}

}  // namespace

py::dict PyReplayWriter::State() const {
  const Episodes::Saved saved = writer_.Save();
  const auto count = static_cast<py::ssize_t>(saved.open.size());
  const auto same = [](const auto& value) { return value; };
  using Open = Episodes::Open;
  py::dict state;
  state["streams.env_id"] = ArrayOf<std::int64_t>(saved.env_id, same);
  state["streams.is_open"] = ArrayOf<bool>(saved.open, [](const Open& o) { return o.is_open; });
  state["streams.begin"] = ArrayOf<std::int64_t>(saved.open, [](const Open& o) { return o.begin; });
  state["streams.end"] = ArrayOf<std::int64_t>(saved.open, [](const Open& o) { return o.end; });
  state["streams.awaits_reset"] =
      ArrayOf<bool>(saved.open, [](const Open& o) { return o.awaits_reset; });
  state["streams.is_cut"] = ArrayOf<bool>(saved.open, [](const Open& o) { return o.is_cut; });
  state["streams.is_known"] = ArrayOf<bool>(saved.open, [](const Open& o) { return o.is_known; });
  // by stream, then by table
  state["streams.next_start"] = ArrayOf<std::int64_t>(saved.next_start, same)
                                    .reshape({count, std::ssize(writer_.pending())});
  std::vector<py::ssize_t> shape{count};
  shape.insert(shape.end(), columns_[0].shape.begin(), columns_[0].shape.end());
  // with the observations' dtype and shape, so that a reader of the file sees them
  py::array next_obs(columns_[0].dtype, shape);
  if (!saved.next_obs.empty()) {
    std::memcpy(next_obs.mutable_data(), saved.next_obs.data(), saved.next_obs.size());
  }
  state["streams.next_obs"] = next_obs;
  if (!saved.priority.empty()) {
    state[kPriority] = ArrayOf<double>(saved.priority, same).reshape({count, saved.history_rows});
  }
  for (std::size_t table = 0; table < writer_.pending().size(); ++table) {
    const PendingItems& items = writer_.pending()[table];
    const std::string prefix = "backlog." + std::to_string(table) + ".";
    state[py::str(prefix + "stream")] = RestOf<std::int64_t>(items.stream, items.taken);
    state[py::str(prefix + "start")] = RestOf<std::int64_t>(items.start, items.taken);
    state[py::str(prefix + "length")] = RestOf<std::int64_t>(items.length, items.taken);
    state[py::str(prefix + "at")] = RestOf<std::int32_t>(items.at, items.taken);
    state[py::str(prefix + "priority")] = RestOf<double>(items.priority, items.taken);
  }
  return state;
}

void PyReplayWriter::LoadState(const py::dict& state) {
  std::vector<PendingItems> pending;
  for (std::size_t table = 0; table < writer_.pending().size(); ++table) {
    // all is read before Load changes anything
    pending.push_back(ReadPending(state, table));
  }
  writer_.Load(ReadStreams(state, store_->layout().specs[0]), std::move(pending));
}

void BindWriterMethods(py::class_<PyReplayWriter>& writer) {
  using Self = PyReplayWriter;
  writer.def("add_step", &Self::AddStep)
      .def("add_batch", &Self::AddBatch)
      .def("end_episodes", &Self::EndEpisodes)
      .def("insert", &Self::Insert)
      .def("insert_now", [](Self& self) {
        const ReleaseGil release;
        return self.writer().InsertNow();
      })
      .def("pending", [](Self& self, std::size_t table) {
        if (table >= self.writer().pending().size()) throw SpecError("there is no such table");
        return self.writer().pending()[table].size();
      })
      .def("state", &Self::State)
      .def("load_state", &Self::LoadState)
      .def("env_ids", [](Self& self) {
        return ArrayOf<std::int64_t>(self.writer().env_ids(), [](std::int64_t id) { return id; });
      })
      .def_property_readonly("num_streams", [](Self& self) { return self.writer().num_streams(); })
      .def_property_readonly("num_pending", [](Self& self) { return self.writer().num_pending(); })
      .def_property_readonly("has_cut_away", [](Self& self) { return self.writer().counts.has_cut_away; })
      .def_property_readonly("cut_away", [](Self& self) { return self.writer().counts.cut_away; })
      .def_property(
          "policy_version", [](Self& self) { return self.writer().policy_version.load(); },
          [](Self& self, std::int64_t version) { self.writer().policy_version.store(version); })
      .def_property(
          "produced", [](Self& self) { return self.writer().counts.produced; },
          [](Self& self, std::int64_t count) { self.writer().counts.produced = count; })
      .def_property(
          "episodes_cut", [](Self& self) { return self.writer().counts.episodes_cut; },
          [](Self& self, std::int64_t count) { self.writer().counts.episodes_cut = count; });
}

}  // namespace rollouts
