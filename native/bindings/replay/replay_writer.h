// SPDX-License-Identifier: Apache-2.0
// The writer of a replay buffer, for NumPy arrays.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bindings/replay/replay_arrays.h"
#include "rollouts/replay/writer.h"

namespace rollouts {

// Tuples (steps, period, at_end) as rollouts/replay/items.py makes them.
std::vector<replay::ItemKind> ReadItemKinds(const pybind11::sequence& kinds);

// The caller locks. An array that has its column's dtype and shape is read in place; any other goes
// through `convert(name, value, leading shape)`, which returns one that fits, or raises.
class PyReplayWriter {
 public:
  PyReplayWriter(std::shared_ptr<replay::ReplayStore> store, std::vector<replay::ItemKind> kinds,
                 std::int64_t history_rows, pybind11::object convert);

  // Both return how many items were inserted without waiting; the others are pending.
  std::int64_t AddStep(const pybind11::tuple& columns, const pybind11::object& next_obs,
                       const pybind11::object& env_id, const pybind11::object& failed,
                       const pybind11::object& info, std::int32_t mode,
                       const pybind11::object& priority);
  std::int64_t AddBatch(const pybind11::tuple& columns, const pybind11::object& last_obs,
                        const pybind11::object& env_id, const pybind11::object& final_obs,
                        const pybind11::object& active, const pybind11::object& priority);
  void EndEpisodes(const pybind11::object& env_id);
  std::int64_t Insert(std::size_t table, double timeout_s);

  pybind11::dict State() const;
  void LoadState(const pybind11::dict& state);

  replay::Writer& writer() { return writer_; }

 private:
  struct DropOwners;
  struct Column {
    pybind11::str name;
    pybind11::dtype dtype;
    std::vector<pybind11::ssize_t> shape;  // one value's
    bool stacked = false;
  };

  void ReadColumns(const pybind11::tuple& columns, std::span<const pybind11::ssize_t> lead,
                   replay::NewSteps& steps);
  void ReadVersions(const pybind11::handle& given, std::span<const pybind11::ssize_t> lead,
                    replay::NewSteps& steps);
  void ReadPriority(const pybind11::object& given, replay::NewSteps& steps);
  void ReadEnvIds(const pybind11::object& given, pybind11::ssize_t count);
  // The bytes of `value`, owned until the call ends.
  const std::uint8_t* Read(const pybind11::handle& value, const Column& column,
                           const pybind11::str& name, std::span<const pybind11::ssize_t> lead);
  // Counts the steps after which an episode ends, and marks them in ended_.
  std::int64_t MarkEnds(const replay::NewSteps& steps, std::int64_t count,
                        const std::uint8_t* valid, const std::uint8_t* failed);
  const std::uint8_t* FinalsOfInfo(const pybind11::object& info, std::int64_t count);
  const std::uint8_t* FinalsOfNext(const std::uint8_t* next_obs, std::int64_t count);

  const std::shared_ptr<replay::ReplayStore> store_;
  replay::Writer writer_;
  const pybind11::object convert_;
  std::vector<Column> columns_;
  std::size_t terminated_ = 0;
  std::size_t truncated_ = 0;
  std::size_t version_ = 0;

  // scratch of one call, kept for its memory
  std::vector<pybind11::object> owners_;
  std::vector<std::int64_t> env_ids_;
  std::vector<std::int64_t> versions_;
  std::vector<std::uint8_t> valid_;
  std::vector<std::uint8_t> ended_;
  std::vector<std::uint8_t> final_obs_;
};

// Everything but the constructor.
void BindWriterMethods(pybind11::class_<PyReplayWriter>& writer);

}  // namespace rollouts
