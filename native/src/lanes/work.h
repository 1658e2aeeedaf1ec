// SPDX-License-Identifier: Apache-2.0
// A thread's memory while it steps some simulations of a model: arrays with MuJoCo's names, with
// one vector for each number. Laid out in memory that the caller owns.

// A contact of a pair of geoms, or the end of a tendon's range, in the lanes where it is active.
template <typename D>
struct Contact {
  const Pair* pair;
  bool flat;               // side2 is zero everywhere, as in a model that moves in a plane
  typename D::Bits active;
  D friction;
  D dist, R, stiffness;    // efc_R and efc_D, which is 0 where the lane does not touch
  Vec3<D> pos, frame[3];   // normal from the first geom to the second, two tangents
  D *along, *side1, *side2;  // (num_dofs) Jacobians of the frame's directions
  D aref[4], x[4], jv[4], b[4], f[4];
  int Rows() const { return pair->dim > 1 ? 4 : 1; }
};

// A limit or dry friction of a dof.
template <typename D>
struct DofConstraint {
  const DofRow* row;
  typename D::Bits active;
  D loss, dist, R, stiffness, aref, x, jv, b, f;
};

// For PGS: the rows of one lane, its numbers one after the other, padded with zeros to whole
// vectors.
template <typename D>
struct DualLane {
  int index, count, size;
  double scale, tolerance;
  int rows[kMaxDualRows];
  double* A;
  alignas(64) double b[kMaxDualRows], f[kMaxDualRows], r[kMaxDualRows], before[kMaxDualRows],
      jumped[kMaxDualRows], inverse[kMaxDualRows];
  D improvement;
  int since;
};

// A row during a line search: its value at the start, its rate, and its cost as a quadratic.
template <typename D>
struct LineRow {
  D x, jv, q0, q1, q2;
};

// A matrix over the dofs, stored by its sparsity, and 1 / the diagonal of its factor.
template <typename D>
struct Factor {
  const Sparsity* order;
  D* entries;
  D* inverse;
};

// Hands out parts of a block of memory; where the block is null, only counts.
class Allotment {
 public:
  explicit Allotment(std::uint8_t* block) : block_(block) {}
  template <typename T>
  T* Take(std::size_t count) {
    const std::size_t at = used_;
    used_ += (count * sizeof(T) + 63) / 64 * 64;
    return block_ ? reinterpret_cast<T*>(block_ + at) : nullptr;
  }
  std::size_t used() const { return used_; }

 private:
  std::uint8_t* const block_;
  std::size_t used_ = 0;
};

template <typename D>
struct Work {
  using Bits = typename D::Bits;

  D *qpos, *qvel, *warm, *ctrl, *qacc, *qacc_smooth, *smooth, *bias, *passive, *actuation, *constraint;
  Vec3<D> *xpos, *xipos, *com, *moment;
  Quat<D>* xquat;
  Mat3<D>* xmat;
  Inertia<D> *cinert, *crb;
  Spatial<D> *cdof, *cdof_dot, *cvel, *cacc, *cfrc;
  Vec3<D> *joint_axis, *joint_anchor, *geom_pos, *geom_axis;
  D *tendon_length, *tendon_velocity, *tendon_moments;
  D *M, *L, *inverse, *H, *H_inverse;
  D *Ma, *grad, *Mgrad, *search, *Mv;
  D *start_qpos, *start_qvel, *sum_qvel, *sum_qacc, *stage_qvel, *stage_qacc, *rate;
  Contact<D>* contacts;
  DofConstraint<D>* dofs;
  D* jacobians;
  LineRow<D>* line_rows;
  // for PGS: half-transformed rows, and their products
  D *rows, *products, *dual_b, *dual_f, *dual_R, *root_inverse;
  std::uint64_t *row_dofs, *row_lanes;
  DualLane<D>* dual_lanes;
  double* lane_products;

