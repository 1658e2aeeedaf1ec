// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <initializer_list>
#include <string>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "rollouts/data/gae.h"
#include "rollouts/data/nstep.h"
#include "rollouts/data/vtrace.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

template <typename T>
using Contiguous = py::array_t<T, py::array::c_style>;

// Checks that arrays of steps have equal shapes: estimators read them by one index.
void CheckSameShape(const py::array& array, const py::array& reward) {
  const bool same = array.ndim() == 2 && array.shape(0) == reward.shape(0) &&
                    array.shape(1) == reward.shape(1);
  if (!same) {
    throw SpecError("an array has shape " + ShapeString(array) + ", expected " +
                    ShapeString(reward) + " as reward");
  }
}

// Arguments of all estimators, and the arrays that they return.
template <typename Float>
class Call {
 public:
  Call(const Contiguous<Float>& reward, const Contiguous<Float>& value,
       const Contiguous<bool>& terminated, const Contiguous<bool>& truncated,
       const Contiguous<Float>& bootstrap_value, const Contiguous<Float>& last_value) {
    if (reward.ndim() != 2) {
      throw SpecError("reward has shape " + ShapeString(reward) + ", expected (T, B): time first");
    }
    // all checks are here, because the estimators trust their pointers
    const std::initializer_list<py::array> time_major{value, terminated, truncated,
                                                      bootstrap_value};
    for (const py::array& array : time_major) CheckSameShape(array, reward);
    if (last_value.ndim() != 1 || last_value.shape(0) != reward.shape(1)) {
      throw SpecError("last_value has shape " + ShapeString(last_value) + ", expected (" +
                      std::to_string(reward.shape(1)) + ",): one per column");
    }
    // pointers into the caller's arrays, which live as long as the call
    in_ = {reward.shape(0),        reward.shape(1),
           reward.data(),          value.data(),
           reinterpret_cast<const std::uint8_t*>(terminated.data()),
           reinterpret_cast<const std::uint8_t*>(truncated.data()),
           bootstrap_value.data(), last_value.data()};
    // float32 even for float64 rewards
    advantage_ = py::array_t<float>({in_.steps, in_.envs});
    target_ = py::array_t<float>({in_.steps, in_.envs});
  }

  // Calls `estimate(fragment, returns)` without the GIL.
  template <typename Estimate>
  py::tuple Run(const Estimate& estimate) {
    const Returns out{advantage_.mutable_data(), target_.mutable_data()};
    {
      const ReleaseGil no_gil;
      estimate(in_, out);
    }
    return py::make_tuple(advantage_, target_);
  }

 private:
  Fragment<Float> in_{};
  py::array_t<float> advantage_;
  py::array_t<float> target_;
};

// The same functions for float and for double, which pybind11 tells apart by dtype.
template <typename Float>
void BindEstimators(py::module_& module) {
  using Floats = const Contiguous<Float>&;
  using Flags = const Contiguous<bool>&;
  // without a conversion, which would choose float for double and silently copy
  const auto strict = [](const char* name) { return py::arg(name).noconvert(); };

  module.def(
      "gae",
      [](Floats reward, Floats value, Flags terminated, Flags truncated, Floats bootstrap_value,
         Floats last_value, double gamma, double gae_lambda) {
        Call<Float> call(reward, value, terminated, truncated, bootstrap_value, last_value);
        return call.Run([&](const Fragment<Float>& in, const Returns& out) {
          Gae(in, gamma, gae_lambda, out);
        });
      },
      strict("reward"), strict("value"), strict("terminated"), strict("truncated"),
      strict("bootstrap_value"), strict("last_value"), py::kw_only(), py::arg("gamma"),
      py::arg("gae_lambda"));

  module.def(
      "nstep",
      [](Floats reward, Floats value, Flags terminated, Flags truncated, Floats bootstrap_value,
         Floats last_value, double gamma, std::int64_t n) {
        if (n < 1) throw SpecError("n is " + std::to_string(n) + ", expected at least 1 step");
        Call<Float> call(reward, value, terminated, truncated, bootstrap_value, last_value);
        return call.Run(
            [&](const Fragment<Float>& in, const Returns& out) { Nstep(in, gamma, n, out); });
      },
      strict("reward"), strict("value"), strict("terminated"), strict("truncated"),
      strict("bootstrap_value"), strict("last_value"), py::kw_only(), py::arg("gamma"),
      py::arg("n"));

  module.def(
      "vtrace",
      [](Floats reward, Floats value, Flags terminated, Flags truncated, Floats bootstrap_value,
         Floats last_value, Floats behaviour_log_prob, Floats target_log_prob, double gamma,
         double vtrace_lambda, double rho_bar, double c_bar) {
        Call<Float> call(reward, value, terminated, truncated, bootstrap_value, last_value);
        // Call does not check these: they have one number for each step, as rewards have
        CheckSameShape(behaviour_log_prob, reward);
        CheckSameShape(target_log_prob, reward);
        return call.Run([&](const Fragment<Float>& in, const Returns& out) {
          Vtrace(in, behaviour_log_prob.data(), target_log_prob.data(),
                 {gamma, vtrace_lambda, rho_bar, c_bar}, out);
        });
      },
      strict("reward"), strict("value"), strict("terminated"), strict("truncated"),
      strict("bootstrap_value"), strict("last_value"), strict("behaviour_log_prob"),
      strict("target_log_prob"), py::kw_only(), py::arg("gamma"), py::arg("vtrace_lambda"),
      py::arg("rho_bar"), py::arg("c_bar"));
}

}  // namespace

void BindReturns(py::module_& module) {
  BindEstimators<float>(module);
  BindEstimators<double>(module);
}

}  // namespace rollouts
