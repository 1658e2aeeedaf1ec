// SPDX-License-Identifier: Apache-2.0
// Linear layers with activations between them, on tensor cores: weights and inputs of layers are
// rounded to bfloat16, products are added in float32, biases and activations are float32.
//
// A warp computes 16 rows from the observation to the outputs. A layer's inputs lie in registers.
// All warps of a block read the weights of 32 outputs at a time from shared memory, while those of
// the next 32 outputs are copied. Hidden features are stored so that in the next layer each thread
// reads what it wrote.
#pragma once

#include "rollouts/device/matrix_unit.h"
#include "rollouts/policy/elementary.h"
#include "rollouts/policy/policy_launch.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {

inline constexpr std::int32_t kDenseRows = 16;    // rows of a warp
inline constexpr std::int32_t kDenseBlock = 32;   // features of a block
inline constexpr std::int32_t kMostBlocks = 8;    // blocks of inputs of a layer, in registers
inline constexpr std::int32_t kBlockWords = 512;  // words of the weights of 32 inputs, 32 outputs
inline constexpr std::int32_t kSlotBytes = kMostBlocks * kBlockWords * 4;
inline constexpr std::int32_t kNumSlots = 2;
static_assert(kDenseRows == kColumns);

// One thread's parts of 16 rows of 32 features, of the weights of 16 inputs, and of 16 x 32 sums.
struct BlockOfInputs {
  MatrixA half[2];
};
struct HalfOfWeights {
  MatrixB of[4];
};
struct BlockOfSums {
  MatrixC of[4];
};
struct LayerInputs {
  BlockOfInputs block[kMostBlocks];
};

// The shared memory of a block: two slots of weights, then the memory of each warp.
class DenseMemory {
 public:
  ROLLOUTS_HD DenseMemory(const Block& block, const DenseNetwork& network)
      : memory_(static_cast<std::uint8_t*>(block.memory())), network_(network) {}

  ROLLOUTS_HD static std::int64_t Bytes(std::int32_t num_threads, const DenseNetwork& network) {
    return kNumSlots * kSlotBytes +
           std::int64_t{num_threads / kWarpThreads} * network.warp_bytes;
  }

  ROLLOUTS_HD uint4* Slot(std::int32_t slot) const {
    return reinterpret_cast<uint4*>(memory_ + slot * kSlotBytes);
  }
  // (num_outputs, 16) of the thread's warp.
  ROLLOUTS_HD float* Outputs(std::int32_t thread) const {
    return reinterpret_cast<float*>(memory_ + kNumSlots * kSlotBytes +
                                    thread / kWarpThreads * network_.warp_bytes);
  }
  // The thread's part of a place of hidden features.
  ROLLOUTS_HD uint4* Hidden(std::int32_t thread, std::int32_t place) const {
    return reinterpret_cast<uint4*>(Room(thread)) +
           place * network_.hidden_blocks * 2 * kWarpThreads + thread % kWarpThreads;
  }
  // The places of hidden features of the thread's warp; between two forwards they are free.
  ROLLOUTS_HD float* Room(std::int32_t thread) const {
    return Outputs(thread) + network_.num_outputs * kDenseRows;
  }

 private:
  std::uint8_t* memory_;
  const DenseNetwork& network_;
};

// Copies weights to shared memory: while those of 32 outputs are used, the next ones are copied.
class WeightStream {
 public:
  ROLLOUTS_HD WeightStream(const Block& block, const DenseNetwork& network,
                           const DenseMemory& memory)
      : block_(block),
        network_(network),
        memory_(memory),
        from_(reinterpret_cast<const uint4*>(network.weights)) {
    Begin();
  }

  // Returns the slot with the weights of the next 32 outputs, once all threads have copied them.
  ROLLOUTS_HD const uint4* Next() {
    WaitForCopies();
    // after this, no thread uses the other slot either
    block_.Wait();
    const uint4* here = memory_.Slot(slot_);
    slot_ ^= 1;
    Begin();
    return here;
  }

 private:
  ROLLOUTS_HD void Begin() {
    if (layer_ == network_.num_layers) return;
    const DenseLayer& layer = network_.layers[layer_];
    const std::int32_t count = layer.in_blocks * (kBlockWords / 4);
    uint4* to = memory_.Slot(slot_);
    block_.EachThread([&](std::int32_t thread) {
      for (std::int32_t i = thread; i < count; i += block_.num_threads()) {
        BeginCopy(to + i, from_ + i);
      }
    });
    from_ += count;
    if (++out_block_ == layer.out_blocks) {
      out_block_ = 0;
      ++layer_;
    }
  }

