// SPDX-License-Identifier: Apache-2.0
// Definitions of page_memory.h's functions. Included by one source of the library, and by every
// environment that users register (plugin/exports.h).
#pragma once

#include "rollouts/support/page_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace rollouts {
namespace {

constexpr std::align_val_t kCacheLine{64};

std::uint8_t* Allocate(std::size_t bytes) {
  if (bytes < PageMemory::kFromKernel) {
    void* memory = ::operator new(bytes, kCacheLine);
    // memory of the heap may have been used before
    std::memset(memory, 0, bytes);
    return static_cast<std::uint8_t*>(memory);
  }
  // zeroed by the kernel, page by page, when each is first touched
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::uint8_t*>(memory);
}

}  // namespace

PageMemory::PageMemory(std::size_t bytes) : memory_(Allocate(bytes), Free{bytes}) {}

void PageMemory::Free::operator()(std::uint8_t* memory) const {
  if (bytes < kFromKernel) {
    ::operator delete(memory, kCacheLine);
  } else {
    munmap(memory, bytes);
  }
}

}  // namespace rollouts
