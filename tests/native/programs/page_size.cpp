// SPDX-License-Identifier: Apache-2.0
// Replay memory on a kernel of 64 KiB pages, which ARM systems may have. The linker's --wrap puts
// that kernel's rules before this one's calls.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "rollouts/replay/chunk.h"
#include "rollouts/support/huge_pages.h"

namespace {
constexpr std::uintptr_t kPage = 64 << 10;
int refused = 0;  // calls that the kernel of 64 KiB pages turns down
std::uintptr_t mapped = 0;

std::uintptr_t Whole(std::uintptr_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
}  // namespace

extern "C" {
long __real_sysconf(int name);
void* __real_mmap(void*, std::size_t, int, int, int, off_t);
int __real_munmap(void*, std::size_t);

long __wrap_sysconf(int name) {
  return name == _SC_PAGESIZE ? static_cast<long>(kPage) : __real_sysconf(name);
}

void* __wrap_mmap(void*, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  if (static_cast<std::uintptr_t>(offset) % kPage != 0) {
    ++refused;
    errno = EINVAL;
    return MAP_FAILED;
  }
  // reserve, and map again where such a kernel would
  void* const reserved = __real_mmap(nullptr, Whole(bytes) + kPage, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto begin = Whole(reinterpret_cast<std::uintptr_t>(reserved));
  mapped += Whole(bytes);
  return __real_mmap(reinterpret_cast<void*>(begin), bytes, protection, flags | MAP_FIXED, file,
                     offset);
}

int __wrap_munmap(void* memory, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(memory) % kPage != 0) {
    ++refused;
    errno = EINVAL;
    return -1;
  }
  mapped -= Whole(bytes);
  return __real_munmap(memory, bytes);
}
}

namespace {

using namespace rollouts;
using namespace rollouts::replay;

// Chunks of no whole number of pages, so many that they take several slabs.
void TakeSlabs(const char* path) {
  const ChunkLayout layout({{.name = "obs", .dtype = "|u1", .item_bytes = 1, .shape = {9371}}}, 32);
  ChunkAllocator allocator(layout, 0, path);
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 40; ++i) {
    chunks.push_back(allocator.Take());
    chunks.back()->data[0] = 1;
    chunks.back()->data[layout.chunk_bytes - 1] = 1;
  }
  for (Chunk* const chunk : chunks) allocator.Unref(chunk);
}

}  // namespace

int main(int, char** arguments) {
  TakeSlabs("");
  TakeSlabs(arguments[1]);
  const std::size_t large = kHugePage + 5000;
  UnmapPages(MapPages(large), large);
  std::printf("refused %d mapped %ju\n", refused, static_cast<std::uintmax_t>(mapped));
  return 0;
}
