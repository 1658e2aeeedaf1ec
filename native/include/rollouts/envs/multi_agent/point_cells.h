// SPDX-License-Identifier: Apache-2.0
// Points of a square, sorted into cells, so that a point's neighbours are in a few of them.
#pragma once

#include "rollouts/core/math.h"
#include "rollouts/core/words.h"

namespace rollouts {

// Borrows arrays for up to `capacity` points, at least 16. Points lie cell after cell, and within a
// cell in the order of their rows; `numbers` has room for `capacity` numbers. A point outside of
// the square is in a cell at its edge.
class PointCells {
 public:
  static constexpr bool kAreSorted = true;

  ROLLOUTS_HD PointCells(float side, std::int32_t capacity, float* x, float* y, std::int32_t* id,
                         std::int32_t* numbers)
      : x(x),
        y(y),
        id(id),
        start(numbers),
        per_side(PerSide(capacity)),
        capacity(capacity),
        side(side),
        scale(static_cast<float>(per_side) / side) {}

  ROLLOUTS_HD static std::int32_t PerSide(std::int32_t capacity) {
    return static_cast<std::int32_t>(Sqrt(static_cast<float>(capacity / kPerCell)));
  }

  ROLLOUTS_HD std::int32_t num_cells() const { return per_side * per_side; }
  ROLLOUTS_HD std::int32_t count() const { return start[num_cells()]; }
  ROLLOUTS_HD std::int32_t IdOf(std::int32_t point) const { return id[point]; }

  ROLLOUTS_HD std::int32_t CellOf(float px, float py) const { return At(py) * per_side + At(px); }

  // The distance within which `k` others of a point are expected.
  ROLLOUTS_HD float Guess(std::int32_t k) const {
    // a circle of this radius has 1.5 times `k` points where points are evenly spread
    return side * 0.7f * Sqrt(static_cast<float>(k) / static_cast<float>(capacity));
  }

  // Tells if the cells within `reach` of a point include every cell.
  ROLLOUTS_HD bool AreAll(float px, float py, float reach) const {
    const std::int32_t last = per_side - 1;
    return !(reach < static_cast<float>(kInfinity)) ||
           (At(px - reach) == 0 && At(py - reach) == 0 && At(px + reach) == last &&
            At(py + reach) == last);
  }

  // Calls `visit(first, last)` for ranges of points, until it returns false. The ranges contain all
  // points whose x and y differ by less than `reach` from the given point's. Rounding loses none of
  // them, because it keeps the order of numbers.
  template <typename Visit>
  ROLLOUTS_HD void ForEachRange(float px, float py, float reach, Visit&& visit) const {
    const std::int32_t left = At(px - reach), behind = At(px + reach) + 1;
    const std::int32_t top = At(py + reach);
    for (std::int32_t row = At(py - reach); row <= top; ++row) {
      const std::int32_t* const of_row = start + row * per_side;
      if (!visit(of_row[left], of_row[behind])) return;
    }
  }

  float *x, *y;
  std::int32_t* id;
  std::int32_t* start;  // first point of each cell, then the end of the last one
  std::int32_t per_side, capacity;
  float side, scale;

 private:
  static constexpr std::int32_t kPerCell = 5;  // points in a cell where they are evenly spread

  // Row or column of a coordinate; that of NaN is 0.
  ROLLOUTS_HD std::int32_t At(float coordinate) const {
    const float at = coordinate * scale;
    if (!(at > 0)) return 0;
    return at < static_cast<float>(per_side) ? static_cast<std::int32_t>(at) : per_side - 1;
  }
};

// Sorts rows of points into cells: by one thread, or by a team in steps with a barrier after each.
// Both results are the same, bit for bit.
class CellSorting {
 public:
  // `x`, `y`, `id`: those of each row; `in`: whether a row is sorted; `place`: receives the index
  // of each row's point among the sorted points.
  ROLLOUTS_HD CellSorting(const PointCells& cells, std::int32_t rows, const float* x, const float* y,
                          const std::uint8_t* in, const float* id, std::int32_t* place)
      : cells_(cells), rows_(rows), x_(x), y_(y), in_(in), id_(id), place_(place) {}

