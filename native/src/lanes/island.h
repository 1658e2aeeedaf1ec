// SPDX-License-Identifier: Apache-2.0
// Rows of constraints that are solved together, and their cost.

// An island: trees that constraints couple, in those lanes that couple the same trees.
template <typename D>
struct Island {
  std::uint64_t trees;      // a bit for each tree
  typename D::Bits lanes;
  int num_dofs;
  std::int32_t dofs[kMaxDofs];
  int num_contacts, num_rows;
  std::int16_t contacts[kMaxContacts];
  std::int16_t rows[2 * kMaxDofs + kMaxDofs];
  bool branches;            // its Hessian has entries beyond those of the trees

  template <typename F>
  LANES_INLINE void ForDofs(F&& f) const {
    for (int i = 0; i < num_dofs; ++i) f(dofs[i]);
  }
  template <typename F>
  LANES_INLINE void ForRows(Work<D>& w, F&& f) const {
    for (int i = 0; i < num_rows; ++i) f(w.dofs[rows[i]]);
  }
  template <typename F>
  LANES_INLINE void ForContacts(Work<D>& w, F&& f) const {
    for (int i = 0; i < num_contacts; ++i) f(w.contacts[contacts[i]]);
  }
  // Calls f for contacts that are active in any of these lanes.
  template <typename F>
  LANES_INLINE void ForContacts(Work<D>& w, typename D::Bits in, F&& f) const {
    ForContacts(w, [&](Contact<D>& c) {
      if (Any(c.active & in)) f(c);
    });
  }
};

// J x for a contact's rows.
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
    if (!c.flat) t += c.side2[q] * y;
  }
  s *= c.friction;
  t *= c.friction;
  out[0] = a + s;
  out[1] = a - s;
  out[2] = a + t;
  out[3] = a - t;
}

// Lanes where one of a contact's rows pushes.
template <typename D>
LANES_INLINE typename D::Bits Pushing(const Contact<D>& c) {
  auto some = c.x[0] < 0.0;
  for (int j = 1; j < c.Rows(); ++j) some = some | (c.x[j] < 0.0);
  return some & c.active;
}

// The cost and the force of a row at x: a row that can only push, or dry friction between two
// bounds.
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
