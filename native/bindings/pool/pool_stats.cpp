// SPDX-License-Identifier: Apache-2.0
#include "bindings/pool/pool_stats.h"
#include "bindings/gil.h"

#include <pybind11/numpy.h>

namespace py = pybind11;

namespace rollouts {
namespace {

// (count, p50, p90, p99, max)
py::tuple SummaryTuple(const TimeSummary& summary) {
  return py::make_tuple(summary.count, summary.p50, summary.p90, summary.p99, summary.max);
}

}  // namespace

py::dict StatsDict(const CpuPool& pool) {
  StepStatsSnapshot snapshot;
  {
    // without the GIL, as these are sums over all environments and threads
    const ReleaseGil release;
    snapshot = pool.stats();
  }
  py::dict result;
  result["env_steps"] = snapshot.env_steps;
  result["num_recvs"] = snapshot.recvs;
  result["num_env_errors"] = snapshot.env_errors;
  result["num_steps_in_lanes"] = snapshot.engine_steps.together;
  result["num_steps_by_mujoco"] = snapshot.engine_steps.alone;
  result["step_time_s"] = SummaryTuple(snapshot.step_time);
  result["queue_wait_s"] = SummaryTuple(snapshot.queue_wait);
  result["batch_wait_s"] = SummaryTuple(snapshot.batch_wait);
  result["env_step_time_s"] = py::array_t<double>(
      static_cast<py::ssize_t>(snapshot.env_step_time.size()), snapshot.env_step_time.data());
  result["num_in_flight"] = pool.num_in_flight();
  result["buffer_bytes"] = pool.buffer_bytes();
  return result;
}

}  // namespace rollouts
