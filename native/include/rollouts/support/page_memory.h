// SPDX-License-Identifier: Apache-2.0
// Memory whose pages belong to the thread that first writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace rollouts {

// Zeroed bytes, aligned to a cache line at least. From kFromKernel bytes on they are fresh pages of
// the kernel. A page appears when it is first touched, on the NUMA node of the thread that touches
// it, and goes back to the kernel when it is freed.
class PageMemory {
 public:
  static constexpr std::size_t kFromKernel = std::size_t{1} << 20;

  // Throws std::bad_alloc.
  explicit PageMemory(std::size_t bytes);

  std::uint8_t* data() const { return memory_.get(); }

 private:
  struct Free {
    std::size_t bytes = 0;
    void operator()(std::uint8_t* memory) const;
  };
  std::unique_ptr<std::uint8_t, Free> memory_;
};

}  // namespace rollouts
