// SPDX-License-Identifier: Apache-2.0
// Memory of Box2D's worlds: each world's blocks are listed, so that a world can be dropped after an
// exception in the middle of a step. Its destructor would fail an assertion, and end the process.
#pragma once

#include <cstddef>

namespace rollouts {

// Blocks of one world. Not thread-safe; a world is stepped by one thread at a time.
class Box2DMemory {
 public:
  Box2DMemory() = default;
  Box2DMemory(const Box2DMemory&) = delete;
  Box2DMemory& operator=(const Box2DMemory&) = delete;
  ~Box2DMemory();  // frees all that was not freed

  // Makes Box2D in this thread take its blocks from `memory`, while this object exists.
  class Use {
   public:
    explicit Use(Box2DMemory& memory);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Box2DMemory* const before_;
  };

  // Makes Box2D in this thread take no blocks while this object exists: the thread runs other
  // worlds.
  class Away {
   public:
    Away() : own_(current_) { current_ = nullptr; }
    ~Away() { current_ = own_; }
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;

   private:
    Box2DMemory* const own_;
  };

  // Throws std::bad_alloc. `Free` takes blocks of any Box2DMemory.
  static void* Allocate(std::size_t bytes);
  static void Free(void* block);

 private:
  struct alignas(std::max_align_t) Link {
    Link* before = nullptr;
    Link* after = nullptr;
  };
  static thread_local Box2DMemory* current_;

  Link first_;
};

// Makes Box2D fill its tables now, under a lock. By itself Box2D fills them without a lock, when it
// makes its first allocator and its first contact.
void FillBox2DTables();

}  // namespace rollouts
