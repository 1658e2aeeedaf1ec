// SPDX-License-Identifier: Apache-2.0
#include "bindings/replay/replay_writer.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "bindings/gil.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {

using replay::NewSteps;

namespace {

// The index of a column that the writer reads itself.
std::size_t IndexOf(const replay::ChunkLayout& layout, const char* name) {
  const auto is = [&](const replay::ColumnSpec& spec) { return spec.name == name; };
  const auto found = std::ranges::find_if(layout.specs, is);
  if (found == layout.specs.end()) throw SpecError(std::string("there is no column ") + name);
  return static_cast<std::size_t>(found - layout.specs.begin());
}

// Makes the tuple that `convert` shows in messages.
py::tuple ShapeTuple(std::span<const py::ssize_t> lead) {
  py::tuple shape(lead.size());
  for (std::size_t i = 0; i < lead.size(); ++i) shape[i] = py::int_(lead[i]);
  return shape;
}

// Tells if an array has this dtype and shape, and is in C order.
bool Fits(const py::handle& value, const py::dtype& dtype, std::span<const py::ssize_t> lead,
          std::span<const py::ssize_t> shape) {
  using py::detail::npy_api;
  if (!py::isinstance<py::array>(value)) return false;
  const auto* const proxy = py::detail::array_proxy(value.ptr());
  // flags that the core needs, because it reads by pointer
  constexpr int kLayout = npy_api::NPY_ARRAY_ALIGNED_ | npy_api::NPY_ARRAY_C_CONTIGUOUS_;
  if (static_cast<std::size_t>(proxy->nd) != lead.size() + shape.size()) return false;
  if ((proxy->flags & kLayout) != kLayout) return false;
  if (!std::equal(lead.begin(), lead.end(), proxy->dimensions)) return false;
  if (!std::equal(shape.begin(), shape.end(), proxy->dimensions + lead.size())) return false;
  // most often it is the very same dtype object, and NumPy need not compare
  return proxy->descr == dtype.ptr() ||
         npy_api::get().PyArray_EquivTypes_(proxy->descr, dtype.ptr());
}

}  // namespace

namespace {

struct NamedEnd {
  std::string_view name;
  replay::ItemKind::AtEnd at_end;
};
constexpr NamedEnd kAtEnds[] = {{"shorten", replay::ItemKind::AtEnd::kShorten},
                                {"write", replay::ItemKind::AtEnd::kWrite},
                                {"keep", replay::ItemKind::AtEnd::kKeep},
                                {"tails", replay::ItemKind::AtEnd::kTails},
                                {"pieces", replay::ItemKind::AtEnd::kPieces}};

}  // namespace

std::vector<replay::ItemKind> ReadItemKinds(const py::sequence& kinds) {
  std::vector<replay::ItemKind> result;
  for (const auto& given : kinds) {
    const auto [steps, period, at_end] =
        given.cast<std::tuple<std::int64_t, std::int64_t, std::string>>();
    if (steps < 1 || period < 1) throw SpecError("an item kind has no steps or no period");
    const auto found = std::ranges::find(kAtEnds, at_end, &NamedEnd::name);
    if (found == std::end(kAtEnds)) {
      throw SpecError("an item kind's at_end is '" + at_end +
                      "', expected shorten, write, keep, tails or pieces");
    }
    result.push_back({steps, period, found->at_end});
  }
  return result;
}

PyReplayWriter::PyReplayWriter(std::shared_ptr<replay::ReplayStore> store,
                               std::vector<replay::ItemKind> kinds, std::int64_t history_rows,
                               py::object convert)
    : store_(std::move(store)),
      writer_(store_, std::move(kinds), history_rows),
      convert_(std::move(convert)),
      terminated_(IndexOf(store_->layout(), "terminated")),
      truncated_(IndexOf(store_->layout(), "truncated")),
      version_(IndexOf(store_->layout(), "policy_version")) {
  for (const replay::ColumnSpec& spec : store_->layout().specs) {
    Column column{py::str(spec.name), py::dtype(spec.dtype), {}, spec.stacked()};
    // whole observations: a writer gets all frames of a stack
    if (spec.stacked()) column.shape.push_back(spec.stack);
    column.shape.insert(column.shape.end(), spec.shape.begin(), spec.shape.end());
    columns_.push_back(std::move(column));
  }
}

// --- reading arrays ----------------------------------------------------------------------

