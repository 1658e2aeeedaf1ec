// SPDX-License-Identifier: Apache-2.0
// Paints pixels of a line from the masks of its objects, 64 at a time, with the instructions that
// the machine has.
#pragma once

#include "rollouts/atari2600/tia_masks.h"
#include "rollouts/core/math.h"

#if defined(__x86_64__) && !defined(__CUDACC_RTC__) && !defined(__CUDACC__)
#define ROLLOUTS_ATARI_X86
#include <immintrin.h>
#endif

namespace rollouts::atari2600 {

// Layers from the back: the background, then three others. Each has pixels and a colour.
struct Layers {
  U64 pixels[3];
  U8 colours[4];  // the background's first
};

// Turns each bit of a byte into a byte: all ones where the bit is set.
inline ROLLOUTS_HD U64 SpreadBits(U64 byte) {
  const U64 spread = (byte * 0x0101010101010101u) & 0x8040201008040201u;
  return (((spread + 0x7f7f7f7f7f7f7f7fu) | spread) >> 7 & 0x0101010101010101u) * 0xff;
}

inline ROLLOUTS_HD U64 Repeat(U8 byte) { return U64{byte} * 0x0101010101010101u; }

// Fills in words: a compiler's memset of any length takes longer.
inline ROLLOUTS_HD void FillPixels(U8* at, U8 colour, I32 size) {
  constexpr I32 kWord = 8;
  if (size < kWord) {
    for (I32 i = 0; i < size; ++i) at[i] = colour;
    return;
  }
  const U64 colours = Repeat(colour);
  for (I32 i = 0; i < size - kWord; i += kWord) CopyBytes(at + i, &colours, kWord);
  // the last word may overlap the one before
  CopyBytes(at + size - kWord, &colours, kWord);
}

// Paints the layers, whose pixels are in `range`, over the background.
inline ROLLOUTS_HD void PaintLayers(U8* row, U64 /*range*/, const Layers& layers) {
  for (I32 i = 0; i < 3; ++i) {
    const U64 colour = Repeat(layers.colours[i + 1]);
    U64 left = layers.pixels[i];
    while (left) {
      const I32 at = LowestBit(left) & ~7;
      const U64 spread = SpreadBits(left >> at & 0xff);
      U64 pixels;
      CopyBytes(&pixels, row + at, 8);
      pixels = (pixels & ~spread) | (colour & spread);
      CopyBytes(row + at, &pixels, 8);
      left &= ~(U64{0xff} << at);
    }
  }
}

#define ROLLOUTS_SHOW ShowPlain
#define ROLLOUTS_TARGET ROLLOUTS_HD
#define ROLLOUTS_PAINT PaintLayers
#include "rollouts/atari2600/tia_show.inc"

#if defined(ROLLOUTS_ATARI_X86)

#define ROLLOUTS_TARGET __attribute__((target("avx2,bmi,bmi2")))

// Turns each of 32 bits into a byte: all ones where the bit is set.
ROLLOUTS_TARGET inline __m256i SpreadAvx2(U64 bits) {
  const __m256i bytes = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202,
                                           0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
  const __m256i all = _mm256_set1_epi32(static_cast<int>(bits));
  return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(all, bytes), bit), bit);
}

ROLLOUTS_TARGET inline void PaintAvx2(U8* row, U64 range, const Layers& layers) {
  for (I32 at = 0; at < 64; at += 32) {
    // a line has 160 pixels, so a group of 32 is complete or empty
    const U32 painted = static_cast<U32>(range >> at);
    if (!painted) continue;
    __m256i pixels = _mm256_set1_epi8(static_cast<char>(layers.colours[0]));
    for (I32 i = 0; i < 3; ++i) {
      pixels = _mm256_blendv_epi8(pixels,
                                  _mm256_set1_epi8(static_cast<char>(layers.colours[i + 1])),
                                  SpreadAvx2(layers.pixels[i] >> at));
    }
    __m256i* const to = reinterpret_cast<__m256i*>(row + at);
    if (painted != 0xffffffffu) {
      pixels = _mm256_blendv_epi8(_mm256_loadu_si256(to), pixels, SpreadAvx2(painted));
    }
    _mm256_storeu_si256(to, pixels);
  }
}

#define ROLLOUTS_SHOW ShowAvx2
#define ROLLOUTS_PAINT PaintAvx2
#include "rollouts/atari2600/tia_show.inc"

#define ROLLOUTS_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,bmi,bmi2")))

ROLLOUTS_TARGET inline void PaintAvx512(U8* row, U64 range, const Layers& layers) {
  __m512i pixels = _mm512_set1_epi8(static_cast<char>(layers.colours[0]));
  for (I32 i = 0; i < 3; ++i) {
    pixels = _mm512_mask_blend_epi8(layers.pixels[i], pixels,
                                    _mm512_set1_epi8(static_cast<char>(layers.colours[i + 1])));
  }
  _mm512_mask_storeu_epi8(row, range, pixels);
}

#define ROLLOUTS_SHOW ShowAvx512
#define ROLLOUTS_PAINT PaintAvx512
#include "rollouts/atari2600/tia_show.inc"

enum class Vectors : U8 { kNone, kAvx2, kAvx512 };

inline Vectors FindVectors() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return Vectors::kAvx512;
  }
  return __builtin_cpu_supports("avx2") ? Vectors::kAvx2 : Vectors::kNone;
}
inline const Vectors kVectors = FindVectors();

#endif

// Paints pixels first .. last - 1 of a line, and records their collisions.
inline ROLLOUTS_HD void Show(Tia& tia, U8* row, I32 first, I32 last) {
#if defined(ROLLOUTS_ATARI_X86)
  if (kVectors == Vectors::kAvx512) return ShowAvx512(tia, row, first, last);
  if (kVectors == Vectors::kAvx2) return ShowAvx2(tia, row, first, last);
#endif
  FillPixels(row + first, tia.colour[3], last - first);
  if (tia.present) ShowPlain(tia, row, first, last);
}

}  // namespace rollouts::atari2600
