// SPDX-License-Identifier: Apache-2.0
// MuJoCo's Newton solver over the islands of several simulations, with MuJoCo's stopping tests:
// results are equal up to rounding only if the numbers of iterations are equal. Conditions of
// single lanes are masks; a loop ends when its last lane ends.

// Decides whether each lane begins at its last accelerations or at those without constraints, by
// the cost of each over all islands. Sets Ma of the last accelerations, and b and x of rows.
template <typename M, typename D>
void WarmStart(const M& m, Work<D>& w) {
  D warm_cost = 0.0, smooth_cost = 0.0, unused;
  MultiplyInertia(m, w, w.Ma, w.warm);
  for (int i = 0; i < w.num_dofs; ++i) {
    DofConstraint<D>& c = w.dofs[i];
    c.b = w.qacc_smooth[c.row->dof] * c.row->sign - c.aref;
    c.x = w.warm[c.row->dof] * c.row->sign - c.aref;
    smooth_cost += Keep(c.active, RowCost(c, c.b, unused));
    warm_cost += Keep(c.active, RowCost(c, c.x, unused));
  }
  for (int i = 0; i < w.num_contacts; ++i) {
    Contact<D>& c = w.contacts[i];
    MultiplyRows(c, w.qacc_smooth, c.b);
    MultiplyRows(c, w.warm, c.x);
    for (int j = 0; j < c.Rows(); ++j) {
      c.b[j] -= c.aref[j];
      c.x[j] -= c.aref[j];
      smooth_cost += PushCost(c.b[j], c.stiffness, unused);
      warm_cost += PushCost(c.x[j], c.stiffness, unused);
    }
  }
  for (int i = 0; i < m.n.nv; ++i) {
    warm_cost += 0.5 * (w.Ma[i] - w.smooth[i]) * (w.warm[i] - w.qacc_smooth[i]);
  }
  w.cold = m.warm_starts ? warm_cost > smooth_cost : FromBits<D::kWidth>(~0U);
}

template <typename M, typename D>
class NewtonSolver {
 public:
  using Bits = typename D::Bits;
  NewtonSolver(const M& m, Work<D>& w, const Island<D>& island)
      : m_(m), w_(w), island_(island), tolerance_(m.options->tolerance) {}

  // Moves qacc of the island's dofs and lanes from qacc_smooth to the constrained accelerations.
  void Run() {
    Start();
    D trace = 0.0;
    island_.ForDofs([&](int i) { trace += w_.M[m_.tree.adr[i]]; });
    scale_ = 1.0 / trace;
    // only lanes of the island; nothing moves in the others
    Bits run = island_.lanes;
    const D norm = Gradient();
    // on entry the gradient alone is not enough: a bound of the distance to the optimum must be
    // small, too
    const Bits small = run & (scale_ * norm < tolerance_);
    run = run & ~small;
    if (Any(small)) {
      island_.ForDofs([&](int i) { w_.Mgrad[i] = w_.grad[i]; });
      Solve(Factor<D>{&m_.tree, w_.L, w_.inverse}, w_.Mgrad, island_.num_dofs, island_.dofs);
      const D gap = Decrement();
      run = run | (small & ~(Max(D(0.0), 0.5 * scale_ * gap) < tolerance_));
    }
    if (!Any(run)) return;
    if (island_.branches) filled_.Find(m_, w_, island_);
    Direction(run);
    if (Any(small)) run = run & ~(small & (Max(D(0.0), 0.5 * scale_ * Decrement()) < tolerance_));
    for (int i = 0; Any(run) && i < m_.iterations; ++i) {
      run = Iterate(run);
    }
  }

 private:
  // Starts from the accelerations that WarmStart chose.
  void Start() {
    const Bits cold = w_.cold | ~island_.lanes;
    island_.ForDofs([&](int i) {
      w_.qacc[i] = Select(cold, w_.qacc_smooth[i], w_.warm[i]);
      w_.Ma[i] = Select(cold, w_.smooth[i], w_.Ma[i]);
    });
    island_.ForRows(w_, [&](DofConstraint<D>& c) { c.x = Select(cold, c.b, c.x); });
    island_.ForContacts(w_, [&](Contact<D>& c) {
      for (int j = 0; j < c.Rows(); ++j) c.x[j] = Select(cold, c.b[j], c.x[j]);
    });
  }

  // Computes the forces of all rows, and their effect on the dofs.
  void Forces() {
    island_.ForDofs([&](int i) { w_.constraint[i] = 0.0; });
    island_.ForRows(w_, [&](DofConstraint<D>& c) {
      RowCost(c, c.x, c.f);
      c.f = Keep(c.active, c.f);
      w_.constraint[c.row->dof] += c.f * c.row->sign;
    });
    island_.ForContacts(w_, [&](Contact<D>& c) {
      for (int j = 0; j < c.Rows(); ++j) PushCost(c.x[j], c.stiffness, c.f[j]);
      if (Any(Pushing(c))) AddForces(w_, c);
    });
  }

  // Sets grad, and returns its norm.
  D Gradient() {
    Forces();
    D square = 0.0;
    island_.ForDofs([&](int i) {
      w_.grad[i] = w_.Ma[i] - w_.smooth[i] - w_.constraint[i];
      square += w_.grad[i] * w_.grad[i];
    });
    return Sqrt(square);
  }

