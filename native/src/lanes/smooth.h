// SPDX-License-Identifier: Apache-2.0
// The computations before constraints: positions of bodies, their inertia, and the forces on them.

// mj_kinematics.
template <typename M, typename D>
void Kinematics(const M& m, Work<D>& w) {
  w.xpos[0] = w.xipos[0] = {0.0, 0.0, 0.0};
  w.xquat[0] = {1.0, 0.0, 0.0, 0.0};
  w.xmat[0] = {{1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0}};
  for (int b = 1; b < m.n.nbody; ++b) {
    const int p = m.body_parentid[b], first = m.body_jntadr[b], last = first + m.body_jntnum[b];
    Vec3<D> pos;
    Quat<D> quat;
    Mat3<D> mat;
    if (last == first + 1 && m.jnt_type[first] == kFree) {
      const D* const q = w.qpos + m.jnt_qposadr[first];
      pos = {q[0], q[1], q[2]};
      quat = Normalized(Quat<D>{q[3], q[4], q[5], q[6]});
      mat = Rotation(quat);
      w.joint_anchor[m.jnt_dofadr[first]] = pos;
    } else {
      pos = w.xpos[p];
      quat = w.xquat[p];
      mat = w.xmat[p];
      if (m.body_offset[b]) pos = pos + Rotate(mat, m.body_pos + 3 * b);
      if (m.body_turned[b]) {
        const auto* const q = m.body_quat + 4 * b;
        quat = quat * Quat<D>{D(q[0]), D(q[1]), D(q[2]), D(q[3])};
        mat = Rotation(quat);
      }
      for (int j = first; j < last; ++j) {
        const auto *const axis = m.jnt_axis + 3 * j, *const offset = m.jnt_pos + 3 * j;
        const int dof = m.jnt_dofadr[j], adr = m.jnt_qposadr[j];
        const Vec3<D> anchor = m.jnt_offset[j] ? pos + Rotate(mat, offset) : pos;
        const Vec3<D> turned = Rotate(mat, axis);
        w.joint_axis[dof] = turned;
        w.joint_anchor[dof] = anchor;
        if (m.jnt_type[j] == kSlide) {
          pos = pos + turned * (w.qpos[adr] - m.qpos0[adr]);
          continue;
        }
        if (m.jnt_type[j] == kHinge) {
          D s, c;
          SinCos((w.qpos[adr] - m.qpos0[adr]) * 0.5, s, c);
          quat = quat * Quat<D>{c, s * axis[0], s * axis[1], s * axis[2]};
        } else {
          const D* const q = w.qpos + adr;
          quat = quat * Normalized(Quat<D>{q[0], q[1], q[2], q[3]});
        }
        mat = Rotation(quat);
        pos = m.jnt_offset[j] ? anchor - Rotate(mat, offset) : anchor;
      }
    }
    w.xpos[b] = pos;
    w.xquat[b] = quat;
    w.xmat[b] = mat;
    w.xipos[b] = m.body_inertia_offset[b] ? pos + Rotate(mat, m.body_ipos + 3 * b) : pos;
  }
}

