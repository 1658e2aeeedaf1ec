// SPDX-License-Identifier: Apache-2.0
// Copies a model's constants, and refuses models that lanes do not step.
#include "fields.h"
#include "model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numbers>
#include <initializer_list>
#include <utility>
#include <vector>

namespace rollouts::lanes {

std::string WhyUncovered(const ModelSizes& n, const FieldReader& read);
std::string WhyUncoveredPairs(const Model& model);
void ReadConstraints(Model& model, const FieldReader& read);
void ReadConstraintNumbers(Model& model, const FieldReader& read);
void ReadTendons(Model& model, const FieldReader& read);
void ReadActuators(Model& model, const FieldReader& read);
void ReadActuatorNumbers(Model& model, const FieldReader& read);
void ReadSensors(Model& model, const FieldReader& read);
const std::uint8_t* const* VisitsOf(std::int32_t sweeps);

namespace {

void ToMatrix(const double* q, double* m) {
  const double w = q[0], x = q[1], y = q[2], z = q[3];
  const double rows[9] = {w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y),
                          2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x),
                          2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z};
  std::copy_n(rows, 9, m);
}

void ToMatrices(const double* quats, std::int32_t count, double* out) {
  for (std::int32_t i = 0; i < count; ++i) ToMatrix(quats + 4 * i, out + 9 * i);
}

// Marks the groups of `width` numbers that differ from `zero`.
const std::uint8_t* Differs(Model& model, const double* values, std::int32_t count, int width,
                            const double* zero) {
  std::uint8_t* const out = model.Keep<std::uint8_t>(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) out[i] = !std::equal(zero, zero + width, values + width * i);
  return out;
}

constexpr double kNoOffset[3] = {0, 0, 0}, kNoTurn[4] = {1, 0, 0, 0};

void ReadOptions(Model& model, const FieldReader& read) {
  model.iterations = *Array<std::int32_t>(read, "opt.iterations");
  model.ls_iterations = *Array<std::int32_t>(read, "opt.ls_iterations");
  model.disabled = *Array<std::int32_t>(read, "opt.disableflags");
  model.runge_kutta = *Array<std::int32_t>(read, "opt.integrator") == kRungeKutta4;
  model.pgs = *Array<std::int32_t>(read, "opt.solver") == kPgs;
  model.warm_starts = (model.disabled & kNoWarmStart) == 0;
  model.has_actuation = (model.disabled & kNoActuation) == 0;
  model.dense_fluid = *Array<double>(read, "opt.density") > 0;
  model.viscous = *Array<double>(read, "opt.viscosity") > 0;
}

void ReadOptionNumbers(Model& model, const FieldReader& read) {
  OptionNumbers<double>& out = *model.options;
  out.timestep = *Array<double>(read, "opt.timestep");
  out.tolerance = *Array<double>(read, "opt.tolerance");
  out.ls_tolerance = *Array<double>(read, "opt.ls_tolerance");
  out.density = *Array<double>(read, "opt.density");
  out.viscosity = *Array<double>(read, "opt.viscosity");
  std::copy_n(Array<double>(read, "opt.wind"), 3, out.wind);
  if ((model.disabled & kNoGravity) == 0) std::copy_n(Array<double>(read, "opt.gravity"), 3, out.gravity);
}

void ReadBodies(Model& model, const FieldReader& read) {
  const std::int32_t number = model.n.nbody;
  const auto nbody = static_cast<std::size_t>(number);
  model.body_parentid = Copy<std::int32_t>(model, read, "body_parentid", nbody);
  model.body_rootid = Copy<std::int32_t>(model, read, "body_rootid", nbody);
  model.body_jntnum = Copy<std::int32_t>(model, read, "body_jntnum", nbody);
  model.body_jntadr = Copy<std::int32_t>(model, read, "body_jntadr", nbody);
  model.body_dofnum = Copy<std::int32_t>(model, read, "body_dofnum", nbody);
  model.body_dofadr = Copy<std::int32_t>(model, read, "body_dofadr", nbody);
  model.body_offset = Differs(model, Array<double>(read, "body_pos"), number, 3, kNoOffset);
  model.body_inertia_offset = Differs(model, Array<double>(read, "body_ipos"), number, 3, kNoOffset);
  model.body_turned = Differs(model, Array<double>(read, "body_quat"), number, 4, kNoTurn);
  model.body_inertia_turned = Differs(model, Array<double>(read, "body_iquat"), number, 4, kNoTurn);
  auto* const heavy = model.Keep<std::uint8_t>(nbody);
  auto* const subtree_heavy = model.Keep<std::uint8_t>(nbody);
  for (std::size_t b = 0; b < nbody; ++b) {
    heavy[b] = Array<double>(read, "body_mass")[b] >= kTiny;
    subtree_heavy[b] = Array<double>(read, "body_subtreemass")[b] >= kTiny;
  }
  model.body_heavy = heavy;
  model.subtree_heavy = subtree_heavy;
  auto* const ones = model.Keep<std::uint8_t>(nbody + static_cast<std::size_t>(model.n.njnt));
  std::fill_n(ones, nbody + static_cast<std::size_t>(model.n.njnt), std::uint8_t{1});
  model.ones = ones;
}

