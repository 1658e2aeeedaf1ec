// SPDX-License-Identifier: Apache-2.0
#include "bindings/policy/trained_sources.h"

#include <pybind11/stl.h>

#include <algorithm>

#include "bindings/gil.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

// The time between two checks for signals, which take the GIL.
constexpr std::chrono::milliseconds kLookInterval{50};

bool IsAtLeastOne(std::int64_t length) { return length >= 1; }
bool IsAtLeastZero(std::int64_t stride) { return stride >= 0; }

std::vector<policy::ParamView> ReadViews(const py::list& views, const policy::Program& program) {
  std::vector<policy::ParamView> read;
  for (const py::handle item : views) {
    const auto view = item.cast<py::tuple>();
    read.push_back({view[0].cast<std::int32_t>(), view[1].cast<std::int64_t>(),
                    view[2].cast<std::vector<std::int64_t>>(),
                    view[3].cast<std::vector<std::int64_t>>()});
  }
  if (read.size() != program.params.size()) {
    throw SpecError("views are " + std::to_string(read.size()) + ", expected " +
                    std::to_string(program.params.size()) + ": one for each parameter");
  }
  for (std::size_t i = 0; i < read.size(); ++i) {
    std::int64_t size = 1;
    for (const std::int64_t length : read[i].shape) size *= length;
    const bool is_plain = read[i].start >= 0 && read[i].strides.size() == read[i].shape.size() &&
                          std::ranges::all_of(read[i].shape, IsAtLeastOne) &&
                          std::ranges::all_of(read[i].strides, IsAtLeastZero);
    if (is_plain && size == program.params[i].size) continue;
    throw SpecError("the view of '" + program.params[i].name + "' has " + std::to_string(size) +
                    " numbers, expected " + std::to_string(program.params[i].size) +
                    ", with strides of 0 or more");
  }
  return read;
}

policy::OptimizerKind KindOf(const std::string& name, bool has_means) {
  using policy::OptimizerKind;
  if (name == "adam" && has_means) return OptimizerKind::kAdam;
  if (name == "adamw" && has_means) return OptimizerKind::kAdamW;
  if (name == "rmsprop") return OptimizerKind::kRmsprop;
  if (name == "rmsprop_tf") return OptimizerKind::kRmspropTf;
  if (name == "sgd") return OptimizerKind::kSgd;
  if (name == "nesterov") return OptimizerKind::kNesterov;
  throw SpecError("'" + name + "' is no optimiser, or lacks its means");
}

void ReadKept(const py::tuple& kept, policy::Source& to) {
  to.squares = MutableFloats(kept[1]);
  if (!kept[0].is_none()) to.means = MutableFloats(kept[0]);
  for (const int i : {0, 1}) {
    if (kept[i].is_none() || kept[i].cast<py::array>().size() == to.size) continue;
    throw SpecError("the optimiser's state is of another size than the weights");
  }
  to.steps = kept[2].cast<std::int64_t>();
  const auto given = kept[3].cast<py::dict>();
  const auto number = [&](const char* name) { return given[name].cast<float>(); };
  to.rule = {.kind = KindOf(given["kind"].cast<std::string>(), to.means != nullptr),
             .lr = number("lr"),
             .beta1 = number("beta1"),
             .beta2 = number("beta2"),
             .eps = number("eps"),
             .weight_decay = number("weight_decay")};
}

}  // namespace

std::vector<bool> CheckTrained(const policy::Program& program, const std::vector<bool>& trained) {
  if (trained.size() == program.params.size()) return trained;
  throw SpecError("trained has " + std::to_string(trained.size()) + " entries, expected " +
                  std::to_string(program.params.size()) + ": one for each parameter");
}

float* MutableFloats(const py::handle& array) {
  auto held = py::cast<py::array_t<float, py::array::c_style>>(array);
  if (held.ptr() != array.ptr()) throw SpecError("weights are C-contiguous arrays of float32");
  return held.mutable_data();
}

policy::ClipBy ClipByOf(const std::string& name) {
  if (name == "all") return policy::ClipBy::kAll;
  if (name == "each") return policy::ClipBy::kEach;
  if (name == "element") return policy::ClipBy::kElement;
  throw SpecError("clip_by is '" + name + "', expected all, each or element");
}