// mj_comPos: centres of mass of subtrees; inertias and motion axes about the centres of mass of
// whole trees.
template <typename M, typename D>
void CentresOfMass(const M& m, Work<D>& w) {
  for (int b = 0; b < m.n.nbody; ++b) w.moment[b] = w.xipos[b] * m.body_mass[b];
  for (int b = m.n.nbody - 1; b > 0; --b) {
    const int p = m.body_parentid[b];
    w.moment[p] = w.moment[p] + w.moment[b];
  }
  for (int b = 0; b < m.n.nbody; ++b) {
    w.com[b] = m.subtree_heavy[b] ? w.moment[b] * m.inverse_subtree_mass[b] : w.xipos[b];
  }
  for (int b = 1; b < m.n.nbody; ++b) {
    const Vec3<D> centre = w.com[m.body_rootid[b]];
    const Vec3<D> d = w.xipos[b] - centre;
    const auto mass = m.body_mass[b];
    const auto* const diagonal = m.body_inertia + 3 * b;
    Mat3<D> turned;
    const Mat3<D>* r = &w.xmat[b];
    if (m.body_inertia_turned[b]) {
      turned = Product(*r, m.body_imat + 9 * b);
      r = &turned;
    }
    const auto entry = [&](int i, int j) {
      return r->m[3 * i] * r->m[3 * j] * diagonal[0] + r->m[3 * i + 1] * r->m[3 * j + 1] * diagonal[1] +
             r->m[3 * i + 2] * r->m[3 * j + 2] * diagonal[2];
    };
    const Vec3<D> h = d * mass;
    w.cinert[b] = {entry(0, 0) + h.y * d.y + h.z * d.z, entry(1, 1) + h.x * d.x + h.z * d.z,
                   entry(2, 2) + h.x * d.x + h.y * d.y, entry(0, 1) - h.x * d.y,
                   entry(0, 2) - h.x * d.z, entry(1, 2) - h.y * d.z, h, D(mass)};
    const int first = m.body_jntadr[b];
    for (int j = first; j < first + m.body_jntnum[b]; ++j) {
      const int dof = m.jnt_dofadr[j];
      const Vec3<D> none{0.0, 0.0, 0.0};
      if (m.jnt_type[j] == kSlide) {
        w.cdof[dof] = {none, w.joint_axis[dof]};
      } else if (m.jnt_type[j] == kHinge) {
        w.cdof[dof] = {w.joint_axis[dof], Cross(w.joint_axis[dof], centre - w.joint_anchor[dof])};
      } else {
        int turn = dof;
        if (m.jnt_type[j] == kFree) {
          for (int i = 0; i < 3; ++i) {
            w.cdof[dof + i] = {none, {i == 0 ? 1.0 : 0.0, i == 1 ? 1.0 : 0.0, i == 2 ? 1.0 : 0.0}};
          }
          turn += 3;
        }
        for (int i = 0; i < 3; ++i) {
          const Vec3<D> axis{w.xmat[b].m[i], w.xmat[b].m[3 + i], w.xmat[b].m[6 + i]};
          w.cdof[turn + i] = {axis, Cross(axis, centre - w.joint_anchor[dof])};
        }
      }
    }
  }
}

// mj_crb: the joint-space inertia.
template <typename M, typename D>
void JointInertia(const M& m, Work<D>& w) {
  for (int b = 1; b < m.n.nbody; ++b) w.crb[b] = w.cinert[b];
  for (int b = m.n.nbody - 1; b > 0; --b) {
    const int p = m.body_parentid[b];
    if (p == 0) continue;
    Inertia<D>& sum = w.crb[p];
    const Inertia<D>& one = w.crb[b];
    sum = {sum.xx + one.xx, sum.yy + one.yy, sum.zz + one.zz, sum.xy + one.xy, sum.xz + one.xz,
           sum.yz + one.yz, sum.h + one.h, sum.mass + one.mass};
  }
  for (int i = 0; i < m.n.nv; ++i) {
    const Spatial<D> f = w.crb[m.dof_bodyid[i]] * w.cdof[i];
    D* const row = w.M + m.tree.adr[i];
    const std::int32_t* const column = m.tree.column + m.tree.adr[i];
    row[0] = Dot(w.cdof[i], f) + m.dof_armature[i];
    for (int p = 1; p < m.tree.count[i]; ++p) row[p] = Dot(w.cdof[column[p]], f);
  }
}

// All dofs one after the other; replaces a list of dofs.
struct EveryDof {
  LANES_INLINE int operator[](int i) const { return i; }
};

// Computes the L' D L factor of a matrix in place, over `count` dofs: entries off the diagonal are
// those of L.
template <typename D, typename Dofs = EveryDof>
void Factorize(const Factor<D>& f, int count, Dofs dofs = {}) {
  const Sparsity& o = *f.order;
  for (int i = count - 1; i >= 0; --i) {
    const int k = dofs[i];
    D* const row = f.entries + o.adr[k];
    const std::int32_t* const column = o.column + o.adr[k];
    const int n = o.count[k];
    const D inverse = 1.0 / row[0];
    f.inverse[k] = inverse;
    for (int p = 1; p < n; ++p) {
      const D a = row[p] * inverse;
      D* const other = f.entries + o.adr[column[p]] - p;
      for (int q = p; q < n; ++q) other[q] -= a * row[q];
      row[p] = a;
    }
  }
}

template <typename D, typename Dofs = EveryDof>
void Solve(const Factor<D>& f, D* x, int count, Dofs dofs = {}) {
  const Sparsity& o = *f.order;
  for (int i = count - 1; i >= 0; --i) {
    const int k = dofs[i];
    const D* const row = f.entries + o.adr[k];
    const std::int32_t* const column = o.column + o.adr[k];
    const D xk = x[k];
    for (int p = 1; p < o.count[k]; ++p) x[column[p]] -= row[p] * xk;
  }
  for (int i = 0; i < count; ++i) {
    const int k = dofs[i];
    const D* const row = f.entries + o.adr[k];
    const std::int32_t* const column = o.column + o.adr[k];
    D sum = x[k] * f.inverse[k];
    for (int p = 1; p < o.count[k]; ++p) sum -= row[p] * x[column[p]];
    x[k] = sum;
  }
}

