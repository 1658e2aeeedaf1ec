// SPDX-License-Identifier: Apache-2.0
#include "bindings/policy/policy.h"

#include <pybind11/stl.h>

#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {

policy::Program ReadProgram(std::int32_t obs_size, const py::list& ops, const py::list& params,
                            std::vector<std::int32_t> outputs,
                            std::vector<std::int32_t> states) {
  policy::Program program{.obs_size = obs_size,
                          .ops = {},
                          .params = {},
                          .outputs = std::move(outputs),
                          .states = std::move(states)};
  for (const py::handle item : params) {
    const auto param = item.cast<std::pair<std::string, std::int64_t>>();
    program.params.push_back({param.first, param.second});
  }
  for (const py::handle item : ops) {
    const auto op = item.cast<py::tuple>();
    program.ops.push_back({.kind = policy::OpKindOf(op[0].cast<std::string>()),
                           .inputs = op[1].cast<std::vector<std::int32_t>>(),
                           .params = op[2].cast<std::vector<std::int32_t>>(),
                           .numbers = op[3].cast<std::vector<float>>(),
                           .size = op[4].cast<std::int32_t>()});
  }
  return program;
}

namespace {

using Floats = py::array_t<float, py::array::c_style>;

}  // namespace

policy::HeadKind HeadKindOf(const std::string& name) {
  if (name == "categorical") return policy::HeadKind::kCategorical;
  if (name == "gaussian") return policy::HeadKind::kGaussian;
  if (name == "tanh_gaussian") return policy::HeadKind::kTanhGaussian;
  if (name == "epsilon_greedy") return policy::HeadKind::kEpsilonGreedy;
  if (name == "multi_categorical") return policy::HeadKind::kMultiCategorical;
  throw SpecError("head is '" + name +
                  "', expected categorical, multi_categorical, gaussian, tanh_gaussian or "
                  "epsilon_greedy");
}

namespace {

// Checks the numbers of a head's elements, which kernels do not check.
void CheckElements(const policy::Head& head, const std::vector<std::int32_t>& nvec,
                   const policy::Network& network) {
  if (head.kind != policy::HeadKind::kMultiCategorical) {
    if (!nvec.empty()) throw SpecError("nvec is for a multi_categorical head");
    return;
  }
  std::int64_t size = 0;
  for (const std::int32_t n : nvec) {
    if (n < 1) throw SpecError("nvec has " + std::to_string(n) + ", expected 1 or more actions");
    size += n;
  }
  if (nvec.empty() || size != network.output_size(0)) {
    throw SpecError("the network gives " + std::to_string(network.output_size(0)) +
                    " logits, expected " + std::to_string(size) + ": one for each action of the " +
                    std::to_string(nvec.size()) + " elements");
  }
}

}  // namespace

void CheckHead(const policy::Head& head, const std::vector<std::int32_t>& nvec,
               const policy::Network& network) {
  // an output after the value would be computed for nothing
  const std::size_t needed = policy::NumHeadInputs(head.kind);
  if (network.num_outputs() < needed || network.num_outputs() > needed + 1) {
    throw SpecError("the network has " + std::to_string(network.num_outputs()) +
                    " outputs, expected " + std::to_string(needed) + ", or one more: the value");
  }
  CheckElements(head, nvec, network);
}

namespace {

// Bounds that a squashed action is scaled to: low and high (2, d), or nothing.
std::vector<float> ReadBounds(const policy::Head& head, const Floats& bounds,
                              const policy::Network& network) {
  if (bounds.size() == 0) return {};
  if (head.kind != policy::HeadKind::kTanhGaussian) {
    throw SpecError("bounds are for a tanh_gaussian head");
  }
  const py::ssize_t size = network.output_size(0);
  if (bounds.ndim() != 2 || bounds.shape(0) != 2 || bounds.shape(1) != size) {
    throw SpecError("bounds have shape " + ShapeString(bounds) + ", expected (2, " +
                    std::to_string(size) + "): the network says " + std::to_string(size) +
                    " numbers of an action");
  }
  const auto count = static_cast<std::size_t>(size);
  return policy::SquashingBounds({bounds.data(), count}, {bounds.data() + size, count});
}

// Checks that each row has as many numbers as the network has inputs: kernels read rows by pointer.
void CheckRows(const Floats& obs, const policy::Network& network) {
  if (obs.ndim() == 2 && obs.shape(1) == network.input_size()) return;
  throw SpecError("obs has shape " + ShapeString(obs) + ", expected (B, " +
                  std::to_string(network.input_size()) + ")");
}

// The memory of a C-contiguous array.
std::span<const std::uint8_t> BytesOf(const py::handle& array) {
  const auto source = py::reinterpret_borrow<py::array>(array);
  if (!py::isinstance<py::array>(array) || !(source.flags() & py::array::c_style)) {
    throw SpecError("sources of weights are C-contiguous arrays");
  }
  return {static_cast<const std::uint8_t*>(source.data()),
          static_cast<std::size_t>(source.nbytes())};
}

// One float32 array for each parameter; owns those that had to be converted.
struct Params {
  explicit Params(const py::list& params) {
    for (const py::handle param : params) {
      arrays.push_back(py::cast<Floats>(param));
      spans.emplace_back(arrays.back().data(), static_cast<std::size_t>(arrays.back().size()));
    }
  }
  std::vector<Floats> arrays;
  std::vector<std::span<const float>> spans;
};

template <typename T>
py::bytes BytesOf(const T* data, std::size_t count) {
  return {reinterpret_cast<const char*>(data), count * sizeof(T)};
}

// Arrays (rows, size) for each output of a network, and their addresses.
struct Outputs {
  Outputs(const policy::Network& network, py::ssize_t rows) {
    for (std::size_t i = 0; i < network.program().outputs.size(); ++i) {
      Floats array({rows, static_cast<py::ssize_t>(network.output_size(i))});
      data.push_back(array.mutable_data());
      arrays.append(array);
    }
  }
  py::list arrays;
  std::vector<float*> data;
};

}  // namespace

