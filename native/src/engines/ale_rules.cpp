// SPDX-License-Identifier: Apache-2.0
#include "engines/ale_rules.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <sstream>

#include "engines/ale_resolver.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// The access of a stella::System to a page of 64 bytes: direct, if the page has memory.
struct PageAccess {
  const std::uint8_t* read = nullptr;
  std::uint8_t* write = nullptr;
  void* device = nullptr;
};
constexpr std::uint16_t kRamPages[] = {2, 3};  // addresses 0x80 to 0xff
constexpr std::uint16_t kCartridgePages[] = {0x42, 0x43};  // 0x1080 to 0x10ff: read there
constexpr std::size_t kPageBytes = 64;

// Slots of ale::RomSettings's table of virtual functions, checked by CheckSlots.
enum Slot : std::size_t {
  kDelete = 1, kReset = 2, kIsTerminal = 4, kGetReward = 5, kClone = 8, kStep = 10,
  kSaveState = 11, kLoadState = 12, kIsLegal = 13, kLives = 14, kGetMinimalActionSet = 15,
};

struct RulesSymbols {
  void (*construct_os)(void*);
  void (*construct_settings)(void*, void*);
  void (*construct_system)(void*, void*);
  void (*destroy_system)(void*);
  void (*set_page)(void*, std::uint16_t, const PageAccess&);
  int (*read_ram)(const void*, int);
  std::string (*md5)(const std::uint8_t*, std::uint32_t);
  void* (*build_rules)(const std::filesystem::path&, std::string);
  void (*construct_writer)(void*);
  void (*destroy_writer)(void*);
  void (*construct_reader)(void*, std::string);

  // offset of the std::stringstream, the only member, in the writer and the reader of states
  std::size_t writer_stream = 0;
  std::size_t reader_stream = 0;
  void* settings = nullptr;  // ale::stella::Settings, ALE's defaults; read by new Systems
};

constexpr std::size_t kObjectBytes = 4096;  // ample for each of ALE's objects here
struct alignas(std::max_align_t) Storage {
  std::byte bytes[kObjectBytes];
};

std::mutex rules_mutex;
std::atomic<const RulesSymbols*> loaded_rules{nullptr};  // set once, never freed

const RulesSymbols& LoadedRules() {
  const RulesSymbols* symbols = loaded_rules.load(std::memory_order_acquire);
  if (!symbols) {
    throw EngineError("ALE's rules are not loaded: make Atari environments with "
                      "rollouts.make_vec(\"ALE/...\"), which imports ale_py first");
  }
  return *symbols;
}

template <typename Result, typename... Args>
Result Call(void* object, Slot slot, Args... args) {
  void* const* const table = *static_cast<void* const* const*>(object);
  return reinterpret_cast<Result (*)(void*, Args...)>(table[slot])(object, args...);
}

void ResolveRules(AleResolver& resolve, RulesSymbols& s) {
  const std::string stella = "_ZN3ale6stella";
  const std::string text = kMangledText;
  resolve(s.construct_os, stella + "7OSystemC1Ev");
  resolve(s.construct_settings, stella + "8SettingsC1EPNS0_7OSystemE");
  resolve(s.construct_system, stella + "6SystemC1ERNS0_8SettingsE");
  resolve(s.destroy_system, stella + "6SystemD1Ev");
  resolve(s.set_page, stella + "6System13setPageAccessEtRKNS1_10PageAccessE");
  resolve(s.read_ram, "_ZN3ale7readRamEPKNS_6stella6SystemEi");
  resolve(s.md5, stella + "3MD5B5cxx11EPKhj");
  resolve(s.build_rules, "_ZN3ale17buildRomRLWrapperERKNSt10filesystem7__cxx114pathE" + text);
  resolve(s.construct_writer, stella + "10SerializerC1Ev");
  resolve(s.destroy_writer, stella + "10SerializerD1Ev");
  resolve(s.construct_reader, stella + "12DeserializerC1E" + text);
}

