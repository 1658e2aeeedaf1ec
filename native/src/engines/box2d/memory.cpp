// SPDX-License-Identifier: Apache-2.0
// Replaces b2Settings.cpp and b2Timer.cpp, which are meant to be replaced and are not compiled.
#include "memory.h"

#include <Box2D/Box2D.h>
#include <Box2D/Common/b2Timer.h>

#include <cassert>
#include <cstdlib>
#include <mutex>
#include <new>

namespace rollouts {

thread_local Box2DMemory* Box2DMemory::current_ = nullptr;

Box2DMemory::~Box2DMemory() {
  for (Link* link = first_.after; link != nullptr;) {
    Link* const after = link->after;
    std::free(link);
    link = after;
  }
}

Box2DMemory::Use::Use(Box2DMemory& memory) : before_(current_) { current_ = &memory; }
Box2DMemory::Use::~Use() { current_ = before_; }

void* Box2DMemory::Allocate(std::size_t bytes) {
  assert(current_ != nullptr);
  void* const block = std::malloc(sizeof(Link) + bytes);
  if (block == nullptr) throw std::bad_alloc();
  Link& first = current_->first_;
  Link* const link = new (block) Link{&first, first.after};
  if (first.after != nullptr) first.after->before = link;
  first.after = link;
  return link + 1;
}

void Box2DMemory::Free(void* block) {
  if (block == nullptr) return;
  Link* const link = static_cast<Link*>(block) - 1;
  // the first link is no block, so every block has one before it
  link->before->after = link->after;
  if (link->after != nullptr) link->after->before = link->before;
  std::free(link);
}

void FillBox2DTables() {
  static std::once_flag filled;
  std::call_once(filled, [] {
    Box2DMemory memory;
    const Box2DMemory::Use use(memory);
    b2World world(b2Vec2(0, 0));
    b2CircleShape circle;
    circle.m_radius = 1;
    b2BodyDef definition;
    definition.type = b2_dynamicBody;
    for (int i = 0; i < 2; ++i) world.CreateBody(&definition)->CreateFixture(&circle, 1);
    world.Step(0.01F, 1, 1);
  });
}

}  // namespace rollouts

b2Version b2_version = {2, 3, 0};

void* b2Alloc(int32 size) { return rollouts::Box2DMemory::Allocate(static_cast<std::size_t>(size)); }
void b2Free(void* block) { rollouts::Box2DMemory::Free(block); }
// Box2D's messages are for its own developers
void b2Log(const char*, ...) {}

// Box2D times each step and each collision in it, but nobody reads these times.
b2Timer::b2Timer() {}
void b2Timer::Reset() {}
float32 b2Timer::GetMilliseconds() const { return 0; }
