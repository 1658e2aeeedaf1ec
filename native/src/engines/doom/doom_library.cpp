// SPDX-License-Identifier: Apache-2.0
// Loads ViZDoom's symbols, and checks what is assumed about its objects.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <mutex>

#include "doom_symbols.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

std::mutex load_mutex;
std::atomic<const DoomSymbols*> loaded{nullptr};  // set once, never freed

std::string Advice(const std::string& version) {
  return "; vizdoom " + version + " is installed, rollouts was tested with " +
         kTestedDoomVersions + ": pip install \"vizdoom" + kTestedDoomVersions + "\"";
}

// Looks symbols up and remembers which are missing.
class DoomResolver {
 public:
  explicit DoomResolver(void* handle) : handle_(handle) {}
  template <typename Function>
  void operator()(Function*& function, const std::string& name) {
    // the others are looked up too after a missing one, because the message counts the missing ones
    function = reinterpret_cast<Function*>(dlsym(handle_, ("_ZN7vizdoom" + name).c_str()));
    if (!function) missing_.push_back(name);
  }
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  void* handle_;
  std::vector<std::string> missing_;
};

void ResolveAll(DoomResolver& resolve, DoomSymbols& s) {
  // names as GCC and Clang mangle them, with libstdc++'s string
  const std::string text = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
  const auto game = [&](auto& function, const char* name) {
    resolve(function, std::string("8DoomGame") + name);
  };
  const auto takes_text = [&](auto& function, const char* name) {
    resolve(function, std::string("8DoomGame") + name + text);
  };
  game(s.construct, "C1Ev");
  game(s.destroy, "D1Ev");
  game(s.init, "4initEv");
  game(s.close, "5closeEv");
  game(s.make_action, "10makeActionERKSt6vectorIdSaIdEEj");
  game(s.episode_finished, "17isEpisodeFinishedEv");
  game(s.timeout_reached, "23isEpisodeTimeoutReachedEv");
  game(s.get_state, "8getStateEv");
  game(s.set_seed, "7setSeedEj");
  game(s.get_mode, "7getModeEv");
  game(s.set_mode, "7setModeENS_4ModeE");
  game(s.get_ticrate, "10getTicrateEv");
  game(s.set_ticrate, "10setTicrateEj");
  game(s.set_skill, "12setDoomSkillEi");
  game(s.set_timeout, "17setEpisodeTimeoutEj");
  game(s.set_resolution, "19setScreenResolutionENS_16ScreenResolutionE");
  game(s.get_format, "15getScreenFormatEv");
  game(s.set_format, "15setScreenFormatENS_12ScreenFormatE");
  game(s.set_window, "16setWindowVisibleEb");
  game(s.has_audio, "20isAudioBufferEnabledEv");
  game(s.set_audio, "21setAudioBufferEnabledEb");
  game(s.set_audio_frames, "18setAudioBufferSizeEi");
  game(s.audio_rate, "20getAudioSamplingRateEv");
  game(s.set_notifications, "29setNotificationsBufferEnabledEb");
  game(s.has_depth, "20isDepthBufferEnabledEv");
  game(s.has_labels, "21isLabelsBufferEnabledEv");
  game(s.has_automap, "22isAutomapBufferEnabledEv");
  game(s.set_depth, "21setDepthBufferEnabledEb");
  game(s.set_labels, "22setLabelsBufferEnabledEb");
  game(s.set_automap, "23setAutomapBufferEnabledEb");
  game(s.width, "14getScreenWidthEv");
  game(s.height, "15getScreenHeightEv");
  game(s.buttons, "19getAvailableButtonsEv");
  game(s.set_buttons, "19setAvailableButtonsESt6vectorINS_6ButtonESaIS2_EE");
  game(s.num_variables, "29getAvailableGameVariablesSizeEv");
  takes_text(s.load_config, "10loadConfigE");
  takes_text(s.new_episode, "10newEpisodeE");
  takes_text(s.set_game_path, "14setViZDoomPathE");
  takes_text(s.set_ini_path, "17setDoomConfigPathE");
  takes_text(s.set_wad_path, "19setDoomScenarioPathE");
  takes_text(s.set_iwad_path, "15setDoomGamePathE");
  takes_text(s.set_map, "10setDoomMapE");
  takes_text(s.add_game_args, "11addGameArgsE");
  game(s.get_map, "10getDoomMapB5cxx11Ev");
  game(s.get_wad_path, "19getDoomScenarioPathB5cxx11Ev");
  game(s.get_iwad_path, "15getDoomGamePathB5cxx11Ev");
  game(s.get_game_args, "11getGameArgsB5cxx11Ev");
  resolve(s.is_delta, "13isDeltaButtonENS_6ButtonE");
  resolve(s.controller_ticrate, "14DoomController10getTicrateEv");
  resolve(s.controller_health, "14DoomController9getHealthEv");
}

