// SPDX-License-Identifier: Apache-2.0
// Functions of ViZDoom that doom_abi.cpp calls; doom_library.cpp looks them up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "doom_abi.h"

namespace rollouts {

inline constexpr const char* kTestedDoomVersions = ">=1.3,<1.4";

// The part of vizdoom::GameState that is read. ViZDoom's own code destroys the rest.
struct DoomStateLayout {
  using Image = std::shared_ptr<std::vector<std::uint8_t>>;
  unsigned number;
  unsigned tic;
  std::vector<double> variables;
  Image screen;
  std::shared_ptr<std::vector<std::int16_t>> audio;
  Image depth;
  Image labels;
  Image automap;
};

// Function types have the real standard types, so that the compiler passes and returns them as the
// C++ ABI requires. A member function is a function whose first argument is the object; ViZDoom's
// enums are as wide as int.
struct DoomSymbols {
  void (*construct)(void*);
  void (*destroy)(void*);
  bool (*load_config)(void*, std::string);
  bool (*init)(void*);
  void (*close)(void*);
  void (*new_episode)(void*, std::string);
  double (*make_action)(void*, const std::vector<double>&, unsigned);
  bool (*episode_finished)(void*);
  bool (*timeout_reached)(void*);
  std::shared_ptr<DoomStateLayout> (*get_state)(void*);
  void (*set_seed)(void*, unsigned);
  int (*get_mode)(void*);
  void (*set_mode)(void*, int);
  unsigned (*get_ticrate)(void*);
  void (*set_ticrate)(void*, unsigned);
  void (*set_game_path)(void*, std::string);
  void (*set_ini_path)(void*, std::string);
  void (*set_wad_path)(void*, std::string);
  void (*set_iwad_path)(void*, std::string);
  void (*set_map)(void*, std::string);
  std::string (*get_map)(void*);
  std::string (*get_wad_path)(void*);
  std::string (*get_iwad_path)(void*);
  std::string (*get_game_args)(void*);
  void (*add_game_args)(void*, std::string);
  void (*set_skill)(void*, int);
  void (*set_timeout)(void*, unsigned);
  void (*set_resolution)(void*, int);
  int (*get_format)(void*);
  void (*set_format)(void*, int);
  void (*set_window)(void*, bool);
  bool (*has_audio)(void*);
  void (*set_audio)(void*, bool);
  void (*set_audio_frames)(void*, int);
  int (*audio_rate)(void*);
  void (*set_notifications)(void*, bool);
  bool (*has_depth)(void*);
  bool (*has_labels)(void*);
  bool (*has_automap)(void*);
  void (*set_depth)(void*, bool);
  void (*set_labels)(void*, bool);
  void (*set_automap)(void*, bool);
  int (*width)(void*);
  int (*height)(void*);
  std::vector<DoomButton> (*buttons)(void*);
  void (*set_buttons)(void*, std::vector<DoomButton>);
  std::size_t (*num_variables)(void*);
  bool (*is_delta)(DoomButton);
  unsigned (*controller_ticrate)(void*);
  int (*controller_health)(void*);

  std::size_t shared_state_offset = 0;  // in vizdoom::DoomController
  std::string game;
  std::string guardian;
};

// Throws EngineError before DoomLibrary::Load has succeeded.
const DoomSymbols& LoadedDoom();

// The vizdoom::DoomController of a vizdoom::DoomGame.
inline void* DoomControllerOf(const std::byte* game) {
  constexpr std::size_t kPlace = 8;
  void* controller = nullptr;
  std::memcpy(&controller, game + kPlace, sizeof(controller));
  return controller;
}

}  // namespace rollouts