const std::uint8_t* PyReplayWriter::Read(const py::handle& value, const Column& column,
                                         const py::str& name, std::span<const py::ssize_t> lead) {
  py::object array = py::reinterpret_borrow<py::object>(value);
  if (!Fits(array, column.dtype, lead, column.shape)) {
    // Python reports what is wrong with it, or makes an array that fits
    array = convert_(name, value, ShapeTuple(lead), column.dtype, py::tuple(py::cast(column.shape)));
    if (!Fits(array, column.dtype, lead, column.shape)) {
      throw SpecError(name.cast<std::string>() + " was not converted");
    }
  }
  const void* const data = py::detail::array_proxy(array.ptr())->data;
  // owned, because the arrays are read without the GIL, when their caller may drop them
  owners_.push_back(std::move(array));
  return static_cast<const std::uint8_t*>(data);
}

void PyReplayWriter::ReadColumns(const py::tuple& columns, std::span<const py::ssize_t> lead,
                                 NewSteps& steps) {
  if (columns.size() != columns_.size()) {
    throw SpecError("there are " + std::to_string(columns.size()) + " columns, expected " +
                    std::to_string(columns_.size()));
  }
  steps.columns.resize(columns_.size());
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const Column& column = columns_[c];
    // the only column that may be given as one number
    if (c == version_) {
      ReadVersions(columns[c], lead, steps);
    } else {
      steps.columns[c] = {Read(columns[c], column, column.name, lead), column.stacked};
    }
  }
}

// Reads policy versions: one number for all rows, or one for each.
void PyReplayWriter::ReadVersions(const py::handle& given, std::span<const py::ssize_t> lead,
                                  NewSteps& steps) {
  // one version for each row, whatever was given
  std::size_t count = 1;
  for (const py::ssize_t extent : lead) count *= static_cast<std::size_t>(extent);
  // one index for all is the usual case, and needs no array
  const bool is_array = py::isinstance<py::array>(given);
  if (PyIndex_Check(given.ptr()) &&
      (!is_array || py::detail::array_proxy(given.ptr())->nd == 0)) {
    const Py_ssize_t version = PyNumber_AsSsize_t(given.ptr(), PyExc_OverflowError);
    // -1 is either a version or an error
    if (version != -1 || !PyErr_Occurred()) {
      versions_.assign(count, version);
      steps.columns[version_] = {reinterpret_cast<const std::uint8_t*>(versions_.data()), false};
      steps.policy_version = version;
      return;
    }
    const bool is_beyond = PyErr_ExceptionMatches(PyExc_OverflowError);
    PyErr_Clear();
    if (is_beyond) throw SpecError("policy_version is beyond 64 bits");
    // a tensor of several elements has no index and is read below
  }
  const std::uint8_t* const data = Read(given, columns_[version_], columns_[version_].name, lead);
  steps.columns[version_] = {data, false};
  const auto* const versions = reinterpret_cast<const std::int64_t*>(data);
  steps.policy_version = count ? *std::max_element(versions, versions + count) : 0;
}

void PyReplayWriter::ReadPriority(const py::object& given, NewSteps& steps) {
  if (given.is_none()) return;
  // a number is the priority of all rows, without an array
  if (PyFloat_Check(given.ptr())) {
    steps.priority = PyFloat_AS_DOUBLE(given.ptr());
    CheckPriority(steps.priority, 0, writer_.most_priority());
    return;
  }
  const auto array = py::array_t<double, py::array::c_style>::ensure(given);
  if (!array || array.size() != steps.steps * std::ssize(env_ids_)) {
    PyErr_Clear();
    throw SpecError("priority is not one number for each step");
  }
  for (py::ssize_t i = 0; i < array.size(); ++i) {
    CheckPriority(array.data()[i], static_cast<std::size_t>(i), writer_.most_priority());
  }
  steps.priorities = array.data();
  owners_.push_back(array);
}

