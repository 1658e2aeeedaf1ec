// SPDX-License-Identifier: Apache-2.0
// Chooses the item of a table that is sampled or removed next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rollouts/replay/table_random.h"
#include "rollouts/support/state.h"

namespace rollouts::replay {

enum class SelectorKind : std::int32_t { kUniform, kPrioritized, kFifo, kLifo, kMaxHeap, kMinHeap };

struct SelectorSpec {
  SelectorKind kind = SelectorKind::kUniform;
  double exponent = 1.0;  // kPrioritized: an item's weight is priority ** exponent
  bool operator==(const SelectorSpec&) const = default;
};

// The highest priority whose weights can be summed over a table of any size; the largest finite
// number where nothing is summed.
double MostPriority(const SelectorSpec& spec);
// The lower limit of a table's two selectors.
double MostPriority(const SelectorSpec& sampler, const SelectorSpec& remover);

const char* NameOf(SelectorKind kind);
// Throws SpecError for a name that no selector has; the message calls it `what`.
SelectorKind SelectorKindOf(const std::string& name, const std::string& what);

// Chooses among items by their slots: small numbers, which are used again. Not thread-safe.
class Selector {
 public:
  struct Pick {
    std::int32_t slot = 0;
    double probability = 1;
  };
  virtual ~Selector() = default;
  // Room for slots below `capacity`.
  virtual void Grow(std::int32_t capacity) = 0;
  virtual void Insert(std::int32_t slot, double priority) = 0;
  virtual void Delete(std::int32_t slot) = 0;
  virtual void Update(std::int32_t slot, double priority) = 0;
  // Needs at least one item.
  virtual Pick Select(TableRandom& random) = 0;
  // Fills `picks` as that many Selects would, with nothing inserted, deleted or updated between
  // them.
  virtual void SelectMany(TableRandom& random, std::span<Pick> picks) {
    for (Pick& pick : picks) pick = Select(random);
  }
  virtual void Clear() = 0;
  // Saves what the selector keeps besides the items and priorities, such as their order.
  virtual void Save(StateWriter& writer) const = 0;
  // Call after Grow; `slots` are the slots of all items, `priorities` their priorities. Throws
  // SpecError for a state that does not fit them.
  virtual void Load(StateReader& reader, std::span<const std::int32_t> slots,
                    std::span<const double> priorities) = 0;
};

// Throws SpecError for an exponent that is negative or not finite.
std::unique_ptr<Selector> MakeSelector(const SelectorSpec& spec);

}  // namespace rollouts::replay