// Offset of DoomController's pointer to the shared memory, found by experiment: getHealth follows
// it.
std::size_t SharedStateOffset(int (*get_health)(void*)) {
  // makes a controller whose word k points to number k * stride of 0, 1, 2, ...: getHealth returns
  // k * stride plus the offset of the health; two strides give both
  constexpr std::size_t kWords = 1024;
  std::vector<std::int32_t> numbers(1 << 20);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int32_t>(i);
  std::array<std::int32_t*, kWords> controller;
  const auto health = [&](std::size_t stride) {
    for (std::size_t k = 0; k < kWords; ++k) controller[k] = &numbers[k * stride];
    return get_health(controller.data());
  };
  const std::int32_t first = health(1);
  return static_cast<std::size_t>(health(2) - first) * sizeof(void*);
}

// Checks by experiment what is assumed about the library's objects.
void CheckLayout(DoomSymbols& s, std::size_t game_bytes, const std::string& version) {
  // no header has the size: bytes that the constructor leaves unchanged are not part of the object
  constexpr std::byte kPattern{0xA5};
  alignas(std::max_align_t) static std::array<std::byte, 8192> probe;
  probe.fill(kPattern);
  s.construct(probe.data());
  std::size_t size = probe.size();
  while (size > 0 && probe[size - 1] == kPattern) --size;
  s.set_ticrate(probe.data(), 77);
  void* const controller = DoomControllerOf(probe.data());
  const bool known = size <= game_bytes && controller && s.controller_ticrate(controller) == 77;
  s.destroy(probe.data());
  if (known) s.shared_state_offset = SharedStateOffset(s.controller_health);
  if (!known || s.shared_state_offset == 0 || s.shared_state_offset >= 8192) {
    throw EngineError("vizdoom::DoomGame is not laid out as expected" + Advice(version));
  }
}

}  // namespace

const DoomSymbols& LoadedDoom() {
  const DoomSymbols* symbols = loaded.load(std::memory_order_acquire);
  if (!symbols) {
    throw EngineError(
        "ViZDoom is not loaded: make its environments with rollouts.make_vec(\"VizdoomBasic-v1\"), "
        "which imports vizdoom first");
  }
  return *symbols;
}

void DoomLibrary::Load(const std::string& so_path, const std::string& version,
                       const std::string& game, const std::string& guardian) {
  const std::lock_guard<std::mutex> lock(load_mutex);
  // loaded once in a process, although pools of several threads may call this
  if (loaded.load()) return;

  // RTLD_NOLOAD: finds vizdoom's own module, loaded by its import; kept until the process ends
  void* handle = dlopen(so_path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!handle) {
    throw EngineError("the module of vizdoom is not loaded: expected " + so_path +
                      " after `import vizdoom`");
  }
  auto symbols = std::make_unique<DoomSymbols>();
  DoomResolver resolve(handle);
  ResolveAll(resolve, *symbols);
  if (!resolve.missing().empty()) {
    throw EngineError("vizdoom does not export " + std::to_string(resolve.missing().size()) +
                      " C++ symbols that rollouts needs, the first is _ZN7vizdoom" +
                      resolve.missing().front() + Advice(version));
  }
  CheckLayout(*symbols, Doom::kBytes, version);
  symbols->game = game;
  symbols->guardian = guardian;
  loaded.store(symbols.release(), std::memory_order_release);
}

}  // namespace rollouts