  int num_rows;    // lanes with a row of their own, which are the first ones
  int num_contacts, num_dofs;
  Bits escaped;   // lanes that are left to MuJoCo
  Bits divided;   // escaped lanes that would be stepped alone
  D iterations;   // sum over all islands
  Bits constrained;
  Bits cold;      // lanes that do not begin at their last accelerations

  void LayOut(const Structure& m, Allotment& memory) {
    const auto nq = static_cast<std::size_t>(m.n.nq), nv = static_cast<std::size_t>(m.n.nv);
    const auto nb = static_cast<std::size_t>(m.n.nbody), ng = static_cast<std::size_t>(m.n.ngeom);
    const auto nt = static_cast<std::size_t>(m.n.ntendon);
    const auto nu = static_cast<std::size_t>(m.n.nu);
    for (D** array : {&qvel, &warm, &qacc, &qacc_smooth, &smooth, &bias, &passive, &actuation, &constraint,
                      &inverse, &H_inverse, &Ma, &grad, &Mgrad, &search, &Mv, &root_inverse}) {
      *array = memory.Take<D>(nv);
    }
    qpos = memory.Take<D>(nq);
    ctrl = memory.Take<D>(nu);
    for (Vec3<D>** array : {&xpos, &xipos, &com, &moment}) *array = memory.Take<Vec3<D>>(nb);
    xquat = memory.Take<Quat<D>>(nb);
    xmat = memory.Take<Mat3<D>>(nb);
    cinert = memory.Take<Inertia<D>>(nb);
    crb = memory.Take<Inertia<D>>(nb);
    for (Spatial<D>** array : {&cvel, &cacc, &cfrc}) *array = memory.Take<Spatial<D>>(nb);
    cdof = memory.Take<Spatial<D>>(nv);
    cdof_dot = memory.Take<Spatial<D>>(nv);
    joint_axis = memory.Take<Vec3<D>>(nv);
    joint_anchor = memory.Take<Vec3<D>>(nv);
    geom_pos = memory.Take<Vec3<D>>(ng);
    geom_axis = memory.Take<Vec3<D>>(ng);
    tendon_length = memory.Take<D>(nt);
    tendon_velocity = memory.Take<D>(nt);
    tendon_moments = memory.Take<D>(static_cast<std::size_t>(m.num_tendon_moments));
    M = memory.Take<D>(static_cast<std::size_t>(m.tree.size));
    L = memory.Take<D>(static_cast<std::size_t>(m.tree.size));
    H = memory.Take<D>(static_cast<std::size_t>(m.dense.size));
    if (m.runge_kutta) {
      start_qpos = memory.Take<D>(nq);
      for (D** array : {&start_qvel, &sum_qvel, &sum_qacc, &stage_qvel, &stage_qacc, &rate}) {
        *array = memory.Take<D>(nv);
      }
    }
    const auto most = static_cast<std::size_t>(m.max_contacts);
    contacts = memory.Take<Contact<D>>(most);
    dofs = memory.Take<DofConstraint<D>>(static_cast<std::size_t>(m.num_dof_rows));
    jacobians = memory.Take<D>(3 * most * static_cast<std::size_t>(m.max_pair_dofs));
    if (!m.pgs) line_rows = memory.Take<LineRow<D>>(4 * most + static_cast<std::size_t>(m.num_dof_rows));
    if (m.pgs) {
      rows = memory.Take<D>(kMaxDualRows * nv);
      products = memory.Take<D>(kMaxDualRows * kMaxDualRows);
      for (D** array : {&dual_b, &dual_f, &dual_R}) *array = memory.Take<D>(kMaxDualRows);
      row_dofs = memory.Take<std::uint64_t>(kMaxDualRows);
      row_lanes = memory.Take<std::uint64_t>(kMaxDualRows);
      dual_lanes = memory.Take<DualLane<D>>(D::kWidth);
      lane_products = memory.Take<double>(D::kWidth * kMaxDualRows * kMaxDualRows);
    }
  }
};
