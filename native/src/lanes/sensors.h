// SPDX-License-Identifier: Apache-2.0
// Sensors and forces on bodies, computed from the last evaluation.

// mj_subtreeVel for one body.
template <typename M, typename D>
Vec3<D> SubtreeVelocity(const M& m, const Work<D>& w, int body) {
  Vec3<D> momentum{0.0, 0.0, 0.0};
  for (int b = body; b < m.n.nbody; ++b) {
    int up = b;
    while (up > body) up = m.body_parentid[up];
    if (up != body) continue;
    const Vec3<D> lever = w.xipos[b] - w.com[m.body_rootid[b]];
    momentum = momentum + (w.cvel[b].l + Cross(w.cvel[b].a, lever)) * m.body_mass[b];
  }
  return momentum * m.inverse_subtree_mass[body];
}

// Torque and force of a contact in the world's frame, at its point.
template <typename D>
Vec3<D> ContactForce(const Contact<D>& c) {
  if (c.pair->dim == 1) return c.frame[0] * c.f[0];
  const D s = (c.f[0] - c.f[1]) * c.friction, t = (c.f[2] - c.f[3]) * c.friction;
  return c.frame[0] * (c.f[0] + c.f[1] + c.f[2] + c.f[3]) + c.frame[1] * s + c.frame[2] * t;
}

// Adds the forces that the end of a tendon's range exerts on the bodies of its two sites.
template <typename M, typename D>
void AddTendonForce(const M& m, const Work<D>& w, const Contact<D>& c, Spatial<D>* out) {
  const TendonPoint* const points = m.tendon_points + m.tendons[c.pair->tendon].adr;
  const Vec3<D> at[2] = {PlaceOf(m, w, points[0]), PlaceOf(m, w, points[1])};
  const Vec3<D> way = at[1] - at[0];
  const D pull = c.pair->upper ? -c.f[0] : c.f[0];
  const Vec3<D> none{D(0.0), D(0.0), D(0.0)};
  const Vec3<D> force = Select(c.active, way * (pull / Sqrt(Dot(way, way))), none);
  for (int side = 0; side < 2; ++side) {
    const int b = points[side].body;
    if (b == 0) continue;
    const Spatial<D> one{Cross(at[side] - w.com[points[side].root], force), force};
    out[b] = side == 0 ? out[b] - one : out[b] + one;
  }
}

// cfrc_ext of mj_rnePostConstraint: forces of contacts and tendons on bodies, about their trees' centres of mass.
template <typename M, typename D>
void ContactForces(const M& m, const Work<D>& w, Spatial<D>* out) {
  for (int b = 0; b < m.n.nbody; ++b) out[b] = {{0.0, 0.0, 0.0}, {0.0, 0.0, 0.0}};
  for (int i = 0; i < w.num_contacts; ++i) {
    const Contact<D>& c = w.contacts[i];
    if (c.pair->kind == PairKind::kTendon) {
      AddTendonForce(m, w, c, out);
      continue;
    }
    Vec3<D> force = ContactForce(c);
    force = Select(c.active, force, Vec3<D>{0.0, 0.0, 0.0});
    for (int side = 0; side < 2; ++side) {
      const int b = c.pair->body[side];
      if (b == 0) continue;
      const Vec3<D> torque = Cross(c.pos - w.com[m.body_rootid[b]], force);
      // the point is arbitrary in lanes that do not touch
      const Spatial<D> one{Select(c.active, torque, Vec3<D>{0.0, 0.0, 0.0}), force};
      out[b] = side == 0 ? out[b] - one : out[b] + one;
    }
  }
}

// Accelerations of bodies and forces between them and their parents, as mj_rnePostConstraint leaves
// them; only for sensors. Before the call, `forces` holds cfrc_ext.
template <typename M, typename D>
void BodyForces(const M& m, const Work<D>& w, Spatial<D>* accelerations, Spatial<D>* forces) {
  accelerations[0] = {{0.0, 0.0, 0.0}, -Fixed<D>(m.options->gravity)};
  for (int b = 1; b < m.n.nbody; ++b) {
    Spatial<D> a = accelerations[m.body_parentid[b]];
    for (int i = m.body_dofadr[b]; i < m.body_dofadr[b] + m.body_dofnum[b]; ++i) {
      a = a + w.cdof_dot[i] * w.qvel[i] + w.cdof[i] * w.qacc[i];
    }
    accelerations[b] = a;
    forces[b] = w.cinert[b] * a + CrossForce(w.cvel[b], w.cinert[b] * w.cvel[b]) - forces[b];
  }
  for (int b = m.n.nbody - 1; b > 0; --b) {
    const int p = m.body_parentid[b];
    forces[p] = forces[p] + forces[b];
  }
}

