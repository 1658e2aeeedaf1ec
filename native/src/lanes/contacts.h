// SPDX-License-Identifier: Apache-2.0
// Active constraints, and their stiffness: limits, dry friction, contacts of planes, spheres and
// capsules. A row exists where it is active in one of the lanes; in the others it has no weight.

// getimpedance.
template <typename C, typename D>
D ImpedanceAt(const Impedance<C>& p, Curve curve, D pos) {
  if (curve == Curve::kFlat) return D(0.5 * (p.least + p.most));
  const D x = Abs((pos - p.margin) / p.width);
  D y;
  if (curve == Curve::kLine) {
    y = x;
  } else if (curve == Curve::kParabola) {
    const D rest = 1.0 - x;
    y = Select(x <= p.middle, x * x * (1 / p.middle), 1.0 - rest * rest * (1 / (1 - p.middle)));
  } else {
    double* const one = Numbers(&y);
    for (int lane = 0; lane < D::kWidth; ++lane) {
      const double u = InLane(x, lane), middle = InLane(p.middle, lane), power = InLane(p.power, lane);
      one[lane] = u <= middle ? __builtin_pow(u, power) / __builtin_pow(middle, power - 1)
                              : 1 - __builtin_pow(u >= 1 ? 0 : 1 - u, power) /
                                        __builtin_pow(1 - middle, power - 1);
    }
  }
  return Select(x >= 1.0, D(p.most), Select(x <= 0.0, D(p.least), p.least + y * (p.most - p.least)));
}

// R and D of a row; D is 0 in lanes where it is not active.
template <typename C, typename D>
void SetStiffness(const Impedance<C>& p, D impedance, C scale, typename D::Bits active, D& R, D& stiffness) {
  R = Max(D(kTiny), (1.0 - impedance) * p.diagonal / impedance) * scale;
  stiffness = Keep(active, 1.0 / R);
}

template <typename M, typename D>
void DofConstraints(const M& m, Work<D>& w) {
  w.num_dofs = 0;
  for (int i = 0; i < m.num_dof_rows; ++i) {
    const DofRow& row = m.dof_rows[i];
    const auto& k = m.dof_row_numbers[i];
    const D dist = row.dry ? D(0.0) : (D(k.range) - w.qpos[row.qpos]) * -row.sign;
    const auto active = (row.dry ? FromBits<D::kWidth>(~0U) : dist < k.impedance.margin) & ~w.escaped;
    if (!Any(active)) continue;
    DofConstraint<D>& c = w.dofs[w.num_dofs++];
    c.row = &row;
    c.loss = D(k.loss);
    c.active = active;
    c.dist = dist;
    const D impedance = ImpedanceAt(k.impedance, row.curve, dist);
    SetStiffness(k.impedance, impedance, decltype(k.loss)(1.0), active, c.R, c.stiffness);
    c.aref = -(k.impedance.B * (w.qvel[row.dof] * row.sign)) -
             impedance * k.impedance.K * (dist - k.impedance.margin);
    w.constrained = w.constrained | active;
  }
}

// mju_makeFrame: tangents of a normal; the first goes along `hint` if that is given.
template <typename D>
void MakeFrame(Contact<D>& c, const Vec3<D>* hint) {
  const Vec3<D> n = c.frame[0];
  const auto by_default = [&] {
    const auto use_y = Abs(n.y) < 0.5;
    Vec3<D> t{D(0.0), Keep(use_y, D(1.0)), Select(use_y, D(0.0), D(1.0))};
    t = t - n * Dot(n, t);
    return t * (1.0 / Sqrt(Dot(t, t)));
  };
  if (hint) {
    Vec3<D> t = *hint - n * Dot(*hint, n);
    const D length = Sqrt(Dot(t, t));
    const auto some = length >= kTiny;
    t = t * (1.0 / Select(some, length, D(1.0)));
    // a vector of length 0 is normalised to (1, 0, 0)
    c.frame[1] = {Select(some, t.x, D(1.0)), Keep(some, t.y), Keep(some, t.z)};
  } else {
    c.frame[1] = by_default();
  }
  c.frame[2] = Cross(n, c.frame[1]);
}

