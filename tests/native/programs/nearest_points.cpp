// SPDX-License-Identifier: Apache-2.0
// Nearest points, unsorted and in cells, against sorting all of them: points everywhere, in one cell, at
// one place, on the borders of cells and on walls, and those that are in no cell.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "rollouts/envs/multi_agent/nearest.h"
#include "rollouts/envs/multi_agent/point_cells.h"

namespace rollouts {
namespace {

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition);    \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (false)

// Places of points in a square.
enum class Places { kEverywhere, kOneCell, kOnePoint, kBorders, kWalls, kLattice, kOutside };
constexpr Places kAll[] = {Places::kEverywhere, Places::kOneCell, Places::kOnePoint,
                           Places::kBorders,    Places::kWalls,   Places::kLattice,
                           Places::kOutside};

struct alignas(16) Sixteen {
  std::uint8_t bytes[16];
};

// An array at a multiple of 16 bytes.
template <typename T>
struct Array {
  explicit Array(std::int32_t count)
      : memory((static_cast<std::size_t>(count) * sizeof(T) + 15) / 16) {}
  T* data() { return reinterpret_cast<T*>(memory.data()); }
  T& operator[](std::int32_t i) { return data()[i]; }
  std::vector<Sixteen> memory;
};

struct World {
  World(std::int32_t n, float side, double share_in, Places places, std::mt19937& random)
      : n(n), side(side), x(n), y(n), id(n), in(n) {
    std::uniform_real_distribution<float> uniform(0, 1);
    const std::int32_t cells = n >= 16 ? PointCells::PerSide(n) : 1;
    const auto border = [&] { return side * static_cast<float>(random() % (cells + 1)) / cells; };
    for (std::int32_t i = 0; i < n; ++i) {
      x[i] = side * uniform(random);
      y[i] = side * uniform(random);
      if (places == Places::kOneCell) x[i] *= 0.9f / cells, y[i] *= 0.9f / cells;
      if (places == Places::kOnePoint) x[i] = y[i] = side;
      if (places == Places::kBorders) (random() % 2 ? x[i] : y[i]) = border();
      if (places == Places::kWalls) (random() % 2 ? x[i] : y[i]) = random() % 2 ? 0 : side;
      if (places == Places::kLattice) x[i] = border(), y[i] = border();
      if (places == Places::kOutside && random() % 8 == 0) x[i] = Odd(random);
      if (places == Places::kOutside && random() % 8 == 0) y[i] = Odd(random);
      in[i] = uniform(random) < share_in;
    }
    std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    for (std::int32_t i = 0; i < n; ++i) id[i] = static_cast<float>(ids[static_cast<std::size_t>(i)]);
  }
  float Odd(std::mt19937& random) const {
    const float odd[] = {-2 * side, 3 * side, std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::quiet_NaN()};
    return odd[random() % 5];
  }

  std::int32_t n;
  float side;
  Array<float> x, y, id;
  Array<std::uint8_t> in;
};

// The ids of the nearest others of a row, nearest first, the lower id first of equal distances.
std::vector<std::int32_t> Oracle(World& world, std::int32_t row, std::int32_t k, float& reach) {
  std::vector<std::pair<float, std::int32_t>> all;
  for (std::int32_t i = 0; i < world.n; ++i) {
    const float dx = world.x[i] - world.x[row], dy = world.y[i] - world.y[row];
    const float square = dx * dx + dy * dy;
    if (i == row || !world.in[i] || !(square < std::numeric_limits<float>::infinity())) continue;
    all.emplace_back(std::sqrt(square), static_cast<std::int32_t>(world.id[i]));
  }
  std::sort(all.begin(), all.end());
  all.resize(std::min(all.size(), static_cast<std::size_t>(k)));
  std::vector<std::int32_t> ids;
  for (const auto& one : all) ids.push_back(one.second);
  reach = static_cast<std::int32_t>(ids.size()) == k ? all.back().first : 0;
  return ids;
}

struct Sorted {
  explicit Sorted(World& world)
      : x(world.n), y(world.n), id(world.n), numbers(world.n), place(world.n),
        cells(world.side, world.n, x.data(), y.data(), id.data(), numbers.data()),
        sorting(cells, world.n, world.x.data(), world.y.data(), world.in.data(), world.id.data(),
                place.data()) {}

