// SPDX-License-Identifier: Apache-2.0
// MuJoCo's dual solver (PGS with momentum). Rows are built in lanes; sweeps then run over all lanes
// at once, but the order of a lane's visits depends on its number of rows.

// The constraint rows in MuJoCo's order, each half-transformed, so that products of two of them are
// entries of J M^-1 J'.
template <typename M, typename D>
class DualSolver {
 public:
  using Bits = typename D::Bits;
  DualSolver(const M& m, Work<D>& w) : m_(m), w_(w) {}

  void Run() {
    for (int i = 0; i < m_.n.nv; ++i) w_.root_inverse[i] = Sqrt(w_.inverse[i]);
    if (!AddRows()) return;
    Multiply();
    D trace = 0.0;
    for (int i = 0; i < m_.n.nv; ++i) trace += w_.M[m_.tree.adr[i]];
    Sweep(1.0 / trace);
    Accelerate();
  }

 private:
  // All dofs from each of `dofs` to the root, as bits.
  std::uint64_t WithAncestors(std::uint64_t dofs) const {
    std::uint64_t all = 0;
    for (std::uint64_t rest = dofs; rest; rest &= rest - 1) {
      const int i = __builtin_ctzll(rest);
      const std::int32_t* const column = m_.tree.column + m_.tree.adr[i];
      for (int p = 0; p < m_.tree.count[i]; ++p) all |= std::uint64_t{1} << column[p];
    }
    return all;
  }

  // Computes x L^-1 sqrt(D^-1) in place, for N rows with entries at `dofs`; returns all dofs that
  // have entries afterwards.
  template <int N>
  std::uint64_t HalfTransform(D* const (&rows)[N], std::uint64_t dofs) const {
    const std::uint64_t all = WithAncestors(dofs);
    for (std::uint64_t rest = all & ~dofs; rest; rest &= rest - 1) {
      for (int e = 0; e < N; ++e) rows[e][__builtin_ctzll(rest)] = 0.0;
    }
    for (std::uint64_t rest = all; rest;) {
      const int k = 63 - __builtin_clzll(rest);
      rest &= ~(std::uint64_t{1} << k);
      const D* const factor = w_.L + m_.tree.adr[k];
      const std::int32_t* const column = m_.tree.column + m_.tree.adr[k];
      D of_k[N];
      for (int e = 0; e < N; ++e) of_k[e] = rows[e][k];
      for (int p = 1; p < m_.tree.count[k]; ++p) {
        for (int e = 0; e < N; ++e) rows[e][column[p]] -= factor[p] * of_k[e];
      }
      for (int e = 0; e < N; ++e) rows[e][k] = of_k[e] * w_.root_inverse[k];
    }
    return all;
  }

  void SetRow(int row, D residual, D warm, D stiffness, D R, Bits active, std::uint64_t dofs) {
    w_.dual_b[row] = residual;
    // the force that follows from the last accelerations
    w_.dual_f[row] = m_.warm_starts ? Keep(warm < 0.0, -(stiffness * warm)) : D(0.0);
    w_.dual_R[row] = R;
    w_.row_lanes[row] = ToBits(active) & kAllBits<D::kWidth>;
    w_.row_dofs[row] = dofs;
  }

  // False where a lane has more rows than there is room for; it is left to MuJoCo.
  bool AddRows() {
    const int nv = m_.n.nv;
    num_rows_ = 0;
    for (int i = 0; i < w_.num_dofs; ++i) {
      const DofConstraint<D>& c = w_.dofs[i];
      const int dof = c.row->dof;
      if (num_rows_ == kMaxDualRows) return Escape();
      D* const row = w_.rows + num_rows_ * nv;
      row[dof] = c.row->sign;
      const std::uint64_t dofs = HalfTransform<1>({row}, std::uint64_t{1} << dof);
      SetRow(num_rows_++, w_.qacc_smooth[dof] * c.row->sign - c.aref, w_.warm[dof] * c.row->sign - c.aref,
             c.stiffness, c.R, c.active, dofs);
    }
    for (int i = 0; i < w_.num_contacts; ++i) {
      Contact<D>& c = w_.contacts[i];
      const Pair& pair = *c.pair;
      if (num_rows_ + c.Rows() > kMaxDualRows) return Escape();
      std::uint64_t own = 0;
      for (int q = 0; q < pair.num_dofs; ++q) own |= std::uint64_t{1} << pair.dofs[q];
      MultiplyRows(c, w_.qacc_smooth, c.b);
      MultiplyRows(c, w_.warm, c.x);
      const std::uint64_t dofs = TransformContact(c, own);
      for (int j = 0; j < c.Rows(); ++j) {
        SetRow(num_rows_++, c.b[j] - c.aref[j], c.x[j] - c.aref[j], c.stiffness, c.R, c.active, dofs);
      }
    }
    return true;
  }

