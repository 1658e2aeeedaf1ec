// SPDX-License-Identifier: Apache-2.0
// Steps of a vector of simulations: loads rows into lanes, integrates as MuJoCo does, and stores
// lanes into rows.
template <typename M, typename D>
class Stepper {
 public:
  using Bits = typename D::Bits;
  static constexpr int W = D::kWidth;

  Stepper(const M& m, Allotment& memory) : m_(m) {
    w_.LayOut(m, memory);
    const auto nb = static_cast<std::size_t>(m.n.nbody);
    external_ = memory.Take<Spatial<D>>(nb);
    accelerations_ = memory.Take<Spatial<D>>(nb);
    sensed_ = memory.Take<D>(static_cast<std::size_t>(m.n.nsensordata));
    scratch_ = memory.Take<D>(9 * static_cast<std::size_t>(
        m.n.ngeom > m.n.nsite ? m.n.ngeom : m.n.nsite));
  }

  // Steps the rows; returns, as bits, those that were left unchanged.
  unsigned Step(const Row* rows, int count, const StepOptions& options) {
    const bool sensors = rows[0].sensordata != nullptr && (m_.disabled & kNoSensor) == 0;
    Load(rows, count);
    for (int i = 0; i < options.substeps; ++i) {
      Check();
      if (All(w_.escaped)) break;
      Evaluate(m_, w_);
      CheckAccelerations();
      // within a Runge-Kutta step no sensors are computed
      if (sensors && i == options.substeps - 1) Sense(Stage::kAll);
      if (m_.runge_kutta) {
        RungeKutta();
      } else {
        Euler();
      }
    }
    Check();
    if (options.ending == Ending::kUpToDate) {
      SmoothPositions(m_, w_);
      Velocities(m_, w_);
      TendonVelocities(m_, w_);
      if (sensors) Sense(Stage::kPositions);
    }
    return Store(rows, count, options, sensors);
  }

  unsigned Forward(const Row* rows, const Probe* probes, int count) {
    Load(rows, count);
    Check();
    Evaluate(m_, w_);
    CheckAccelerations();
    const unsigned left = ToBits(w_.escaped) & ((1U << count) - 1);
    for (int lane = 0; lane < count; ++lane) {
      if (!(left >> lane & 1)) StoreProbe(probes[lane], lane);
    }
    return left | (ToBits(w_.divided) & left) << 16;
  }

 private:
  // Loads rows into lanes. Lanes without a row of their own repeat the first row.
  void Load(const Row* rows, int count) {
    w_.escaped = w_.divided = FromBits<W>(0);
    w_.num_rows = count;
    w_.num_contacts = w_.num_dofs = 0;
    for (int lane = 0; lane < W; ++lane) {
      const Row& row = rows[lane < count ? lane : 0];
      Gather(row.qpos, w_.qpos, m_.n.nq, lane);
      Gather(row.qvel, w_.qvel, m_.n.nv, lane);
      Gather(row.qacc_warmstart, w_.warm, m_.n.nv, lane);
      Gather(row.ctrl, w_.ctrl, m_.n.nu, lane);
    }
    // huge controls are left to MuJoCo, which warns
    Limit(w_.ctrl, m_.n.nu, kHuge);
    Limit(w_.warm, m_.n.nv, 1e300);
  }

  static void Gather(const double* from, D* to, int count, int lane) {
    double* const out = Numbers(to) + lane;
    for (int i = 0; i < count; ++i) out[i * W] = from[i];
  }
  static void Scatter(const D* from, double* to, int count, int lane) {
    if (!to) return;
    const double* const in = Numbers(from) + lane;
    for (int i = 0; i < count; ++i) to[i] = in[i * W];
  }

  // Marks lanes with values beyond a limit; NaN is beyond any.
  void Limit(const D* values, int count, double most) {
    Bits good = FromBits<W>(~0U);
    for (int i = 0; i < count; ++i) good = good & (Abs(values[i]) <= most);
    w_.escaped = w_.escaped | ~good;
  }
  // Marks lanes with large values, which are left to MuJoCo and its own checks. MuJoCo's limits are
  // far higher; these keep angles within the limit of SinCos.
  void Check() {
    Limit(w_.qpos, m_.n.nq, kLargestAngle);
    Limit(w_.qvel, m_.n.nv, 1e6);
  }
  void CheckAccelerations() { Limit(w_.qacc, m_.n.nv, kHuge); }