template <typename M, typename D>
void AddContact(const M& m, Work<D>& w, int index, typename D::Bits active, D dist, Vec3<D> normal,
                Vec3<D> pos, const Vec3<D>* hint) {
  const Pair& pair = m.pairs[index];
  const auto& k = m.pair_numbers[index];
  active = active & ~w.escaped;
  if (!Any(active)) return;
  if (w.num_contacts == m.max_contacts) {
    w.escaped = w.escaped | active;
    return;
  }
  const int at = w.num_contacts++;
  Contact<D>& c = w.contacts[at];
  c.pair = &pair;
  c.active = active;
  c.friction = D(k.friction);
  for (int j = 0; j < c.Rows(); ++j) c.f[j] = 0.0;
  c.dist = dist;
  c.pos = pos;
  c.frame[0] = normal;
  D* const block = w.jacobians + 3 * at * m.max_pair_dofs;
  c.along = block;
  c.side1 = block + m.max_pair_dofs;
  c.side2 = block + 2 * m.max_pair_dofs;
  const bool slides = pair.dim > 1;
  if (slides) MakeFrame(c, hint);
  const Vec3<D> lever[2] = {pos - w.com[pair.root[0]], pos - w.com[pair.root[1]]};
  D v0 = 0.0, v1 = 0.0, v2 = 0.0;
  auto flat = FromBits<D::kWidth>(~0U);
  for (int q = 0; q < pair.num_dofs; ++q) {
    const int dof = pair.dofs[q];
    const bool first = pair.of_first[q] != 0;
    Vec3<D> moves = w.cdof[dof].l + Cross(w.cdof[dof].a, lever[first ? 0 : 1]);
    if (first) moves = -moves;
    c.along[q] = Keep(active, Dot(normal, moves));
    v0 += c.along[q] * w.qvel[dof];
    if (!slides) continue;
    c.side1[q] = Keep(active, Dot(c.frame[1], moves));
    c.side2[q] = Keep(active, Dot(c.frame[2], moves));
    v1 += c.side1[q] * w.qvel[dof];
    v2 += c.side2[q] * w.qvel[dof];
    flat = flat & (c.side2[q] == 0.0);
  }
  c.flat = All(flat);
  const auto& p = k.impedance;
  const D impedance = ImpedanceAt(p, pair.curve, dist);
  SetStiffness(p, impedance, k.r_scale, active, c.R, c.stiffness);
  const D pull = -impedance * p.K * (dist - k.margin);
  if (slides) {
    v1 *= c.friction;
    v2 *= c.friction;
    c.aref[0] = pull - (v0 + v1) * p.B;
    c.aref[1] = pull - (v0 - v1) * p.B;
    c.aref[2] = pull - (v0 + v2) * p.B;
    c.aref[3] = pull - (v0 - v2) * p.B;
  } else {
    c.aref[0] = pull - v0 * p.B;
  }
  w.constrained = w.constrained | active;
}

// A contact of spheres around two points: point and normal are the same in either order.
template <typename M, typename D>
void SphereSphere(const M& m, Work<D>& w, int index, typename D::Bits near, Vec3<D> first,
                  Vec3<D> second) {
  const auto& k = m.pair_numbers[index];
  const Vec3<D> d = second - first;
  const D length = Sqrt(Dot(d, d));
  const D dist = length - (k.radius[0] + k.radius[1]);
  const auto active = near & (dist < k.margin);
  if (!Any(active)) return;
  // centres in the same point give no direction
  w.escaped = w.escaped | (active & (length < 1e-10));
  const Vec3<D> normal = d * (1.0 / length);
  AddContact<M, D>(m, w, index, active, dist, normal, first + normal * (dist * 0.5 + k.radius[0]), nullptr);
}