policy::MeanOverProcesses MeanBy(const py::object& average) {
  if (average.is_none()) return {};
  return [call = py::handle(average)](std::span<float> numbers) {
    const AcquireGil gil;
    // a separate array, which Python may keep
    py::array_t<float> array(static_cast<py::ssize_t>(numbers.size()), numbers.data());
    call(array);
    std::copy_n(array.data(), numbers.size(), numbers.begin());
  };
}

TrainedSources::TrainedSources(const py::list& views, const policy::Program& program)
    : views_(ReadViews(views, program)) {
  for (const policy::Param& param : program.params) names_.push_back(param.name);
}

std::vector<policy::Source> TrainedSources::Read(const py::list& sources) const {
  std::vector<policy::Source> read;
  for (const py::handle item : sources) {
    const auto source = item.cast<py::tuple>();
    policy::Source each{.weights = MutableFloats(source[0]),
                        .size = source[0].cast<py::array>().size()};
    if (!source[1].is_none()) ReadKept(source[1].cast<py::tuple>(), each);
    read.push_back(each);
  }
  Check(read);
  return read;
}

void TrainedSources::Check(const std::vector<policy::Source>& sources) const {
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const policy::ParamView& view = views_[i];
    if (view.source < 0 || view.source >= std::ssize(sources)) {
      throw SpecError("there are " + std::to_string(sources.size()) +
                      " sources, expected one with the number " + std::to_string(view.source));
    }
    std::int64_t last = view.start;
    for (std::size_t k = 0; k < view.shape.size(); ++k) {
      last += (view.shape[k] - 1) * view.strides[k];
    }
    const std::int64_t size = sources[view.source].size;
    if (last < size) continue;
    throw SpecError("'" + names_[i] + "' ends at number " +
                    std::to_string(last) + " of source " + std::to_string(view.source) +
                    ", which has " + std::to_string(size) + " numbers");
  }
}

UpdateLimit::UpdateLimit(const std::optional<double>& timeout_s)
    : timeout_s_(timeout_s), next_look_(Clock::now() + kLookInterval) {
  constexpr double kLongest = 1e9;  // s
  if (!timeout_s) return;
  if (!(*timeout_s >= 0)) {
    throw SpecError("timeout_s is " + std::to_string(*timeout_s) + ", expected 0 or more seconds");
  }
  if (*timeout_s > kLongest) return;
  const std::chrono::duration<double> wait(*timeout_s);
  end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(wait);
}

bool UpdateLimit::IsOver() {
  if (is_over_) return true;
  const Clock::time_point now = Clock::now();
  if (end_ && now >= *end_) is_over_ = true;
  if (std::this_thread::get_id() != caller_ || now < next_look_) return is_over_;
  next_look_ = now + kLookInterval;
  const AcquireGil gil;
  if (PyErr_CheckSignals() != 0) {
    interrupted_ = std::make_exception_ptr(py::error_already_set());
    is_over_ = true;
  }
  return is_over_;
}

void UpdateLimit::Raise() const {
  if (interrupted_) std::rethrow_exception(interrupted_);
  const AcquireGil gil;
  const std::string message = "the update took longer than " + std::to_string(*timeout_s_) +
                              " s: weights and optimiser are those of its last whole gradient step";
  PyErr_SetString(PyExc_TimeoutError, message.c_str());
  throw py::error_already_set();
}

void LearnerLock::Run(const policy::UpdateStop& stop, const std::function<void()>& update) {
  CheckFork();
  // released before the lock is taken, or two threads would wait for each other
  const ReleaseGil no_gil;
  std::unique_lock<std::timed_mutex> lock(mutex_, std::defer_lock);
  while (!lock.try_lock_for(kLookInterval)) stop.Check();
  update();
}

// Throws in a forked child in which a thread of the parent holds the mutex: the child would wait
// for ever. Needs the GIL, so that no other thread of this process takes the mutex meanwhile.
void LearnerLock::CheckFork() {
  if (getpid() == pid_) return;
  if (!mutex_.try_lock()) {
    throw ProtocolError(
        "the learner was training when this process was forked; make another in this process");
  }
  mutex_.unlock();
  pid_ = getpid();
}

}  // namespace rollouts