  void Sense(Stage stage) {
    SensorReader<M, D>(m_, w_, sensed_, accelerations_, external_).Read(stage);
  }

  // mj_Euler, with implicit joint damping.
  void Euler() {
    const int nv = m_.n.nv;
    D* const rate = w_.search;
    if (m_.implicit_damping) {
      for (int i = 0; i < m_.tree.size; ++i) w_.H[i] = w_.M[i];
      for (int i = 0; i < nv; ++i) w_.H[m_.tree.adr[i]] += m_.dof_damping_step[i];
      const Factor<D> factor{&m_.tree, w_.H, w_.H_inverse};
      Factorize(factor, nv);
      for (int i = 0; i < nv; ++i) rate[i] = w_.smooth[i] + w_.constraint[i];
      Solve(factor, rate, nv);
    } else {
      for (int i = 0; i < nv; ++i) rate[i] = w_.qacc[i];
    }
    for (int i = 0; i < nv; ++i) {
      w_.qvel[i] += rate[i] * m_.options->timestep;
      w_.warm[i] = w_.qacc[i];
    }
    Integrate(w_.qpos, w_.qvel);
  }

  // mj_RungeKutta of order 4.
  void RungeKutta() {
    constexpr double kStage[3] = {0.5, 0.5, 1.0}, kWeight[4] = {1.0 / 6, 1.0 / 3, 1.0 / 3, 1.0 / 6};
    const int nq = m_.n.nq, nv = m_.n.nv;
    const D h = D(m_.options->timestep);
    for (int i = 0; i < nq; ++i) w_.start_qpos[i] = w_.qpos[i];
    for (int i = 0; i < nv; ++i) {
      w_.start_qvel[i] = w_.stage_qvel[i] = w_.qvel[i];
      w_.stage_qacc[i] = w_.qacc[i];
      w_.sum_qvel[i] = w_.qvel[i] * kWeight[0];
      w_.sum_qacc[i] = w_.qacc[i] * kWeight[0];
    }
    for (int stage = 1; stage < 4; ++stage) {
      const double part = kStage[stage - 1];
      for (int i = 0; i < nv; ++i) w_.rate[i] = w_.stage_qvel[i] * part;
      for (int i = 0; i < nq; ++i) w_.qpos[i] = w_.start_qpos[i];
      Integrate(w_.qpos, w_.rate);
      for (int i = 0; i < nv; ++i) w_.qvel[i] = w_.start_qvel[i] + w_.stage_qacc[i] * (part * h);
      Check();
      Evaluate(m_, w_);
      for (int i = 0; i < nv; ++i) w_.stage_qvel[i] = w_.qvel[i];
      for (int j = 0; j < m_.n.njnt; ++j) CorrectRotation(j);
      for (int i = 0; i < nv; ++i) {
        w_.sum_qvel[i] += w_.stage_qvel[i] * kWeight[stage];
        w_.sum_qacc[i] += w_.qacc[i] * kWeight[stage];
        w_.stage_qacc[i] = w_.qacc[i];
      }
    }
    for (int i = 0; i < nq; ++i) w_.qpos[i] = w_.start_qpos[i];
    for (int i = 0; i < nv; ++i) {
      w_.qvel[i] = w_.start_qvel[i] + w_.sum_qacc[i] * h;
      w_.warm[i] = w_.qacc[i];
    }
    Integrate(w_.qpos, w_.sum_qvel);
  }