template <typename M, typename D>
void CapsuleCapsule(const M& m, Work<D>& w, int index, typename D::Bits near) {
  const auto& k = m.pair_numbers[index];
  const int g1 = m.pairs[index].geom[0], g2 = m.pairs[index].geom[1];
  const Vec3<D> a1 = w.geom_axis[g1] * k.half[0], a2 = w.geom_axis[g2] * k.half[1];
  const Vec3<D> d = w.geom_pos[g1] - w.geom_pos[g2];
  const D ma = Dot(a1, a1), mb = -Dot(a1, a2), mc = Dot(a2, a2), u = -Dot(a1, d), v = Dot(a2, d);
  const D det = ma * mc - mb * mb;
  // Almost parallel capsules that touch: below an angle of 1e-4 they touch in several points, and
  // below 1e-3 rounding decides where along their lengths they touch. They are left to MuJoCo,
  // unless they are clearly apart.
  const auto parallel = near & (det <= 1e-6 * (ma * mc));
  if (Any(parallel)) {
    const D along = Dot(d, w.geom_axis[g1]);
    const Vec3<D> aside = d - w.geom_axis[g1] * along;
    const D gap = Max(D(0.0), Abs(along) - (k.half[0] + k.half[1]));
    const D apart = Sqrt(Dot(aside, aside) + gap * gap) - k.half[1] * 2e-3;
    w.escaped = w.escaped | (parallel & (apart <= k.radius[0] + k.radius[1] + k.margin));
  }
  const D inverse = 1.0 / det;
  const D free1 = (mc * u - mb * v) * inverse, free2 = (ma * v - mb * u) * inverse;
  const D x1 = Clip(free1, -1.0, 1.0);
  const D near2 = Select(x1 == free1, free2, (v - mb * x1) / mc);
  const D x2 = Clip(near2, -1.0, 1.0);
  const D last1 = Select(x2 == near2, x1, Clip((u - mb * x2) / ma, -1.0, 1.0));
  SphereSphere(m, w, index, near, w.geom_pos[g1] + a1 * last1, w.geom_pos[g2] + a2 * x2);
}

template <typename M, typename D>
void PlaneCapsule(const M& m, Work<D>& w, int index) {
  const auto& k = m.pair_numbers[index];
  const int g = m.pairs[index].geom[1];
  const Vec3<D> normal = Fixed<D>(k.normal);
  const D height = Dot(w.geom_pos[g] - Fixed<D>(k.point), normal) - k.radius[1];
  const Vec3<D> reach = w.geom_axis[g] * k.half[1];
  const D lift = Dot(reach, normal);
  for (const double end : {1.0, -1.0}) {
    const D dist = height + lift * end;
    const auto active = dist < k.margin;
    if (!Any(active)) continue;
    const Vec3<D> pos = w.geom_pos[g] + reach * end - normal * (dist * 0.5 + k.radius[1]);
    AddContact(m, w, index, active, dist, normal, pos, &w.geom_axis[g]);
  }
}

// mjc_PlaneCylinder: the lowest point, the one above it, and two that form a triangle with the
// lowest.
template <typename M, typename D>
void PlaneCylinder(const M& m, Work<D>& w, int index) {
  const Pair& pair = m.pairs[index];
  const auto& k = m.pair_numbers[index];
  const int g = pair.geom[1];
  const Vec3<D> normal = Fixed<D>(k.normal);
  const Vec3<D> centre = w.geom_pos[g];
  const D height = Dot(centre - Fixed<D>(k.point), normal);
  Vec3<D> axis = w.geom_axis[g];
  D along = Dot(normal, axis);
  const auto away = along > 0.0;
  axis = Select(away, -axis, axis);
  along = Select(away, -along, along);
  Vec3<D> side = axis * along - normal;
  const D square = Dot(side, side);
  const auto flat = square < kTiny * kTiny;
  // rounding alone decides where the lowest point of such a cylinder is
  if (pair.turns) w.escaped = w.escaped | ((square < 1e-24) & ~(square < 1e-34));
  const Mat3<D> turned = Product(w.xmat[pair.body[1]], m.geom_mat + 9 * g);
  const Vec3<D> across{turned.m[0], turned.m[3], turned.m[6]};
  const auto radius = k.radius[1];
  side = Select(flat, across * radius, side * (radius / Sqrt(Select(flat, D(1.0), square))));
  const D fall = Dot(side, normal);
  axis = axis * k.half[1];
  along *= k.half[1];
  const auto add = [&](auto active, D dist, Vec3<D> point) {
    if (!Any(active)) return;
    AddContact<M, D>(m, w, index, active, dist, normal, point - normal * (dist * 0.5), nullptr);
  };
  const D lowest = height + along + fall, above = height - along + fall, rim = height + along - fall * 0.5;
  const auto touches = lowest <= k.margin;
  add(touches, lowest, centre + side + axis);
  add(touches & (above <= k.margin), above, centre + side - axis);
  Vec3<D> wide = Cross(side, axis);
  wide = wide * ((radius * 0.86602540378443864676) / Sqrt(Dot(wide, wide)));
  const auto triangle = touches & (rim <= k.margin);
  const Vec3<D> back = centre + axis - side * 0.5;
  add(triangle, rim, back + wide);
  add(triangle, rim, back - wide);
}