  bool operator==(const Sorted& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return std::memcmp(a.memory.data(), b.memory.data(), a.memory.size() * 16) == 0;
    };
    return same(x, other.x) && same(y, other.y) && same(id, other.id) && same(place, other.place) &&
           same(numbers, other.numbers);
  }

  Array<float> x, y;
  Array<std::int32_t> id, numbers, place;
  PointCells cells;
  CellSorting sorting;
};

// As a team sorts them whose threads come in any order.
void SortTogether(const CellSorting& sorting, const PointCells& cells, std::int32_t rows,
                  std::mt19937& random) {
  using Step = void (CellSorting::*)(std::int32_t) const;
  const std::pair<Step, std::int32_t> steps[] = {
      {&CellSorting::Clear, cells.num_cells()}, {&CellSorting::Count, rows},
      {&CellSorting::SumLine, cells.per_side},  {&CellSorting::Begin, cells.num_cells()},
      {&CellSorting::List, rows},               {&CellSorting::Rank, rows},
      {&CellSorting::Put, rows}};
  for (const auto& [step, count] : steps) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::int32_t i : order) (sorting.*step)(i);
  }
}

// Reaches as a step may find them: the right one, none, or one of other times.
template <typename Points>
void CheckFound(World& world, const Points& points, std::int32_t row, std::int32_t of,
                std::int32_t k) {
  float expected_reach = 0;
  const std::vector<std::int32_t> expected = Oracle(world, row, k, expected_reach);
  const float reaches[] = {0,
                           expected_reach,
                           expected_reach * 0.5f,
                           expected_reach * 1.24f,
                           expected_reach * 8,
                           world.side * 1e-3f,
                           std::numeric_limits<float>::infinity()};
  for (float reach : reaches) {
    Array<std::int32_t> found(k);
    const std::int32_t count = NearestPoints<Points>(points).Find(of, k, reach, found.data());
    CHECK(count == static_cast<std::int32_t>(expected.size()));
    for (std::int32_t i = 0; i < count; ++i) CHECK(found[i] == expected[static_cast<std::size_t>(i)]);
    CHECK(reach == expected_reach);
  }
}

void CheckUnsorted(World& world, std::int32_t k) {
  // by id, and those who left are infinitely far away
  Array<float> x(world.n), y(world.n);
  for (std::int32_t i = 0; i < world.n; ++i) {
    const auto id = static_cast<std::int32_t>(world.id[i]);
    x[id] = world.in[i] ? world.x[i] : std::numeric_limits<float>::infinity();
    y[id] = world.y[i];
  }
  for (std::int32_t row = 0; row < world.n; row += 1 + world.n / 12) {
    if (!world.in[row]) continue;
    CheckFound(world, UnsortedPoints{x.data(), y.data(), world.n}, row,
               static_cast<std::int32_t>(world.id[row]), k);
  }
}

void CheckCells(World& world, std::int32_t k, std::mt19937& random) {
  Sorted alone(world), together(world);
  alone.sorting.SortAlone();
  SortTogether(together.sorting, together.cells, world.n, random);
  CHECK(alone == together);
  for (std::int32_t row = 0; row < world.n; row += 1 + world.n / 12) {
    if (world.in[row]) CheckFound(world, alone.cells, row, alone.place[row], k);
  }
}

void CheckWorlds() {
  std::mt19937 random(3);
  for (const Places places : kAll) {
    for (const std::int32_t n : {2, 11, 16, 105, 256, 1000}) {
      for (const float side : {20.0f, 1e-18f, 1e-30f, 1e25f}) {
        for (const double share_in : {1.0, 0.4, 0.02}) {
          World world(n, side, share_in, places, random);
          const std::int32_t some[] = {1, 2, 10, 16, 17, 40, 70, n};
          const std::int32_t k = some[random() % 8];
          CheckUnsorted(world, k);
          if (n >= 16) CheckCells(world, k, random);
        }
      }
    }
  }
}

}  // namespace
}  // namespace rollouts

int main() {
  rollouts::CheckWorlds();
  return 0;
}
