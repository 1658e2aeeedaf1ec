// SPDX-License-Identifier: Apache-2.0
// A function on a stack of its own, which can stop halfway and let its caller go on. The thread
// that started a fiber must resume it.
#pragma once

#include <cstddef>


namespace rollouts {

class Fiber {
 public:
  // Tells if this build can switch stacks.
  static constexpr bool kAvailable =
#if defined(__x86_64__) && defined(__linux__)
      true;
#else
      false;
#endif

  // Throws std::bad_alloc where there is no memory for a stack.
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs run(context) until it stops or ends; it must not throw. Not to be called inside another
  // fiber.
  void Start(void (*run)(void* context), void* context);
  // Continues after Stop.
  void Resume();
  bool ended() const { return ended_; }

  // Called by the code that a fiber runs: returns to the caller of Start or Resume.
  void Stop();
  // The fiber that this thread is running; null: none.
  static Fiber* Current();

 private:
  static void Main(Fiber* self) noexcept;
  friend void EnterFiber(void* self);
  void SwitchIn();
  void SwitchOut(bool for_good);

  char* stack_;        // its lowest page is protected
  void* own_ = nullptr;     // the stack pointer of each side while the other runs
  void* caller_ = nullptr;
  void (*run_)(void*) = nullptr;
  void* context_ = nullptr;
  bool ended_ = true;
  // what sanitizers need to know of the two stacks
  void* sanitizer_own_ = nullptr;
  void* sanitizer_caller_ = nullptr;
  const void* caller_bottom_ = nullptr;
  std::size_t caller_size_ = 0;
};

}  // namespace rollouts
