// SPDX-License-Identifier: Apache-2.0
// Pairs that may touch, joints with limits, and the stiffness of each constraint: MuJoCo's rules of
// mixing, applied once.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "fields.h"
#include "model.h"

namespace rollouts::lanes {
namespace {

// mj_makeImpedance, and the fields that it reads.
Impedance<double> MakeImpedance(const Model& model, const double* solref, const double* solimp, double margin,
                        double diagonal, bool friction = false) {
  double time = solref[0], ratio = solref[1];
  // solref in mixed formats becomes the default
  if ((time > 0) != (ratio > 0)) {
    time = 0.02;
    ratio = 1;
  }
  if (time > 0 && (model.disabled & kNoRefSafe) == 0) time = std::max(time, 2 * model.options->timestep);
  const auto within = [](double value) { return std::min(0.9999, std::max(0.0001, value)); };
  Impedance<double> out;
  out.least = within(solimp[0]);
  out.most = within(solimp[1]);
  out.width = std::max(0.0, solimp[2]);
  out.middle = within(solimp[3]);
  out.power = std::max(1.0, solimp[4]);
  const double most = out.most;
  out.K = time > 0 ? 1 / std::max(kTiny, most * most * time * time * ratio * ratio)
                   : -time / std::max(kTiny, most * most);
  out.B = ratio > 0 ? 2 / std::max(kTiny, most * time) : -ratio / std::max(kTiny, most);
  if (friction) out.K = 0;
  out.margin = margin;
  out.diagonal = diagonal;
  return out;
}

// Returns which curve MuJoCo's getimpedance follows, once it has put `solimp` into its ranges.
Curve CurveOf(const double* solimp) {
  const auto within = [](double value) { return std::min(0.9999, std::max(0.0001, value)); };
  if (within(solimp[0]) == within(solimp[1]) || solimp[2] <= kTiny) return Curve::kFlat;
  return solimp[4] <= 1 ? Curve::kLine : solimp[4] == 2 ? Curve::kParabola : Curve::kPower;
}

void ReadDofRows(Model& model, const FieldReader& read) {
  std::vector<DofRow> rows;
  const bool constrained = (model.disabled & kNoConstraint) == 0;
  for (std::int32_t i = 0; constrained && (model.disabled & kNoFrictionLoss) == 0 && i < model.n.nv; ++i) {
    if (Array<double>(read, "dof_frictionloss")[i] <= 0) continue;
    rows.push_back({i, 0, model.dof_tree[i], 1, 1, CurveOf(Array<double>(read, "dof_solimp") + 5 * i)});
  }
  const auto* const limited = Array<std::uint8_t>(read, "jnt_limited");
  for (std::int32_t j = 0; constrained && (model.disabled & kNoLimit) == 0 && j < model.n.njnt; ++j) {
    if (!limited[j]) continue;
    const std::int32_t dof = model.jnt_dofadr[j];
    const Curve curve = CurveOf(Array<double>(read, "jnt_solimp") + 5 * j);
    // the lower end first
    for (const double sign : {1.0, -1.0}) {
      rows.push_back({dof, model.jnt_qposadr[j], model.dof_tree[dof], 0, sign, curve});
    }
  }
  DofRow* const out = model.Keep<DofRow>(rows.size());
  std::copy(rows.begin(), rows.end(), out);
  model.dof_rows = out;
  model.num_dof_rows = static_cast<std::int32_t>(rows.size());
}

void ReadDofRowNumbers(Model& model, const FieldReader& read) {
  const double* const weight = Array<double>(read, "dof_invweight0");
  for (std::int32_t i = 0; i < model.num_dof_rows; ++i) {
    const DofRow& row = model.dof_rows[i];
    DofRowNumbers<double>& out = model.dof_row_numbers[i];
    const std::int32_t j = Array<std::int32_t>(read, "dof_jntid")[row.dof];
    if (row.dry) {
      out.loss = Array<double>(read, "dof_frictionloss")[row.dof];
      out.impedance = MakeImpedance(model, Array<double>(read, "dof_solref") + 2 * row.dof,
                                    Array<double>(read, "dof_solimp") + 5 * row.dof, 0, weight[row.dof], true);
    } else {
      out.range = Array<double>(read, "jnt_range")[2 * j + (row.sign < 0)];
      out.impedance = MakeImpedance(model, Array<double>(read, "jnt_solref") + 2 * j,
                                    Array<double>(read, "jnt_solimp") + 5 * j,
                                    Array<double>(read, "jnt_margin")[j], weight[row.dof]);
    }
  }
}

PairKind KindOf(std::int32_t first, std::int32_t second, bool fixed_plane) {
  if (first == kPlane && !fixed_plane) return PairKind::kUncovered;
  if (first == kPlane && second == kSphere) return PairKind::kPlaneSphere;
  if (first == kPlane && second == kCapsule) return PairKind::kPlaneCapsule;
  if (first == kPlane && second == kCylinder) return PairKind::kPlaneCylinder;
  if (first == kPlane && second == kEllipsoid) return PairKind::kPlaneEllipsoid;
  if (first == kPlane && second == kBox) return PairKind::kPlaneBox;
  if (first == kSphere && second == kSphere) return PairKind::kSphereSphere;
  if (first == kSphere && second == kCapsule) return PairKind::kSphereCapsule;
  if (first == kCapsule && second == kCapsule) return PairKind::kCapsuleCapsule;
  return PairKind::kUncovered;
}

// mj_contactParam.
struct Mixed {
  std::int32_t dim;
  double solref[2], solimp[5], friction;
};
Mixed Mix(const FieldReader& read, std::int32_t g1, std::int32_t g2) {
  const auto* const priority = Array<std::int32_t>(read, "geom_priority");
  const auto* const dim = Array<std::int32_t>(read, "geom_condim");
  const double* const solmix = Array<double>(read, "geom_solmix");
  const double* const solref = Array<double>(read, "geom_solref");
  const double* const solimp = Array<double>(read, "geom_solimp");
  const double* const friction = Array<double>(read, "geom_friction");
  Mixed out;
  if (priority[g1] != priority[g2]) {
    const std::int32_t g = priority[g1] > priority[g2] ? g1 : g2;
    out.dim = dim[g];
    std::copy_n(solref + 2 * g, 2, out.solref);
    std::copy_n(solimp + 5 * g, 5, out.solimp);
    out.friction = friction[3 * g];
  } else {
    out.dim = std::max(dim[g1], dim[g2]);
    const double a = solmix[g1], b = solmix[g2];
    const double mix = a >= kTiny && b >= kTiny ? a / (a + b)
                       : a < kTiny && b < kTiny ? 0.5
                       : a < kTiny              ? 0.0
                                                : 1.0;
    const bool standard = solref[2 * g1] > 0 && solref[2 * g2] > 0;
    for (int i = 0; i < 2; ++i) {
      const double one = solref[2 * g1 + i], other = solref[2 * g2 + i];
      out.solref[i] = standard ? mix * one + (1 - mix) * other : std::min(one, other);
    }
    for (int i = 0; i < 5; ++i) {
      out.solimp[i] = mix * solimp[5 * g1 + i] + (1 - mix) * solimp[5 * g2 + i];
    }
    out.friction = std::max(friction[3 * g1], friction[3 * g2]);
  }
  out.friction = std::max(1e-5, out.friction);  // mjMINMU
  return out;
}

class PairReader {
 public:
  PairReader(Model& model, const FieldReader& read) : model_(model), read_(read) {}