  // Sorts with one thread.
  ROLLOUTS_HD void SortAlone() const {
    const std::int32_t num_cells = cells_.num_cells();
    for (std::int32_t cell = 0; cell < num_cells; ++cell) Clear(cell);
    std::int32_t* const size = sizes();
    for (std::int32_t row = 0; row < rows_; ++row) {
      if (!in_[row]) continue;
      place_[row] = cells_.CellOf(x_[row], y_[row]);
      ++size[place_[row]];
    }
    for (std::int32_t line = 0; line < cells_.per_side; ++line) SumLine(line);
    std::int32_t points = 0;
    for (std::int32_t cell = 0; cell < num_cells; ++cell) {
      cells_.start[cell] = points;
      points += size[cell];
      size[cell] = 0;
    }
    cells_.start[num_cells] = points;
    for (std::int32_t row = 0; row < rows_; ++row) {
      if (!in_[row]) continue;
      const std::int32_t cell = place_[row];
      place_[row] = cells_.start[cell] + size[cell]++;
      Put(row);
    }
  }

  // The steps of a team, in this order, each for all cells, rows or lines of cells.
  ROLLOUTS_HD void Clear(std::int32_t cell) const { sizes()[cell] = 0; }
  ROLLOUTS_HD void Count(std::int32_t row) const {
    if (in_[row]) place_[row] = AtomicAddOne(sizes() + cells_.CellOf(x_[row], y_[row]));
  }
  ROLLOUTS_HD void SumLine(std::int32_t line) const {
    const std::int32_t* const size = sizes() + line * cells_.per_side;
    std::int32_t sum = 0;
    for (std::int32_t i = 0; i < cells_.per_side; ++i) sum += size[i];
    lines()[line] = sum;
  }
  ROLLOUTS_HD void Begin(std::int32_t cell) const {
    const std::int32_t line = cell / cells_.per_side;
    std::int32_t before = 0;
    for (std::int32_t i = 0; i < line; ++i) before += lines()[i];
    for (std::int32_t i = line * cells_.per_side; i < cell; ++i) before += sizes()[i];
    cells_.start[cell] = before;
    if (cell == cells_.num_cells() - 1) cells_.start[cell + 1] = before + sizes()[cell];
  }
  // Lists the rows of a cell, in the order in which threads arrive.
  ROLLOUTS_HD void List(std::int32_t row) const {
    if (in_[row]) cells_.id[cells_.start[cells_.CellOf(x_[row], y_[row])] + place_[row]] = row;
  }
  // Finds a row's place in its cell, which does not depend on threads.
  ROLLOUTS_HD void Rank(std::int32_t row) const {
    if (!in_[row]) return;
    const std::int32_t* const start = cells_.start + cells_.CellOf(x_[row], y_[row]);
    std::int32_t place = start[0];
    for (std::int32_t i = start[0]; i < start[1]; ++i) place += cells_.id[i] < row;
    place_[row] = place;
  }
  ROLLOUTS_HD void Put(std::int32_t row) const {
    if (!in_[row]) return;
    const std::int32_t place = place_[row];
    cells_.x[place] = x_[row];
    cells_.y[place] = y_[row];
    cells_.id[place] = static_cast<std::int32_t>(id_[row]);
  }

 private:
  ROLLOUTS_HD std::int32_t* sizes() const { return cells_.start + cells_.num_cells() + 1; }
  ROLLOUTS_HD std::int32_t* lines() const { return sizes() + cells_.num_cells(); }

  PointCells cells_;
  std::int32_t rows_;
  const float *x_, *y_;
  const std::uint8_t* in_;
  const float* id_;
  std::int32_t* place_;
};

}  // namespace rollouts