  // Maps the rotational velocities of a stage back to the beginning of the step, by the inverse of
  // the exponential map's derivative.
  void CorrectRotation(int j) {
    const int kind = m_.jnt_type[j];
    if (kind != kFree && kind != kBall) return;
    const int d = m_.jnt_dofadr[j] + (kind == kFree ? 3 : 0);
    const D h = D(m_.options->timestep);
    const Vec3<D> turned{w_.rate[d] * h, w_.rate[d + 1] * h, w_.rate[d + 2] * h};
    const Vec3<D> spin{w_.qvel[d], w_.qvel[d + 1], w_.qvel[d + 2]};
    const Vec3<D> once = Cross(turned, spin), twice = Cross(turned, once);
    const D square = Dot(turned, turned), angle = Sqrt(square);
    // MuJoCo chooses the shorter way around
    w_.escaped = w_.escaped | (angle >= 3.1);
    D s, c;
    SinCos(angle * 0.5, s, c);
    const auto small = square < 1e-6;
    const D factor = Select(small, 1.0 / 12 + square * (1.0 / 720),
                            (1.0 - 0.5 * angle * c / Select(small, D(1.0), s)) / Select(small, D(1.0), square));
    const Vec3<D> back = spin + once * D(0.5) + twice * factor;
    w_.stage_qvel[d] = back.x;
    w_.stage_qvel[d + 1] = back.y;
    w_.stage_qvel[d + 2] = back.z;
  }

  // mj_integratePos over a time step.
  void Integrate(D* qpos, const D* qvel) {
    const D h = D(m_.options->timestep);
    for (int j = 0; j < m_.n.njnt; ++j) {
      int q = m_.jnt_qposadr[j], d = m_.jnt_dofadr[j];
      const int kind = m_.jnt_type[j];
      if (kind == kSlide || kind == kHinge) {
        qpos[q] += qvel[d] * h;
        continue;
      }
      if (kind == kFree) {
        for (int i = 0; i < 3; ++i) qpos[q + i] += qvel[d + i] * h;
        q += 3;
        d += 3;
      }
      const Vec3<D> spin{qvel[d], qvel[d + 1], qvel[d + 2]};
      const D speed = Sqrt(Dot(spin, spin));
      const auto turns = speed >= kTiny;
      D s, c;
      SinCos(speed * (0.5 * h), s, c);
      s = Keep(turns, s / Select(turns, speed, D(1.0)));
      c = Select(turns, c, D(1.0));
      const Quat<D> now = Normalized(Quat<D>{qpos[q], qpos[q + 1], qpos[q + 2], qpos[q + 3]}) *
                          Quat<D>{c, spin.x * s, spin.y * s, spin.z * s};
      qpos[q] = now.w;
      qpos[q + 1] = now.x;
      qpos[q + 2] = now.y;
      qpos[q + 3] = now.z;
    }
  }

  unsigned Store(const Row* rows, int count, const StepOptions& options, bool sensors) {
    const unsigned rows_of = (1U << count) - 1;
    const unsigned left = ToBits(w_.escaped) & rows_of;
    const bool external = rows[0].cfrc_ext != nullptr;
    if (external) ContactForces(m_, w_, external_);
    for (int lane = 0; lane < count; ++lane) {
      if (left >> lane & 1) continue;
      const Row& row = rows[lane];
      Scatter(w_.qpos, row.qpos, m_.n.nq, lane);
      Scatter(w_.qvel, row.qvel, m_.n.nv, lane);
      Scatter(w_.warm, row.qacc_warmstart, m_.n.nv, lane);
      // added one by one, as in MuJoCo
      for (int i = 0; i < options.substeps; ++i) *row.time += InLane(m_.options->timestep, lane);
      StoreDerived(row, lane);
      if (external) Scatter(&external_[0].a.x, row.cfrc_ext, 6 * m_.n.nbody, lane);
      for (int i = 0; sensors && i < m_.n.nsensor; ++i) {
        const Sensor& s = m_.sensors[i];
        if (s.kind != SensorKind::kUncovered) Scatter(sensed_ + s.adr, row.sensordata + s.adr, s.dim, lane);
      }
    }
    StorePlaces(rows, count, left);
    return left | (ToBits(w_.divided) & left) << 16;
  }

