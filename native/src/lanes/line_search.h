// SPDX-License-Identifier: Apache-2.0
// The length of Newton's step: MuJoCo's line search, for all lanes of a vector.
template <typename M, typename D>
class LineSearch {
 public:
  using Bits = typename D::Bits;
  LineSearch(const M& m, Work<D>& w, const Island<D>& island, D scale)
      : m_(m), w_(w), island_(island), scale_(scale) {}

  // PrimalSearch: a Newton step, then steps on one side until the slope changes its sign, then a
  // bracket.
  void Run(Bits on, D& alpha, D& improvement) {
    alpha = 0.0;
    improvement = 0.0;
    D length = 0.0;
    island_.ForDofs([&](int i) { length += w_.search[i] * w_.search[i]; });
    length = Sqrt(length);
    on = on & (length >= kTiny);
    if (!Any(on)) return;
    const D flat = (m_.options->tolerance * m_.options->ls_tolerance) * length / scale_;
    Point start, p1, p2, next1, next2, middle;
    PrepareSearch(on);
    start.alpha = 0.0;
    Evaluate(start);
    const auto finish = [&](Bits lanes, const Point& p) {
      alpha = Select(lanes, p.alpha, alpha);
      improvement = Select(lanes, -p.cost, improvement);
      on = on & ~lanes;
    };
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

 private:
  struct Point {
    D alpha, cost, slope, curvature;
  };

  static LANES_INLINE void AddDryRow(const DofConstraint<D>& c, const LineRow<D>& row, D alpha, D& t0, D& t1,
                                     D& t2) {
    const D loss = c.loss, bound = c.R * loss, x = c.x + alpha * c.jv;
    const auto low = x <= -bound, high = x >= bound;
    t0 += Select(low, loss * (-0.5 * bound - c.x), Select(high, loss * (c.x - 0.5 * bound), row.q0));
    t1 += Select(low, -loss * c.jv, Select(high, loss * c.jv, row.q1));
    t2 += Select(low | high, D(0.0), row.q2);
  }

  // Computes the cost relative to that at alpha 0, and its derivatives.
  void Evaluate(Point& p) {
    const D alpha = p.alpha;
    D t0 = 0.0, t1 = slope_, t2 = curvature_;
    // a row's part of the cost along the line is a quadratic on each side of 0
    const auto add = [&](const LineRow<D>& row) {
      const auto pushes = row.x + alpha * row.jv < 0.0;
      t0 = AddWhere(pushes, t0, row.q0);
      t1 = AddWhere(pushes, t1, row.q1);
      t2 = AddWhere(pushes, t2, row.q2);
    };
    const LineRow<D>* row = w_.line_rows;
    island_.ForRows(w_, [&](DofConstraint<D>& c) {
      if (c.row->dry) {
        AddDryRow(c, *row++, alpha, t0, t1, t2);
      } else {
        add(*row++);
      }
    });
    for (; row < end_; ++row) add(*row);
    p.cost = cost_ + t0 + alpha * (alpha * t2 + t1);
    p.slope = 2.0 * alpha * t2 + t1;
    p.curvature = 2.0 * t2;
    p.curvature = Select(p.curvature <= 0.0, D(kTiny), p.curvature);
  }

  static LANES_INLINE void Move(Bits mask, Point& to, const Point& from) {
    to.alpha = Select(mask, from.alpha, to.alpha);
    to.cost = Select(mask, from.cost, to.cost);
    to.slope = Select(mask, from.slope, to.slope);
    to.curvature = Select(mask, from.curvature, to.curvature);
  }

  // Moves p to the candidate with the flattest slope on p's side; a Newton step from there becomes
  // `next`.
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

  // Prepares the rows of the lanes that search.
  void PrepareSearch(Bits on) {
    MultiplyInertia(m_, w_, w_.Mv, w_.search);
    slope_ = 0.0;
    curvature_ = 0.0;
    cost_ = 0.0;
    island_.ForDofs([&](int i) {
      slope_ += w_.search[i] * (w_.Ma[i] - w_.smooth[i]);
      curvature_ += w_.search[i] * w_.Mv[i];
    });
    curvature_ *= 0.5;
    LineRow<D>* row = w_.line_rows;
    const auto add = [&](D x, D jv, D stiffness) {
      const D pushed = stiffness * x;
      *row = {x, jv, 0.5 * x * pushed, jv * pushed, 0.5 * jv * stiffness * jv};
      return (row++)->q0;
    };
    island_.ForRows(w_, [&](DofConstraint<D>& c) {
      c.jv = w_.search[c.row->dof] * c.row->sign;
      const D cost = add(c.x, c.jv, c.stiffness);
      D unused;
      cost_ -= c.row->dry ? DryCost(c, c.x, unused) : Keep(c.x < 0.0, cost);
    });
    island_.ForContacts(w_, on, [&](Contact<D>& c) {
      MultiplyRows(c, w_.search, c.jv);
      for (int j = 0; j < c.Rows(); ++j) cost_ -= Keep(c.x[j] < 0.0, add(c.x[j], c.jv[j], c.stiffness));
    });
    end_ = row;
  }

  const M& m_;
  Work<D>& w_;
  const Island<D>& island_;
  const D scale_;
  D slope_, curvature_;  // derivatives of the cost, without rows
  D cost_;               // minus the cost of the rows at alpha 0
  const LineRow<D>* end_;
};
