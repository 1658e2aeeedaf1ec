// SPDX-License-Identifier: Apache-2.0
// MuJoCo's Newton solver over the islands of several simulations, with its tests of when to stop: equal
// numbers of iterations are what makes results equal to rounding. What a lane does is a mask; a loop
// ends when its last lane ends.

// An island: trees that constraints couple, in lanes where they do so alike.
template <typename D>
struct Island {
  std::uint64_t trees;      // as bits
  typename D::Bits lanes;
  int num_dofs;
  std::int32_t dofs[kMaxDofs];
  int num_contacts, num_rows;
  std::int16_t contacts[kMaxContacts];
  std::int16_t rows[2 * kMaxDofs + kMaxDofs];
  bool branches;            // its Hessian has entries beyond those of the trees
};

// J x of a contact's rows.
template <typename D>
LANES_INLINE void MultiplyRows(const Contact<D>& c, const D* x, D* out) {
  const Pair& pair = *c.pair;
  D a = 0.0, s = 0.0, t = 0.0;
  if (pair.dim == 1) {
    for (int q = 0; q < pair.num_dofs; ++q) a += c.along[q] * x[pair.dofs[q]];
    out[0] = a;
    return;
  }
  for (int q = 0; q < pair.num_dofs; ++q) {
    const D y = x[pair.dofs[q]];
    a += c.along[q] * y;
    s += c.side1[q] * y;
    t += c.side2[q] * y;
  }
  s *= c.friction;
  t *= c.friction;
  out[0] = a + s;
  out[1] = a - s;
  out[2] = a + t;
  out[3] = a - t;
}

// What a row costs at x, and pushes: one that pushes alone, or dry friction between two bounds.
template <typename D>
LANES_INLINE D PushCost(D x, D stiffness, D& force) {
  const D pushed = Keep(x < 0.0, stiffness * x);
  force = -pushed;
  return 0.5 * pushed * x;
}
template <typename D>
LANES_INLINE D DryCost(const DofConstraint<D>& c, D x, D& force) {
  const D loss = c.loss, bound = c.R * loss;
  const auto low = x <= -bound, high = x >= bound;
  force = Select(low, loss, Select(high, -loss, -(c.stiffness * x)));
  return Select(low, -0.5 * bound * loss - x * loss,
                Select(high, x * loss - 0.5 * bound * loss, 0.5 * c.stiffness * x * x));
}
template <typename D>
LANES_INLINE D RowCost(const DofConstraint<D>& c, D x, D& force) {
  return c.row->dry ? DryCost(c, x, force) : PushCost(x, c.stiffness, force);
}