// Reads the drag of bodies: fluid acts on a box of uniform mass with the body's inertia.
void ReadFluid(Model& model, std::size_t b) {
  const double* const inertia = model.body_inertia + 3 * b;
  const double sum = inertia[0] + inertia[1] + inertia[2];
  double side[3], fourth[3];
  for (std::size_t i = 0; i < 3; ++i) {
    side[i] = std::sqrt(std::max(kTiny, sum - 2 * inertia[i]) / model.body_mass[b] * 6.0);
    fourth[i] = side[i] * side[i] * side[i] * side[i];
  }
  const double density = model.options->density, viscosity = model.options->viscosity;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t j = (i + 1) % 3, k = (i + 2) % 3;
    model.body_drag[3 * b + i] = 0.5 * density * side[j] * side[k];
    model.body_spin_drag[3 * b + i] = density * side[i] * (fourth[j] + fourth[k]) / 64.0;
  }
  const double diameter = (side[0] + side[1] + side[2]) / 3.0;
  model.body_friction[2 * b] = std::numbers::pi * diameter * diameter * diameter * viscosity;
  model.body_friction[2 * b + 1] = 3.0 * std::numbers::pi * diameter * viscosity;
}

void ReadBodyNumbers(Model& model, const FieldReader& read) {
  const auto nbody = static_cast<std::size_t>(model.n.nbody);
  std::copy_n(Array<double>(read, "body_pos"), 3 * nbody, model.body_pos);
  std::copy_n(Array<double>(read, "body_quat"), 4 * nbody, model.body_quat);
  std::copy_n(Array<double>(read, "body_ipos"), 3 * nbody, model.body_ipos);
  std::copy_n(Array<double>(read, "body_mass"), nbody, model.body_mass);
  std::copy_n(Array<double>(read, "body_inertia"), 3 * nbody, model.body_inertia);
  ToMatrices(Array<double>(read, "body_iquat"), model.n.nbody, model.body_imat);
  for (std::size_t b = 0; b < nbody; ++b) {
    if (model.subtree_heavy[b]) {
      model.inverse_subtree_mass[b] = 1.0 / Array<double>(read, "body_subtreemass")[b];
    }
    if (model.body_heavy[b]) ReadFluid(model, b);
  }
}

void ReadJoints(Model& model, const FieldReader& read) {
  const auto njnt = static_cast<std::size_t>(model.n.njnt);
  model.jnt_type = Copy<std::int32_t>(model, read, "jnt_type", njnt);
  model.jnt_qposadr = Copy<std::int32_t>(model, read, "jnt_qposadr", njnt);
  model.jnt_dofadr = Copy<std::int32_t>(model, read, "jnt_dofadr", njnt);
  model.jnt_offset = Differs(model, Array<double>(read, "jnt_pos"), model.n.njnt, 3, kNoOffset);
  const bool springs = (model.disabled & kNoSpring) == 0;
  auto* const springs_of = model.Keep<std::uint8_t>(njnt);
  const std::uint8_t* const limited = Array<std::uint8_t>(read, "jnt_actfrclimited");
  for (std::size_t j = 0; j < njnt; ++j) {
    springs_of[j] = springs && Array<double>(read, "jnt_stiffness")[j] != 0;
    model.springs |= springs_of[j] != 0;
    model.limits_joint_forces |= limited && limited[j];
  }
  model.jnt_springs = springs_of;
}

void ReadJointNumbers(Model& model, const FieldReader& read) {
  const auto njnt = static_cast<std::size_t>(model.n.njnt), nq = static_cast<std::size_t>(model.n.nq);
  std::copy_n(Array<double>(read, "jnt_pos"), 3 * njnt, model.jnt_pos);
  std::copy_n(Array<double>(read, "jnt_axis"), 3 * njnt, model.jnt_axis);
  if ((model.disabled & kNoSpring) == 0) {
    std::copy_n(Array<double>(read, "jnt_stiffness"), njnt, model.jnt_stiffness);
  }
  std::copy_n(Array<double>(read, "qpos0"), nq, model.qpos0);
  std::copy_n(Array<double>(read, "qpos_spring"), nq, model.qpos_spring);
  const std::uint8_t* const limited = Array<std::uint8_t>(read, "jnt_actfrclimited");
  for (std::size_t i = 0; i < 2 * njnt; ++i) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    const bool limits = limited && limited[i / 2];
    model.jnt_force_range[i] = limits ? Array<double>(read, "jnt_actfrcrange")[i] : i % 2 ? kNone : -kNone;
  }
}