// Throws unless one game's table of virtual functions has the order of Slot.
void CheckSlots(AleResolver& resolve, const std::string& version) {
  void** table = nullptr;
  resolve(table, "_ZTVN3ale12PongSettingsE");
  struct Named {
    Slot slot;
    const char* name;
  };
  static constexpr Named kNamed[] = {
      {kReset, "_ZN3ale12PongSettings5resetEv"},
      {kIsTerminal, "_ZNK3ale12PongSettings10isTerminalEv"},
      {kGetReward, "_ZNK3ale12PongSettings9getRewardEv"},
      {kClone, "_ZNK3ale12PongSettings5cloneEv"},
      {kStep, "_ZN3ale12PongSettings4stepERKNS_6stella6SystemE"},
      {kSaveState, "_ZN3ale12PongSettings9saveStateERNS_6stella10SerializerE"},
      {kLoadState, "_ZN3ale12PongSettings9loadStateERNS_6stella12DeserializerE"},
      // lives() has no symbol: its slot is between these two
      {kIsLegal, "_ZNK3ale11RomSettings7isLegalERKNS_6ActionE"},
      {kGetMinimalActionSet, "_ZN3ale11RomSettings19getMinimalActionSetEv"},
  };
  constexpr std::size_t kBeforeTable = 2;  // an offset and the type
  for (const auto& [slot, name] : kNamed) {
    void* function = nullptr;
    resolve(function, name);
    if (function && table && table[kBeforeTable + slot] != function) {
      throw EngineError(std::string("ale::RomSettings has ") + name + " elsewhere" +
                        AleAdvice(version));
    }
  }
  resolve.CheckAllFound(version);
}

// The offset of a std::stringstream of this module's C++ library in an object.
std::size_t FindStream(const Storage& object, const std::string& version) {
  const std::stringstream ours;
  for (std::size_t at = 0; at + sizeof(ours) <= 512; at += alignof(void*)) {
    // recognised by its table of virtual functions
    if (std::memcmp(object.bytes + at, static_cast<const void*>(&ours), sizeof(void*)) == 0) {
      return at;
    }
  }
  throw EngineError("ale::stella::Serializer holds no std::stringstream" + AleAdvice(version));
}

std::stringstream& StreamAt(Storage& object, std::size_t offset) {
  return *reinterpret_cast<std::stringstream*>(object.bytes + offset);
}

// Checks by experiment what is assumed about the library's objects, and keeps what all rules need.
void TryObjects(RulesSymbols& symbols, std::size_t system_bytes, const std::string& version) {
  // never destroyed, because Systems refer to them
  auto& os = *new Storage;
  auto& settings = *new Storage;
  symbols.construct_os(os.bytes);
  symbols.construct_settings(settings.bytes, os.bytes);
  symbols.settings = settings.bytes;

  constexpr std::byte kPattern{0xA5};
  Storage probe;
  std::fill(std::begin(probe.bytes), std::end(probe.bytes), kPattern);
  symbols.construct_system(probe.bytes, symbols.settings);
  const auto untouched = std::find_if(std::make_reverse_iterator(std::end(probe.bytes)),
                                      std::make_reverse_iterator(std::begin(probe.bytes)),
                                      [](std::byte byte) { return byte != kPattern; });
  const auto size = static_cast<std::size_t>(untouched.base() - std::begin(probe.bytes));
  std::array<std::uint8_t, 2 * kPageBytes> ram;
  for (std::size_t i = 0; i < ram.size(); ++i) ram[i] = static_cast<std::uint8_t>(7 * i + 3);
  symbols.set_page(probe.bytes, kRamPages[0], {ram.data(), nullptr, nullptr});
  symbols.set_page(probe.bytes, kRamPages[1], {ram.data() + kPageBytes, nullptr, nullptr});
  // each byte must be read where it was put, or a page has another layout
  bool reads = size < system_bytes;
  for (std::size_t i = 0; i < ram.size() && reads; ++i) {
    reads = symbols.read_ram(probe.bytes, static_cast<int>(i)) == ram[i];
  }
  symbols.destroy_system(probe.bytes);
  if (!reads) throw EngineError("ale::stella::System cannot read our memory" + AleAdvice(version));

  Storage writer;
  symbols.construct_writer(writer.bytes);
  symbols.writer_stream = FindStream(writer, version);
  symbols.destroy_writer(writer.bytes);
  Storage reader;
  symbols.construct_reader(reader.bytes, std::string());
  symbols.reader_stream = FindStream(reader, version);
  std::destroy_at(&StreamAt(reader, symbols.reader_stream));
}

}  // namespace

