// SPDX-License-Identifier: Apache-2.0
#include "plugin/spec_rules.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

constexpr std::int64_t kMaxRowBytes = std::numeric_limits<std::int32_t>::max();

// An element type: its DType in a spec, its name in C++, and its range.
struct Element {
  DType dtype;
  const char* dtype_name;
  const char* type_name;
  double least, end;  // the lowest value, and the first too large; floats may equal `end`
  bool is_float = false;
};

constexpr double kEndOfInt64 = 9223372036854775808.0;
constexpr double kMostFloat = std::numeric_limits<float>::max();
constexpr double kMostDouble = std::numeric_limits<double>::max();
constexpr Element kElements[] = {
    {DType::kUint8, "kUint8", "std::uint8_t", 0, 256},
    {DType::kInt8, "kInt8", "std::int8_t", -128, 128},
    {DType::kInt16, "kInt16", "std::int16_t", -32768, 32768},
    {DType::kInt32, "kInt32", "std::int32_t", -2147483648.0, 2147483648.0},
    {DType::kInt64, "kInt64", "std::int64_t", -kEndOfInt64, kEndOfInt64},
    {DType::kFloat32, "kFloat32", "float", -kMostFloat, kMostFloat, true},
    {DType::kFloat64, "kFloat64", "double", -kMostDouble, kMostDouble, true},
};

const Element* Find(std::int32_t dtype) {
  for (const Element& element : kElements) {
    if (static_cast<std::int32_t>(element.dtype) == dtype) return &element;
  }
  return nullptr;
}

std::string TypeName(std::int32_t dtype) {
  const Element* const element = Find(dtype);
  return element ? element->type_name : "another type";
}

std::string Text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  return std::to_string(value);
}

// The rules for one space of a spec; `where` names the space in messages.
class SpaceRules {
 public:
  SpaceRules(const SpaceSpec& space, std::string where) : space_(space), where_(std::move(where)) {}

  // `obs`: the DType of what Observe writes.
  void CheckObservation(std::int32_t obs) const {
    const Element& element = CheckForm();
    if (space_.n > 0 && space_.dtype != DType::kInt64) {
      Fail("has .n, a Discrete space, whose .dtype is kInt64 as Gymnasium's, got " +
           std::string(element.dtype_name));
    }
    CheckType(element, obs, "Obs");
    CheckBounds(element);
  }

  // `action`: the DType of what Step reads; negative where it is unknown.
  void CheckAction(std::int32_t action) const {
    const Element& element = CheckForm();
    const bool is_discrete = space_.n > 0;
    const DType expected =
        is_discrete || space_.multi_discrete ? DType::kInt32 : DType::kFloat32;
    const Element& rests = *Find(static_cast<std::int32_t>(expected));
    if (!is_discrete && space_.dtype != expected) {
      Fail(std::string(space_.multi_discrete ? "is a MultiDiscrete" : "is a Box") +
           ", whose actions have .dtype " + rests.dtype_name + " and the type " + rests.type_name +
           ", got " + element.dtype_name +
           (space_.multi_discrete ? "" : "; whole numbers are .n or .multi_discrete"));
    }
    if (action != kAnyElement && action != static_cast<std::int32_t>(expected)) {
      Fail("needs `using Action = " + std::string(rests.type_name) + "`, got " + TypeName(action));
    }
    if (!is_discrete) CheckBounds(rests);
  }

  static constexpr std::int32_t kAnyElement = -2;

 private:
  [[noreturn]] void Fail(const std::string& what) const { throw SpecError(where_ + " " + what); }

  // Checks shape and kind.
  const Element& CheckForm() const {
    const Element* const element = Find(static_cast<std::int32_t>(space_.dtype));
    if (!element) Fail("has a .dtype that there is not");
    if (space_.n < 0) Fail("has .n = " + std::to_string(space_.n) + ", expected 1 or more values");
    if (space_.ndim < 0 || space_.ndim > SpaceSpec::kMaxDims) {
      Fail("has .ndim = " + std::to_string(space_.ndim) + ", expected 1 to " +
           std::to_string(SpaceSpec::kMaxDims));
    }
    if (space_.n > 0) {
      CheckDiscrete();
      return *element;
    }
    if (space_.ndim == 0) Fail("has no elements: .n, or .ndim and .shape");
    std::int64_t size = 1;
    for (std::int32_t i = 0; i < space_.ndim; ++i) {
      if (space_.shape[i] < 1) {
        Fail("has no elements: .shape[" + std::to_string(i) + "] is " +
             std::to_string(space_.shape[i]));
      }
      size *= space_.shape[i];
      if (size > kMaxRowBytes / SizeOf(space_.dtype)) Fail("has more elements than 2 GiB hold");
    }
    if (space_.elementwise && size > SpaceSpec::kMaxBounds) {
      Fail("has " + std::to_string(size) + " elements and .elementwise, which is for " +
           std::to_string(SpaceSpec::kMaxBounds) + " at most: give one bound for all");
    }
    return *element;
  }

