// SPDX-License-Identifier: Apache-2.0
#include "support/fiber.h"

#include <cassert>
#include <new>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/mman.h>

#include <cstdint>

#include "rollouts/support/huge_pages.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace rollouts {

void EnterFiber(void* self) { Fiber::Main(static_cast<Fiber*>(self)); }

namespace {

// Large, because pages are allocated only when touched: an engine's step touches few of them.
constexpr std::size_t kStackBytes = 256 * 1024;

thread_local Fiber* running = nullptr;

// Saves the registers that a called function must preserve, stores the stack pointer in *from, and
// continues at `to`.
[[gnu::naked, gnu::noinline]] void SwitchStack(void** /*from*/, void* /*to*/) {
  asm(R"(
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    retq
  )");
}

// Begins a new stack: the first switch pops the function and the fiber into registers. An unwinder
// that looks for callers finds none.
[[gnu::naked, gnu::noinline]] void FirstFrame() {
  asm(R"(
    .cfi_undefined rip
    movq %r13, %rdi
    callq *%r12
    ud2
  )");
}

}  // namespace

Fiber::Fiber() {
  void* const pages = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  stack_ = static_cast<char*>(pages);
  if (mprotect(stack_, PageBytes(), PROT_NONE) != 0) {
    munmap(stack_, kStackBytes);
    throw std::bad_alloc();
  }
#if defined(__SANITIZE_THREAD__)
  sanitizer_own_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  assert(ended_);
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(sanitizer_own_);
#endif
  munmap(stack_, kStackBytes);
}

Fiber* Fiber::Current() { return running; }

void Fiber::Start(void (*run)(void*), void* context) {
  assert(ended_);
  run_ = run;
  context_ = context;
  ended_ = false;
  // laid out as SwitchStack leaves a stack: six registers and the return address; the stack is then
  // aligned to 16
  auto** top = reinterpret_cast<void**>(stack_ + kStackBytes) - 3;
  *top = reinterpret_cast<void*>(&FirstFrame);
  void** const registers = top - 6;
  for (int i = 0; i < 6; ++i) registers[i] = nullptr;
  registers[3] = reinterpret_cast<void*>(&EnterFiber);  // r12
  registers[2] = this;                                  // r13
  own_ = registers;
  SwitchIn();
}

void Fiber::Resume() {
  assert(!ended_);
  SwitchIn();
}

void Fiber::Stop() {
  assert(running == this);
  SwitchOut(/*for_good=*/false);
}

void Fiber::SwitchIn() {
  assert(running == nullptr);
  running = this;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack_, kStackBytes);
#elif defined(__SANITIZE_THREAD__)
  sanitizer_caller_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(sanitizer_own_, 0);
#endif
  SwitchStack(&caller_, own_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  running = nullptr;
}

void Fiber::SwitchOut(bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &sanitizer_own_, caller_bottom_,
                                 caller_size_);
#elif defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(sanitizer_caller_, 0);
#endif
  static_cast<void>(for_good);
  SwitchStack(&own_, caller_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(sanitizer_own_, &caller_bottom_, &caller_size_);
#endif
}

void Fiber::Main(Fiber* self) noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->caller_bottom_, &self->caller_size_);
#endif
  self->run_(self->context_);
  self->ended_ = true;
  self->SwitchOut(/*for_good=*/true);
}

}  // namespace rollouts

#else

namespace rollouts {

Fiber::Fiber() { throw std::bad_alloc(); }
Fiber::~Fiber() = default;
Fiber* Fiber::Current() { return nullptr; }
void Fiber::Start(void (*)(void*), void*) {}
void Fiber::Resume() {}
void Fiber::Stop() {}

}  // namespace rollouts

#endif
