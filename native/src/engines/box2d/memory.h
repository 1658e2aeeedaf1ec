// SPDX-License-Identifier: Apache-2.0
// Memory of Box2D's worlds: each world's blocks are known, so that a world that an exception left
// in the middle of a step can be dropped. Its destructor would assert, and end the process.
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

  // Makes this thread's Box2D take its blocks from `memory` while it lives.
  class Use {
   public:
    explicit Use(Box2DMemory& memory);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Box2DMemory* const before_;
  };

  // Makes this thread take no blocks while it lives: it is with other worlds.
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

// Box2D fills tables with its first allocator and its first contact, and asks no lock: this does, at
// the first call.
void FillBox2DTables();

}  // namespace rollouts
