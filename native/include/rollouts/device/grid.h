// SPDX-License-Identifier: Apache-2.0
// A block of threads, as CUDA runs it and as loops on the host: kernels are written against it, so
// that every line of them runs in tests on machines without a GPU.
#pragma once

#include "rollouts/core/platform.h"

namespace rollouts {

#if defined(__CUDACC_RTC__)

class Block {
 public:
  // Number of this block, and threads in each.
  __device__ std::int64_t index() const { return blockIdx.x; }
  __device__ std::int32_t num_threads() const { return static_cast<std::int32_t>(blockDim.x); }

  // Runs `run(i)` for each thread i, in any order or at once.
  template <typename Run>
  __device__ void EachThread(Run&& run) const {
    run(static_cast<std::int32_t>(threadIdx.x));
  }
};

// The smaller of what is there and `value`, where several threads may do so at once.
__device__ inline void AtomicMin(std::uint64_t* to, std::uint64_t value) {
  atomicMin(reinterpret_cast<unsigned long long*>(to), value);
}

#else

class Block {
 public:
  // `backwards`: the last thread first, which must not make a difference.
  Block(std::int64_t index, std::int32_t num_threads, bool backwards)
      : index_(index), num_threads_(num_threads), backwards_(backwards) {}

  std::int64_t index() const { return index_; }
  std::int32_t num_threads() const { return num_threads_; }

  template <typename Run>
  void EachThread(Run&& run) const {
    for (std::int32_t i = 0; i < num_threads_; ++i) run(backwards_ ? num_threads_ - 1 - i : i);
  }

 private:
  std::int64_t index_;
  std::int32_t num_threads_;
  bool backwards_;
};

inline void AtomicMin(std::uint64_t* to, std::uint64_t value) {
  if (value < *to) *to = value;
}

#endif

}  // namespace rollouts