PyPolicy::PyPolicy(std::int32_t obs_size, const py::list& ops, const py::list& params,
                   std::vector<std::int32_t> outputs, const py::dict& head,
                   std::vector<std::int32_t> states)
    : network_(std::make_shared<const policy::Network>(
          ReadProgram(obs_size, ops, params, std::move(outputs), std::move(states)))),
      head_{.kind = HeadKindOf(head["kind"].cast<std::string>()),
            .deterministic = head["deterministic"].cast<bool>(),
            .epsilon = head["epsilon"].cast<float>(),
            .damping = head["damping"].cast<float>(),
            .seed = head["seed"].cast<std::uint64_t>()},
      nvec_(head["nvec"].cast<std::vector<std::int32_t>>()) {
  CheckHead(head_, nvec_, *network_);
  bounds_ = ReadBounds(head_, head["bounds"].cast<Floats>(), *network_);
}

void PyPolicy::Load(const py::list& params, const py::list& sources, const Floats& initial) {
  if (initial.size() != network_->state_size()) {
    throw SpecError("the initial state has " + std::to_string(initial.size()) +
                    " numbers, expected " + std::to_string(network_->state_size()));
  }
  const Params read(params);
  // packed first, so that weights that are refused leave the old ones in place
  current_ = std::make_shared<const policy::NativePolicy>(
      policy::NativePolicy{network_, network_->Pack(read.spans), head_,
                           {initial.data(), initial.data() + initial.size()}, nvec_, bounds_});
  // the bytes are kept, because a module changes its weights in place, at the same addresses
  sources_.clear();
  for (const py::handle source : sources) {
    const std::span<const std::uint8_t> bytes = BytesOf(source);
    sources_.insert(sources_.end(), bytes.begin(), bytes.end());
  }
}

bool PyPolicy::Holds(const py::list& sources) const {
  if (!current_) return false;
  // compared where they lie, in the order in which Load stored them
  std::size_t at = 0;
  for (const py::handle source : sources) {
    const std::span<const std::uint8_t> bytes = BytesOf(source);
    if (bytes.size() > sources_.size() - at) return false;
    if (std::memcmp(sources_.data() + at, bytes.data(), bytes.size()) != 0) return false;
    at += bytes.size();
  }
  return at == sources_.size();
}

std::shared_ptr<const policy::NativePolicy> PyPolicy::current() const {
  if (!current_) throw SpecError("the policy has no weights yet; load them first");
  return current_;
}

py::tuple PyPolicy::Evaluate(const Floats& obs) const {
  // held to the end, because another thread may load new weights meanwhile
  const auto policy = current();
  CheckRows(obs, *network_);
  Outputs out(*network_, obs.shape(0));
  {
    const ReleaseGil no_gil;
    policy::Evaluate(*policy, obs.data(), obs.shape(0), out.data);
  }
  return py::tuple(out.arrays);
}

