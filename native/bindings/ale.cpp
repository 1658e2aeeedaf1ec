// SPDX-License-Identifier: Apache-2.0
// The ALE engine: loading it, and direct access to an emulator and to the resize
// for the tests that compare them with their references.
#include "engines/ale_abi.h"
#include "engines/ale_rules.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "rollouts/atari2600/games.h"
#include "rollouts/atari2600/rules.h"
#include "rollouts/envs/atari/emulation.h"
#include "rollouts/envs/atari/resize.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using Bytes = py::array_t<std::uint8_t, py::array::c_style>;

constexpr std::int32_t kScreenWidth = 160;
constexpr std::int32_t kRamBytes = 128;

// An emulator set up as in the environments, but without their restarts.
std::unique_ptr<Ale> LoadEmulator(const std::string& rom_path) {
  // checked first, because ALE ends the process if it cannot read the file
  AleLibrary::CheckRom(rom_path);
  auto ale = std::make_unique<Ale>();
  ale->SetInt("random_seed", 0);
  // deterministic, for comparisons with ale_py
  ale->SetFloat("repeat_action_probability", 0.0f);
  ale->LoadRom(rom_path);
  return ale;
}

// (height, width) of palette indices.
Bytes CopyScreen(const Ale& ale) {
  const AleScreen screen = ale.screen();
  Bytes copy({screen.height, screen.width});
  std::memcpy(copy.mutable_data(), screen.pixels, static_cast<std::size_t>(copy.size()));
  return copy;
}

Bytes CopyRam(const Ale& ale) {
  const auto ram = ale.Ram();
  return Bytes(static_cast<py::ssize_t>(ram.size()), ram.data());
}

// (H, W) or (H, W, 3) uint8 to (height, width[, 3]).
Bytes ResizeImage(const Bytes& image, std::int32_t height, std::int32_t width, bool by_area) {
  if (image.ndim() != 2 && image.ndim() != 3) {
    throw SpecError("image has " + std::to_string(image.ndim()) + " axes, expected 2 or 3");
  }
  // a gray image has no axis for its one channel
  const auto channels = static_cast<std::int32_t>(image.ndim() == 3 ? image.shape(2) : 1);
  FrameResize resize(static_cast<std::int32_t>(image.shape(0)),
                    static_cast<std::int32_t>(image.shape(1)), height, width, channels, by_area);
  std::vector<py::ssize_t> shape{height, width};
  if (image.ndim() == 3) shape.push_back(channels);
  Bytes result(shape);
  // `resize` caches rows from one result row to the next, which is right only within one image
  resize.BeginImage();
  for (std::int32_t y = 0; y < height; ++y) {
    resize.ComputeRow(image.data(), y, result.mutable_data() + y * width * channels);
  }
  return result;
}

// Reward, lives and end (N, 3) for each of the memories (N, 128), which follow each other in one
// game from its beginning.
py::array_t<std::int32_t> ReadScores(const std::string& rom_path, const Bytes& ram, bool by_ale) {
  if (ram.ndim() != 2 || ram.shape(1) != 128) {
    throw SpecError("ram has another shape than (N, 128)");
  }
  std::ifstream file(rom_path, std::ios::binary);
  const std::vector<std::uint8_t> rom{std::istreambuf_iterator<char>(file), {}};
  const auto rom_size = static_cast<std::uint32_t>(rom.size());
  const atari2600::Game* const game = atari2600::FindGame(rom.data(), rom_size);
  const atari2600::Rules* const ours = game ? atari2600::FindRules(game->name) : nullptr;
  if (!by_ale && !ours) throw EngineError("there are no rules of ours for " + rom_path);

  py::array_t<std::int32_t> scores({ram.shape(0), py::ssize_t{3}});
  std::int32_t* out = scores.mutable_data();
  std::array<std::uint8_t, 128> shown{};
  const std::array<std::uint8_t, 128> cartridge{};
  std::unique_ptr<AleRules> ales;
  atari2600::RulesState state;
  if (by_ale) {
    const AleRules::Memory memory{shown.data(), cartridge.data()};
    ales = std::make_unique<AleRules>(rom_path, rom, memory);
  } else {
    state = atari2600::StartRules(*ours, -1);
  }
  for (py::ssize_t i = 0; i < ram.shape(0); ++i, out += 3) {
    std::memcpy(shown.data(), ram.data(i, 0), shown.size());
    if (by_ale) {
      ales->Step();
      out[0] = ales->Reward(), out[1] = ales->Lives(), out[2] = ales->GameOver();
    } else {
      atari2600::StepRules(*ours, shown.data(), state);
      out[0] = state.reward, out[1] = atari2600::LivesOf(state), out[2] = state.over;
    }
  }
  return scores;
}

