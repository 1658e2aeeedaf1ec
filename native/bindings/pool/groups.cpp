// SPDX-License-Identifier: Apache-2.0
#include "bindings/pool/groups.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "rollouts/core/multi_agent.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using Shape = std::vector<py::ssize_t>;

void* PointerOf(const GroupView& group, std::size_t array) {
  void* const all[] = {group.obs,    group.reward,         group.terminated, group.truncated,
                       group.active, group.episode_return, group.final_obs};
  return all[array];
}

GroupView& SetPointer(GroupView& group, std::size_t array, void* data) {
  auto* const bytes = static_cast<std::uint8_t*>(data);
  switch (array) {
    case 0: group.obs = bytes; break;
    case 1: group.reward = static_cast<double*>(data); break;
    case 2: group.terminated = bytes; break;
    case 3: group.truncated = bytes; break;
    case 4: group.active = bytes; break;
    case 5: group.episode_return = static_cast<double*>(data); break;
    default: group.final_obs = bytes;
  }
  return group;
}

bool IsObs(std::size_t array) { return array == 0 || array == 6; }

py::dtype DTypeOf(const GroupSpec& group, std::size_t array) {
  if (IsObs(array)) return NumpyDType(group.observation.dtype);
  return array == 1 || array == 5 ? py::dtype::of<double>() : py::dtype::of<bool>();
}

Shape ShapeOf(const GroupSpec& group, std::size_t array, py::ssize_t rows) {
  Shape shape{rows, group.num_agents};
  const SpaceSpec& space = group.observation;
  if (IsObs(array)) shape.insert(shape.end(), space.shape, space.shape + space.ndim);
  return shape;
}

std::string ShapeText(const Shape& shape) {
  return py::str(py::tuple(py::cast(shape))).cast<std::string>();
}

// "agent tagger_3 in row 5"
std::string AgentText(const GroupSpec& group, std::int64_t agent, std::int64_t row) {
  return "agent " + std::string(group.name) + "_" + std::to_string(agent) + " in row " +
         std::to_string(row);
}

// The actions of one group as the pool keeps them: int32 or float, (rows, agents, elements).
class GroupActions {
 public:
  GroupActions(const GroupSpec& group, const py::handle& given, py::ssize_t rows)
      : group_(group), is_float_(group.action.n == 0 && !group.action.multi_discrete) {
    auto array = py::array::ensure(py::reinterpret_borrow<py::object>(given));
    if (!array) {
      PyErr_Clear();
      throw DTypeError(Name() + " must be an array, got " +
                       py::str(py::type::of(given)).cast<std::string>());
    }
    const char kind = array.dtype().kind();
    const bool is_int = kind == 'i' || kind == 'u';
    if (!is_int && !(is_float_ && kind == 'f')) {
      throw DTypeError(Name() + " has dtype " + py::str(array.dtype()).cast<std::string>() +
                       ", expected " + (is_float_ ? "float32" : "an integer dtype"));
    }
    Shape expected{rows, group.num_agents};
    if (group.action.n == 0) {
      expected.insert(expected.end(), group.action.shape, group.action.shape + group.action.ndim);
    }
    const Shape got(array.shape(), array.shape() + array.ndim());
    if (got != expected) {
      throw SpecError(Name() + " has shape " + ShapeString(array) + ", expected " +
                      ShapeText(expected) + ": one row per environment that is stepped");
    }
    if (is_float_) {
      floats_ = py::array_t<float, py::array::c_style | py::array::forcecast>(array);
    } else {
      ints_ = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>(array);
    }
    // buffers are looked up once, because filling must not need the GIL
    float_data_ = is_float_ ? floats_.data() : nullptr;
    int_data_ = is_float_ ? nullptr : ints_.data();
    // (a Discrete action is one number)
    size_ = group.action.n > 0 ? 1 : group.action.size();
    per_row_ = size_ * group.num_agents;
  }

  std::int64_t row_bytes() const { return per_row_ * 4; }

  // Copies one row; false where an action is invalid.
  bool Copy(std::int64_t row, std::uint8_t* to) const {
    if (is_float_) {
      const float* from = float_data_ + row * per_row_;
      std::memcpy(to, from, static_cast<std::size_t>(row_bytes()));
      return std::all_of(from, from + per_row_, [](float value) { return std::isfinite(value); });
    }
    auto* const values = reinterpret_cast<std::int32_t*>(to);
    const std::int64_t* from = int_data_ + row * per_row_;
    bool good = true;
    for (std::int64_t i = 0; i < per_row_; ++i) {
      good &= static_cast<std::uint64_t>(from[i]) < static_cast<std::uint64_t>(Values(i % size_));
      values[i] = static_cast<std::int32_t>(from[i]);
    }
    return good;
  }

