// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "model.h"

namespace rollouts::lanes {
namespace {

// The order in which sweeps of PGS visit rows, as in MuJoCo: shuffled before each sweep by PCG32
// from state 0.
struct Visits {
  std::vector<std::vector<std::uint8_t>> orders;
  std::vector<const std::uint8_t*> table;
};
std::unique_ptr<Visits> MakeVisits(std::int32_t sweeps) {
  auto visits = std::make_unique<Visits>();
  visits->table.push_back(nullptr);
  for (int rows = 1; rows <= kMaxDualRows; ++rows) {
    auto& orders = visits->orders.emplace_back(static_cast<std::size_t>(rows) * static_cast<std::size_t>(sweeps));
    std::uint8_t* const out = orders.data();
    std::uint64_t state = 0;
    const auto draw = [&state] {
      const std::uint64_t old = state;
      state = old * 6364136223846793005ULL + 1;
      const auto shifted = static_cast<std::uint32_t>(((old >> 18) ^ old) >> 27);
      const auto turn = static_cast<std::uint32_t>(old >> 59);
      return shifted >> turn | shifted << ((-turn) & 31);
    };
    draw();
    std::uint8_t order[kMaxDualRows];
    for (int i = 0; i < rows; ++i) order[i] = static_cast<std::uint8_t>(i);
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      for (int i = rows - 1; i > 0; --i) {
        std::swap(order[i], order[draw() % static_cast<std::uint32_t>(i + 1)]);
      }
      std::copy_n(order, rows, out + static_cast<std::size_t>(sweep) * static_cast<std::size_t>(rows));
    }
    visits->table.push_back(out);
  }
  return visits;
}

}  // namespace

// Models with equal numbers of sweeps share a table, which is kept until the process ends.
const std::uint8_t* const* VisitsOf(std::int32_t sweeps) {
  static std::mutex mutex;
  static std::map<std::int32_t, std::unique_ptr<Visits>> known;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Visits>& visits = known[sweeps];
  if (!visits) visits = MakeVisits(sweeps);
  return visits->table.data();
}

}  // namespace rollouts::lanes
