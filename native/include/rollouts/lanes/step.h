// SPDX-License-Identifier: Apache-2.0
// Steps of MuJoCo's physics for several simulations of one model at once, one in each lane of a
// vector register. The arithmetic is this library's own, in double precision; a step equals
// MuJoCo's up to rounding. Nothing here depends on libmujoco: src/engines/mujoco_lanes/ reads the
// model and owns the rows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace rollouts::lanes {

// Reads an array or an option of a model by MuJoCo's name, such as "body_pos" or "opt.timestep"; null
// where the model has none. Values are double, float, std::int32_t or std::uint8_t (mjtByte, mjtBool),
// as MuJoCo has them.
using FieldReader = std::function<const void*(const char* name)>;

struct ModelSizes {
  std::int32_t nq = 0, nv = 0, nu = 0, na = 0, nbody = 0, njnt = 0, ngeom = 0, nsite = 0, ntendon = 0,
               nsensor = 0, nsensordata = 0, neq = 0, npair = 0, nexclude = 0, nmocap = 0, nflex = 0,
               nplugin = 0, nwrap = 0, nhistory = 0, ntree = 0, nJten = 0;
};

// The constants of a model, in the order in which steps read them. Immutable; shared by threads.
class Model;

struct ModelOrReason {
  std::shared_ptr<const Model> model;  // null where lanes do not cover the model
  std::string why_not;                 // one clause, such as "it has geoms of the kind mesh"
};
ModelOrReason ReadModel(const ModelSizes& sizes, const FieldReader& read);

// Reads a model that was made from another one by changing numbers; null where lanes do not cover
// it.
std::shared_ptr<const Model> ReadVariant(const std::shared_ptr<const Model>& of, const ModelSizes& sizes,
                                         const FieldReader& read);

// Tells if steps write a sensor's numbers; the numbers of other sensors keep their values.
bool CoversSensor(const Model& model, std::int32_t sensor);

// One simulation: its state, which a step changes, and the other arrays that a step writes. They
// are the arrays of an mjData, with the same names. A null output is not written.
struct Row {
  double* qpos = nullptr;            // (nq)
  double* qvel = nullptr;            // (nv)
  double* act = nullptr;             // (na)
  double* qacc_warmstart = nullptr;  // (nv)
  double* time = nullptr;
  const double* ctrl = nullptr;      // (nu)
  const Model* model = nullptr;      // its own, of the same sizes; null: the model that all share

  double* qacc = nullptr;             // (nv)
  double* qfrc_actuator = nullptr;    // (nv)
  double* qfrc_constraint = nullptr;  // (nv)
  double* xpos = nullptr;             // (nbody, 3)
  double* xquat = nullptr;            // (nbody, 4)
  double* xmat = nullptr;             // (nbody, 9)
  double* xipos = nullptr;            // (nbody, 3)
  double* geom_xpos = nullptr;        // (ngeom, 3)
  double* geom_xmat = nullptr;        // (ngeom, 9)
  double* site_xpos = nullptr;        // (nsite, 3)
  double* site_xmat = nullptr;        // (nsite, 9)
  double* subtree_com = nullptr;      // (nbody, 3)
  double* cinert = nullptr;           // (nbody, 10)
  double* cvel = nullptr;             // (nbody, 6)
  double* cfrc_ext = nullptr;         // (nbody, 6), as mj_rnePostConstraint leaves it
  double* sensordata = nullptr;       // (nsensordata)
  double* ten_length = nullptr;       // (ntendon)
  double* ten_velocity = nullptr;     // (ntendon)
};

// The state that derived arrays belong to when a step ends.
enum class Ending {
  kAsStep,    // as mj_step leaves them: the last evaluation, one substep behind qpos
  kUpToDate,  // as dm_control leaves them: mj_step1 follows the last substep
};

struct StepOptions {
  std::int32_t substeps = 1;
  Ending ending = Ending::kAsStep;
  std::int32_t width = 0;  // lanes; 0: chosen for the machine and the number of rows
};

// Steps all rows, 64 at most. Returns, as bits, the rows that it left unchanged, outputs included,
// because something happened that lanes do not cover; MuJoCo steps those.
std::uint64_t Step(const Model& model, std::span<const Row> rows, const StepOptions& options);

// Widths that this machine runs, widest first, such as {8, 4, 1}.
std::span<const std::int32_t> Widths();

// Arrays for a verification: one evaluation (mj_forward) of up to 64 rows, which moves nothing.
// Null outputs are not written.
struct Probe {
  double* qM = nullptr;              // (nv, nv), dense
  double* qfrc_bias = nullptr;       // (nv)
  double* qfrc_passive = nullptr;    // (nv)
  double* qfrc_actuator = nullptr;   // (nv)
  double* qacc_smooth = nullptr;     // (nv)
  double* qfrc_constraint = nullptr; // (nv)
  double* qacc = nullptr;            // (nv)
  std::int32_t* solver_niter = nullptr;  // (1) sum over islands
  std::int32_t* nefc = nullptr;          // (1) rows of constraints
};
std::uint64_t Forward(const Model& model, std::span<const Row> rows, std::span<const Probe> probes,
                      std::int32_t width = 0);

}  // namespace rollouts::lanes