// y = M x.
template <typename M, typename D>
void MultiplyInertia(const M& m, const Work<D>& w, D* y, const D* x) {
  for (int i = 0; i < m.n.nv; ++i) {
    const D* const row = w.M + m.tree.adr[i];
    const std::int32_t* const column = m.tree.column + m.tree.adr[i];
    const D xi = x[i];
    D sum = row[0] * xi;
    for (int p = 1; p < m.tree.count[i]; ++p) {
      sum += row[p] * x[column[p]];
      y[column[p]] += row[p] * xi;
    }
    y[i] = sum;
  }
}

// mj_comVel: velocities of bodies, and the changes of motion axes.
template <typename M, typename D>
void Velocities(const M& m, Work<D>& w) {
  w.cvel[0] = {{0.0, 0.0, 0.0}, {0.0, 0.0, 0.0}};
  for (int b = 1; b < m.n.nbody; ++b) {
    Spatial<D> v = w.cvel[m.body_parentid[b]];
    const int first = m.body_jntadr[b];
    for (int j = first; j < first + m.body_jntnum[b]; ++j) {
      int dof = m.jnt_dofadr[j];
      const int kind = m.jnt_type[j];
      if (kind == kSlide) {
        w.cdof_dot[dof] = {{0.0, 0.0, 0.0}, Cross(v.a, w.cdof[dof].l)};
        v.l = v.l + w.cdof[dof].l * w.qvel[dof];
        continue;
      }
      if (kind == kHinge) {
        w.cdof_dot[dof] = CrossMotion(v, w.cdof[dof]);
        v = v + w.cdof[dof] * w.qvel[dof];
        continue;
      }
      if (kind == kFree) {
        for (int i = 0; i < 3; ++i) w.cdof_dot[dof + i] = {{0.0, 0.0, 0.0}, {0.0, 0.0, 0.0}};
        v.l = v.l + Vec3<D>{w.qvel[dof], w.qvel[dof + 1], w.qvel[dof + 2]};
        dof += 3;
      }
      // all three use the velocity before these dofs
      for (int i = 0; i < 3; ++i) w.cdof_dot[dof + i] = CrossMotion(v, w.cdof[dof + i]);
      for (int i = 0; i < 3; ++i) v = v + w.cdof[dof + i] * w.qvel[dof + i];
    }
    w.cvel[b] = v;
  }
}

// mj_rne without accelerations: the joint forces of gravity and inertia.
template <typename M, typename D>
void Bias(const M& m, Work<D>& w) {
  w.cacc[0] = {{0.0, 0.0, 0.0}, -Fixed<D>(m.options->gravity)};
  for (int b = 1; b < m.n.nbody; ++b) {
    Spatial<D> a = w.cacc[m.body_parentid[b]];
    for (int i = m.body_dofadr[b]; i < m.body_dofadr[b] + m.body_dofnum[b]; ++i) {
      a = a + w.cdof_dot[i] * w.qvel[i];
    }
    w.cacc[b] = a;
    w.cfrc[b] = w.cinert[b] * a + CrossForce(w.cvel[b], w.cinert[b] * w.cvel[b]);
  }
  for (int b = m.n.nbody - 1; b > 0; --b) {
    const int p = m.body_parentid[b];
    if (p > 0) w.cfrc[p] = w.cfrc[p] + w.cfrc[b];
  }
  for (int i = 0; i < m.n.nv; ++i) w.bias[i] = Dot(w.cdof[i], w.cfrc[m.dof_bodyid[i]]);
}