  std::uint64_t TransformContact(const Contact<D>& c, std::uint64_t own) {
    const Pair& pair = *c.pair;
    const int nv = m_.n.nv;
    D* const row = w_.rows + num_rows_ * nv;
    if (pair.dim == 1) {
      for (int q = 0; q < pair.num_dofs; ++q) row[pair.dofs[q]] = c.along[q];
      return HalfTransform<1>({row}, own);
    }
    D directions[3][kMaxDofs];
    const D* const jacobians[3] = {c.along, c.side1, c.side2};
    for (int e = 0; e < 3; ++e) {
      for (int q = 0; q < pair.num_dofs; ++q) directions[e][pair.dofs[q]] = jacobians[e][q];
    }
    const std::uint64_t dofs = HalfTransform<3>({directions[0], directions[1], directions[2]}, own);
    for (std::uint64_t rest = dofs; rest; rest &= rest - 1) {
      const int i = __builtin_ctzll(rest);
      const D s = directions[1][i] * c.friction, t = directions[2][i] * c.friction;
      row[i] = directions[0][i] + s;
      row[nv + i] = directions[0][i] - s;
      row[2 * nv + i] = directions[0][i] + t;
      row[3 * nv + i] = directions[0][i] - t;
    }
    return dofs;
  }

  bool Escape() {
    w_.escaped = w_.escaped | w_.constrained;
    return false;
  }

  void Multiply() {
    const int nv = m_.n.nv;
    for (int i = 0; i < num_rows_; ++i) {
      const D* const a = w_.rows + i * nv;
      for (int j = 0; j <= i; ++j) {
        // rows with no lane in common have no product
        if (!(w_.row_lanes[i] & w_.row_lanes[j])) continue;
        const D* const b = w_.rows + j * nv;
        D sum = 0.0;
        for (std::uint64_t dofs = w_.row_dofs[i] & w_.row_dofs[j]; dofs; dofs &= dofs - 1) {
          const int d = __builtin_ctzll(dofs);
          sum += a[d] * b[d];
        }
        if (i == j) sum += w_.dual_R[i];
        w_.products[i * kMaxDualRows + j] = sum;
        w_.products[j * kMaxDualRows + i] = sum;
      }
    }
  }

  using Lane = DualLane<D>;

  // Sweeps over all lanes at once: while one lane's row waits for a result, another lane's is
  // computed.
  void Sweep(const D& scale) {
    Lane* live[D::kWidth];
    int num_live = 0;
    // lanes that repeat another one are skipped
    for (int lane = 0; lane < w_.num_rows; ++lane) {
      Lane& own = w_.dual_lanes[lane];
      own.index = lane;
      own.scale = InLane(scale, lane);
      own.tolerance = InLane(m_.options->tolerance, lane);
      own.A = w_.lane_products + lane * kMaxDualRows * kMaxDualRows;
      if (!Read(own)) continue;
      StartAt(own);
      // lanes with most rows first
      int at = num_live++;
      for (; at > 0 && live[at - 1]->count < own.count; --at) live[at] = live[at - 1];
      live[at] = &own;
    }
    for (int sweep = 0; num_live > 0 && sweep < m_.iterations; ++sweep) {
      for (int k = 0; k < num_live; ++k) Jump(*live[k], sweep);
      VisitAll(live, num_live, sweep);
      int going = 0;
      for (int k = 0; k < num_live; ++k) {
        Lane& own = *live[k];
        if (IsDone(own, sweep)) {
          Finish(own, sweep + 1);
        } else {
          live[going++] = &own;
        }
      }
      num_live = going;
    }
    for (int k = 0; k < num_live; ++k) Finish(*live[k], m_.iterations);
  }

  // Loads one lane's rows; false where it has none.
  bool Read(Lane& own) const {
    constexpr int W = D::kWidth;
    const int lane = own.index;
    own.count = own.since = 0;
    for (int i = 0; i < num_rows_; ++i) {
      if (w_.row_lanes[i] >> lane & 1) own.rows[own.count++] = i;
    }
    own.size = (own.count + 7) & ~7;
    for (int i = 0; i < own.count; ++i) {
      own.b[i] = Numbers(w_.dual_b + own.rows[i])[lane];
      own.f[i] = Numbers(w_.dual_f + own.rows[i])[lane];
      double* const row = own.A + i * own.size;
      const double* const from = Numbers(w_.products + own.rows[i] * kMaxDualRows) + lane;
      for (int j = 0; j < own.count; ++j) row[j] = from[own.rows[j] * W];
      for (int j = own.count; j < own.size; ++j) row[j] = 0;
      own.inverse[i] = 1 / row[i];
    }
    for (int i = own.count; i < own.size; ++i) own.b[i] = own.f[i] = 0;
    return own.count > 0;
  }