  // Reads all pairs, by bodies in MuJoCo's order: constraint rows have the same order, in which PGS
  // visits them.
  std::vector<Pair> ReadAll() {
    std::vector<Pair> pairs;
    const auto* const geoms = Array<std::int32_t>(read_, "body_geomadr");
    const auto* const number = Array<std::int32_t>(read_, "body_geomnum");
    const auto* const first = Array<std::int32_t>(read_, "geom_contype");
    const auto* const second = Array<std::int32_t>(read_, "geom_conaffinity");
    const auto* const type = Array<std::int32_t>(read_, "geom_type");
    for (std::int32_t a = 0; a < model_.n.nbody; ++a) {
      for (std::int32_t b = a + 1; b < model_.n.nbody; ++b) {
        if (!MayTouch(a, b)) continue;
        const std::size_t begin = pairs.size();
        for (std::int32_t ga = geoms[a]; ga < geoms[a] + number[a]; ++ga) {
          for (std::int32_t gb = geoms[b]; gb < geoms[b] + number[b]; ++gb) {
            if (!((first[ga] & second[gb]) | (first[gb] & second[ga]))) continue;
            const bool swaps = type[ga] > type[gb];
            pairs.push_back(Read(swaps ? gb : ga, swaps ? ga : gb));
          }
        }
        // contacts of two bodies are ordered by geoms, the simpler kind first
        std::sort(pairs.begin() + static_cast<std::ptrdiff_t>(begin), pairs.end(),
                  [](const Pair& x, const Pair& y) {
                    return x.geom[0] != y.geom[0] ? x.geom[0] < y.geom[0] : x.geom[1] < y.geom[1];
                  });
      }
    }
    return pairs;
  }