// Whether each lane begins at its last accelerations or at those without constraints, by what both cost
// over all islands. Sets Ma of the former, and b and x of rows.
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

  // Moves qacc of the island's dofs and lanes from qacc_smooth to the constrained one.
  void Run() {
    Start();
    D trace = 0.0;
    ForDofs([&](int i) { trace += w_.M[m_.tree.adr[i]]; });
    scale_ = 1.0 / trace;
    // where the island is, constrained or not, elsewhere nothing moves
    Bits run = island_.lanes;
    const D norm = Gradient();
    // on entry the gradient alone does not tell: a gap to the optimum has to be small, too
    const Bits small = run & (scale_ * norm < tolerance_);
    run = run & ~small;
    if (Any(small)) {
      ForDofs([&](int i) { w_.Mgrad[i] = w_.grad[i]; });
      SolveTree(w_.L, w_.inverse);
      const D gap = Decrement();
      run = run | (small & ~(Max(D(0.0), 0.5 * scale_ * gap) < tolerance_));
    }
    if (!Any(run)) return;
    Direction();
    if (Any(small)) run = run & ~(small & (Max(D(0.0), 0.5 * scale_ * Decrement()) < tolerance_));
    for (int i = 0; Any(run) && i < m_.iterations; ++i) {
      run = Iterate(run);
    }
  }

 private:
  struct Point {
    D alpha, cost, slope, curvature;
  };

  template <typename F>
  LANES_INLINE void ForDofs(F&& f) {
    for (int i = 0; i < island_.num_dofs; ++i) f(island_.dofs[i]);
  }
  template <typename F>
  LANES_INLINE void ForRows(F&& f) {
    for (int i = 0; i < island_.num_rows; ++i) f(w_.dofs[island_.rows[i]]);
  }
  template <typename F>
  LANES_INLINE void ForContacts(F&& f) {
    for (int i = 0; i < island_.num_contacts; ++i) f(w_.contacts[island_.contacts[i]]);
  }

  // y = M x over the island's dofs.
  void Multiply(D* y, const D* x) {
    ForDofs([&](int i) {
      const D* const row = w_.M + m_.tree.adr[i];
      const std::int32_t* const column = m_.tree.column + m_.tree.adr[i];
      const D xi = x[i];
      D sum = row[0] * xi;
      for (int p = 1; p < m_.tree.count[i]; ++p) {
        sum += row[p] * x[column[p]];
        y[column[p]] += row[p] * xi;
      }
      y[i] = sum;
    });
  }

  // From where WarmStart said.
  void Start() {
    const Bits cold = w_.cold | ~island_.lanes;
    ForDofs([&](int i) {
      w_.qacc[i] = Select(cold, w_.qacc_smooth[i], w_.warm[i]);
      w_.Ma[i] = Select(cold, w_.smooth[i], w_.Ma[i]);
    });
    ForRows([&](DofConstraint<D>& c) { c.x = Select(cold, c.b, c.x); });
    ForContacts([&](Contact<D>& c) {
      for (int j = 0; j < c.Rows(); ++j) c.x[j] = Select(cold, c.b[j], c.x[j]);
    });
  }

  // Forces of all rows, and what they do to the dofs.
  void Forces() {
    ForDofs([&](int i) { w_.constraint[i] = 0.0; });
    ForRows([&](DofConstraint<D>& c) {
      RowCost(c, c.x, c.f);
      c.f = Keep(c.active, c.f);
      w_.constraint[c.row->dof] += c.f * c.row->sign;
    });
    ForContacts([&](Contact<D>& c) {
      for (int j = 0; j < c.Rows(); ++j) PushCost(c.x[j], c.stiffness, c.f[j]);
      AddForces(w_, c);
    });
  }

  // Sets grad; its norm.
  D Gradient() {
    Forces();
    D square = 0.0;
    ForDofs([&](int i) {
      w_.grad[i] = w_.Ma[i] - w_.smooth[i] - w_.constraint[i];
      square += w_.grad[i] * w_.grad[i];
    });
    return Sqrt(square);
  }

  D Decrement() {
    D sum = 0.0;
    ForDofs([&](int i) { sum += w_.grad[i] * w_.Mgrad[i]; });
    return sum;
  }

  void FactorizeTree(D* entries, D* inverse) {
    const Sparsity& o = m_.tree;
    for (int n = island_.num_dofs - 1; n >= 0; --n) {
      const int k = island_.dofs[n];
      D* const row = entries + o.adr[k];
      const std::int32_t* const column = o.column + o.adr[k];
      const D one = 1.0 / row[0];
      inverse[k] = one;
      for (int p = 1; p < o.count[k]; ++p) {
        const D a = row[p] * one;
        D* const other = entries + o.adr[column[p]] - p;
        for (int q = p; q < o.count[k]; ++q) other[q] -= a * row[q];
        row[p] = a;
      }
    }
  }

  void SolveTree(const D* entries, const D* inverse) {
    const Sparsity& o = m_.tree;
    D* const x = w_.Mgrad;
    for (int n = island_.num_dofs - 1; n >= 0; --n) {
      const int k = island_.dofs[n];
      const D* const row = entries + o.adr[k];
      const std::int32_t* const column = o.column + o.adr[k];
      const D xk = x[k];
      for (int p = 1; p < o.count[k]; ++p) x[column[p]] -= row[p] * xk;
    }
    ForDofs([&](int k) {
      const D* const row = entries + o.adr[k];
      const std::int32_t* const column = o.column + o.adr[k];
      D sum = x[k] * inverse[k];
      for (int p = 1; p < o.count[k]; ++p) sum -= row[p] * x[column[p]];
      x[k] = sum;
    });
  }

  // The Hessian M + J' D J of the rows that push, its factor, and Mgrad = H^-1 grad.
  void Direction() {
    const Sparsity& o = island_.branches ? m_.dense : m_.tree;
    const int nv = m_.n.nv;
    D* const H = w_.H;
    if (island_.branches) {
      for (int i = 0; i < o.size; ++i) H[i] = 0.0;
      for (int i = 0; i < nv; ++i) {
        const int from = m_.tree.adr[i];
        for (int p = 0; p < m_.tree.count[i]; ++p) H[o.adr[i] + i - m_.tree.column[from + p]] = w_.M[from + p];
      }
    } else {
      ForDofs([&](int i) {
        for (int p = 0; p < o.count[i]; ++p) H[o.adr[i] + p] = w_.M[o.adr[i] + p];
      });
    }
    ForRows([&](DofConstraint<D>& c) {
      const D bound = c.R * c.loss;
      const auto counts = c.row->dry ? (c.x > -bound) & (c.x < bound) : c.x < 0.0;
      H[o.adr[c.row->dof]] += Keep(counts, c.stiffness);
    });
    ForContacts([&](Contact<D>& c) { AddHessian(o, c); });
    ForDofs([&](int i) { w_.Mgrad[i] = w_.grad[i]; });
    if (island_.branches) {
      // dofs of other islands stay by themselves
      for (int i = 0; i < nv; ++i) {
        if (!(island_.trees >> m_.dof_tree[i] & 1)) w_.Mgrad[i] = 0.0;
      }
      const Factor<D> factor{&o, H, w_.H_inverse};
      Factorize(factor, nv);
      Solve(factor, w_.Mgrad, nv);
    } else {
      FactorizeTree(H, w_.H_inverse);
      SolveTree(H, w_.H_inverse);
    }
  }

  void AddHessian(const Sparsity& o, const Contact<D>& c) {
    const Pair& pair = *c.pair;
    const int nv = m_.n.nv, n = pair.num_dofs;
    D weight[4];
    for (int j = 0; j < c.Rows(); ++j) weight[j] = Keep(c.x[j] < 0.0, c.stiffness);
    if (pair.dim == 1) {
      for (int p = 0; p < n; ++p) {
        const int i = pair.dofs[p];
        const D u = c.along[p] * weight[0];
        D* const row = w_.H + o.adr[i];
        const std::int32_t* const place = o.place + i * nv;
        for (int q = p; q < n; ++q) row[place[pair.dofs[q]]] += u * c.along[q];
      }
      return;
    }
    const D mu = c.friction;
    const D all = weight[0] + weight[1] + weight[2] + weight[3];
    const D d1 = (weight[0] - weight[1]) * mu, d2 = (weight[2] - weight[3]) * mu;
    const D s1 = (weight[0] + weight[1]) * (mu * mu), s2 = (weight[2] + weight[3]) * (mu * mu);
    for (int p = 0; p < n; ++p) {
      const int i = pair.dofs[p];
      const D u = c.along[p] * all + c.side1[p] * d1 + c.side2[p] * d2;
      const D v = c.along[p] * d1 + c.side1[p] * s1;
      const D x = c.along[p] * d2 + c.side2[p] * s2;
      D* const row = w_.H + o.adr[i];
      const std::int32_t* const place = o.place + i * nv;
      for (int q = p; q < n; ++q) {
        row[place[pair.dofs[q]]] += c.along[q] * u + c.side1[q] * v + c.side2[q] * x;
      }
    }
  }

  // One step along the direction; the lanes that go on.
  Bits Iterate(Bits run) {
    ForDofs([&](int i) { w_.search[i] = Keep(run, -w_.Mgrad[i]); });
    D alpha, improvement;
    Search(run, alpha, improvement);
    run = run & ~(alpha == 0.0);
    alpha = Keep(run, alpha);
    if (!Any(run)) return run;
    ForDofs([&](int i) {
      w_.qacc[i] += alpha * w_.search[i];
      w_.Ma[i] += alpha * w_.Mv[i];
    });
    ForRows([&](DofConstraint<D>& c) { c.x += alpha * c.jv; });
    ForContacts([&](Contact<D>& c) {
      for (int j = 0; j < c.Rows(); ++j) c.x[j] += alpha * c.jv[j];
    });
    const D norm = Gradient();
    w_.iterations = w_.iterations + Keep(run, D(1.0));
    const D gained = scale_ * improvement;
    run = run & ~(((gained > 0.0) & (gained < tolerance_)) | (scale_ * norm < tolerance_));
    if (!Any(run)) return run;
    Direction();
    return run & ~(Max(D(0.0), 0.5 * scale_ * Decrement()) < tolerance_);
  }

  // Adds a row's part of the cost along the line, which is a quadratic on each side of 0.
  static LANES_INLINE void AddRow(D x0, D jv, D q0, D q1, D q2, D alpha, D& cost, D& t0, D& t1, D& t2) {
    const D x = x0 + alpha * jv;
    const auto pushes = x < 0.0;
    cost -= Keep(x0 < 0.0, q0);
    t0 += Keep(pushes, q0);
    t1 += Keep(pushes, q1);
    t2 += Keep(pushes, q2);
  }
  static LANES_INLINE void AddDryRow(const DofConstraint<D>& c, D alpha, D& cost, D& t0, D& t1, D& t2) {
    const D loss = c.loss, bound = c.R * loss, x = c.x + alpha * c.jv;
    D unused;
    cost -= DryCost(c, c.x, unused);
    const auto low = x <= -bound, high = x >= bound;
    t0 += Select(low, loss * (-0.5 * bound - c.x), Select(high, loss * (c.x - 0.5 * bound), c.q0));
    t1 += Select(low, -loss * c.jv, Select(high, loss * c.jv, c.q1));
    t2 += Select(low | high, D(0.0), c.q2);
  }

  // Cost against that at alpha 0, and its derivatives.
  void Evaluate(Point& p) {
    D cost = 0.0, t0 = 0.0, t1 = slope_, t2 = curvature_;
    ForRows([&](DofConstraint<D>& c) {
      if (c.row->dry) {
        AddDryRow(c, p.alpha, cost, t0, t1, t2);
      } else {
        AddRow(c.x, c.jv, c.q0, c.q1, c.q2, p.alpha, cost, t0, t1, t2);
      }
    });
    ForContacts([&](Contact<D>& c) {
      for (int j = 0; j < c.Rows(); ++j) {
        AddRow(c.x[j], c.jv[j], c.q0[j], c.q1[j], c.q2[j], p.alpha, cost, t0, t1, t2);
      }
    });
    p.cost = cost + t0 + p.alpha * (p.alpha * t2 + t1);
    p.slope = 2.0 * p.alpha * t2 + t1;
    p.curvature = 2.0 * t2;
    p.curvature = Select(p.curvature <= 0.0, D(kTiny), p.curvature);
  }

  static LANES_INLINE void Move(Bits mask, Point& to, const Point& from) {
    to.alpha = Select(mask, from.alpha, to.alpha);
    to.cost = Select(mask, from.cost, to.cost);
    to.slope = Select(mask, from.slope, to.slope);
    to.curvature = Select(mask, from.curvature, to.curvature);
  }

  // Takes the candidate with the flattest slope on p's side; a Newton step from there becomes `next`.
  Bits UpdateBracket(Bits on, Point& p, const Point* candidates, Point& next) {
    Bits found = FromBits<D::kWidth>(0);
    for (int i = 0; i < 3; ++i) {
      const Point& c = candidates[i];
      const Bits better = on & (((p.slope < 0.0) & (c.slope < 0.0) & (p.slope < c.slope)) |
                                ((p.slope > 0.0) & (c.slope > 0.0) & (p.slope > c.slope)));
      Move(better, p, c);
      found = found | better;
    }
    if (Any(found)) {
      Point newton;
      newton.alpha = p.alpha - p.slope / p.curvature;
      Evaluate(newton);
      Move(found, next, newton);
    }
    return found;
  }

  void PrepareSearch() {
    Multiply(w_.Mv, w_.search);
    slope_ = 0.0;
    curvature_ = 0.0;
    ForDofs([&](int i) {
      slope_ += w_.search[i] * (w_.Ma[i] - w_.smooth[i]);
      curvature_ += w_.search[i] * w_.Mv[i];
    });
    curvature_ *= 0.5;
    const auto quadratic = [](D x, D jv, D stiffness, D& q0, D& q1, D& q2) {
      const D pushed = stiffness * x;
      q0 = 0.5 * x * pushed;
      q1 = jv * pushed;
      q2 = 0.5 * jv * stiffness * jv;
    };
    ForRows([&](DofConstraint<D>& c) {
      c.jv = w_.search[c.row->dof] * c.row->sign;
      quadratic(c.x, c.jv, c.stiffness, c.q0, c.q1, c.q2);
    });
    ForContacts([&](Contact<D>& c) {
      MultiplyRows(c, w_.search, c.jv);
      for (int j = 0; j < c.Rows(); ++j) quadratic(c.x[j], c.jv[j], c.stiffness, c.q0[j], c.q1[j], c.q2[j]);
    });
  }

  // PrimalSearch: a Newton step, one-sided ones until the slope changes its sign, then a bracket.
  void Search(Bits on, D& alpha, D& improvement) {
    alpha = 0.0;
    improvement = 0.0;
    D length = 0.0;
    ForDofs([&](int i) { length += w_.search[i] * w_.search[i]; });
    length = Sqrt(length);
    on = on & (length >= kTiny);
    if (!Any(on)) return;
    const D flat = (tolerance_ * m_.options->ls_tolerance) * length / scale_;
    PrepareSearch();
    const auto finish = [&](Bits lanes, const Point& p) {
      alpha = Select(lanes, p.alpha, alpha);
      improvement = Select(lanes, -p.cost, improvement);
      on = on & ~lanes;
    };
    Point start, p1, p2, next1, next2, middle;
    start.alpha = 0.0;
    Evaluate(start);
    p1.alpha = -(start.slope / start.curvature);
    Evaluate(p1);
    finish(on & (Abs(p1.slope) < flat) & ((p1.alpha == 0.0) | (p1.cost < 0.0)), p1);
    if (!Any(on)) return;
    const D most = static_cast<double>(m_.ls_iterations);
    D count = 2.0;
    const D direction = Select(p1.slope < 0.0, D(1.0), D(-1.0));
    p2 = start;
    for (Bits steps = on;;) {
      steps = steps & on & (p1.slope * direction <= -flat) & (count < most);
      if (!Any(steps)) break;
      Move(steps, p2, p1);
      Point newton;
      newton.alpha = p1.alpha - p1.slope / p1.curvature;
      Evaluate(newton);
      Move(steps, p1, newton);
      count = Select(steps, count + 1.0, count);
      finish(steps & (Abs(p1.slope) < flat) & (p1.cost < 0.0), p1);
    }
    finish(on & (count >= most), p1);
    if (!Any(on)) return;
    next2 = p1;
    next1.alpha = p1.alpha - p1.slope / p1.curvature;
    Evaluate(next1);
    count += 1.0;
    while (true) {
      Bits steps = on & (count < most);
      if (!Any(steps)) break;
      middle.alpha = 0.5 * (p1.alpha + p2.alpha);
      Evaluate(middle);
      count = Select(steps, count + 1.0, count);
      const Point candidates[3] = {next1, next2, middle};
      Bits have = FromBits<D::kWidth>(0);
      Point best = next1;
      for (const Point& c : candidates) {
        const Bits better = (Abs(c.slope) < flat) & (~have | (c.cost < best.cost));
        Move(better, best, c);
        have = have | better;
      }
      finish(steps & have, best);
      steps = steps & on;
      if (!Any(steps)) continue;
      const Bits first = UpdateBracket(steps, p1, candidates, next1);
      count = Select(first, count + 1.0, count);
      const Bits second = UpdateBracket(steps, p2, candidates, next2);
      count = Select(second, count + 1.0, count);
      finish(steps & ~(first | second), middle);
    }
    if (!Any(on)) return;
    finish(on & (p1.cost <= p2.cost) & (p1.cost < 0.0), p1);
    finish(on & (p2.cost <= p1.cost) & (p2.cost < 0.0), p2);
  }

  const M& m_;
  Work<D>& w_;
  const Island<D>& island_;
  const D tolerance_;
  D scale_, slope_, curvature_;
};