  // Computes r = b + A f.
  static void Residual(Lane& own) {
    for (int j = 0; j < own.size; j += D::kWidth) {
      D sum = *reinterpret_cast<const D*>(own.b + j);
      for (int i = 0; i < own.count; ++i) {
        sum += *reinterpret_cast<const D*>(own.A + i * own.size + j) * own.f[i];
      }
      *reinterpret_cast<D*>(own.r + j) = sum;
    }
  }

  // Starts at the forces that follow from the last accelerations, or at none where those cost more.
  static void StartAt(Lane& own) {
    Residual(own);
    double cost = 0;
    for (int i = 0; i < own.count; ++i) cost += 0.5 * own.f[i] * (own.b[i] + own.r[i]);
    if (cost > 0) {
      for (int i = 0; i < own.count; ++i) own.f[i] = 0;
      for (int j = 0; j < own.size; ++j) own.r[j] = own.b[j];
    }
    for (int j = 0; j < own.size; ++j) own.before[j] = own.f[j];
  }

  // Applies momentum before a sweep.
  static void Jump(Lane& own, int sweep) {
    const double beta = sweep > 0 ? static_cast<double>(own.since - 1) / (own.since + 2) : 0;
    if (beta > 0) {
      for (int j = 0; j < own.size; ++j) {
        const double now = own.f[j], ahead = now + beta * (now - own.before[j]);
        own.before[j] = now;
        own.f[j] = ahead < 0 ? 0 : ahead;
      }
      Residual(own);
    } else {
      for (int j = 0; j < own.size; ++j) own.before[j] = own.f[j];
    }
    for (int j = 0; j < own.size; ++j) own.jumped[j] = own.f[j];
    own.improvement = 0.0;
  }

  void VisitAll(Lane* const* live, int num_live, int sweep) const {
    const std::uint8_t* order[D::kWidth];
    for (int k = 0; k < num_live; ++k) order[k] = m_.visits[live[k]->count] + sweep * live[k]->count;
    int num = num_live;
    for (int visit = 0; visit < live[0]->count; ++visit) {
      while (live[num - 1]->count <= visit) --num;
      for (int k = 0; k < num; ++k) Visit(*live[k], order[k][visit]);
    }
  }

  // Changes one force. Uses vectors of equal numbers, because the row's products need the change in
  // all lanes.
  static LANES_INLINE void Visit(Lane& own, int i) {
    const double* const row = own.A + i * own.size;
    const D old = own.f[i], slope = own.r[i];
    D next = Max(D(0.0), old - slope * own.inverse[i]);
    D change = next - old;
    D worse = change * (0.5 * change * row[i] + slope);
    if (__builtin_expect(Any(worse > 1e-10), 0)) {
      change = worse = 0.0;
      next = old;
    }
    own.f[i] = First(next);
    own.improvement -= worse;
    // only with many rows: with few, the processor cannot predict this branch
    if (own.size > 32 && All(change == 0.0)) return;
    for (int j = 0; j < own.size; j += D::kWidth) {
      *reinterpret_cast<D*>(own.r + j) += *reinterpret_cast<const D*>(row + j) * change;
    }
  }

  static bool IsDone(Lane& own, int sweep) {
    // momentum that increases the cost is reset
    double uphill = 0;
    for (int j = 0; sweep > 0 && j < own.size; ++j) {
      uphill += (own.f[j] - own.jumped[j]) * (own.jumped[j] - own.before[j]);
    }
    own.since = uphill < 0 ? 0 : own.since + 1;
    return First(own.improvement) * own.scale < own.tolerance;
  }

  void Finish(const Lane& own, int sweeps) {
    double* const forces = Numbers(w_.dual_f) + own.index;
    for (int i = 0; i < own.count; ++i) forces[own.rows[i] * D::kWidth] = own.f[i];
    Numbers(&w_.iterations)[own.index] = sweeps;
  }

  // Computes the accelerations of the dofs from the forces.
  void Accelerate() {
    const int nv = m_.n.nv;
    int row = 0;
    for (int i = 0; i < w_.num_dofs; ++i) {
      DofConstraint<D>& c = w_.dofs[i];
      c.f = Keep(c.active, w_.dual_f[row++]);
      w_.constraint[c.row->dof] += c.f * c.row->sign;
    }
    for (int i = 0; i < w_.num_contacts; ++i) {
      Contact<D>& c = w_.contacts[i];
      for (int j = 0; j < c.Rows(); ++j) c.f[j] = Keep(c.active, w_.dual_f[row++]);
      AddForces(w_, c);
    }
    for (int i = 0; i < nv; ++i) w_.qacc[i] = w_.constraint[i];
    Solve(Factor<D>{&m_.tree, w_.L, w_.inverse}, w_.qacc, nv);
    for (int i = 0; i < nv; ++i) w_.qacc[i] += w_.qacc_smooth[i];
  }

  const M& m_;
  Work<D>& w_;
  int num_rows_ = 0;
};