 private:
  std::int32_t LastDof(std::int32_t body) const {
    while (body > 0 && model_.body_dofnum[body] == 0) body = model_.body_parentid[body];
    return body > 0 ? model_.body_dofadr[body] + model_.body_dofnum[body] - 1 : -1;
  }

  bool MayTouch(std::int32_t a, std::int32_t b) const {
    const auto* const weld = Array<std::int32_t>(read_, "body_weldid");
    const std::int32_t wa = weld[a], wb = weld[b];
    if (wa == wb || (LastDof(a) < 0 && LastDof(b) < 0)) return false;
    const std::int32_t pa = weld[model_.body_parentid[wa]], pb = weld[model_.body_parentid[wb]];
    if ((model_.disabled & kNoParentFilter) == 0 && wa && wb && (wa == pb || wb == pa)) return false;
    const auto* const excluded = Array<std::int32_t>(read_, "exclude_signature");
    return std::none_of(excluded, excluded + model_.n.nexclude,
                        [=](std::int32_t one) { return one == (a << 16) + b; });
  }

  Pair Read(std::int32_t g1, std::int32_t g2) {
    const auto* const type = Array<std::int32_t>(read_, "geom_type");
    Pair pair{};
    pair.geom[0] = g1;
    pair.geom[1] = g2;
    for (int i = 0; i < 2; ++i) {
      pair.body[i] = model_.geom_bodyid[pair.geom[i]];
      pair.root[i] = model_.body_rootid[pair.body[i]];
      pair.tree[i] = model_.body_tree[pair.body[i]];
    }
    pair.plane = type[g1] == kPlane && pair.body[0] == 0;
    pair.kind = KindOf(type[g1], type[g2], pair.plane);
    const Mixed mixed = Mix(read_, g1, g2);
    pair.dim = mixed.dim;
    pair.curve = CurveOf(mixed.solimp);
    AddDofs(pair);
    return pair;
  }

