// SPDX-License-Identifier: Apache-2.0
// One step of lanes without MuJoCo: the model's fields and the states come from standard input, and the
// rows that were left, as bits, and the next positions and velocities go to standard output.
//
//     size NAME VALUE
//     field NAME BYTES, then so many bytes
//     rows WIDTH COUNT, then qpos, qvel, act, qacc_warmstart and ctrl, (COUNT, size) doubles each
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "rollouts/lanes/step.h"

namespace {

using namespace rollouts::lanes;

std::map<std::string, std::int32_t> sizes;
std::map<std::string, std::vector<char>> fields;

// Bytes that follow a line.
std::vector<char> Bytes(std::size_t count) {
  std::cin.get();
  std::vector<char> bytes(count);
  std::cin.read(bytes.data(), static_cast<std::streamsize>(count));
  return bytes;
}

struct Array {
  std::size_t width;
  std::vector<double> values;
  Array(std::int32_t width, std::size_t count) : width(static_cast<std::size_t>(width)), values(this->width * count) {
    std::cin.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * 8));
  }
  double* Of(std::size_t row) { return values.data() + row * width; }
};

ModelSizes Sizes() {
  ModelSizes out;
#define SIZE(name) out.name = sizes.at(#name)
  SIZE(nq), SIZE(nv), SIZE(nu), SIZE(na), SIZE(nbody), SIZE(njnt), SIZE(ngeom), SIZE(nsite);
  SIZE(ntendon), SIZE(nsensor), SIZE(nsensordata), SIZE(neq), SIZE(npair), SIZE(nexclude);
  SIZE(nmocap), SIZE(nflex), SIZE(nplugin), SIZE(nwrap), SIZE(nhistory), SIZE(ntree), SIZE(nJten);
#undef SIZE
  return out;
}

void Write(const void* from, std::size_t bytes) { std::fwrite(from, 1, bytes, stdout); }

int StepRows(std::int32_t width, std::size_t count) {
  const ModelOrReason read = ReadModel(Sizes(), [](const char* name) -> const void* {
    const auto found = fields.find(name);
    return found == fields.end() ? nullptr : found->second.data();
  });
  if (!read.model) {
    std::cerr << "lanes do not step it: " << read.why_not << "\n";
    return 1;
  }
  std::cin.get();
  const std::int32_t nv = sizes["nv"];
  Array qpos(sizes["nq"], count), qvel(nv, count), act(sizes["na"], count), warm(nv, count),
      ctrl(sizes["nu"], count);
  std::vector<double> times(count);
  std::vector<Row> rows(count);
  for (std::size_t i = 0; i < count; ++i) {
    rows[i].qpos = qpos.Of(i);
    rows[i].qvel = qvel.Of(i);
    rows[i].act = act.Of(i);
    rows[i].qacc_warmstart = warm.Of(i);
    rows[i].ctrl = ctrl.Of(i);
    rows[i].time = &times[i];
  }
  const std::uint64_t left = Step(*read.model, rows, {.width = width});
  Write(&left, sizeof left);
  Write(qpos.values.data(), qpos.values.size() * sizeof(double));
  Write(qvel.values.data(), qvel.values.size() * sizeof(double));
  return 0;
}

}  // namespace

int main() {
  std::string what, name;
  while (std::cin >> what) {
    if (what == "rows") {
      std::int32_t width = 0;
      std::size_t count = 0;
      std::cin >> width >> count;
      return StepRows(width, count);
    }
    std::size_t value = 0;
    std::cin >> name >> value;
    if (what == "size") {
      sizes[name] = static_cast<std::int32_t>(value);
    } else {
      fields[name] = Bytes(value);
    }
  }
  std::cerr << "no rows\n";
  return 1;
}
