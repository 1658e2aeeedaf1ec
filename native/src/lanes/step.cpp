// SPDX-License-Identifier: Apache-2.0
// Chooses loops for the machine and the number of rows.
#include "rollouts/lanes/step.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "loops.h"
#include "model.h"
#include "support/runnable.h"

namespace rollouts::lanes {
namespace {

// The loops of an instruction set, widest first; the last one is a single lane.
struct InstructionSet {
  const char* name;
  std::vector<const Loops*> loops;
};

const std::vector<const Loops*>& All() {
  static const std::vector<const Loops*> loops = [] {
    const InstructionSet avx512{"avx512", {Avx512Loops(), Avx2Loops(), PairLoops(), Avx2SingleLoops()}};
    const InstructionSet avx2{"avx2", {Avx2Loops(), PairLoops(), Avx2SingleLoops()}};
    const InstructionSet baseline{"baseline", {PairLoops(), SingleLoops()}};
    const auto built = [](const InstructionSet& set) { return set.loops.front() ? &set : nullptr; };
    return NamedBy("ROLLOUTS_MUJOCO_LANES", Runnable(built(avx512), built(avx2), &baseline))->loops;
  }();
  return loops;
}

// Chooses the narrowest loops that take all rows, or the widest.
const Loops& Choose(std::int32_t width, std::size_t rows) {
  const Loops* best = All().front();
  for (const Loops* one : All()) {
    if (width > 0 ? one->width == width : one->width >= static_cast<std::int32_t>(rows)) best = one;
  }
  return *best;
}

// The loops for one row that cannot be stepped with others: their width gives the same bits as the
// widest.
const Loops& Alone() {
  for (const Loops* one : All()) {
    if (one->width == 4) return *one;
  }
  return *All().front();
}

constexpr std::int32_t kWidest = 8;

// Memory that grows and never shrinks, aligned for the widest vectors.
class Block {
 public:
  // Makes room for `bytes`; true when the memory is another block now.
  bool Hold(std::size_t bytes) {
    if (bytes_ >= bytes) return false;
    memory_.reset();
    bytes_ = 0;
    // uninitialised, so that pages that no step needs are never allocated
    memory_ = std::make_unique_for_overwrite<std::uint8_t[]>(bytes + 64);
    bytes_ = bytes;
    return true;
  }
  std::uint8_t* address() const {
    return reinterpret_cast<std::uint8_t*>((reinterpret_cast<std::uintptr_t>(memory_.get()) + 63) / 64 * 64);
  }

 private:
  std::unique_ptr<std::uint8_t[]> memory_;
  std::size_t bytes_ = 0;
};

// A thread's memory for the largest model that it has stepped.
std::uint8_t* Memory(const Loops& loops, const Model& model) {
  static thread_local Block block;
  static thread_local const Loops* last_loops = nullptr;
  static thread_local std::uint64_t last_model = 0;
  // most often it is the model of the step before, or a variant of it
  if (const std::uint64_t root = model.root().serial; last_loops != &loops || last_model != root) {
    block.Hold(loops.memory_bytes(model));
    last_loops = &loops;
    last_model = root;
  }
  return block.address();
}

// A thread's memory for the numbers of several models in one vector.
MixedNumbers& Mixed(const Model& model) {
  static thread_local Block numbers;
  static thread_local Block changed;
  static thread_local Block is_changed;
  static thread_local MixedNumbers mixed;
  if (numbers.Hold(model.num_numbers * kWidest * sizeof(double))) mixed.root = 0;
  if (changed.Hold(model.num_numbers * sizeof(std::uint32_t))) mixed.root = 0;
  if (is_changed.Hold(model.num_numbers)) mixed.root = 0;
  mixed.numbers = reinterpret_cast<double*>(numbers.address());
  mixed.changed = reinterpret_cast<std::uint32_t*>(changed.address());
  mixed.is_changed = is_changed.address();
  return mixed;
}

// The model of each lane; lanes without a row have that of the first row.
struct LaneModels {
  std::array<const Model*, kWidest> of{};
  bool alike = true;  // equal in structure

  LaneModels(const Model& model, std::span<const Row> rows) {
    for (std::size_t lane = 0; lane < of.size(); ++lane) {
      const Row& row = rows[lane < rows.size() ? lane : 0];
      of[lane] = row.model ? row.model : &model;
      alike &= of[lane]->IsAlike(*of[0]);
    }
  }
};

// Runs rows together; rows whose models differ in more than numbers are run one by one.
template <typename Run>
std::uint64_t ByVectors(const Model& model, std::span<const Row> rows, std::int32_t width, const Run& run) {
  std::uint64_t left = 0;
  for (std::size_t first = 0; first < rows.size();) {
    const Loops* loops = &Choose(width, rows.size() - first);
    std::size_t some = std::min(rows.size() - first, static_cast<std::size_t>(loops->width));
    LaneModels models(model, rows.subspan(first, some));
    if (!models.alike) {
      loops = &Alone();
      some = 1;
      models = LaneModels(model, rows.subspan(first, 1));
    }
    const auto try_with = [&](const Loops& with, const LaneModels& own, std::size_t at, std::size_t count) {
      return run(with, own.of.data(), Memory(with, *own.of[0]), at, static_cast<int>(count));
    };
    unsigned here = try_with(*loops, models, first, some);
    for (unsigned alone = here >> 16; alone; alone &= alone - 1) {
      const auto lane = static_cast<std::size_t>(__builtin_ctz(alone));
      const LaneModels own(model, rows.subspan(first + lane, 1));
      if (!(try_with(Alone(), own, first + lane, 1) & 1U)) here &= ~(1U << lane);
    }
    left |= std::uint64_t{here & 0xFFFFU} << first;
    first += some;
  }
  return left;
}

}  // namespace

std::uint64_t Step(const Model& model, std::span<const Row> rows, const StepOptions& options) {
  return ByVectors(model, rows, options.width,
                   [&](const Loops& loops, const Model* const* models, std::uint8_t* memory,
                       std::size_t first, int count) {
                     return loops.step(models, Mixed(*models[0]), memory, rows.data() + first, count, options);
                   });
}

std::uint64_t Forward(const Model& model, std::span<const Row> rows, std::span<const Probe> probes,
                      std::int32_t width) {
  return ByVectors(model, rows, width,
                   [&](const Loops& loops, const Model* const* models, std::uint8_t* memory,
                       std::size_t first, int count) {
                     return loops.forward(models, Mixed(*models[0]), memory, rows.data() + first,
                                          probes.data() + first, count);
                   });
}

std::span<const std::int32_t> Widths() {
  static const std::vector<std::int32_t> widths = [] {
    std::vector<std::int32_t> out;
    for (const Loops* one : All()) out.push_back(one->width);
    return out;
  }();
  return widths;
}

}  // namespace rollouts::lanes