  // Adds the dofs that move one geom but not the other; all others move both alike.
  void AddDofs(Pair& pair) {
    const auto* const parent = Array<std::int32_t>(read_, "dof_parentid");
    const auto* const of_joint = Array<std::int32_t>(read_, "dof_jntid");
    const auto* const joints = Array<std::int32_t>(read_, "jnt_type");
    std::vector<std::uint8_t> moves(static_cast<std::size_t>(model_.n.nv), 0);
    for (int side = 0; side < 2; ++side) {
      for (std::int32_t i = LastDof(pair.body[side]); i >= 0; i = parent[i]) {
        moves[static_cast<std::size_t>(i)] ^= static_cast<std::uint8_t>(1 << side);
      }
    }
    auto* const dofs = model_.Keep<std::int32_t>(moves.size());
    auto* const of_first = model_.Keep<std::uint8_t>(moves.size());
    bool on_first = false, on_second = false;
    for (std::int32_t i = model_.n.nv - 1; i >= 0; --i) {
      const std::uint8_t sides = moves[static_cast<std::size_t>(i)];
      if (sides != 1 && sides != 2) continue;
      dofs[pair.num_dofs] = i;
      of_first[pair.num_dofs++] = sides == 1;
      (sides == 1 ? on_first : on_second) = true;
      pair.turns |= joints[of_joint[i]] != kSlide;
    }
    pair.dofs = dofs;
    pair.of_first = of_first;
    pair.branches = on_first && on_second;
  }