void PyReplayWriter::ReadEnvIds(const py::object& given, py::ssize_t count) {
  env_ids_.resize(static_cast<std::size_t>(count));
  if (given.is_none()) {
    // environments are then numbered by their rows
    for (py::ssize_t b = 0; b < count; ++b) env_ids_[b] = b;
    return;
  }
  const auto array = py::array::ensure(given);
  // an empty list is float64 for NumPy
  const bool is_whole = array && (array.dtype().kind() == 'i' || array.dtype().kind() == 'u');
  if (!array || array.ndim() != 1 || (array.size() > 0 && !is_whole)) {
    PyErr_Clear();
    throw SpecError("env_id is " + py::repr(given).cast<std::string>() +
                    ", expected (B,) whole numbers of at least 0");
  }
  if (array.size() != count) {
    throw SpecError("env_id has shape (" + std::to_string(array.size()) + ",), expected (" +
                    std::to_string(count) + ",)");
  }
  // any width and sign: numbers below 0 are refused by Episodes::Find
  const py::array_t<std::int64_t, py::array::c_style | py::array::forcecast> ids(array);
  std::copy_n(ids.data(), count, env_ids_.begin());
}

// --- adding ------------------------------------------------------------------------------

// Drops the caller's arrays when the call ends, however it ends; needs the GIL.
struct PyReplayWriter::DropOwners {
  std::vector<py::object>& owners;
  ~DropOwners() { owners.clear(); }
};

std::int64_t PyReplayWriter::MarkEnds(const NewSteps& steps, std::int64_t count,
                                      const std::uint8_t* valid, const std::uint8_t* failed) {
  const std::uint8_t* const terminated = steps.columns[terminated_].data;
  const std::uint8_t* const truncated = steps.columns[truncated_].data;
  ended_.resize(static_cast<std::size_t>(count));
  std::int64_t num_ended = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    // a row that only resets, or failed, ends nothing: its marks do not come from the environment
    const bool counts = (!valid || valid[i]) && !(failed && failed[i]);
    ended_[i] = counts && (terminated[i] || truncated[i]);
    num_ended += ended_[i];
  }
  return num_ended;
}

const std::uint8_t* PyReplayWriter::FinalsOfNext(const std::uint8_t* next_obs, std::int64_t count) {
  const std::int64_t bytes = store_->layout().specs[0].value_bytes();
  // packed, as the store takes them: one row for each episode that ended
  final_obs_.resize(static_cast<std::size_t>(count * bytes));
  std::uint8_t* to = final_obs_.data();
  for (std::size_t b = 0; b < ended_.size(); ++b) {
    if (!ended_[b]) continue;
    std::memcpy(to, next_obs + static_cast<std::int64_t>(b) * bytes, static_cast<std::size_t>(bytes));
    to += bytes;
  }
  return final_obs_.data();
}

// Gymnasium's info has an array of objects, None where no episode ended, or one of numbers.
const std::uint8_t* PyReplayWriter::FinalsOfInfo(const py::object& info, std::int64_t count) {
  const py::str name("final_obs");
  const py::object given = info.attr("get")(name);
  const auto finals = given.is_none() ? py::array() : py::array::ensure(given);
  if (given.is_none() || !finals || finals.ndim() < 1 || finals.shape(0) != std::ssize(ended_)) {
    PyErr_Clear();
    throw SpecError(std::string("info has no \"final_obs\" of ") + std::to_string(ended_.size()) +
                    " rows though an episode ended: expected what step() of an environment with "
                    "autoreset_mode=\"same_step\" returned");
  }
  const std::int64_t bytes = store_->layout().specs[0].value_bytes();
  final_obs_.resize(static_cast<std::size_t>(count * bytes));
  std::uint8_t* to = final_obs_.data();
  // by Python's indexing, because the array may be of objects
  const py::object item = finals.attr("__getitem__");
  for (std::size_t b = 0; b < ended_.size(); ++b) {
    if (!ended_[b]) continue;
    const py::object row = item(b);
    std::memcpy(to, Read(row, columns_[0], name, {}), static_cast<std::size_t>(bytes));
    to += bytes;
  }
  return final_obs_.data();
}