  D Decrement() {
    D sum = 0.0;
    island_.ForDofs([&](int i) { sum += w_.grad[i] * w_.Mgrad[i]; });
    return sum;
  }

  // Computes the Hessian M + J' D J of the rows that push, its factor, and Mgrad = H^-1 grad, in
  // some lanes.
  void Direction(Bits in) {
    const Sparsity& o = island_.branches ? m_.dense : m_.tree;
    const int nv = m_.n.nv;
    D* const H = w_.H;
    const Factor<D> factor{&o, H, w_.H_inverse};
    if (island_.branches) {
      filled_.Fill(m_, w_.M, factor);
    } else {
      island_.ForDofs([&](int i) {
        for (int p = 0; p < o.count[i]; ++p) H[o.adr[i] + p] = w_.M[o.adr[i] + p];
      });
    }
    island_.ForRows(w_, [&](DofConstraint<D>& c) {
      const D bound = c.R * c.loss;
      const auto counts = c.row->dry ? (c.x > -bound) & (c.x < bound) : c.x < 0.0;
      H[o.adr[c.row->dof]] += Keep(counts, c.stiffness);
    });
    island_.ForContacts(w_, in, [&](Contact<D>& c) {
      if (!Any(Pushing(c) & in)) return;
      if (island_.branches) {
        AddHessian(c, [&](int p, int q) -> D& { return H[o.adr[p] + p - q]; });
      } else {
        AddHessian(c, [&](int p, int q) -> D& { return H[o.adr[p] + o.place[p * nv + q]]; });
      }
    });
    island_.ForDofs([&](int i) { w_.Mgrad[i] = w_.grad[i]; });
    if (island_.branches) {
      // dofs of other islands do not move
      for (int i = 0; i < nv; ++i) {
        if (!(island_.trees >> m_.dof_tree[i] & 1)) w_.Mgrad[i] = 0.0;
      }
      filled_.Factorize(factor, nv);
      filled_.Solve(factor, w_.Mgrad, nv);
    } else {
      Factorize(factor, island_.num_dofs, island_.dofs);
      Solve(factor, w_.Mgrad, island_.num_dofs, island_.dofs);
    }
  }

  // `entry` returns the Hessian's entry of two dofs, the higher one first.
  template <typename Entry>
  void AddHessian(const Contact<D>& c, const Entry& entry) {
    const Pair& pair = *c.pair;
    const int n = pair.num_dofs;
    D weight[4];
    for (int j = 0; j < c.Rows(); ++j) weight[j] = Keep(c.x[j] < 0.0, c.stiffness);
    if (pair.dim == 1) {
      for (int p = 0; p < n; ++p) {
        const D u = c.along[p] * weight[0];
        for (int q = p; q < n; ++q) entry(pair.dofs[p], pair.dofs[q]) += u * c.along[q];
      }
      return;
    }
    const D mu = c.friction;
    const D all = weight[0] + weight[1] + weight[2] + weight[3];
    const D d1 = (weight[0] - weight[1]) * mu, d2 = (weight[2] - weight[3]) * mu;
    const D s1 = (weight[0] + weight[1]) * (mu * mu), s2 = (weight[2] + weight[3]) * (mu * mu);
    for (int p = 0; p < n; ++p) {
      D u = c.along[p] * all + c.side1[p] * d1;
      const D v = c.along[p] * d1 + c.side1[p] * s1;
      if (c.flat) {
        for (int q = p; q < n; ++q) {
          entry(pair.dofs[p], pair.dofs[q]) += c.along[q] * u + c.side1[q] * v;
        }
        continue;
      }
      u += c.side2[p] * d2;
      const D x = c.along[p] * d2 + c.side2[p] * s2;
      for (int q = p; q < n; ++q) {
        entry(pair.dofs[p], pair.dofs[q]) += c.along[q] * u + c.side1[q] * v + c.side2[q] * x;
      }
    }
  }

  // Makes one step along the direction; returns the lanes that go on.
  Bits Iterate(Bits run) {
    island_.ForDofs([&](int i) { w_.search[i] = Keep(run, -w_.Mgrad[i]); });
    D alpha, improvement;
    LineSearch<M, D>(m_, w_, island_, scale_).Run(run, alpha, improvement);
    run = run & ~(alpha == 0.0);
    alpha = Keep(run, alpha);
    if (!Any(run)) return run;
    island_.ForDofs([&](int i) {
      w_.qacc[i] += alpha * w_.search[i];
      w_.Ma[i] += alpha * w_.Mv[i];
    });
    island_.ForRows(w_, [&](DofConstraint<D>& c) { c.x += alpha * c.jv; });
    island_.ForContacts(w_, run, [&](Contact<D>& c) {
      for (int j = 0; j < c.Rows(); ++j) c.x[j] += alpha * c.jv[j];
    });
    const D norm = Gradient();
    w_.iterations = w_.iterations + Keep(run, D(1.0));
    const D gained = scale_ * improvement;
    run = run & ~(((gained > 0.0) & (gained < tolerance_)) | (scale_ * norm < tolerance_));
    if (!Any(run)) return run;
    Direction(run);
    return run & ~(Max(D(0.0), 0.5 * scale_ * Decrement()) < tolerance_);
  }

  const M& m_;
  Work<D>& w_;
  const Island<D>& island_;
  const D tolerance_;
  D scale_;
  FilledOrder filled_;  // used where the island has branches
};
