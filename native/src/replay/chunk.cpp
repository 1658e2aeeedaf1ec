// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/chunk.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "rollouts/support/errors.h"
#include "rollouts/support/huge_pages.h"

namespace rollouts::replay {
namespace {

// The bytes of chunks that are allocated at once, so that each allocation has fresh pages of the
// kernel.
constexpr std::int64_t kSlabBytes = std::int64_t{4} << 20;

std::int64_t WholePages(std::int64_t bytes) {
  const auto page = static_cast<std::int64_t>(PageBytes());
  return (bytes + page - 1) / page * page;
}

// Reserves blocks on the disk for `bytes` more after the file's end at `offset`; returns 0 or an
// errno.
int ReserveBlocks(int file, std::int64_t offset, std::int64_t bytes) {
#ifdef __APPLE__  // macOS has no posix_fallocate
  fstore_t wish{F_ALLOCATEALL, F_PEOFPOSMODE, 0, bytes, 0};
  if (fcntl(file, F_PREALLOCATE, &wish) != 0) return errno;
  return ftruncate(file, offset + bytes) == 0 ? 0 : errno;
#else
  return posix_fallocate(file, offset, bytes);
#endif
}

std::string SystemError() { return std::strerror(errno); }

}  // namespace

Slab::Slab(std::int64_t bytes, int file, std::int64_t file_offset) : bytes_(WholePages(bytes)) {
  // private memory, in huge pages where the kernel gives them
  if (file < 0) {
    data_ = MapPages(static_cast<std::size_t>(bytes_));
    return;
  }
  // maps the file's own pages, which the kernel writes out, so that not all of them need to be in
  // memory
  void* const memory = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE,
                            MAP_SHARED, file, file_offset);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::uint8_t*>(memory);
}

Slab::~Slab() { UnmapPages(data_, static_cast<std::size_t>(bytes_)); }

ChunkAllocator::ChunkAllocator(const ChunkLayout& layout, std::int64_t max_bytes,
                               const std::string& path)
    : layout_(layout), max_chunks_(max_bytes / layout.chunk_bytes), path_(path) {
  if (max_bytes != 0 && max_chunks_ < 1) {
    throw SpecError("max_bytes is " + std::to_string(max_bytes) + ", expected 0 (no bound) or at " +
                    "least one chunk of " + std::to_string(layout.chunk_bytes) + " bytes");
  }
  if (path.empty()) return;
  // never overwrites an existing file
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file_ < 0) {
    throw SpecError("path '" + path + "': " + SystemError() +
                    "; expected the name of a file that is not there yet");
  }
}

ChunkAllocator::~ChunkAllocator() {
  if (file_ < 0) return;
  close(file_);
  // mapped pages stay until the slabs are freed, which happens later
  unlink(path_.c_str());
}

Chunk* ChunkAllocator::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) Grow();
  Chunk* const chunk = free_.back();
  free_.pop_back();
  // relaxed: nobody else has the chunk yet, and mutex_ orders the writes of its last user
  chunk->refs.store(1, std::memory_order_relaxed);
  chunk->next = nullptr;
  chunk->num_rows = 0;
  return chunk;
}

void ChunkAllocator::Grow() {
  const auto allocated = static_cast<std::int64_t>(chunks_.size());
  if (max_chunks_ > 0 && allocated >= max_chunks_ + spare_) {
    throw StoreFullError(
        "the store has all of its " + std::to_string(allocated * layout_.chunk_bytes) +
        " bytes in use; raise max_bytes, or lower max_size of the tables or history_rows");
  }
  if (fresh_chunks_ == 0) {
    std::int64_t count = std::max<std::int64_t>(1, kSlabBytes / layout_.chunk_bytes);
    if (max_chunks_ > 0) count = std::min(count, max_chunks_ + spare_ - allocated);
    // the file grows by whole pages, because maps begin at pages
    const std::int64_t bytes = WholePages(count * layout_.chunk_bytes);
    // blocks are reserved now, because writing a page to a full disk would end the process later
    if (file_ >= 0) {
      const int error = ReserveBlocks(file_, file_bytes_, bytes);
      if (error != 0) {
        throw StoreFullError("path '" + path_ + "': " + std::strerror(error) + " at " +
                             std::to_string(file_bytes_) + " bytes; use a larger disk");
      }
    }
    slabs_.push_back(std::make_unique<Slab>(bytes, file_, file_bytes_));
    file_bytes_ += bytes;
    fresh_ = slabs_.back()->data();
    fresh_chunks_ = count;
  }
  // a deque, in which elements keep their addresses
  Chunk& chunk = chunks_.emplace_back();
  chunk.data = fresh_;
  chunk.frames.resize(layout_.columns.size());
  free_.reserve(chunks_.size());  // so that giving back never throws
  // taken chunk by chunk as needed, so that pages are touched only then
  fresh_ += layout_.chunk_bytes;
  --fresh_chunks_;
  free_.push_back(&chunk);
}

void ChunkAllocator::GiveBack(Chunk* chunk) {
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(chunk);
}

void ChunkAllocator::Spare(std::int64_t chunks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  spare_ += chunks;
}

std::int64_t ChunkAllocator::num_used() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<std::int64_t>(chunks_.size() - free_.size());
}

std::int64_t ChunkAllocator::num_allocated() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<std::int64_t>(chunks_.size());
}

}  // namespace rollouts::replay