// mj_inertiaBoxFluidModel: the force of a fluid on boxes with the bodies' inertia.
template <typename M, typename D>
void AddFluid(const M& m, Work<D>& w) {
  Spatial<D>* const force = w.cfrc;
  for (int b = 0; b < m.n.nbody; ++b) force[b] = {{0.0, 0.0, 0.0}, {0.0, 0.0, 0.0}};
  for (int b = 1; b < m.n.nbody; ++b) {
    if (!m.body_heavy[b]) continue;
    const Mat3<D> r = m.body_inertia_turned[b] ? Product(w.xmat[b], m.body_imat + 9 * b) : w.xmat[b];
    const Vec3<D> lever = w.xipos[b] - w.com[m.body_rootid[b]];
    const Vec3<D> spin = RotateBack(r, w.cvel[b].a);
    const Vec3<D> speed =
        RotateBack(r, w.cvel[b].l + Cross(w.cvel[b].a, lever)) - RotateBack(r, Fixed<D>(m.options->wind));
    Vec3<D> torque{0.0, 0.0, 0.0}, push{0.0, 0.0, 0.0};
    if (m.viscous) {
      torque = spin * -m.body_friction[2 * b];
      push = speed * -m.body_friction[2 * b + 1];
    }
    if (m.dense_fluid) {
      const auto *const drag = m.body_drag + 3 * b, *const turn = m.body_spin_drag + 3 * b;
      push.x -= drag[0] * Abs(speed.x) * speed.x;
      push.y -= drag[1] * Abs(speed.y) * speed.y;
      push.z -= drag[2] * Abs(speed.z) * speed.z;
      torque.x -= turn[0] * Abs(spin.x) * spin.x;
      torque.y -= turn[1] * Abs(spin.y) * spin.y;
      torque.z -= turn[2] * Abs(spin.z) * spin.z;
    }
    const Vec3<D> f = Rotate(r, push);
    force[b] = {Rotate(r, torque) + Cross(lever, f), f};
  }
  for (int b = m.n.nbody - 1; b > 0; --b) {
    const int p = m.body_parentid[b];
    if (p > 0) force[p] = force[p] + force[b];
  }
  for (int i = 0; i < m.n.nv; ++i) w.passive[i] += Dot(w.cdof[i], force[m.dof_bodyid[i]]);
}

// mj_passive: springs, dampers, fluid.
template <typename M, typename D>
void Passive(const M& m, Work<D>& w) {
  for (int i = 0; i < m.n.nv; ++i) w.passive[i] = -m.dof_damping[i] * w.qvel[i];
  for (int j = 0; m.springs && j < m.n.njnt; ++j) {
    if (!m.jnt_springs[j]) continue;
    const int adr = m.jnt_qposadr[j];
    w.passive[m.jnt_dofadr[j]] -= (w.qpos[adr] - m.qpos_spring[adr]) * m.jnt_stiffness[j];
  }
  if (m.viscous || m.dense_fluid) AddFluid(m, w);
}

// The position of a point of a tendon.
template <typename M, typename D>
Vec3<D> PlaceOf(const M& m, const Work<D>& w, const TendonPoint& point) {
  return w.xpos[point.body] + Rotate(w.xmat[point.body], m.site_pos + 3 * point.site);
}

// The length of a tendon along its sites, and the contribution of each dof to it.
template <typename M, typename D>
void WayAlong(const M& m, Work<D>& w, int t) {
  const Tendon& tendon = m.tendons[t];
  const TendonPoint* const points = m.tendon_points + tendon.adr;
  D* const moments = w.tendon_moments + tendon.moments;
  for (int q = 0; q < tendon.num_dofs; ++q) moments[q] = 0.0;
  D length = 0.0;
  Vec3<D> from = PlaceOf(m, w, points[0]);
  for (int i = 1; i < tendon.num; ++i) {
    const TendonPoint &last = points[i - 1], &next = points[i];
    const Vec3<D> to = PlaceOf(m, w, next), way = to - from;
    const D part = Sqrt(Dot(way, way));
    length += part;
    // a segment of length 0 is normalised to (1, 0, 0)
    const auto some = part >= kTiny;
    const Vec3<D> scaled = way * (1.0 / Select(some, part, D(1.0)));
    const Vec3<D> along{Select(some, scaled.x, D(1.0)), Keep(some, scaled.y), Keep(some, scaled.z)};
    const Vec3<D> from_centre = from - w.com[last.root], to_centre = to - w.com[next.root];
    for (int q = 0; q < tendon.num_dofs; ++q) {
      const int dof = tendon.dofs[q];
      const std::uint64_t bit = std::uint64_t{1} << dof;
      const Spatial<D>& axis = w.cdof[dof];
      // Counts dofs that move only one of the points; one that moves both adds nothing. Each
      // condition is a comparison with zero: in a branch on whether two such bits are equal, GCC
      // 12.2 for x86-64 loses one of them.
      if (next.dofs & ~last.dofs & bit) moments[q] += Dot(along, axis.l + Cross(axis.a, to_centre));
      if (last.dofs & ~next.dofs & bit) moments[q] -= Dot(along, axis.l + Cross(axis.a, from_centre));
    }
    from = to;
  }
  w.tendon_length[t] = length;
}

