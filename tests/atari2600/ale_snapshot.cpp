// SPDX-License-Identifier: Apache-2.0
#include "ale_snapshot.h"

#include <cstring>
#include <string>

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

using namespace atari2600;

constexpr std::uint32_t kTrue = 0xfab1fab2;

// Reads the numbers of a state one after the other.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::int32_t Int() {
    std::int32_t value;
    if (bytes_.size() - at_ < sizeof(value)) Refuse();
    std::memcpy(&value, bytes_.data() + at_, sizeof(value));
    at_ += sizeof(value);
    return value;
  }
  U8 Byte() { return static_cast<U8>(Int()); }
  U8 Bool() { return static_cast<std::uint32_t>(Int()) == kTrue; }
  std::string_view Text() {
    const auto size = static_cast<std::size_t>(Int());
    if (bytes_.size() - at_ < size) Refuse();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  void Name(std::string_view name) {
    if (Text() != name) Refuse();
  }
  [[noreturn]] static void Refuse() {
    throw EngineError(
        "the state that ale-py serialized has an unknown layout: rollouts' own Atari engine was "
        "tested with ale-py 0.12; use engine=\"ale\"");
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

void ReadCpu(Reader& in, Cpu& cpu) {
  in.Name("M6502Low");
  cpu.a = in.Byte();
  cpu.x = in.Byte();
  cpu.y = in.Byte();
  cpu.sp = in.Byte();
  in.Int();  // the instruction
  cpu.pc = static_cast<U16>(in.Int());
  cpu.n = in.Bool() ? 0x80 : 0;
  cpu.overflow = in.Bool();
  in.Bool();  // B
  cpu.decimal = in.Bool();
  cpu.interrupt = in.Bool();
  cpu.z = in.Bool();
  cpu.carry = in.Bool();
  in.Int();  // a status
}

void ReadRiot(Reader& in, Riot& riot) {
  in.Name("M6532");
  if (in.Int() != 128) Reader::Refuse();
  for (U8& byte : riot.ram) byte = in.Byte();
  riot.timer = in.Byte();
  riot.shift = in.Byte();
  riot.set_cycle = in.Int();
  riot.expired_read_cycle = in.Int();
  riot.read_expired = in.Bool();
  riot.direction_a = in.Byte();
  in.Byte();  // the port that is for reading alone
}

void ReadTia(Reader& in, Tia& tia, Board& board) {
  in.Name("TIA");
  tia.frame_start = in.Int();
  tia.first_shown = in.Int();
  tia.last_shown = in.Int();
  tia.drawn_until = in.Int();
  const I32 lines = (tia.drawn_until - tia.first_shown) / kLineClocks;
  tia.line_start = tia.first_shown + lines * kLineClocks;
  tia.row = lines * kWidth;
  board.first_line = (tia.first_shown - tia.frame_start) / kLineClocks;
  board.height = (tia.last_shown - tia.first_shown) / kLineClocks;
  if (board.first_line < 0 || board.height < 1 || board.height > kMaxHeight) Reader::Refuse();
  for (int i = 0; i < 3; ++i) in.Int();  // the rest of the line, lines of this frame and before
  tia.vsync_end = in.Int();
  in.Int();  // the objects that are on
  tia.vsync = in.Byte();
  tia.vblank = in.Byte();
  for (U8& each : tia.nusiz) each = in.Byte();
  for (U8& each : tia.colour) each = in.Byte();
  tia.ctrlpf = in.Byte();
  in.Int();  // what CTRLPF and the half of the line make of priorities
  for (U8& each : tia.refp) each = in.Bool();
  const auto playfield = static_cast<std::uint32_t>(in.Int());
  tia.pf[0] = static_cast<U8>(playfield << 4);
  tia.pf[1] = static_cast<U8>(playfield >> 4);
  tia.pf[2] = static_cast<U8>(playfield >> 12);
  for (U8& each : tia.grp) each = in.Byte();
  for (U8& each : tia.old_grp) each = in.Byte();
  for (U8& each : tia.enam) each = in.Bool();
  tia.enabl = in.Bool();
  tia.old_enabl = in.Bool();
  for (U8& each : tia.hm) each = in.Byte();
  for (U8& each : tia.vdelp) each = in.Bool();
  tia.vdelbl = in.Bool();
  for (U8& each : tia.resmp) each = in.Bool();
  // the two bits of the first six registers are in the other order; then: ball and playfield, the
  // players, the missiles
  const auto collisions = static_cast<std::uint32_t>(in.Int());
  tia.collisions = static_cast<U16>((collisions & 0x555) << 1 | (collisions >> 1 & 0x555) |
                                    (collisions & 0x1000) << 1 | (collisions & 0x2000) << 2 |
                                    (collisions & 0x4000));
  for (U8& each : tia.pos) each = static_cast<U8>(in.Int());
  for (int i = 0; i < 2; ++i) in.Int();  // graphics that the delay chooses
  tia.last_hmove = in.Int();
  tia.hmove_blank = in.Bool();
  tia.stars = in.Bool();
  tia.star_line = static_cast<U8>(in.Int() & 3);
  tia.star_shape = 0;
  tia.dump = in.Bool();
  tia.dump_end = in.Int();
  tia.reflect = tia.ctrlpf & 1;
  tia.skip_first[0] = tia.skip_first[1] = 0;
  tia.stale = 0x3f;
  tia.line_is_plain = 0;
  tia.frame_done = 0;
}

void ReadDpc(Reader& in, Dpc& dpc) {
  for (auto* array : {&dpc.tops, &dpc.bottoms}) {
    if (in.Int() != 8) Reader::Refuse();
    for (U8& each : *array) each = in.Byte();
  }
  if (in.Int() != 8) Reader::Refuse();
  for (U16& each : dpc.counters) each = static_cast<U16>(in.Int());
  if (in.Int() != 8) Reader::Refuse();
  for (U8& each : dpc.flags) each = in.Byte();
  if (in.Int() != 3) Reader::Refuse();
  for (int i = 5; i < 8; ++i) dpc.music[i] = in.Bool();
  dpc.random = in.Byte();
}

CartridgeKind ReadCartridge(Reader& in, Cartridge& cartridge) {
  const std::string_view name = in.Text();
  const auto ram = [&] {
    if (in.Int() != 128) Reader::Refuse();
    for (U8& byte : cartridge.ram) byte = in.Byte();
  };
  if (name == "Cartridge2K") {
    for (U32 i = 0; i < 4; ++i) cartridge.slices[i] = (i & 1) * 1024;
    return CartridgeKind::kPlain;
  }
  for (U32 i = 0; i < 4; ++i) cartridge.slices[i] = i * 1024;
  if (name == "Cartridge4K") return CartridgeKind::kPlain;
  if (name == "CartridgeFE") return CartridgeKind::kFE;
  if (name == "CartridgeE0") {
    if (in.Int() != 4) Reader::Refuse();
    for (U32& slice : cartridge.slices) slice = static_cast<U32>(in.Int() & 7) * 1024;
    return CartridgeKind::kE0;
  }
  cartridge.bank = static_cast<U8>(in.Int() & 3);
  for (U32 i = 0; i < 4; ++i) cartridge.slices[i] = cartridge.bank * 4096u + i * 1024;
  if (name == "CartridgeF8") return CartridgeKind::kF8;
  if (name == "CartridgeF6") return CartridgeKind::kF6;
  if (name == "CartridgeDPC") {
    ReadDpc(in, cartridge.dpc);
    return CartridgeKind::kDpc;
  }
  if (name != "CartridgeF8SC" && name != "CartridgeF6SC") Reader::Refuse();
  ram();
  return name == "CartridgeF8SC" ? CartridgeKind::kF8SC : CartridgeKind::kF6SC;
}

}  // namespace

void ReadAleSnapshot(std::string_view serialized, atari2600::Console& console) {
  // two numbers of ALE's own surround the console's state
  Reader outer(serialized);
  for (int i = 0; i < 6; ++i) outer.Int();
  Reader in(outer.Text());
  in.Text();  // the ROM's MD5
  in.Name("System");
  console.cpu.cycles = in.Int();
  in.Text();  // a random generator
  ReadCpu(in, console.cpu);
  ReadRiot(in, console.riot);
  ReadTia(in, console.tia, console.board);
  in.Name("TIASound");
  for (int i = 0; i < 7; ++i) in.Int();
  console.board.kind = ReadCartridge(in, console.cartridge);
}

}  // namespace rollouts
