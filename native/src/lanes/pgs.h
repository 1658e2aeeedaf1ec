// SPDX-License-Identifier: Apache-2.0
// MuJoCo's dual solver (PGS with momentum): rows are built in lanes, sweeps run lane by lane, for the
// order of visits depends on how many rows a lane has.

// The rows of constraints in MuJoCo's order, each half-transformed: products of two are entries of
// J M^-1 J'.
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
    const D scale = 1.0 / trace;
    // lanes that repeat another are nobody's
    for (int lane = 0; lane < w_.num_rows; ++lane) Sweep(lane, Numbers(&scale)[lane]);
    Accelerate();
  }

 private:
  // x L^-1 sqrt(D^-1) in place, for a row with entries at `dofs`; all dofs that it has then.
  std::uint64_t HalfTransform(D* row, std::uint64_t dofs) const {
    std::uint64_t all = 0;
    for (int i = 0; i < m_.n.nv; ++i) {
      if (!(dofs >> i & 1)) continue;
      const std::int32_t* const column = m_.tree.column + m_.tree.adr[i];
      for (int p = 0; p < m_.tree.count[i]; ++p) all |= std::uint64_t{1} << column[p];
    }
    for (int i = 0; i < m_.n.nv; ++i) {
      if ((all & ~dofs) >> i & 1) row[i] = 0.0;
    }
    for (int k = m_.n.nv - 1; k >= 0; --k) {
      if (!(all >> k & 1)) continue;
      const D* const factor = w_.L + m_.tree.adr[k];
      const std::int32_t* const column = m_.tree.column + m_.tree.adr[k];
      for (int p = 1; p < m_.tree.count[k]; ++p) row[column[p]] -= factor[p] * row[k];
    }
    for (int k = 0; k < m_.n.nv; ++k) {
      if (all >> k & 1) row[k] *= w_.root_inverse[k];
    }
    return all;
  }

  void SetRow(int row, D residual, D warm, D stiffness, D R, Bits active, std::uint64_t dofs) {
    w_.dual_b[row] = residual;
    // the force that the last accelerations ask for
    w_.dual_f[row] = m_.warm_starts ? Keep(warm < 0.0, -(stiffness * warm)) : D(0.0);
    w_.dual_R[row] = R;
    w_.row_lanes[row] = ToBits(active) & kAllBits<D::kWidth>;
    w_.row_dofs[row] = dofs;
  }

  // False where a lane has more rows than there is room for; it escapes.
  bool AddRows() {
    const int nv = m_.n.nv;
    num_rows_ = 0;
    for (int i = 0; i < w_.num_dofs; ++i) {
      const DofConstraint<D>& c = w_.dofs[i];
      const int dof = c.row->dof;
      if (num_rows_ == kMaxDualRows) return Escape();
      D* const row = w_.rows + num_rows_ * nv;
      row[dof] = c.row->sign;
      const std::uint64_t dofs = HalfTransform(row, std::uint64_t{1} << dof);
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
      return HalfTransform(row, own);
    }
    D directions[3][kMaxDofs];
    const D* const jacobians[3] = {c.along, c.side1, c.side2};
    std::uint64_t dofs = 0;
    for (int e = 0; e < 3; ++e) {
      for (int q = 0; q < pair.num_dofs; ++q) directions[e][pair.dofs[q]] = jacobians[e][q];
      dofs = HalfTransform(directions[e], own);
    }
    for (int i = 0; i < nv; ++i) {
      if (!(dofs >> i & 1)) continue;
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
        // rows that no lane has together meet nowhere
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

  void Sweep(int lane, double scale) {
    constexpr int W = D::kWidth;
    const double tolerance = InLane(m_.options->tolerance, lane);
    int id[kMaxDualRows];
    int count = 0;
    for (int i = 0; i < num_rows_; ++i) {
      if (w_.row_lanes[i] >> lane & 1) id[count++] = i;
    }
    if (count == 0) return;
    // whole vectors of numbers: those beyond the rows are zero
    const int size = (count + 7) & ~7;
    alignas(64) static thread_local double A[kMaxDualRows * kMaxDualRows];
    alignas(64) double b[kMaxDualRows], f[kMaxDualRows], inverse[kMaxDualRows], before[kMaxDualRows],
        jumped[kMaxDualRows], r[kMaxDualRows];
    double* const forces = Numbers(w_.dual_f);
    for (int i = 0; i < count; ++i) {
      b[i] = Numbers(w_.dual_b + id[i])[lane];
      f[i] = forces[id[i] * W + lane];
      double* const row = A + i * size;
      const double* const from = Numbers(w_.products + id[i] * kMaxDualRows) + lane;
      for (int j = 0; j < count; ++j) row[j] = from[id[j] * W];
      for (int j = count; j < size; ++j) row[j] = 0;
      inverse[i] = 1 / row[i];
    }
    for (int i = count; i < size; ++i) b[i] = f[i] = before[i] = jumped[i] = r[i] = 0;
    const auto residual = [&] {
      for (int j = 0; j < size; ++j) r[j] = b[j];
      for (int i = 0; i < count; ++i) {
        const double one = f[i];
        if (one == 0) continue;
        const double* const row = A + i * size;
        for (int j = 0; j < size; ++j) r[j] += row[j] * one;
      }
    };
    residual();
    double cost = 0;
    for (int i = 0; i < count; ++i) cost += 0.5 * f[i] * (b[i] + r[i]);
    if (cost > 0) {
      for (int i = 0; i < count; ++i) f[i] = 0;
      for (int j = 0; j < size; ++j) r[j] = b[j];
    }
    for (int j = 0; j < size; ++j) before[j] = f[j];
    const std::uint8_t* const visits = m_.visits[count];
    int sweeps = 0, since = 0;
    while (sweeps < m_.iterations) {
      const double beta = sweeps > 0 ? static_cast<double>(since - 1) / (since + 2) : 0;
      if (beta > 0) {
        for (int j = 0; j < size; ++j) {
          const double now = f[j], ahead = now + beta * (now - before[j]);
          before[j] = now;
          f[j] = ahead < 0 ? 0 : ahead;
        }
        residual();
      } else {
        for (int j = 0; j < size; ++j) before[j] = f[j];
      }
      for (int j = 0; j < size; ++j) jumped[j] = f[j];
      double improvement = 0;
      const std::uint8_t* const order = visits + sweeps * count;
      for (int k = 0; k < count; ++k) {
        const int i = order[k];
        const double old = f[i];
        double next = old - r[i] * inverse[i];
        next = next < 0 ? 0 : next;
        double change = next - old;
        // most rows do not push, and go on not to
        if (change == 0) continue;
        const double* const row = A + i * size;
        double worse = change * (0.5 * change * row[i] + r[i]);
        if (__builtin_expect(worse > 1e-10, 0)) {
          change = worse = 0;
          next = old;
        }
        f[i] = next;
        improvement -= worse;
        for (int j = 0; j < size; ++j) r[j] += row[j] * change;
      }
      improvement *= scale;
      // momentum that points uphill begins anew
      double uphill = 0;
      for (int j = 0; sweeps > 0 && j < size; ++j) uphill += (f[j] - jumped[j]) * (jumped[j] - before[j]);
      since = uphill < 0 ? 0 : since + 1;
      ++sweeps;
      if (improvement < tolerance) break;
    }
    for (int i = 0; i < count; ++i) forces[id[i] * W + lane] = f[i];
    Numbers(&w_.iterations)[lane] = sweeps;
  }

  // Accelerations of the dofs by the forces.
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