  const Block& block_;
  const DenseNetwork& network_;
  const DenseMemory& memory_;
  const uint4* from_;
  std::int32_t slot_ = 0, layer_ = 0, out_block_ = 0;
};

// The observations of a warp's 16 rows, of which the first `num_rows` exist.
template <typename Obs>
struct ObsOfWarp {
  const Obs* first;
  std::int64_t num_rows;
  std::int32_t size;

  // Returns two adjacent features of a row in one word, 0 for features that do not exist.
  ROLLOUTS_HD std::uint32_t Pair(std::int32_t row, std::int32_t feature) const {
    const Obs* at = first + std::int64_t{row} * size + feature;
    const bool has_row = row < num_rows;
    const float one = has_row && feature < size ? static_cast<float>(at[0]) : 0.0f;
    const float two = has_row && feature + 1 < size ? static_cast<float>(at[1]) : 0.0f;
    return PairOf(one, two);
  }
};

// Writes the observations to a place of hidden features, a few at a time to spare registers.
template <typename Obs>
ROLLOUTS_HD inline void KeepObs(const ObsOfWarp<Obs>& obs, std::int32_t lane,
                                std::int32_t in_blocks, uint4* to) {
#pragma unroll 2
  for (std::int32_t half = 0; half < 2 * in_blocks; ++half) {
    std::uint32_t word[4];
#pragma unroll
    for (std::int32_t w = 0; w < 4; ++w) {
      word[w] = obs.Pair(RowOfA(lane, w), half * 16 + FirstKOfA(lane, w));
    }
    to[half * kWarpThreads] = {word[0], word[1], word[2], word[3]};
  }
}

ROLLOUTS_HD inline void LoadHidden(const uint4* from, std::int32_t in_blocks, LayerInputs& to) {
#pragma unroll
  for (std::int32_t b = 0; b < kMostBlocks; ++b) {
    if (b < in_blocks) {
#pragma unroll
      for (std::int32_t h = 0; h < 2; ++h) {
        const uint4 words = from[(2 * b + h) * kWarpThreads];
        to.block[b].half[h] = {{words.x, words.y, words.z, words.w}};
      }
    }
  }
}

// Loads the thread's part of the weights of 16 inputs, from number 16 * half on.
ROLLOUTS_HD inline void LoadWeights(const uint4* slot, std::int32_t half, std::int32_t lane,
                                    HalfOfWeights& to) {
  const uint4* from = slot + half * (kBlockWords / 8) + lane;
#pragma unroll
  for (std::int32_t i = 0; i < 2; ++i) {
    const uint4 words = from[i * kWarpThreads];
    to.of[2 * i] = {{words.x, words.y}};
    to.of[2 * i + 1] = {{words.z, words.w}};
  }
}

ROLLOUTS_HD inline void BeginSums(const float* biases, std::int32_t lane, BlockOfSums& sums) {
#pragma unroll
  for (std::int32_t n = 0; n < 4; ++n) {
#pragma unroll
    for (std::int32_t s = 0; s < 4; ++s) sums.of[n].sum[s] = biases[8 * n + ColumnOfC(lane, s)];
  }
}

template <Floats (*kFunction)(Floats)>
ROLLOUTS_HD inline void MapSums(BlockOfSums& sums) {
#pragma unroll
  for (std::int32_t n = 0; n < 4; ++n) {
#pragma unroll
    for (std::int32_t s = 0; s < 4; ++s) sums.of[n].sum[s] = kFunction(sums.of[n].sum[s]);
  }
}

ROLLOUTS_HD inline Floats Relu(Floats x) { return AtLeast(x, Splat(0.0f)); }

ROLLOUTS_HD inline void Activate(DenseActivation activation, BlockOfSums& sums) {
  if (activation == DenseActivation::kTanh) MapSums<Tanh>(sums);
  if (activation == DenseActivation::kRelu) MapSums<Relu>(sums);
}

// Writes the sums of 32 outputs as inputs of the next layer: a thread's sums in a MatrixC have the
// same rows and columns as its words in a MatrixA.
ROLLOUTS_HD inline void KeepHidden(const BlockOfSums& sums, std::int32_t out_block, uint4* to) {
#pragma unroll
  for (std::int32_t h = 0; h < 2; ++h) {
    const float* low = sums.of[2 * h].sum;
    const float* high = sums.of[2 * h + 1].sum;
    uint4 words;
    words.x = PairOf(low[0], low[1]);
    words.y = PairOf(low[2], low[3]);
    words.z = PairOf(high[0], high[1]);
    words.w = PairOf(high[2], high[3]);
    to[(2 * out_block + h) * kWarpThreads] = words;
  }
}