template <typename M, typename D>
Vec3<D> SitePosition(const M& m, const Work<D>& w, int site) {
  const int b = m.site_bodyid[site];
  return w.xpos[b] + Rotate(w.xmat[b], m.site_pos + 3 * site);
}
template <typename M, typename D>
Mat3<D> SiteRotation(const M& m, const Work<D>& w, int site) {
  return Product(w.xmat[m.site_bodyid[site]], m.site_mat + 9 * site);
}

// Tells if a ray from `from` along `ray`, in the zone's own frame, meets the zone; from inside it
// always does.
inline bool MeetsQuadric(double a, double b, double c) {
  const double det = b * b - a * c;
  if (det < kTiny) return false;
  return a >= kTiny && -b + __builtin_sqrt(det) >= 0;
}
inline bool MeetsZone(int kind, const double* size, const double* from, const double* ray) {
  const auto dot = [](const double* p, const double* q) { return p[0] * q[0] + p[1] * q[1] + p[2] * q[2]; };
  if (kind == kSphere) return MeetsQuadric(dot(ray, ray), dot(ray, from), dot(from, from) - size[0] * size[0]);
  if (kind == kEllipsoid) {
    double r[3], f[3];
    for (int i = 0; i < 3; ++i) {
      r[i] = ray[i] / size[i];
      f[i] = from[i] / size[i];
    }
    return MeetsQuadric(dot(r, r), dot(r, f), dot(f, f) - 1);
  }
  if (kind == kBox) {
    double enter = -1e300, leave = 1e300;
    for (int i = 0; i < 3; ++i) {
      if (__builtin_fabs(ray[i]) < kTiny) {
        if (__builtin_fabs(from[i]) > size[i]) return false;
        continue;
      }
      double t0 = (-size[i] - from[i]) / ray[i], t1 = (size[i] - from[i]) / ray[i];
      if (t0 > t1) {
        const double t = t0;
        t0 = t1;
        t1 = t;
      }
      enter = t0 > enter ? t0 : enter;
      leave = t1 < leave ? t1 : leave;
    }
    return enter <= leave && leave >= 0;
  }
  // a capsule: its cylinder between the two ends, or one of the spheres at them
  for (const double end : {-size[1], size[1]}) {
    const double at[3] = {from[0], from[1], from[2] - end};
    if (MeetsQuadric(dot(ray, ray), dot(ray, at), dot(at, at) - size[0] * size[0])) return true;
  }
  const double a = ray[0] * ray[0] + ray[1] * ray[1], b = ray[0] * from[0] + ray[1] * from[1];
  const double c = from[0] * from[0] + from[1] * from[1] - size[0] * size[0];
  if (a < kTiny) return c <= 0;
  const double det = b * b - a * c;
  if (det < kTiny) return false;
  for (const double root : {-1.0, 1.0}) {
    const double t = (-b + root * __builtin_sqrt(det)) / a;
    if (t >= 0 && __builtin_fabs(from[2] + t * ray[2]) <= size[1]) return true;
  }
  return false;
}

template <typename M, typename D>
D Touch(const M& m, const Work<D>& w, int site) {
  D sum = 0.0;
  const int body = m.site_bodyid[site];
  for (int i = 0; i < w.num_contacts; ++i) {
    const Contact<D>& c = w.contacts[i];
    if (c.pair->body[0] != body && c.pair->body[1] != body) continue;
    D normal = c.f[0];
    for (int j = 1; j < c.Rows(); ++j) normal += c.f[j];
    const Mat3<D> r = SiteRotation(m, w, site);
    const Vec3<D> from = RotateBack(r, c.pos - SitePosition(m, w, site));
    Vec3<D> ray = RotateBack(r, c.frame[0]);
    if (c.pair->body[1] == body) ray = -ray;
    for (int lane = 0; lane < D::kWidth; ++lane) {
      const double push = Numbers(&normal)[lane];
      if (!(ToBits(c.active) >> lane & 1) || push <= 0) continue;
      const double at[3] = {Numbers(&from.x)[lane], Numbers(&from.y)[lane], Numbers(&from.z)[lane]};
      const double along[3] = {Numbers(&ray.x)[lane], Numbers(&ray.y)[lane], Numbers(&ray.z)[lane]};
      const double size[3] = {InLane(m.site_size[3 * site], lane), InLane(m.site_size[3 * site + 1], lane),
                              InLane(m.site_size[3 * site + 2], lane)};
      if (MeetsZone(m.site_type[site], size, at, along)) Numbers(&sum)[lane] += push;
    }
  }
  return sum;
}

enum class Stage { kPositions = 1, kAccelerations = 2, kAll = 3 };

template <typename M, typename D>
class SensorReader {
 public:
  SensorReader(const M& m, const Work<D>& w, D* out, Spatial<D>* accelerations, Spatial<D>* forces)
      : m_(m), w_(w), out_(out), accelerations_(accelerations), forces_(forces) {}