  void StoreDerived(const Row& row, int lane) {
    const int nv = m_.n.nv, nb = m_.n.nbody;
    // the acceleration of the whole step
    Scatter(m_.runge_kutta ? w_.sum_qacc : w_.qacc, row.qacc, nv, lane);
    Scatter(w_.actuation, row.qfrc_actuator, nv, lane);
    Scatter(w_.constraint, row.qfrc_constraint, nv, lane);
    Scatter(&w_.xpos[0].x, row.xpos, 3 * nb, lane);
    Scatter(&w_.xquat[0].w, row.xquat, 4 * nb, lane);
    Scatter(w_.xmat[0].m, row.xmat, 9 * nb, lane);
    Scatter(&w_.xipos[0].x, row.xipos, 3 * nb, lane);
    Scatter(&w_.com[0].x, row.subtree_com, 3 * nb, lane);
    // the inertia of the world's body is zero
    if (row.cinert) {
      for (int i = 0; i < 10; ++i) row.cinert[i] = 0;
      Scatter(&w_.cinert[1].xx, row.cinert + 10, 10 * (nb - 1), lane);
    }
    Scatter(&w_.cvel[0].a.x, row.cvel, 6 * nb, lane);
    Scatter(w_.tendon_length, row.ten_length, m_.n.ntendon, lane);
    Scatter(w_.tendon_velocity, row.ten_velocity, m_.n.ntendon, lane);
  }

  // Stores the places of geoms and sites, for rows that want them.
  void StorePlaces(const Row* rows, int count, unsigned left) {
    const auto store = [&](double* const Row::*array, int number, int size, auto&& place) {
      if (!(rows[0].*array)) return;
      for (int i = 0; i < number; ++i) place(i, scratch_ + size * i);
      for (int lane = 0; lane < count; ++lane) {
        if (!(left >> lane & 1)) Scatter(scratch_, rows[lane].*array, size * number, lane);
      }
    };
    store(&Row::geom_xpos, m_.n.ngeom, 3, [&](int g, D* out) {
      const int b = m_.geom_bodyid[g];
      *reinterpret_cast<Vec3<D>*>(out) = w_.xpos[b] + Rotate(w_.xmat[b], m_.geom_pos + 3 * g);
    });
    store(&Row::geom_xmat, m_.n.ngeom, 9, [&](int g, D* out) {
      *reinterpret_cast<Mat3<D>*>(out) = Product(w_.xmat[m_.geom_bodyid[g]], m_.geom_mat + 9 * g);
    });
    store(&Row::site_xpos, m_.n.nsite, 3,
          [&](int s, D* out) { *reinterpret_cast<Vec3<D>*>(out) = SitePosition(m_, w_, s); });
    store(&Row::site_xmat, m_.n.nsite, 9,
          [&](int s, D* out) { *reinterpret_cast<Mat3<D>*>(out) = SiteRotation(m_, w_, s); });
  }

  void StoreProbe(const Probe& probe, int lane) {
    const int nv = m_.n.nv;
    Scatter(w_.bias, probe.qfrc_bias, nv, lane);
    Scatter(w_.passive, probe.qfrc_passive, nv, lane);
    Scatter(w_.actuation, probe.qfrc_actuator, nv, lane);
    Scatter(w_.qacc_smooth, probe.qacc_smooth, nv, lane);
    Scatter(w_.constraint, probe.qfrc_constraint, nv, lane);
    Scatter(w_.qacc, probe.qacc, nv, lane);
    if (probe.qM) {
      for (int i = 0; i < nv * nv; ++i) probe.qM[i] = 0;
      for (int i = 0; i < nv; ++i) {
        for (int p = m_.tree.adr[i]; p < m_.tree.adr[i] + m_.tree.count[i]; ++p) {
          const int j = m_.tree.column[p];
          probe.qM[i * nv + j] = probe.qM[j * nv + i] = Numbers(w_.M + p)[lane];
        }
      }
    }
    if (probe.solver_niter) *probe.solver_niter = static_cast<std::int32_t>(Numbers(&w_.iterations)[lane]);
    if (probe.nefc) {
      int rows = 0;
      for (int i = 0; i < w_.num_dofs; ++i) rows += ToBits(w_.dofs[i].active) >> lane & 1;
      for (int i = 0; i < w_.num_contacts; ++i) {
        if (ToBits(w_.contacts[i].active) >> lane & 1) rows += w_.contacts[i].Rows();
      }
      *probe.nefc = rows;
    }
  }

  const M& m_;
  Work<D> w_;
  Spatial<D> *external_, *accelerations_;
  D *sensed_, *scratch_;
};