ROLLOUTS_HD inline void KeepOutputs(const BlockOfSums& sums, const DenseLayer& layer,
                                    std::int32_t out_block, std::int32_t lane, float* outputs) {
#pragma unroll
  for (std::int32_t n = 0; n < 4; ++n) {
#pragma unroll
    for (std::int32_t s = 0; s < 4; ++s) {
      const std::int32_t feature = out_block * kDenseBlock + 8 * n + ColumnOfC(lane, s);
      if (feature < layer.size) {
        outputs[(layer.output_row + feature) * kDenseRows + RowOfC(lane, s)] = sums.of[n].sum[s];
      }
    }
  }
}

// Numbers that each thread of a block keeps while the network runs.
struct ForwardRegisters {
  ROLLOUTS_HD explicit ForwardRegisters(const Block& block)
      : inputs(block), weights(block), sums(block) {}

  OfThreads<LayerInputs> inputs;
  OfThreads<HalfOfWeights> weights;
  OfThreads<BlockOfSums> sums;
};

// Adds the products of all inputs of a layer to the sums of 32 outputs. Loops are unrolled, so that
// all numbers of a thread stay in registers.
ROLLOUTS_INLINE void MultiplyLayer(const Warp& warp, std::int32_t in_blocks, const uint4* slot,
                                   ForwardRegisters& own) {
#pragma unroll
  for (std::int32_t b = 0; b < kMostBlocks; ++b) {
    if (b >= in_blocks) break;
#pragma unroll
    for (std::int32_t h = 0; h < 2; ++h) {
      warp.EachThread([&](std::int32_t thread) {
        LoadWeights(slot, 2 * b + h, thread % kWarpThreads, own.weights[thread]);
      });
#pragma unroll
      for (std::int32_t n = 0; n < 4; ++n) {
        MultiplyAdd(
            warp,
            [&](std::int32_t thread) -> MatrixA& { return own.inputs[thread].block[b].half[h]; },
            [&](std::int32_t thread) -> MatrixB& { return own.weights[thread].of[n]; },
            [&](std::int32_t thread) -> MatrixC& { return own.sums[thread].of[n]; });
      }
    }
  }
}

// Computes the outputs of each warp that has a thread for which `is_needed(thread)` is true. All
// threads of the block must call this; `obs_of(thread)` are the observations of the thread's warp.
template <typename ObsOf, typename IsNeeded>
ROLLOUTS_HD inline void ForwardDense(const Block& block, const DenseNetwork& network,
                                     const DenseMemory& memory, ObsOf&& obs_of,
                                     IsNeeded&& is_needed) {
  ForwardRegisters own(block);
  WeightStream stream(block, network, memory);
  const float* biases = network.biases;
#pragma unroll 1
  for (std::int32_t l = 0; l < network.num_layers; ++l) {
    const DenseLayer layer = network.layers[l];
    block.EachWarp(is_needed, [&](const Warp& warp) {
      warp.EachThread([&](std::int32_t thread) {
        uint4* from = memory.Hidden(thread, layer.input);
        if (layer.reads_obs) {
          KeepObs(obs_of(thread), thread % kWarpThreads, layer.in_blocks, from);
        }
        LoadHidden(from, layer.in_blocks, own.inputs[thread]);
      });
    });
#pragma unroll 1
    for (std::int32_t o = 0; o < layer.out_blocks; ++o, biases += kDenseBlock) {
      const uint4* slot = stream.Next();
      block.EachWarp(is_needed, [&](const Warp& warp) {
        warp.EachThread([&](std::int32_t thread) {
          BeginSums(biases, thread % kWarpThreads, own.sums[thread]);
        });
        MultiplyLayer(warp, layer.in_blocks, slot, own);
        warp.EachThread([&](std::int32_t thread) {
          const std::int32_t lane = thread % kWarpThreads;
          BlockOfSums& sums = own.sums[thread];
          Activate(layer.activation, sums);
          if (layer.output < 0) {
            KeepOutputs(sums, layer, o, lane, memory.Outputs(thread));
          } else {
            KeepHidden(sums, o, memory.Hidden(thread, layer.output));
          }
        });
      });
    }
  }
  // after this, all outputs are written, and the slots are free
  block.Wait();
}

}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
