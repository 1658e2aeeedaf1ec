// SPDX-License-Identifier: Apache-2.0
// Saved states of a replay store as NumPy arrays.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "rollouts/replay/replay_store.h"
#include "rollouts/replay/state_snapshot.h"

namespace rollouts {

// Bytes as a NumPy array that owns them.
pybind11::array AsArray(std::vector<std::uint8_t> bytes);

// An iterator over a state's pieces, which keeps the store alive. Thread-safe.
class PyStatePieces {
 public:
  PyStatePieces(std::shared_ptr<replay::ReplayStore> store,
                std::unique_ptr<replay::StateSnapshot> snapshot)
      : store_(std::move(store)), snapshot_(std::move(snapshot)) {}
  PyStatePieces(PyStatePieces&& other) = default;

  std::uint64_t nbytes() const { return snapshot_->bytes(); }
  pybind11::array Next();

 private:
  std::shared_ptr<replay::ReplayStore> store_;  // outlives the snapshot
  std::unique_ptr<replay::StateSnapshot> snapshot_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // guards snapshot_
};

void BindStatePieces(pybind11::module_& module);

}  // namespace rollouts