void AleRules::Load(const std::string& so_path, const std::string& version) {
  const std::lock_guard<std::mutex> lock(rules_mutex);
  if (loaded_rules.load()) return;
  void* handle = dlopen(so_path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!handle) throw EngineError("the module of ale_py is not loaded: expected " + so_path);
  auto symbols = std::make_unique<RulesSymbols>();
  AleResolver resolver(handle);
  ResolveRules(resolver, *symbols);
  CheckSlots(resolver, version);
  TryObjects(*symbols, kSystemBytes, version);
  loaded_rules.store(symbols.release(), std::memory_order_release);
}

void AleRules::AttachMemory(const Memory& memory) {
  const RulesSymbols& symbols = LoadedRules();
  symbols.construct_system(system_, symbols.settings);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t at = i * kPageBytes;
    symbols.set_page(system_, kRamPages[i], {memory.ram + at, nullptr, nullptr});
    symbols.set_page(system_, kCartridgePages[i], {memory.cartridge + at, nullptr, nullptr});
  }
}

AleRules::AleRules(const std::string& rom_path, std::span<const std::uint8_t> rom,
                   const Memory& memory) {
  const RulesSymbols& symbols = LoadedRules();
  const std::string md5 = symbols.md5(rom.data(), static_cast<std::uint32_t>(rom.size()));
  settings_ = symbols.build_rules(std::filesystem::path(rom_path), md5);
  if (!settings_) throw EngineError("ROM file " + rom_path + " is not a game that ALE knows");
  Call<void>(settings_, kReset);
  AttachMemory(memory);
}

AleRules::AleRules(const AleRules& other, const Memory& memory)
    : settings_(Call<void*>(other.settings_, kClone)) {
  AttachMemory(memory);
}

AleRules::~AleRules() {
  LoadedRules().destroy_system(system_);
  Call<void>(settings_, kDelete);
}

void AleRules::Step() { Call<void, const void*>(settings_, kStep, system_); }
std::int32_t AleRules::Reward() const { return Call<int>(settings_, kGetReward); }
std::int32_t AleRules::Lives() const { return Call<int>(settings_, kLives); }
bool AleRules::GameOver() const { return Call<bool>(settings_, kIsTerminal); }

std::string AleRules::Save() const {
  const RulesSymbols& symbols = LoadedRules();
  Storage writer;
  symbols.construct_writer(writer.bytes);
  Call<void, void*>(settings_, kSaveState, writer.bytes);
  const std::string saved = StreamAt(writer, symbols.writer_stream).str();
  symbols.destroy_writer(writer.bytes);
  return saved;
}

void AleRules::Restore(std::string saved) {
  const RulesSymbols& symbols = LoadedRules();
  Storage reader;
  symbols.construct_reader(reader.bytes, std::move(saved));
  std::stringstream& stream = StreamAt(reader, symbols.reader_stream);
  // ALE exports no destructor of readers: only the stream has to be freed
  try {
    Call<void, void*>(settings_, kLoadState, reader.bytes);
  } catch (...) {
    // ALE throws strings here, too
    std::destroy_at(&stream);
    throw EngineError("ALE refuses the saved score, lives and end");
  }
  std::destroy_at(&stream);
}

}  // namespace rollouts