  void Read(Stage stage) {
    const bool positions = stage != Stage::kAccelerations, rest = stage != Stage::kPositions;
    if (rest && m_.accelerations_sensed) {
      ContactForces(m_, w_, forces_);
      BodyForces(m_, w_, accelerations_, forces_);
    }
    for (int i = 0; i < m_.n.nsensor; ++i) {
      const Sensor& s = m_.sensors[i];
      if (OfAccelerations(s.kind) ? rest : positions) ReadOne(s);
    }
  }

 private:
  static bool OfAccelerations(SensorKind kind) {
    return kind == SensorKind::kTouch || kind == SensorKind::kAccelerometer || kind == SensorKind::kForce ||
           kind == SensorKind::kTorque;
  }

  void Put(const Sensor& s, D value) { Cut(s, value, out_[s.adr]); }
  void Put(const Sensor& s, Vec3<D> v) {
    Cut(s, v.x, out_[s.adr]);
    Cut(s, v.y, out_[s.adr + 1]);
    Cut(s, v.z, out_[s.adr + 2]);
  }
  void Cut(const Sensor& s, D value, D& out) {
    const D most = D(m_.sensor_cutoff[&s - m_.sensors]);
    // touch is never negative
    out = !s.cuts ? value : Clip(value, s.kind == SensorKind::kTouch ? D(0.0) : -most, most);
  }

  void ReadOne(const Sensor& s) {
    switch (s.kind) {
      case SensorKind::kSubtreeVelocity: return Put(s, SubtreeVelocity(m_, w_, s.object));
      case SensorKind::kSubtreeCom: return Put(s, w_.com[s.object]);
      case SensorKind::kVelocimeter: return Put(s, AtSite(s, w_.cvel[Body(s)]).l);
      case SensorKind::kGyro: return Put(s, AtSite(s, w_.cvel[Body(s)]).a);
      case SensorKind::kAccelerometer: return Put(s, Acceleration(s));
      case SensorKind::kForce: return Put(s, ForceAtSite(s).l);
      case SensorKind::kTorque: return Put(s, ForceAtSite(s).a);
      case SensorKind::kTouch: return Put(s, Touch(m_, w_, s.object));
      case SensorKind::kFramePosition: return Put(s, Position(s));
      case SensorKind::kFrameAxis: return Put(s, Axis(s));
      case SensorKind::kJointPosition: return Put(s, w_.qpos[m_.jnt_qposadr[s.object]]);
      case SensorKind::kJointVelocity: return Put(s, w_.qvel[m_.jnt_dofadr[s.object]]);
      case SensorKind::kUncovered: return;
    }
  }

  int Body(const Sensor& s) const { return m_.site_bodyid[s.object]; }
  Vec3<D> Lever(const Sensor& s) const {
    return SitePosition(m_, w_, s.object) - w_.com[m_.body_rootid[Body(s)]];
  }

  // A motion of the site's body, in the frame of the site.
  Spatial<D> AtSite(const Sensor& s, const Spatial<D>& motion) const {
    const Mat3<D> r = SiteRotation(m_, w_, s.object);
    return {RotateBack(r, motion.a), RotateBack(r, motion.l + Cross(motion.a, Lever(s)))};
  }
  Vec3<D> Acceleration(const Sensor& s) const {
    const Spatial<D> a = AtSite(s, accelerations_[Body(s)]), v = AtSite(s, w_.cvel[Body(s)]);
    return a.l + Cross(v.a, v.l);
  }
  Spatial<D> ForceAtSite(const Sensor& s) const {
    const Mat3<D> r = SiteRotation(m_, w_, s.object);
    const Spatial<D>& f = forces_[Body(s)];
    return {RotateBack(r, f.a - Cross(Lever(s), f.l)), RotateBack(r, f.l)};
  }

  Vec3<D> Position(const Sensor& s) const {
    switch (s.frame) {
      case FrameKind::kInertialBody: return w_.xipos[s.object];
      case FrameKind::kBody: return w_.xpos[s.object];
      case FrameKind::kSite: return SitePosition(m_, w_, s.object);
      case FrameKind::kGeom: break;
    }
    const int b = m_.geom_bodyid[s.object];
    return w_.xpos[b] + Rotate(w_.xmat[b], m_.geom_pos + 3 * s.object);
  }
  Vec3<D> Axis(const Sensor& s) const {
    Mat3<D> r;
    switch (s.frame) {
      case FrameKind::kInertialBody: r = Product(w_.xmat[s.object], m_.body_imat + 9 * s.object); break;
      case FrameKind::kBody: r = w_.xmat[s.object]; break;
      case FrameKind::kSite: r = SiteRotation(m_, w_, s.object); break;
      case FrameKind::kGeom:
        r = Product(w_.xmat[m_.geom_bodyid[s.object]], m_.geom_mat + 9 * s.object);
        break;
    }
    return {r.m[s.axis], r.m[3 + s.axis], r.m[6 + s.axis]};
  }

  const M& m_;
  const Work<D>& w_;
  D* const out_;
  Spatial<D>* const accelerations_;
  Spatial<D>* const forces_;
};