// The lowest point of an ellipsoid.
template <typename M, typename D>
void PlaneEllipsoid(const M& m, Work<D>& w, int index) {
  const auto& k = m.pair_numbers[index];
  const int g = m.pairs[index].geom[1];
  const Mat3<D> r = Product(w.xmat[m.pairs[index].body[1]], m.geom_mat + 9 * g);
  const Vec3<D> normal = Fixed<D>(k.normal), size = Fixed<D>(k.size), n = RotateBack(r, normal);
  const Vec3<D> s{size.x * n.x, size.y * n.y, size.z * n.z};
  const D depth = Sqrt(Dot(s, s));
  const D dist = Dot(w.geom_pos[g] - Fixed<D>(k.point), normal) - depth;
  const Vec3<D> lowest = Rotate(r, Vec3<D>{size.x * s.x, size.y * s.y, size.z * s.z} * (1.0 / depth));
  AddContact<M, D>(m, w, index, dist < k.margin, dist, normal, w.geom_pos[g] - lowest - normal * (dist * 0.5),
                   nullptr);
}

// mjc_PlaneBox: the first four corners that are low enough.
template <typename M, typename D>
void PlaneBox(const M& m, Work<D>& w, int index) {
  const auto& k = m.pair_numbers[index];
  const int g = m.pairs[index].geom[1];
  const Mat3<D> r = Product(w.xmat[m.pairs[index].body[1]], m.geom_mat + 9 * g);
  const Vec3<D> normal = Fixed<D>(k.normal), size = Fixed<D>(k.size);
  const D height = Dot(w.geom_pos[g] - Fixed<D>(k.point), normal);
  D found = 0.0;
  for (int i = 0; i < 8; ++i) {
    const Vec3<D> at{i & 1 ? size.x : -size.x, i & 2 ? size.y : -size.y, i & 4 ? size.z : -size.z};
    const Vec3<D> corner = Rotate(r, at);
    const D lift = Dot(normal, corner), dist = height + lift;
    const auto active = (dist <= k.margin) & (lift <= 0.0) & (found < 4.0);
    if (!Any(active)) continue;
    found += Keep(active, D(1.0));
    AddContact<M, D>(m, w, index, active, dist, normal, corner + w.geom_pos[g] - normal * (dist * 0.5), nullptr);
  }
}