  // Throws for the first invalid action of a row.
  void Check(std::int64_t row) const {
    for (std::int64_t i = 0; i < per_row_; ++i) {
      const std::int64_t at = row * per_row_ + i;
      const std::string where = "action of " + AgentText(group_, i / size_, row) +
                                (size_ > 1 ? ", element " + std::to_string(i % size_) : "") + " is ";
      if (is_float_) {
        if (std::isfinite(float_data_[at])) continue;
        throw SpecError(where + std::to_string(float_data_[at]) + ", expected a finite number");
      }
      const std::int64_t values = Values(i % size_);
      if (int_data_[at] >= 0 && int_data_[at] < values) continue;
      throw SpecError(where + std::to_string(int_data_[at]) + ", expected 0 to " +
                      std::to_string(values - 1));
    }
  }

 private:
  std::string Name() const { return "actions of group '" + std::string(group_.name) + "'"; }
  // The number of values that an element may take.
  std::int64_t Values(std::int64_t element) const {
    const SpaceSpec& action = group_.action;
    if (action.n > 0) return action.n;
    return static_cast<std::int64_t>(action.high[action.elementwise ? element : 0]) + 1;
  }

  const GroupSpec& group_;
  const bool is_float_;
  py::array_t<float, py::array::c_style | py::array::forcecast> floats_;
  py::array_t<std::int64_t, py::array::c_style | py::array::forcecast> ints_;
  const float* float_data_;
  const std::int64_t* int_data_;
  std::int64_t size_;
  std::int64_t per_row_;
};

}  // namespace

void AppendGroupArrays(const EnvSpec& spec, const BatchView& view, py::ssize_t rows,
                       const py::object& owner, py::list& arrays) {
  for (std::int32_t g = 0; g < spec.num_groups; ++g) {
    for (std::size_t array = 0; array < kNumGroupArrays; ++array) {
      void* const data = PointerOf(view.groups[g], array);
      if (!data) {
        arrays.append(py::none());
        continue;
      }
      arrays.append(py::array(DTypeOf(spec.groups[g], array), ShapeOf(spec.groups[g], array, rows),
                              {}, data, owner));
    }
  }
}

void GroupOut::Take(const EnvSpec& spec, const std::string& name, const py::object& given,
                    std::size_t rows, ApartArrays& apart) {
  const auto array = static_cast<std::size_t>(
      std::find(std::begin(kGroupArrays), std::end(kGroupArrays), name) - std::begin(kGroupArrays));
  if (!py::isinstance<py::dict>(given)) {
    throw DTypeError("out['" + name + "'] must be a dict of an array for each group");
  }
  for (const auto& [key, value] : py::cast<py::dict>(given)) {
    const auto group_name = py::str(key).cast<std::string>();
    const auto* const end = spec.groups + spec.num_groups;
    const auto* const group = std::find_if(
        spec.groups, end, [&](const GroupSpec& each) { return group_name == each.name; });
    const std::string where = "out['" + name + "']['" + group_name + "']";
    if (group == end) throw SpecError(where + " is of a group that there is not");
    kept_.push_back({static_cast<std::size_t>(group - spec.groups) * kNumGroupArrays + array,
                     CheckedOut(where, py::reinterpret_borrow<py::object>(value),
                                DTypeOf(*group, array),
                                ShapeOf(*group, array, static_cast<py::ssize_t>(rows)))});
    apart.Add(where, kept_.back().array);
    SetPointer(views_[static_cast<std::size_t>(group - spec.groups)], array,
               kept_.back().array.mutable_data());
  }
}

void GroupOut::PutInto(py::tuple& fields, std::size_t first) const {
  for (const Kept& kept : kept_) fields[first + kept.place] = kept.array;
}

void SendGroups(CpuPool& pool, const py::object& actions, std::span<const std::int32_t> envs,
                const BatchView* out) {
  const EnvSpec& spec = pool.spec();
  if (!py::isinstance<py::sequence>(actions) || std::ssize(py::sequence(actions)) != spec.num_groups) {
    throw SpecError("actions must hold an array for each of " + std::to_string(spec.num_groups) +
                    " groups");
  }
  std::vector<GroupActions> groups;
  const py::sequence given(actions);
  for (std::int32_t g = 0; g < spec.num_groups; ++g) {
    const py::object one = given[g];
    groups.emplace_back(spec.groups[g], one, std::ssize(envs));
  }
  const auto fill = [&](std::int64_t first, std::int64_t count) {
    bool good = true;
    for (std::int64_t row = first; row < first + count; ++row) {
      std::uint8_t* to = pool.ActionRow(envs[row]);
      for (const GroupActions& group : groups) {
        good &= group.Copy(row, to);
        to += group.row_bytes();
      }
    }
    return good;
  };
  if (pool.Send(envs, std::ref(fill), out)) return;
  // searched only now, for the message
  for (std::int64_t row = 0; row < std::ssize(envs); ++row) {
    for (const GroupActions& group : groups) group.Check(row);
  }
}

}  // namespace rollouts