// Sparsity of matrices over the dofs. Row i has entries for dof i and its ancestors in the tree
// `parent`; without a tree, for dof i and all dofs before it.
Sparsity MakeSparsity(Model& model, const std::int32_t* parent) {
  const std::int32_t nv = model.n.nv;
  const auto all = static_cast<std::size_t>(nv) * static_cast<std::size_t>(nv);
  auto* const adr = model.Keep<std::int32_t>(static_cast<std::size_t>(nv));
  auto* const count = model.Keep<std::int32_t>(static_cast<std::size_t>(nv));
  auto* const column = model.Keep<std::int32_t>(all);
  auto* const place = model.Keep<std::int32_t>(all);
  std::int32_t size = 0;
  for (std::int32_t i = 0; i < nv; ++i) {
    adr[i] = size;
    for (std::int32_t j = i; j >= 0; j = parent ? parent[j] : j - 1) {
      place[i * nv + j] = size - adr[i];
      column[size++] = j;
    }
    count[i] = size - adr[i];
  }
  return {size, adr, count, column, place};
}

const double* Damping(const Model& model, const FieldReader& read) {
  return (model.disabled & kNoDamper) == 0 ? Array<double>(read, "dof_damping") : nullptr;
}

void ReadDofs(Model& model, const FieldReader& read) {
  const auto nv = static_cast<std::size_t>(model.n.nv);
  model.dof_bodyid = Copy<std::int32_t>(model, read, "dof_bodyid", nv);
  const double* const damping = Damping(model, read);
  model.implicit_damping = (model.disabled & kNoEulerDamping) == 0 && damping &&
                           std::any_of(damping, damping + nv, [](double one) { return one > 0; });
  const std::int32_t* const parent = Array<std::int32_t>(read, "dof_parentid");
  model.tree = MakeSparsity(model, parent);
  model.dense = MakeSparsity(model, nullptr);
  // dofs of a tree have consecutive numbers
  auto* const tree = model.Keep<std::int32_t>(nv);
  model.num_trees = 0;
  for (std::size_t i = 0; i < nv; ++i) {
    model.num_trees += parent[i] < 0;
    tree[i] = model.num_trees - 1;
  }
  model.dof_tree = tree;
  auto* const body_tree = model.Keep<std::int32_t>(static_cast<std::size_t>(model.n.nbody));
  for (std::int32_t b = 0; b < model.n.nbody; ++b) {
    body_tree[b] = model.body_dofnum[b] > 0 ? tree[model.body_dofadr[b]]
                   : b > 0                  ? body_tree[model.body_parentid[b]]
                                            : -1;
  }
  model.body_tree = body_tree;
}

void ReadDofNumbers(Model& model, const FieldReader& read) {
  const auto nv = static_cast<std::size_t>(model.n.nv);
  std::copy_n(Array<double>(read, "dof_armature"), nv, model.dof_armature);
  const double* const damping = Damping(model, read);
  for (std::size_t i = 0; damping && i < nv; ++i) {
    model.dof_damping[i] = damping[i];
    model.dof_damping_step[i] = damping[i] * model.options->timestep;
  }
}

void ReadPlaces(Model& model, const FieldReader& read) {
  model.geom_bodyid = Copy<std::int32_t>(model, read, "geom_bodyid", static_cast<std::size_t>(model.n.ngeom));
  model.site_bodyid = Copy<std::int32_t>(model, read, "site_bodyid", static_cast<std::size_t>(model.n.nsite));
  model.site_type = Copy<std::int32_t>(model, read, "site_type", static_cast<std::size_t>(model.n.nsite));
}

void ReadPlaceNumbers(Model& model, const FieldReader& read) {
  const auto ngeom = static_cast<std::size_t>(model.n.ngeom), nsite = static_cast<std::size_t>(model.n.nsite);
  std::copy_n(Array<double>(read, "geom_pos"), 3 * ngeom, model.geom_pos);
  ToMatrices(Array<double>(read, "geom_quat"), model.n.ngeom, model.geom_mat);
  for (std::size_t g = 0; g < ngeom; ++g) {
    for (std::size_t i = 0; i < 3; ++i) model.geom_axis[3 * g + i] = model.geom_mat[9 * g + 3 * i + 2];
  }
  std::copy_n(Array<double>(read, "site_pos"), 3 * nsite, model.site_pos);
  std::copy_n(Array<double>(read, "site_size"), 3 * nsite, model.site_size);
  ToMatrices(Array<double>(read, "site_quat"), model.n.nsite, model.site_mat);
}