// The end of a tendon's range, as a contact of one row.
template <typename M, typename D>
void TendonLimit(const M& m, Work<D>& w, int index) {
  const Pair& pair = m.pairs[index];
  const auto& k = m.pair_numbers[index];
  const double sign = pair.upper ? -1.0 : 1.0;
  const D length = w.tendon_length[pair.tendon], dist = (length - k.range) * sign;
  const auto active = (dist < k.margin) & ~w.escaped;
  if (!Any(active)) return;
  // a segment of almost no length has no direction
  w.escaped = w.escaped | (active & (length < 1e-10));
  if (w.num_contacts == m.max_contacts) {
    w.escaped = w.escaped | active;
    return;
  }
  const int at = w.num_contacts++;
  Contact<D>& c = w.contacts[at];
  c.pair = &pair;
  c.active = active;
  c.flat = true;
  c.friction = D(0.0);
  c.f[0] = 0.0;
  c.dist = dist;
  c.pos = c.frame[0] = {D(0.0), D(0.0), D(0.0)};
  c.along = w.jacobians + 3 * at * m.max_pair_dofs;
  const D* const moments = w.tendon_moments + m.tendons[pair.tendon].moments;
  D velocity = 0.0;
  for (int q = 0; q < pair.num_dofs; ++q) {
    c.along[q] = Keep(active, moments[q] * sign);
    velocity += c.along[q] * w.qvel[pair.dofs[q]];
  }
  const auto& p = k.impedance;
  const D impedance = ImpedanceAt(p, pair.curve, dist);
  SetStiffness(p, impedance, k.r_scale, active, c.R, c.stiffness);
  c.aref[0] = -impedance * p.K * (dist - k.margin) - velocity * p.B;
  w.constrained = w.constrained | active;
}

template <typename M, typename D>
void TouchPair(const M& m, Work<D>& w, int index) {
  const Pair& pair = m.pairs[index];
  const auto& k = m.pair_numbers[index];
  if (pair.kind == PairKind::kTendon) return TendonLimit(m, w, index);
  const int g1 = pair.geom[0], g2 = pair.geom[1];
  if (pair.plane) {
    const Vec3<D> normal = Fixed<D>(k.normal);
    const D height = Dot(w.geom_pos[g2] - Fixed<D>(k.point), normal);
    const auto near = height <= k.reach;
    if (!Any(near)) return;
    if (pair.kind == PairKind::kPlaneCapsule) return PlaneCapsule(m, w, index);
    if (pair.kind == PairKind::kPlaneCylinder) return PlaneCylinder(m, w, index);
    if (pair.kind == PairKind::kPlaneEllipsoid) return PlaneEllipsoid(m, w, index);
    if (pair.kind == PairKind::kPlaneBox) return PlaneBox(m, w, index);
    if (pair.kind == PairKind::kPlaneSphere) {
      const D dist = height - k.radius[1];
      const Vec3<D> pos = w.geom_pos[g2] - normal * (dist * 0.5 + k.radius[1]);
      return AddContact<M, D>(m, w, index, dist < k.margin, dist, normal, pos, nullptr);
    }
    w.escaped = w.escaped | near;
    return;
  }
  const Vec3<D> d = w.geom_pos[g1] - w.geom_pos[g2];
  const auto near = Dot(d, d) <= k.reach * k.reach;
  if (!Any(near)) return;
  if (pair.kind == PairKind::kCapsuleCapsule) return CapsuleCapsule(m, w, index, near);
  if (pair.kind == PairKind::kSphereSphere) return SphereSphere(m, w, index, near, w.geom_pos[g1], w.geom_pos[g2]);
  if (pair.kind == PairKind::kSphereCapsule) {
    const D x = Clip(Dot(w.geom_axis[g2], d), -k.half[1], k.half[1]);
    return SphereSphere(m, w, index, near, w.geom_pos[g1], w.geom_pos[g2] + w.geom_axis[g2] * x);
  }
  w.escaped = w.escaped | near;
}

template <typename M, typename D>
void Constraints(const M& m, Work<D>& w) {
  w.num_contacts = 0;
  w.constrained = FromBits<D::kWidth>(0);
  DofConstraints(m, w);
  if (m.num_pairs == 0) return;
  for (int g = 0; g < m.n.ngeom; ++g) {
    if (!m.geom_touches[g]) continue;
    const int b = m.geom_bodyid[g];
    w.geom_pos[g] = w.xpos[b] + Rotate(w.xmat[b], m.geom_pos + 3 * g);
    w.geom_axis[g] = Rotate(w.xmat[b], m.geom_axis + 3 * g);
  }
  for (int i = 0; i < m.num_pairs; ++i) TouchPair(m, w, i);
}
