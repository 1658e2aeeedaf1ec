// SPDX-License-Identifier: Apache-2.0
// Blocks and teams of threads, as CUDA runs them and as loops on the host: kernels are written with
// these, so that every line runs in tests on machines without a GPU.
#pragma once

#include "rollouts/core/platform.h"

#if !defined(__CUDACC_RTC__)
#include <memory>
#endif

namespace rollouts {

// Runs `run(lane, i)` for one thread's share of the pairs of a lane of its warp and an i below
// `count`. In each round the threads of the warp have neighbouring pairs.
template <typename Run>
ROLLOUTS_HD inline void ShareOut(std::int32_t thread, std::int32_t lanes, std::int32_t count,
                                 Run&& run) {
  const std::int32_t rows = lanes / count, rest = lanes % count;
  std::int32_t lane = thread / count, i = thread % count;
  while (lane < lanes) {
    run(lane, i);
    lane += rows;
    i += rest;
    if (i >= count) {
      i -= count;
      ++lane;
    }
  }
}

inline constexpr std::int32_t kWarpThreads = 32;

#if defined(__CUDACC_RTC__)

// The threads of a block that run in lockstep.
class Warp {
 public:
  // Runs `run(i)` for each thread i of the block that is in the warp.
  template <typename Run>
  __device__ void EachThread(Run&& run) const {
    run(static_cast<std::int32_t>(threadIdx.x));
  }
};

class Block {
 public:
  // The number of this block, and the number of threads in each block.
  __device__ std::int64_t index() const { return blockIdx.x; }
  __device__ std::int32_t num_threads() const { return static_cast<std::int32_t>(blockDim.x); }
  // Memory that its threads share.
  __device__ void* memory() const {
    extern __shared__ ulonglong2 block_memory[];
    return block_memory;
  }

  // Runs `run(i)` for each thread i, in any order or at once.
  template <typename Run>
  __device__ void EachThread(Run&& run) const {
    run(static_cast<std::int32_t>(threadIdx.x));
  }

  // Returns when all threads of the block have reached it.
  __device__ void Wait() const { __syncthreads(); }
  // Tells if `is_so` holds for any thread of the block; waits as Wait does.
  template <typename IsSo>
  __device__ bool Any(IsSo&& is_so) const {
    return __syncthreads_or(is_so(static_cast<std::int32_t>(threadIdx.x))) != 0;
  }
  // Runs `run(warp)` for each warp in which `is_so` holds for any thread.
  template <typename IsSo, typename Run>
  __device__ void EachWarp(IsSo&& is_so, Run&& run) const {
    if (__any_sync(0xFFFFFFFFu, is_so(static_cast<std::int32_t>(threadIdx.x)))) run(Warp());
  }
};

// A value for each thread of a block, kept from one EachThread to the next.
template <typename T>
class OfThreads {
 public:
  __device__ explicit OfThreads(const Block&) {}
  __device__ T& operator[](std::int32_t) { return own_; }
  __device__ const T& operator[](std::int32_t) const { return own_; }

 private:
  T own_;
};

// Threads of a block that work together: a power of two, at most a warp, or all threads of the
// block. They share `memory`.
//
// All threads of a team run the functions that get the team, with the same values. Only the calls
// inside ForEach and Once differ between threads. After these, all threads see what the calls
// wrote.
class Team {
 public:
  __device__ Team(std::int32_t size, std::int64_t shared_bytes)
      : size_(size), rank_(static_cast<std::int32_t>(threadIdx.x) & (size - 1)) {
    extern __shared__ ulonglong2 block_memory[];
    const std::int32_t of_block = static_cast<std::int32_t>(blockDim.x) / size;
    std::int32_t team = 0;
    if (of_block > 1) {
      team = static_cast<std::int32_t>(threadIdx.x) / size;
    } else {
      rank_ = static_cast<std::int32_t>(threadIdx.x);
    }
    index_ = static_cast<std::int64_t>(blockIdx.x) * of_block + team;
    memory_ = reinterpret_cast<std::uint8_t*>(block_memory) + team * shared_bytes;
    const auto lane = threadIdx.x & 31u & ~static_cast<unsigned>(size - 1);
    mask_ = size < 32 ? ((1u << size) - 1) << lane : 0xFFFFFFFFu;
  }

  __device__ std::int64_t index() const { return index_; }
  __device__ std::uint8_t* memory() const { return memory_; }
  __device__ bool IsFirst() const { return rank_ == 0; }

  // Runs `run(i)` for all i below `count`, in any order or at once.
  template <typename Run>
  __device__ void ForEach(std::int64_t count, Run&& run) const {
    const auto end = static_cast<std::int32_t>(count);
    for (std::int32_t i = rank_; i < end; i += size_) run(i);
    Wait();
  }
  // Runs `run()` in one thread.
  template <typename Run>
  __device__ void Once(Run&& run) const {
    if (rank_ == 0) run();
    Wait();
  }

 private:
  __device__ void Wait() const {
    if (size_ <= 32) {
      __syncwarp(mask_);
    } else {
      __syncthreads();
    }
  }

  std::int32_t size_, rank_;
  std::uint32_t mask_;
  std::int64_t index_;
  std::uint8_t* memory_;
};

// A thread that does a team's work alone, for a world of a few agents. The threads of a warp write
// their worlds' rows together: each puts its data into its slot in the block's shared memory.
class Solo {
 public:
  // `is_well(index)` is called for each world of `count`. All threads of the block must call this.
  template <typename IsWell>
  __device__ Solo(std::int64_t count, std::int32_t slot_bytes, IsWell&& is_well)
      : index_(static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x),
        mask_(__ballot_sync(0xFFFFFFFFu, index_ < count)),
        slot_bytes_(slot_bytes) {
    extern __shared__ ulonglong2 block_memory[];
    slots_ = reinterpret_cast<std::uint8_t*>(block_memory) +
             (threadIdx.x & ~31u) * static_cast<std::uint32_t>(slot_bytes);
    const bool has_world = index_ < count;
    const bool all_well = __all_sync(0xFFFFFFFFu, !has_world || is_well(index_));
    takes_part_ = has_world && all_well;
  }