py::tuple PyPolicy::Act(const Floats& obs,
                        const py::array_t<std::uint32_t, py::array::c_style>& keys,
                        const py::object& mask) const {
  const auto policy = current();
  CheckRows(obs, *network_);
  const py::ssize_t rows = obs.shape(0);
  if (keys.ndim() != 2 || keys.shape(0) != 3 || keys.shape(1) != rows) {
    throw SpecError("keys has shape " + ShapeString(keys) + ", expected (3, " +
                    std::to_string(rows) + ")");
  }
  Outputs out(*network_, rows);
  Floats log_prob(rows), entropy(rows);
  py::array action;
  // the head writes either index or box; the other stays null
  policy::Actions actions{.log_prob = log_prob.mutable_data(), .entropy = entropy.mutable_data()};
  py::array_t<bool, py::array::c_style> allowed;  // held while it is read
  if (!mask.is_none()) {
    const bool is_categorical = head_.kind == policy::HeadKind::kCategorical ||
                                head_.kind == policy::HeadKind::kMultiCategorical;
    allowed = mask.cast<py::array_t<bool, py::array::c_style>>();
    if (!is_categorical || allowed.ndim() != 2 || allowed.shape(0) != rows ||
        allowed.shape(1) != network_->output_size(0)) {
      throw SpecError("action_mask has shape " + ShapeString(allowed) + ", expected (" +
                      std::to_string(rows) + ", " + std::to_string(network_->output_size(0)) +
                      ") for logits of a categorical or multi_categorical head");
    }
    actions.mask = reinterpret_cast<const std::uint8_t*>(allowed.data());
  }
  if (policy::IsDiscrete(head_.kind)) {
    std::vector<py::ssize_t> shape{rows};
    if (!nvec_.empty()) shape.push_back(static_cast<py::ssize_t>(nvec_.size()));
    py::array_t<std::int64_t> chosen(shape);
    actions.index = chosen.mutable_data();
    action = std::move(chosen);
  } else {
    Floats chosen({rows, static_cast<py::ssize_t>(network_->output_size(0))});
    actions.box = chosen.mutable_data();
    action = std::move(chosen);
  }
  {
    const ReleaseGil no_gil;
    policy::Evaluate(*policy, obs.data(), rows, out.data, keys.data(), &actions);
  }
  // the head's results come first, because the number of outputs depends on the network
  py::list all;
  all.append(action);
  all.append(log_prob);
  all.append(entropy);
  for (const py::handle array : out.arrays) all.append(array);
  return py::tuple(all);
}

py::dict PyPolicy::Layout() const {
  const auto steps = network_->instructions();
  py::list outputs;
  for (std::size_t i = 0; i < network_->program().outputs.size(); ++i) {
    outputs.append(py::make_tuple(network_->output_row(i), network_->output_size(i)));
  }
  py::dict layout;
  layout["instructions"] = BytesOf(steps.data(), steps.size());
  layout["num_instructions"] = steps.size();
  layout["head"] = BytesOf(&head_, 1);
  layout["nvec"] = nvec_;
  layout["bounds"] = py::array_t<float>(static_cast<py::ssize_t>(bounds_.size()), bounds_.data());
  layout["num_rows"] = network_->num_rows();
  layout["obs_size"] = network_->program().obs_size;
  layout["state_size"] = network_->state_size();
  layout["num_head_inputs"] = policy::NumHeadInputs(head_.kind);
  layout["num_states"] = network_->program().states.size();
  layout["outputs"] = outputs;
  return layout;
}

py::array_t<float> PyPolicy::Pack(const py::list& params) const {
  const std::vector<float> packed = network_->Pack(Params(params).spans);
  return py::array_t<float>(static_cast<py::ssize_t>(packed.size()), packed.data());
}

void BindPolicy(py::module_& module) {
  BindGradients(module);
  py::class_<PyPolicy, std::shared_ptr<PyPolicy>>(module, "NativePolicy")
      .def(py::init<std::int32_t, const py::list&, const py::list&, std::vector<std::int32_t>,
                    const py::dict&, std::vector<std::int32_t>>(),
           py::arg("obs_size"), py::arg("ops"), py::arg("params"), py::arg("outputs"),
           py::arg("head"), py::arg("states"))
      .def("load", &PyPolicy::Load, py::arg("params"), py::arg("sources"), py::arg("initial"))
      .def("holds", &PyPolicy::Holds, py::arg("sources"))
      .def("snapshot", [](const PyPolicy& self) { return PyPolicy(self); })
      .def("evaluate", &PyPolicy::Evaluate, py::arg("obs"))
      .def("layout", &PyPolicy::Layout)
      .def("pack", &PyPolicy::Pack, py::arg("params"))
      .def("act", &PyPolicy::Act, py::arg("obs"), py::arg("keys"),
           py::arg("mask") = py::none());
  module.def("policy_kernels", [] { return policy::KernelNames(); },
             "Names of the kernels that this machine can run, the widest first.");
  module.def("policy_kernels_in_use", [] { return std::string(policy::BestKernels().name); });
}

}  // namespace rollouts
