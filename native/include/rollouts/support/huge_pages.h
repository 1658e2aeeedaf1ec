// SPDX-License-Identifier: Apache-2.0
// Zeroed memory in large pages where the system has them: rows and items of a sample lie far apart,
// and with small pages each of them costs a walk of the page tables as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

namespace rollouts {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// The kernel's page: 4 KiB on x86-64; 4, 16 or 64 KiB on ARM.
std::size_t PageBytes();

// Whole pages from the kernel, aligned to kHugePage if they are at least that large. Throws
// std::bad_alloc.
std::uint8_t* MapPages(std::size_t bytes);
void UnmapPages(std::uint8_t* memory, std::size_t bytes);

// For vectors that grow large; small ones come from the heap.
template <typename T>
struct HugePageAllocator {
  using value_type = T;
  HugePageAllocator() = default;
  template <typename U>
  HugePageAllocator(const HugePageAllocator<U>&) {}  // NOLINT: conversions are its purpose

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (bytes >= kHugePage) return reinterpret_cast<T*>(MapPages(bytes));
    return static_cast<T*>(::operator new(bytes, std::align_val_t{alignof(T)}));
  }
  void deallocate(T* memory, std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (bytes >= kHugePage) {
      UnmapPages(reinterpret_cast<std::uint8_t*>(memory), bytes);
    } else {
      ::operator delete(memory, std::align_val_t{alignof(T)});
    }
  }
  bool operator==(const HugePageAllocator&) const { return true; }
};

}  // namespace rollouts
