// SPDX-License-Identifier: Apache-2.0
// The random words of a block of environments, drawn with vector instructions.
#pragma once

#include <cstdint>

#include "rollouts/core/rng.h"
#include "rollouts/pool/configs.h"

namespace rollouts {

// Replaces an Rng in Env::Step's loop over a block: it holds the next words of a stream, which were
// drawn before. Gives the numbers that Rng gives while `valid()`.
struct LaneRng {
  std::uint32_t word0, word1, word2, word3;
  std::int32_t left;  // words that were drawn
  std::int32_t taken = 0;
  std::int32_t rejected = 0;

  // False once it ran out of words, or once Below met a word that Rng would reject.
  [[gnu::always_inline]] bool valid() const { return (taken <= left) & !rejected; }

  [[gnu::always_inline]] std::uint32_t NextWord() {
    const std::uint32_t low = taken == 0 ? word0 : word1;
    const std::uint32_t high = taken == 2 ? word2 : word3;
    return taken++ < 2 ? low : high;
  }

  [[gnu::always_inline]] double Uniform() {
    const std::uint32_t first = NextWord();
    return UniformOf(first, NextWord());
  }

  [[gnu::always_inline]] std::uint32_t Below(std::uint32_t n) {
    const std::uint64_t product = std::uint64_t{NextWord()} * n;
    rejected |= static_cast<std::uint32_t>(product) < (0u - n) % n;
    return static_cast<std::uint32_t>(product >> 32);
  }
};

// Philox counters of up to kBlockEnvs random streams and, after DrawBlocks, the words drawn for
// them. Field by field, as Philox4x32 takes them.
struct Draws {
  alignas(64) std::uint32_t index[kBlockEnvs];
  alignas(64) std::uint32_t stream_id[kBlockEnvs];
  alignas(64) std::uint32_t episode[kBlockEnvs];
  alignas(64) std::uint32_t key0[kBlockEnvs];
  alignas(64) std::uint32_t key1[kBlockEnvs];
  alignas(64) std::uint32_t word[4][kBlockEnvs];  // the next words first
  alignas(64) std::int32_t left[kBlockEnvs];      // how many of them there are
  alignas(64) std::int32_t taken[kBlockEnvs];     // how many the step took

  // Sets the counter that the stream's `rng.NextWord()` would use.
  void Load(std::int32_t i, std::uint64_t seed, std::uint32_t stream, std::uint32_t in_episode,
            std::uint32_t draws) {
    index[i] = Rng::BlockIndex(draws);
    stream_id[i] = stream;
    episode[i] = in_episode;
    key0[i] = static_cast<std::uint32_t>(seed);
    key1[i] = static_cast<std::uint32_t>(seed >> 32);
    left[i] = 4 - static_cast<std::int32_t>(draws % 4);
  }
  [[gnu::always_inline]] LaneRng Lane(std::int32_t i) const {
    return {word[0][i], word[1][i], word[2][i], word[3][i], left[i]};
  }
};

// Philox4x32 of every counter, with vector instructions.
void DrawBlocks(Draws& draws, std::int32_t count);

// The loop of DrawBlocks, to be compiled for an instruction set.
[[gnu::always_inline]] inline void DrawAll(Draws& draws, std::int32_t count) {
#pragma GCC ivdep
  for (std::int32_t i = 0; i < count; ++i) {
    const PhiloxBlock counter{{draws.index[i], draws.stream_id[i], draws.episode[i], 0}};
    const PhiloxBlock block = Philox4x32(counter, draws.key0[i], draws.key1[i]);
    // the number of words taken already, which the others replace; masks, because a branch would
    // not vectorise
    const std::uint32_t gone = 4 - static_cast<std::uint32_t>(draws.left[i]);
    const std::uint32_t one = 0 - (gone & 1);
    const std::uint32_t two = 0 - (gone >> 1);
    const std::uint32_t word0 = (block.word[0] & ~one) | (block.word[1] & one);
    const std::uint32_t word1 = (block.word[1] & ~one) | (block.word[2] & one);
    const std::uint32_t word2 = (block.word[2] & ~one) | (block.word[3] & one);
    draws.word[0][i] = (word0 & ~two) | (word2 & two);
    draws.word[1][i] = (word1 & ~two) | (block.word[3] & two);
    draws.word[2][i] = word2;
    draws.word[3][i] = block.word[3];
  }
}

}  // namespace rollouts
