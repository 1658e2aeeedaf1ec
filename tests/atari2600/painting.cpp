// SPDX-License-Identifier: Apache-2.0
// Segments of lines, painted by every kind of instructions that this machine has, and pixel by
// pixel, for a test to call.
#include <cstring>

#include "rollouts/atari2600/mersenne.h"
#include "rollouts/atari2600/tia_paint.h"

namespace {

using namespace rollouts::atari2600;

constexpr I32 kBehind = 64;  // bytes behind the line, which nobody may write to

struct Line {
  Tia tia;
  U8 pixels[kWidth + kBehind] = {};
};

bool Has(const Tia& tia, I32 object, I32 x) { return tia.masks[object].words[x / 64] >> (x % 64) & 1; }

// As the TIA's manual has it: which object is in front, and which ones meet.
void ShowOneByOne(Line& line, I32 first, I32 last) {
  // by collision register, bit 7 and bit 6
  constexpr I32 kPairs[15][3] = {
      {kM0, kP1, 1},          {kM0, kP0, 0},    {kM1, kP0, 3},         {kM1, kP1, 2},
      {kP0, kPlayfield, 5},   {kP0, kBall, 4},  {kP1, kPlayfield, 7},  {kP1, kBall, 6},
      {kM0, kPlayfield, 9},   {kM0, kBall, 8},  {kM1, kPlayfield, 11}, {kM1, kBall, 10},
      {kBall, kPlayfield, 13}, {kP0, kP1, 15},  {kM0, kM1, 14}};
  Tia& tia = line.tia;
  for (I32 x = first; x < last; ++x) {
    for (const auto& pair : kPairs) {
      if (Has(tia, pair[0], x) && Has(tia, pair[1], x)) {
        tia.collisions |= static_cast<U16>(1u << pair[2]);
      }
    }
    const bool zero = Has(tia, kP0, x) || Has(tia, kM0, x);
    const bool one = Has(tia, kP1, x) || Has(tia, kM1, x);
    const bool field = Has(tia, kPlayfield, x);
    const bool alone = !(tia.present & ~(1u << kPlayfield));
    const bool score = (tia.ctrlpf & 2) && (alone || !(tia.ctrlpf & 4));
    const bool front = (tia.ctrlpf & 4) && !score;
    const bool is_left = x < kWidth / 2;
    U8 colour = tia.colour[3];
    if (field || Has(tia, kBall, x)) colour = tia.colour[2];
    if (score && field && !is_left) colour = tia.colour[1];
    if (one && !(front && (field || Has(tia, kBall, x)))) colour = tia.colour[1];
    if (score && field && is_left) colour = tia.colour[0];
    if (zero && !(front && (field || Has(tia, kBall, x)))) colour = tia.colour[0];
    line.pixels[x] = colour;
  }
}

U64 DrawWord(Mersenne& random) { return U64{Draw(random)} << 32 | Draw(random); }

}  // namespace

// Bits of the kinds of instructions that paint otherwise than one by one, 0 if none does: 1 plain
// ones, 2 AVX2, 4 AVX-512; with `counted`, those that were there instead.
extern "C" int differing_painters(unsigned seed, int counted) {
  Mersenne random;
  Seed(random, seed);
  Line start;
  for (U8& colour : start.tia.colour) colour = static_cast<U8>(Draw(random));
  start.tia.ctrlpf = static_cast<U8>(Draw(random));
  for (I32 i = 0; i < kObjects; ++i) {
    // some objects are absent, some thin
    const U32 kind = Draw(random) % (i == kPlayfield ? 3 : 4) % 3;
    for (U64& word : start.tia.masks[i].words) {
      if (kind > 0) word = DrawWord(random);
      if (kind > 1) word &= DrawWord(random) & DrawWord(random);
    }
    start.tia.masks[i].words[2] &= 0xffffffffu;
    if (!IsEmpty(start.tia.masks[i])) start.tia.present |= static_cast<U8>(1u << i);
  }
  for (I32 i = 0; i < 2; ++i) {
    start.tia.grp[i] = (start.tia.present >> (kP0 + i)) & 1;
    start.tia.enam[i] = (start.tia.present >> (kM0 + i)) & 1;
  }
  start.tia.enabl = (start.tia.present >> kBall) & 1;
  for (U8& pixel : start.pixels) pixel = static_cast<U8>(Draw(random));
  const I32 first = static_cast<I32>(Draw(random)) & 127;
  const I32 last = first + 1 + static_cast<I32>(Draw(random) % static_cast<U32>(kWidth - first));

  Line expected = start;
  ShowOneByOne(expected, first, last);
  const auto differs = [&](const Line& line) {
    return std::memcmp(&line.tia, &expected.tia, sizeof(Tia)) ||
           std::memcmp(line.pixels, expected.pixels, sizeof(line.pixels));
  };
  int found = 0;
  int there = 1;
  Line line = start;
  FillPixels(line.pixels + first, line.tia.colour[3], last - first);
  ShowPlain(line.tia, line.pixels, first, last);
  if (differs(line)) found |= 1;
#if defined(ROLLOUTS_ATARI_X86)
  if (kVectors >= Vectors::kAvx2) {
    there |= 2;
    line = start;
    ShowAvx2(line.tia, line.pixels, first, last);
    if (differs(line)) found |= 2;
  }
  if (kVectors == Vectors::kAvx512) {
    there |= 4;
    line = start;
    ShowAvx512(line.tia, line.pixels, first, last);
    if (differs(line)) found |= 4;
  }
#endif
  return counted ? there : found;
}