// A text of all facts by which steps branch: two models with equal texts differ only in numbers.
std::string Describe(const Model& model) {
  std::string out;
  const auto add = [&out](const auto* values, std::int64_t count) {
    out.append(reinterpret_cast<const char*>(values), static_cast<std::size_t>(count) * sizeof(*values));
  };
  add(&model.n, 1);
  for (const std::int32_t one : {model.iterations, model.ls_iterations, model.disabled, model.num_pairs,
                                 model.num_dof_rows, model.num_trees}) {
    add(&one, 1);
  }
  for (const bool one : {model.runge_kutta, model.pgs, model.implicit_damping}) add(&one, 1);
  for (const auto* ints : {model.body_parentid, model.body_jntadr, model.body_jntnum}) add(ints, model.n.nbody);
  for (const auto* bytes : {model.body_heavy, model.subtree_heavy}) add(bytes, model.n.nbody);
  add(model.jnt_type, model.n.njnt);
  add(model.geom_bodyid, model.n.ngeom);
  add(model.actuators, model.n.nu);
  add(model.sensors, model.n.nsensor);
  for (std::int32_t i = 0; i < model.num_pairs; ++i) {
    const Pair& pair = model.pairs[i];
    for (const std::int32_t one : {static_cast<std::int32_t>(pair.kind), static_cast<std::int32_t>(pair.curve),
                                   pair.geom[0], pair.geom[1], pair.dim, pair.plane, pair.tendon,
                                   pair.upper}) {
      add(&one, 1);
    }
  }
  for (std::int32_t i = 0; i < model.num_dof_rows; ++i) {
    const DofRow& row = model.dof_rows[i];
    for (const std::int32_t one : {row.dof, row.dry, static_cast<std::int32_t>(row.curve)}) add(&one, 1);
    add(&row.sign, 1);
  }
  return out;
}

}  // namespace

ModelOrReason ReadModel(const ModelSizes& sizes, const FieldReader& read) {
  std::string why_not = WhyUncovered(sizes, read);
  if (!why_not.empty()) return {nullptr, std::move(why_not)};
  auto model = std::make_shared<Model>();
  model->n = sizes;
  ReadOptions(*model, read);
  ReadBodies(*model, read);
  ReadJoints(*model, read);
  ReadDofs(*model, read);
  ReadPlaces(*model, read);
  ReadTendons(*model, read);
  ReadActuators(*model, read);
  ReadSensors(*model, read);
  ReadConstraints(*model, read);
  if (model->pgs) model->visits = VisitsOf(model->iterations);
  model->num_numbers = model->Place(*model, nullptr);
  double* const numbers = model->Keep<double>(model->num_numbers);
  model->numbers = numbers;
  model->Place(*model, numbers);
  ReadOptionNumbers(*model, read);
  ReadBodyNumbers(*model, read);
  ReadJointNumbers(*model, read);
  ReadDofNumbers(*model, read);
  ReadPlaceNumbers(*model, read);
  ReadActuatorNumbers(*model, read);
  ReadConstraintNumbers(*model, read);
  why_not = WhyUncoveredPairs(*model);
  if (!why_not.empty()) return {nullptr, std::move(why_not)};
  model->structure = Describe(*model);
  static std::atomic<std::uint64_t> last_serial{0};
  model->serial = ++last_serial;
  return {std::move(model), ""};
}

std::shared_ptr<const Model> ReadVariant(const std::shared_ptr<const Model>& of, const ModelSizes& sizes,
                                         const FieldReader& read) {
  auto variant = std::const_pointer_cast<Model>(ReadModel(sizes, read).model);
  if (!variant || variant->structure != of->structure) return variant;
  std::vector<std::uint32_t> differs;
  for (std::size_t i = 0; i < of->num_numbers; ++i) {
    // compared by their bits, because 0 and -0 are different numbers
    if (std::memcmp(&variant->numbers[i], &of->numbers[i], sizeof(double)) != 0) {
      differs.push_back(static_cast<std::uint32_t>(i));
    }
  }
  variant->variant_of = of;
  variant->num_differs = differs.size();
  variant->differs = std::copy(differs.begin(), differs.end(),
                               variant->Keep<std::uint32_t>(differs.size())) - differs.size();
  return variant;
}

bool CoversSensor(const Model& model, std::int32_t sensor) {
  return model.sensors[sensor].kind != SensorKind::kUncovered;
}

}  // namespace rollouts::lanes