  void CheckDiscrete() const {
    if (space_.ndim > 0 || space_.multi_discrete || space_.elementwise) {
      Fail("has .n, a Discrete space of one number, and .ndim, .multi_discrete or .elementwise, "
           "which are of others");
    }
    for (std::int32_t i = 0; i < SpaceSpec::kMaxBounds; ++i) {
      if (space_.low[i] != 0 || space_.high[i] != 0) {
        Fail("has .n, whose values are 0 to n - 1, and .low or .high: add where they begin in "
             "Step and Observe");
      }
    }
  }

  void CheckType(const Element& element, std::int32_t given, const char* name) const {
    if (given == static_cast<std::int32_t>(element.dtype)) return;
    Fail("has .dtype " + std::string(element.dtype_name) + ", which needs `using " + name + " = " +
         element.type_name + "`, got " + TypeName(given));
  }

  // Checks the bounds that are given: of each element, or one pair.
  void CheckBounds(const Element& element) const {
    if (space_.n > 0) return;
    if (space_.multi_discrete && element.is_float) {
      Fail("has .multi_discrete, whose elements are whole numbers, and .dtype " +
           std::string(element.dtype_name));
    }
    const std::int64_t given = space_.elementwise ? space_.size() : 1;
    for (std::int64_t i = given; i < SpaceSpec::kMaxBounds; ++i) {
      if (space_.low[i] == 0 && space_.high[i] == 0) continue;
      Fail("has more bounds than " + std::string(space_.elementwise ? "elements" : "one") +
           (space_.elementwise ? "" : ": a bound for each element needs .elementwise = true"));
    }
    for (std::int64_t i = 0; i < given; ++i) {
      const std::string place = space_.elementwise ? "[" + std::to_string(i) + "]" : "";
      CheckBound(element, ".low" + place, space_.low[i]);
      CheckBound(element, ".high" + place, space_.high[i]);
      if (space_.low[i] > space_.high[i]) {
        Fail("has .low" + place + " = " + Text(space_.low[i]) + " above .high" + place + " = " +
             Text(space_.high[i]));
      }
      if (!space_.multi_discrete) continue;
      if (space_.low[i] != 0) {
        Fail("has .multi_discrete, whose elements begin at 0, and .low" + place + " = " +
             Text(space_.low[i]));
      }
      // Gymnasium stores the number of values in the same type
      if (space_.high[i] + 1 >= element.end) {
        Fail("has .multi_discrete and .high" + place + " = " + Text(space_.high[i]) +
             ", expected " + Text(element.end - 2) + " at most for " + element.dtype_name);
      }
    }
  }

  void CheckBound(const Element& element, const std::string& name, double bound) const {
    const std::string got = "has " + name + " = " + Text(bound);
    if (element.is_float) {
      if (std::isinf(bound)) return;
      if (bound >= element.least && bound <= element.end) return;
    } else if (bound >= element.least && bound < element.end) {
      if (bound == std::floor(bound)) return;
      Fail(got + ", expected a whole number for " + element.dtype_name);
    }
    Fail(got + ", which no " + element.type_name + " holds");
  }

  const SpaceSpec& space_;
  const std::string where_;
};

// Checks that names exist and differ; their number is checked before.
class Names {
 public:
  explicit Names(const char* of) : of_(of) {}

  std::string Add(const char* name, std::int32_t index) {
    if (!name || !*name) throw SpecError(of_ + "[" + std::to_string(index) + "] has no name");
    if (!seen_.insert(name).second) {
      throw SpecError(of_ + " has the name '" + name + "' twice: each needs its own");
    }
    return name;
  }

 private:
  const std::string of_;
  std::set<std::string> seen_;
};

void CheckCount(const char* what, std::int32_t given, std::int32_t most) {
  if (given >= 0 && given <= most) return;
  throw SpecError(std::string(what) + " is " + std::to_string(given) + ", expected " +
                  std::to_string(most) + " at most");
}