std::int64_t PyReplayWriter::AddStep(const py::tuple& columns, const py::object& next_obs,
                                     const py::object& env_id, const py::object& failed,
                                     const py::object& info, std::int32_t mode,
                                     const py::object& priority) {
  const DropOwners drop{owners_};
  // the first axis of the observations is the number of environments
  const bool has_rows = columns.size() > 0 && py::isinstance<py::array>(columns[0]) &&
                        py::detail::array_proxy(py::object(columns[0]).ptr())->nd > 0;
  const py::ssize_t count = has_rows ? py::array(columns[0]).shape(0) : 0;
  const std::array<py::ssize_t, 1> lead{count};
  NewSteps step;
  ReadColumns(columns, lead, step);
  step.next_obs = Read(next_obs, columns_[0], py::str("next_obs"), lead);
  ReadEnvIds(env_id, count);
  step.env_ids = env_ids_;
  ReadPriority(priority, step);

  replay::StepMarks marks;
  marks.mode = static_cast<replay::Autoreset>(mode);
  if (!failed.is_none()) {
    marks.failed = Read(failed, {"", py::dtype::of<bool>(), {}, false}, py::str("_env_error"), lead);
  }
  valid_.resize(static_cast<std::size_t>(count));
  // in next-step autoreset, the step after an end is a reset, not a step
  writer_.AwaitReset(step.env_ids, valid_);
  for (std::uint8_t& mark : valid_) mark = !mark;
  step.valid = valid_.data();
  const std::int64_t num_ended = MarkEnds(step, count, step.valid, marks.failed);
  step.ended = ended_.data();
  if (num_ended > 0) {
    // same-step: next_obs already belongs to the next episode; else it is the final observation
    step.final_obs = marks.mode == replay::Autoreset::kSameStep
                         ? FinalsOfInfo(info, num_ended)
                         : FinalsOfNext(step.next_obs, num_ended);
  }
  // without the GIL, rows are copied and items inserted
  const ReleaseGil release;
  writer_.AddStep(step, marks);
  // items that the rate limiter does not admit now wait for Insert
  return writer_.InsertNow();
}

std::int64_t PyReplayWriter::AddBatch(const py::tuple& columns, const py::object& last_obs,
                                      const py::object& env_id, const py::object& final_obs,
                                      const py::object& active, const py::object& priority) {
  const DropOwners drop{owners_};
  std::array<py::ssize_t, 2> lead{0, 0};
  if (columns.size() > 0 && py::isinstance<py::array>(columns[0])) {
    const py::array obs(columns[0]);
    for (int axis = 0; axis < std::min<int>(2, static_cast<int>(obs.ndim())); ++axis) {
      lead[axis] = obs.shape(axis);
    }
  }
  // lead is (0, 0) where the first column is no array
  if (lead[0] == 0) throw SpecError("the batch has no steps, expected (T, B) with T of at least 1");
  NewSteps steps;
  steps.steps = lead[0];
  ReadColumns(columns, lead, steps);
  const std::array<py::ssize_t, 1> rows{lead[1]};
  // last_obs completes open episodes if the next batch does not continue from it
  steps.next_obs = Read(last_obs, columns_[0], py::str("last_obs"), rows);
  ReadEnvIds(env_id, lead[1]);
  steps.env_ids = env_ids_;
  ReadPriority(priority, steps);
  if (!active.is_none()) {
    // after an agent left, its steps until the episode ends are not valid
    steps.valid = Read(active, {"", py::dtype::of<bool>(), {}, false}, py::str("active"), lead);
  }
  const std::int64_t num_ended = MarkEnds(steps, lead[0] * lead[1], steps.valid, nullptr);
  steps.ended = ended_.data();
  if (num_ended > 0) {
    if (final_obs.is_none()) {
      throw SpecError("the batch has no final_obs, but " + std::to_string(num_ended) +
                      " episodes ended in it: collect with Collector(..., keep_final_obs=True)");
    }
    // packed as Collector does: by time, then by environment
    const std::array<py::ssize_t, 1> finals{static_cast<py::ssize_t>(num_ended)};
    steps.final_obs = Read(final_obs, columns_[0], py::str("final_obs"), finals);
  }
  const ReleaseGil release;
  writer_.Add(steps);
  return writer_.InsertNow();
}

void PyReplayWriter::EndEpisodes(const py::object& env_id) {
  if (env_id.is_none()) {
    const ReleaseGil release;
    return writer_.EndEpisodes(std::nullopt);
  }
  // with the GIL: making an array may run Python code
  const Int64Array ids = ReadIds(env_id, "env_id");
  const ReleaseGil release;
  writer_.EndEpisodes(Span(ids));
}

std::int64_t PyReplayWriter::Insert(std::size_t table, double timeout_s) {
  const auto end = replay::Clock::now() + std::chrono::duration_cast<replay::Clock::duration>(
                                              std::chrono::duration<double>(timeout_s));
  const ReleaseGil release;
  return writer_.Insert(table, end);
}

}  // namespace rollouts