using Actions = py::array_t<std::int32_t, py::array::c_style>;

// Runs actions (T,); returns seconds.
double RunEmulation(AtariEmulation& emulation, const Actions& actions) {
  const std::span<const std::int32_t> all(actions.data(), static_cast<std::size_t>(actions.size()));
  for (const std::int32_t action : all) {
    if (action < 0 || action > 17) {
      throw SpecError("action is " + std::to_string(action) + ", expected 0..17");
    }
  }
  const ReleaseGil release;
  return emulation.Run(all);
}

Bytes CopyConsoleScreen(const AtariConsole& console) {
  return Bytes({console.height(), kScreenWidth}, console.Screen());
}

Bytes CopyConsoleRam(const AtariConsole& console) { return Bytes(kRamBytes, console.Ram()); }

std::int32_t ActOnConsole(AtariConsole& console, std::int32_t action) {
  if (action < 0 || action > 17) {
    throw SpecError("action is " + std::to_string(action) + ", expected 0..17");
  }
  return console.Act(action);
}

void PokeConsole(AtariConsole& console, std::int32_t address, std::uint8_t value) {
  if (address < 0 || address >= kRamBytes) {
    throw SpecError("address is " + std::to_string(address) + ", expected 0..127");
  }
  console.Poke(static_cast<std::uint8_t>(address), value);
}

void BindConsole(py::module_& module) {
  py::class_<AtariConsole>(module, "AtariConsole",
                           "Our Atari 2600 with a game, to be compared with ale-py's.")
      .def(py::init<const std::string&, std::int32_t, std::int32_t, float, std::uint32_t>(),
           py::arg("rom_path"), py::arg("mode") = -1, py::arg("difficulty") = -1,
           py::arg("repeat_action_probability") = 0.0f, py::arg("random_seed") = 0)
      .def("restart", &AtariConsole::Restart)
      .def("reset", &AtariConsole::Reset)
      .def("act", &ActOnConsole, py::arg("action"))
      .def("poke", &PokeConsole, py::arg("address"), py::arg("value"))
      .def("legal_actions", &AtariConsole::legal_actions)
      .def("game_over", &AtariConsole::GameOver)
      .def("lives", &AtariConsole::Lives)
      .def("screen", &CopyConsoleScreen)
      .def("ram", &CopyConsoleRam);
}

}  // namespace

void BindAle(py::module_& module) {
  const auto load = [](const std::string& so_path, const std::string& version) {
    AleLibrary::Load(so_path, version);
    AleRules::Load(so_path, version);
  };
  module.def("load_ale", load, py::arg("so_path"), py::arg("version"),
             "Resolves ALE's symbols in the native module of the imported ale_py.");
  module.def("resize_frame", &ResizeImage, py::arg("image"), py::arg("height"), py::arg("width"),
             py::arg("by_area") = true,
             "The resize of the Atari environments. For tests.");
  module.def("has_atari_rules",
             [](const std::string& game) { return atari2600::FindRules(game.c_str()) != nullptr; },
             py::arg("game"), "Whether a game such as \"pong\" has rules of ours. For tests.");
  module.def("read_atari_scores", &ReadScores, py::arg("rom_path"), py::arg("ram"),
             py::arg("by_ale"),
             "Reward, lives and end (N, 3) after each of the memories (N, 128). For tests.");
  py::class_<AtariEmulation>(module, "AtariEmulation",
                             "Our Atari 2600 without preprocessing. For measurements.")
      .def(py::init<const std::string&, std::int32_t>(), py::arg("rom_path"), py::arg("frameskip"))
      .def("run", &RunEmulation, py::arg("actions"));
  BindConsole(module);
  py::class_<AleState>(module, "AleState");
  py::class_<Ale>(module, "AleEmulator", "One ALE without preprocessing. For tests.")
      .def(py::init(&LoadEmulator), py::arg("rom_path"))
      .def("act", &Ale::Act, py::arg("action"), py::arg("strength") = 1.0f)
      .def("game_over", &Ale::GameOver)
      .def("reset_game", &Ale::ResetGame)
      .def("lives", &Ale::Lives)
      .def("screen", &CopyScreen)
      .def("ram", &CopyRam)
      .def("minimal_actions", &Ale::MinimalActions)
      .def("legal_actions", &Ale::LegalActions)
      .def("palette_gray", [](Ale& ale) {
        const AlePalette palette = ale.Palette();
        return Bytes(static_cast<py::ssize_t>(palette.gray.size()), palette.gray.data());
      })
      .def("clone_state", [](Ale& ale) { return ale.CloneState(); })
      .def("restore_state", &Ale::RestoreState, py::arg("state"));
}

}  // namespace rollouts