void CheckInfos(const EnvSpec& spec) {
  CheckCount("num_infos", spec.num_infos, EnvSpec::kMaxInfos);
  Names names("infos");
  std::int64_t values = 0;
  for (std::int32_t i = 0; i < spec.num_infos; ++i) {
    const InfoSpec& info = spec.infos[i];
    const std::string where = "info '" + names.Add(info.name, i) + "'";
    if (info.dtype != DType::kFloat64 && info.dtype != DType::kInt32 &&
        info.dtype != DType::kInt8) {
      const Element* const given = Find(static_cast<std::int32_t>(info.dtype));
      throw SpecError(where + " has .dtype " + (given ? given->dtype_name : "that there is not") +
                      ", expected kFloat64, kInt32 or kInt8");
    }
    if (info.length != InfoSpec::kNumber && info.length < 1) {
      throw SpecError(where + " has .length = " + std::to_string(info.length) +
                      ", expected 1 or more, or InfoSpec::kNumber for a number");
    }
    values += info.size();
  }
  if (values > EnvSpec::kMaxInfoValues) {
    throw SpecError("infos have " + std::to_string(values) + " values, expected " +
                    std::to_string(EnvSpec::kMaxInfoValues) + " at most");
  }
}

// Checks the parts of a flat observation, as rollouts/envs/observation_parts.py reads them.
void CheckParts(const EnvSpec& spec) {
  CheckCount("num_parts", spec.num_parts, EnvSpec::kMaxParts);
  if (spec.num_parts == 0) return;
  const SpaceSpec& flat = spec.observation;
  if (flat.n > 0 || flat.multi_discrete || flat.ndim != 1 || flat.elementwise) {
    throw SpecError("parts are of an observation that is a Box of one dimension with one bound for "
                    "all elements");
  }
  const bool of_bytes = flat.dtype == DType::kUint8;
  Names names("parts");
  std::int64_t end = 0;
  for (std::int32_t i = 0; i < spec.num_parts; ++i) {
    const ObservationPart& part = spec.parts[i];
    const std::string where = "part '" + names.Add(part.name, i) + "'";
    if (!Find(static_cast<std::int32_t>(part.dtype)) || part.ndim < 0 || part.ndim > 3) {
      throw SpecError(where + " needs a .dtype and .ndim of 0 to 3");
    }
    std::int64_t size = 1;
    for (std::int32_t d = 0; d < part.ndim; ++d) {
      if (part.shape[d] < 1 || part.shape[d] > flat.size()) {
        throw SpecError(where + " has .shape[" + std::to_string(d) + "] = " +
                        std::to_string(part.shape[d]) + ", expected 1 to " +
                        std::to_string(flat.size()));
      }
      size *= part.shape[d];
    }
    const std::int64_t width = of_bytes ? SizeOf(part.dtype) : 1;
    end = (end + width - 1) / width * width + size * width;
  }
  if (end != flat.size()) {
    throw SpecError("parts have " + std::to_string(end) + " elements together, and the observation " +
                    std::to_string(flat.size()));
  }
}

void CheckGroups(const EnvSpec& spec, std::int32_t obs) {
  if (spec.num_groups < 1) throw SpecError("MakeSpec has no group of agents: use AddGroup");
  CheckCount("the number of groups", spec.num_groups, EnvSpec::kMaxGroups);
  if (spec.num_infos != 0 || spec.num_parts != 0) {
    throw SpecError("num_infos and num_parts are of environments with one agent");
  }
  Names names("groups");
  std::int64_t agents = 0, action_bytes = 0, obs_bytes = 0;
  for (std::int32_t g = 0; g < spec.num_groups; ++g) {
    const GroupSpec& group = spec.groups[g];
    const std::string name = names.Add(group.name, g);
    if (group.num_agents < 1) {
      throw SpecError("group '" + name + "' has " + std::to_string(group.num_agents) +
                      " agents, expected 1 or more");
    }
    SpaceRules(group.observation, "the observation of group '" + name + "'").CheckObservation(obs);
    SpaceRules(group.action, "the action of group '" + name + "'")
        .CheckAction(SpaceRules::kAnyElement);
    agents += group.num_agents;
    action_bytes += 4 * (group.action.n > 0 ? 1 : group.action.size()) * group.num_agents;
    obs_bytes += group.observation.bytes() * group.num_agents;
  }
  if (agents > kMaxRowBytes || action_bytes > kMaxRowBytes || obs_bytes > kMaxRowBytes) {
    throw SpecError("a world of " + std::to_string(agents) +
                    " agents has actions or observations of more than 2 GiB");
  }
  if (spec.action.bytes() != action_bytes) {
    throw SpecError("groups are added by AddGroup, which has the environment's own spaces follow");
  }
}

}  // namespace

void CheckSpec(const EnvSpec& spec, const PluginTable& table) {
  if (spec.step_cost_ns < 0) throw SpecError("step_cost_ns is negative");
  if (table.multi_agent) {
    CheckGroups(spec, table.obs_element);
    return;
  }
  SpaceRules(spec.observation, "the observation").CheckObservation(table.obs_element);
  SpaceRules(spec.action, "the action").CheckAction(table.action_element);
  CheckInfos(spec);
  CheckParts(spec);
}

}  // namespace rollouts