template <typename M, typename D>
void TendonLengths(const M& m, Work<D>& w) {
  for (int t = 0; t < m.n.ntendon; ++t) {
    const Tendon& tendon = m.tendons[t];
    if (tendon.spatial) {
      WayAlong(m, w, t);
      continue;
    }
    D length = 0.0;
    for (int i = tendon.adr; i < tendon.adr + tendon.num; ++i) {
      length += w.qpos[m.tendon_joints[i].qpos] * m.tendon_coefficient[i];
    }
    w.tendon_length[t] = length;
  }
}
template <typename M, typename D>
void TendonVelocities(const M& m, Work<D>& w) {
  for (int t = 0; t < m.n.ntendon; ++t) {
    const Tendon& tendon = m.tendons[t];
    D velocity = 0.0;
    for (int q = 0; q < tendon.num_dofs; ++q) {
      velocity += w.tendon_moments[tendon.moments + q] * w.qvel[tendon.dofs[q]];
    }
    for (int i = tendon.adr; !tendon.spatial && i < tendon.adr + tendon.num; ++i) {
      velocity += w.qvel[m.tendon_joints[i].dof] * m.tendon_coefficient[i];
    }
    w.tendon_velocity[t] = velocity;
  }
}

// mj_fwdActuation for motors and servos without activations.
template <typename M, typename D>
void Actuation(const M& m, Work<D>& w) {
  for (int i = 0; i < m.n.nv; ++i) w.actuation[i] = 0.0;
  if (!m.has_actuation) return;
  for (int i = 0; i < m.n.nu; ++i) {
    const Actuator& a = m.actuators[i];
    const auto& k = m.actuator_numbers[i];
    const bool on_tendon = a.on_tendon != 0;
    D ctrl = w.ctrl[i];
    if (a.ctrl_limited) ctrl = Clip(ctrl, k.ctrl_range[0], k.ctrl_range[1]);
    D length = 0.0, velocity = 0.0;
    if (a.affine_gain || a.affine_bias) {
      length = k.gear * (on_tendon ? w.tendon_length[a.tendon] : w.qpos[a.qpos]);
      velocity = k.gear * (on_tendon ? w.tendon_velocity[a.tendon] : w.qvel[a.dof]);
    }
    D gain = D(k.gain[0]);
    if (a.affine_gain) gain += k.gain[1] * length + k.gain[2] * velocity;
    D force = gain * ctrl;
    if (a.affine_bias) force += k.bias[0] + k.bias[1] * length + k.bias[2] * velocity;
    if (a.force_limited) force = Clip(force, k.force_range[0], k.force_range[1]);
    force *= k.gear;
    if (!on_tendon) {
      w.actuation[a.dof] += force;
      continue;
    }
    const Tendon& tendon = m.tendons[a.tendon];
    for (int j = tendon.adr; j < tendon.adr + tendon.num; ++j) {
      w.actuation[m.tendon_joints[j].dof] += force * m.tendon_coefficient[j];
    }
  }
  for (int j = 0; m.limits_joint_forces && j < m.n.njnt; ++j) {
    if (m.jnt_type[j] != kSlide && m.jnt_type[j] != kHinge) continue;
    const auto* const range = m.jnt_force_range + 2 * j;
    D& force = w.actuation[m.jnt_dofadr[j]];
    force = Clip(force, range[0], range[1]);
  }
}

template <typename M, typename D>
void SmoothPositions(const M& m, Work<D>& w) {
  Kinematics(m, w);
  CentresOfMass(m, w);
  TendonLengths(m, w);
}

template <typename M, typename D>
void SmoothAccelerations(const M& m, Work<D>& w) {
  JointInertia(m, w);
  for (int i = 0; i < m.tree.size; ++i) w.L[i] = w.M[i];
  const Factor<D> factor{&m.tree, w.L, w.inverse};
  Factorize(factor, m.n.nv);
  Velocities(m, w);
  TendonVelocities(m, w);
  Bias(m, w);
  Passive(m, w);
  Actuation(m, w);
  for (int i = 0; i < m.n.nv; ++i) {
    w.smooth[i] = w.passive[i] - w.bias[i] + w.actuation[i];
    w.qacc_smooth[i] = w.smooth[i];
  }
  Solve(factor, w.qacc_smooth, m.n.nv);
}