  Model& model_;
  const FieldReader& read_;
};

// Adds both ends of the ranges of tendons, which come before contacts in MuJoCo.
void AddTendonLimits(const Model& model, const FieldReader& read, std::vector<Pair>& pairs) {
  const auto* const limited = Array<std::uint8_t>(read, "tendon_limited");
  const auto* const parent = Array<std::int32_t>(read, "dof_parentid");
  for (std::int32_t t = 0; t < model.n.ntendon; ++t) {
    const Tendon& tendon = model.tendons[t];
    if (!limited[t] || tendon.num_dofs == 0) continue;
    Pair pair{};
    pair.kind = PairKind::kTendon;
    pair.dim = 1;
    pair.body[0] = pair.body[1] = -1;
    pair.tendon = t;
    pair.dofs = tendon.dofs;
    pair.num_dofs = tendon.num_dofs;
    pair.tree[0] = model.dof_tree[tendon.dofs[0]];
    pair.tree[1] = model.dof_tree[tendon.dofs[tendon.num_dofs - 1]];
    pair.curve = CurveOf(Array<double>(read, "tendon_solimp_lim") + 5 * t);
    for (std::int32_t q = 0; q + 1 < tendon.num_dofs; ++q) {
      std::int32_t i = tendon.dofs[q];
      while (i > tendon.dofs[q + 1]) i = parent[i];
      pair.branches |= i != tendon.dofs[q + 1];
    }
    for (const std::int32_t upper : {0, 1}) {
      pair.upper = upper;
      pairs.push_back(pair);
    }
  }
}

PairNumbers<double> NumbersOfTendon(const Model& model, const FieldReader& read, const Pair& pair) {
  PairNumbers<double> out{};
  const std::int32_t t = pair.tendon;
  out.range = Array<double>(read, "tendon_range")[2 * t + pair.upper];
  out.margin = Array<double>(read, "tendon_margin")[t];
  out.r_scale = 1;
  out.impedance = MakeImpedance(model, Array<double>(read, "tendon_solref_lim") + 2 * t,
                                Array<double>(read, "tendon_solimp_lim") + 5 * t, out.margin,
                                Array<double>(read, "tendon_invweight0")[t]);
  return out;
}

// The largest distance of the centres at which the geoms touch, without the margin.
double Reach(const FieldReader& read, const Pair& pair) {
  const auto* const type = Array<std::int32_t>(read, "geom_type");
  const double* const size = Array<double>(read, "geom_size");
  const double* const bound = Array<double>(read, "geom_rbound");
  // a plane that moves can touch anything
  if (type[pair.geom[0]] == kPlane && !pair.plane) return 1e300;
  double reach = 0;
  for (const std::int32_t g : pair.geom) {
    reach += type[g] == kPlane ? 0 : type[g] == kCapsule ? size[3 * g] + size[3 * g + 1] : bound[g];
  }
  return reach;
}

PairNumbers<double> NumbersOf(const Model& model, const FieldReader& read, const Pair& pair) {
  const auto* const type = Array<std::int32_t>(read, "geom_type");
  const double* const size = Array<double>(read, "geom_size");
  const double* const margin = Array<double>(read, "geom_margin");
  PairNumbers<double> out{};
  for (int i = 0; i < 2; ++i) {
    const std::int32_t g = pair.geom[i];
    out.radius[i] = size[3 * g];
    out.half[i] = type[g] == kCapsule || type[g] == kCylinder ? size[3 * g + 1] : 0;
  }
  std::copy_n(model.geom_axis + 3 * pair.geom[0], 3, out.normal);
  std::copy_n(model.geom_pos + 3 * pair.geom[0], 3, out.point);
  std::copy_n(size + 3 * pair.geom[1], 3, out.size);
  out.margin = margin[pair.geom[0]] + margin[pair.geom[1]];
  out.reach = Reach(read, pair) + out.margin;
  const Mixed mixed = Mix(read, pair.geom[0], pair.geom[1]);
  const double* const weight = Array<double>(read, "body_invweight0");
  const double moves = weight[2 * pair.body[0]] + weight[2 * pair.body[1]];
  const double mu = mixed.friction;
  out.friction = mu;
  const double diagonal = mixed.dim == 1 ? moves : moves + mu * mu * moves;
  out.impedance = MakeImpedance(model, mixed.solref, mixed.solimp, out.margin, diagonal);
  const double impratio = *Array<double>(read, "opt.impratio");
  out.r_scale = mixed.dim == 1 ? 1 : 2 * mu * mu / std::max(kTiny, impratio);
  return out;
}

std::int32_t MostContacts(PairKind kind) {
  switch (kind) {
    case PairKind::kPlaneCapsule: return 2;
    case PairKind::kPlaneCylinder: return 4;
    case PairKind::kPlaneBox: return 8;
    case PairKind::kUncovered: return 0;
    default: return 1;
  }
}

}  // namespace

void ReadConstraints(Model& model, const FieldReader& read) {
  ReadDofRows(model, read);
  std::vector<Pair> pairs;
  if ((model.disabled & (kNoConstraint | kNoLimit)) == 0) AddTendonLimits(model, read, pairs);
  if ((model.disabled & (kNoConstraint | kNoContact)) == 0) {
    for (const Pair& pair : PairReader(model, read).ReadAll()) pairs.push_back(pair);
  }
  Pair* const out = model.Keep<Pair>(pairs.size());
  std::copy(pairs.begin(), pairs.end(), out);
  model.pairs = out;
  model.num_pairs = static_cast<std::int32_t>(pairs.size());
  auto* const touches = model.Keep<std::uint8_t>(static_cast<std::size_t>(model.n.ngeom));
  model.max_contacts = 0;
  model.max_pair_dofs = 0;
  for (const Pair& pair : pairs) {
    if (pair.kind != PairKind::kTendon) {
      touches[pair.geom[1]] = 1;
      if (!pair.plane) touches[pair.geom[0]] = 1;
    }
    model.max_contacts += MostContacts(pair.kind);
    model.max_pair_dofs = std::max(model.max_pair_dofs, pair.num_dofs);
  }
  model.max_contacts = std::min(model.max_contacts, kMaxContacts);
  model.geom_touches = touches;
}

void ReadConstraintNumbers(Model& model, const FieldReader& read) {
  ReadDofRowNumbers(model, read);
  for (std::int32_t i = 0; i < model.num_pairs; ++i) {
    const Pair& pair = model.pairs[i];
    model.pair_numbers[i] = pair.kind == PairKind::kTendon ? NumbersOfTendon(model, read, pair)
                                                           : NumbersOf(model, read, pair);
  }
}

}  // namespace rollouts::lanes