  __device__ std::int64_t index() const { return index_; }
  // Tells if the thread has a world, and all worlds of the warp are well.
  __device__ bool TakesPart() const { return takes_part_; }
  __device__ bool IsFirst() const { return true; }
  // The thread's place in its warp. The threads that take part have the first places.
  __device__ std::int32_t lane() const { return static_cast<std::int32_t>(threadIdx.x & 31u); }
  __device__ std::uint8_t* slot(std::int32_t lane) const { return slots_ + lane * slot_bytes_; }

  template <typename Run>
  __device__ void ForEach(std::int64_t count, Run&& run) const {
    const auto end = static_cast<std::int32_t>(count);
    for (std::int32_t i = 0; i < end; ++i) run(i);
  }
  template <typename Run>
  __device__ void Once(Run&& run) const {
    run();
  }
  // Runs `run(lane, i)` for all lanes and all i below `count`, neighbouring pairs at once. All
  // threads with worlds must call this. `run` sees what these threads wrote before, and the slots
  // may be written again afterwards.
  template <typename Run>
  __device__ void Share(std::int32_t count, Run&& run) const {
    __syncwarp(mask_);
    ShareOut(lane(), __popc(mask_), count, run);
    __syncwarp(mask_);
  }

 private:
  std::int64_t index_;
  std::uint32_t mask_;
  std::int32_t slot_bytes_;
  std::uint8_t* slots_;
  bool takes_part_;
};

// Stores the smaller of the present number and `value`; several threads may do so at once.
__device__ inline void AtomicMin(std::uint64_t* to, std::uint64_t value) {
  atomicMin(reinterpret_cast<unsigned long long*>(to), value);
}

#else

class Warp {
 public:
  Warp(std::int32_t first, bool backwards) : first_(first), backwards_(backwards) {}

  std::int32_t first() const { return first_; }

  template <typename Run>
  void EachThread(Run&& run) const {
    for (std::int32_t i = 0; i < kWarpThreads; ++i) {
      run(first_ + (backwards_ ? kWarpThreads - 1 - i : i));
    }
  }

 private:
  std::int32_t first_;
  bool backwards_;
};

class Block {
 public:
  // `backwards`: runs the last thread first, which must not make a difference.
  Block(std::int64_t index, std::int32_t num_threads, bool backwards, void* memory = nullptr)
      : index_(index), num_threads_(num_threads), backwards_(backwards), memory_(memory) {}

  std::int64_t index() const { return index_; }
  std::int32_t num_threads() const { return num_threads_; }
  void* memory() const { return memory_; }

  template <typename Run>
  void EachThread(Run&& run) const {
    for (std::int32_t i = 0; i < num_threads_; ++i) run(backwards_ ? num_threads_ - 1 - i : i);
  }

  void Wait() const {}
  template <typename IsSo>
  bool Any(IsSo&& is_so) const {
    bool found = false;
    for (std::int32_t i = 0; i < num_threads_; ++i) found |= is_so(i);
    return found;
  }
  template <typename IsSo, typename Run>
  void EachWarp(IsSo&& is_so, Run&& run) const {
    for (std::int32_t i = 0; i < num_threads_; i += kWarpThreads) {
      const Warp warp(backwards_ ? num_threads_ - kWarpThreads - i : i, backwards_);
      bool found = false;
      warp.EachThread([&](std::int32_t thread) { found |= is_so(thread); });
      if (found) run(warp);
    }
  }

 private:
  std::int64_t index_;
  std::int32_t num_threads_;
  bool backwards_;
  void* memory_;
};

template <typename T>
class OfThreads {
 public:
  explicit OfThreads(const Block& block)
      : values_(std::make_unique<T[]>(static_cast<std::size_t>(block.num_threads()))) {}
  T& operator[](std::int32_t thread) { return values_[thread]; }
  const T& operator[](std::int32_t thread) const { return values_[thread]; }

 private:
  std::unique_ptr<T[]> values_;
};

class Team {
 public:
  Team(std::int64_t index, std::uint8_t* memory, bool backwards)
      : index_(index), memory_(memory), backwards_(backwards) {}

  std::int64_t index() const { return index_; }
  std::uint8_t* memory() const { return memory_; }
  bool IsFirst() const { return true; }

  template <typename Run>
  void ForEach(std::int64_t count, Run&& run) const {
    const auto end = static_cast<std::int32_t>(count);
    for (std::int32_t i = 0; i < end; ++i) run(backwards_ ? end - 1 - i : i);
  }
  template <typename Run>
  void Once(Run&& run) const {
    run();
  }

 private:
  std::int64_t index_;
  std::uint8_t* memory_;
  bool backwards_;
};

// A warp of one thread, whose slot is the team's memory.
class Solo : public Team {
 public:
  using Team::Team;

  std::int32_t lane() const { return 0; }
  std::uint8_t* slot(std::int32_t) const { return memory(); }

  template <typename Run>
  void Share(std::int64_t count, Run&& run) const {
    ForEach(count, [&](std::int32_t i) { run(0, i); });
  }
};

inline void AtomicMin(std::uint64_t* to, std::uint64_t value) {
  std::uint64_t before = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (value < before && !__atomic_compare_exchange_n(to, &before, value, /*weak=*/true,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

#endif

}  // namespace rollouts
