// SPDX-License-Identifier: Apache-2.0
// Accelerations under constraints: chooses the solver and the islands.

template <typename D>
LANES_INLINE void AddForces(Work<D>& w, const Contact<D>& c) {
  const Pair& pair = *c.pair;
  if (pair.dim == 1) {
    for (int q = 0; q < pair.num_dofs; ++q) w.constraint[pair.dofs[q]] += c.along[q] * c.f[0];
    return;
  }
  const D normal = c.f[0] + c.f[1] + c.f[2] + c.f[3];
  const D s = (c.f[0] - c.f[1]) * c.friction, t = (c.f[2] - c.f[3]) * c.friction;
  for (int q = 0; q < pair.num_dofs; ++q) {
    D force = c.along[q] * normal + c.side1[q] * s;
    if (!c.flat) force += c.side2[q] * t;
    w.constraint[pair.dofs[q]] += force;
  }
}

#include "island.h"
#include "filled.h"
#include "line_search.h"
#include "newton.h"
#include "pgs.h"

// The trees that contacts couple, in each lane. Trees of one island have the number of its first
// tree.
template <typename D>
class Coupling {
 public:
  Coupling(const Structure& m, const Work<D>& w) : m_(m) {
    for (int i = 0; i < w.num_contacts; ++i) {
      const Pair& pair = *w.contacts[i].pair;
      if (pair.tree[0] < 0 || pair.tree[1] < 0 || pair.tree[0] == pair.tree[1]) continue;
      couples_ = true;
    }
    for (int lane = 0; lane < D::kWidth; ++lane) Find(w, lane);
  }

  // The lanes in which the same trees are coupled as in lane `first`.
  unsigned LanesLike(int first) const {
    unsigned alike = 0;
    for (int lane = 0; lane < D::kWidth; ++lane) {
      bool same = true;
      for (int t = 0; t < m_.num_trees; ++t) same &= first_of_[lane][t] == first_of_[first][t];
      if (same) alike |= 1U << lane;
    }
    return alike;
  }
  int FirstOf(int lane, int tree) const { return first_of_[lane][tree]; }

 private:
  void Find(const Work<D>& w, int lane) {
    std::uint8_t* const first = first_of_[lane];
    for (int t = 0; t < m_.num_trees; ++t) first[t] = static_cast<std::uint8_t>(t);
    for (int i = 0; couples_ && i < w.num_contacts; ++i) {
      const Contact<D>& c = w.contacts[i];
      const int a = c.pair->tree[0], b = c.pair->tree[1];
      if (a < 0 || b < 0 || !(ToBits(c.active) >> lane & 1) || first[a] == first[b]) continue;
      const std::uint8_t keep = first[a] < first[b] ? first[a] : first[b];
      const std::uint8_t drop = first[a] < first[b] ? first[b] : first[a];
      for (int t = 0; t < m_.num_trees; ++t) {
        if (first[t] == drop) first[t] = keep;
      }
    }
  }

  const Structure& m_;
  bool couples_ = false;
  std::uint8_t first_of_[D::kWidth][kMaxDofs];
};

// Fills in the parts of an island that follow from its trees.
template <typename D>
void FillIsland(const Structure& m, Work<D>& w, Island<D>& island) {
  auto lanes = FromBits<D::kWidth>(0);
  island.num_dofs = island.num_contacts = island.num_rows = 0;
  island.branches = false;
  for (int i = 0; i < m.n.nv; ++i) {
    if (island.trees >> m.dof_tree[i] & 1) island.dofs[island.num_dofs++] = i;
  }
  for (int i = 0; i < w.num_dofs; ++i) {
    if (!(island.trees >> w.dofs[i].row->tree & 1)) continue;
    island.rows[island.num_rows++] = static_cast<std::int16_t>(i);
    lanes = lanes | w.dofs[i].active;
  }
  for (int i = 0; i < w.num_contacts; ++i) {
    const Pair& pair = *w.contacts[i].pair;
    const int tree = pair.tree[0] >= 0 ? pair.tree[0] : pair.tree[1];
    if (!(island.trees >> tree & 1)) continue;
    island.contacts[island.num_contacts++] = static_cast<std::int16_t>(i);
    lanes = lanes | w.contacts[i].active;
    island.branches |= pair.branches;
  }
  island.lanes = lanes & ~w.escaped;
}

template <typename M, typename D>
void SolveIslands(const M& m, Work<D>& w) {
  WarmStart(m, w);
  Island<D> island;
  if (m.num_trees == 1) {
    island.trees = 1;
    FillIsland(m, w, island);
    NewtonSolver<M, D>(m, w, island).Run();
    return;
  }
  const Coupling<D> coupling(m, w);
  // lanes in which other trees are coupled than in most lanes are stepped alone
  unsigned most = 0;
  int first = 0;
  for (int lane = 0; lane < D::kWidth; ++lane) {
    const unsigned alike = coupling.LanesLike(lane);
    if (__builtin_popcount(alike) <= __builtin_popcount(most)) continue;
    most = alike;
    first = lane;
  }
  const auto others = FromBits<D::kWidth>(~most) & ~w.escaped;
  w.divided = w.divided | others;
  w.escaped = w.escaped | others;
  for (int t = 0; t < m.num_trees; ++t) {
    if (coupling.FirstOf(first, t) != t) continue;
    island.trees = 0;
    for (int other = t; other < m.num_trees; ++other) {
      if (coupling.FirstOf(first, other) == t) island.trees |= std::uint64_t{1} << other;
    }
    FillIsland(m, w, island);
    if (Any(island.lanes)) NewtonSolver<M, D>(m, w, island).Run();
  }
}

template <typename M, typename D>
void SolveConstraints(const M& m, Work<D>& w) {
  w.iterations = 0.0;
  for (int i = 0; i < m.n.nv; ++i) {
    w.qacc[i] = w.qacc_smooth[i];
    w.constraint[i] = 0.0;
  }
  if (!Any(w.constrained)) return;
  if (m.pgs) {
    DualSolver<M, D>(m, w).Run();
  } else {
    SolveIslands(m, w);
  }
}

// mj_forward without sensors.
template <typename M, typename D>
void Evaluate(const M& m, Work<D>& w) {
  SmoothPositions(m, w);
  SmoothAccelerations(m, w);
  Constraints(m, w);
  SolveConstraints(m, w);
}
