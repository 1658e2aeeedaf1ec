// SPDX-License-Identifier: Apache-2.0
#include "rollouts/support/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace rollouts {

std::size_t PageBytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::uint8_t* MapPages(std::size_t bytes) {
  const auto map = [](std::size_t size) {
    void* const memory =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::uint8_t*>(memory);
  };
  // no large page fits
  if (bytes < kHugePage) return map(bytes);

  // a large page begins at a multiple of its size: more is mapped, and the surrounding pages given
  // back
  std::uint8_t* const begin = map(bytes + kHugePage);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(begin) % kHugePage;
  std::uint8_t* const memory = begin + before;
  const std::size_t whole = (bytes + PageBytes() - 1) / PageBytes() * PageBytes();
  if (before > 0) munmap(begin, before);
  munmap(memory + whole, kHugePage - before);
#ifdef MADV_HUGEPAGE
  madvise(memory, whole, MADV_HUGEPAGE);  // a hint: small pages work as well
#endif
  return memory;
}

void UnmapPages(std::uint8_t* memory, std::size_t bytes) { munmap(memory, bytes); }

}  // namespace rollouts
