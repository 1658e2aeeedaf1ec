// SPDX-License-Identifier: Apache-2.0
// A function on a stack of its own, which can stop halfway for its caller to go on. What one thread
// begins that thread resumes.
#pragma once

#include <cstddef>


namespace rollouts {

class Fiber {
 public:
  // Whether this build can switch stacks.
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

  // Runs run(context) until it stops or ends; it must not throw. Not while another runs here.
  void Start(void (*run)(void* context), void* context);
  // Goes on behind Stop.
  void Resume();
  bool ended() const { return ended_; }

  // Called by the code that a fiber runs: back to the caller of Start or Resume.
  void Stop();
  // The one that this thread is in; null: none.
  static Fiber* Current();

 private:
  static void Main(Fiber* self) noexcept;
  friend void EnterFiber(void* self);
  void SwitchIn();
  void SwitchOut(bool for_good);

  char* stack_;        // its lowest page is not to be touched
  void* own_ = nullptr;     // where each of the two stands while the other runs
  void* caller_ = nullptr;
  void (*run_)(void*) = nullptr;
  void* context_ = nullptr;
  bool ended_ = true;
  // what sanitizers are told
  void* sanitizer_own_ = nullptr;
  void* sanitizer_caller_ = nullptr;
  const void* caller_bottom_ = nullptr;
  std::size_t caller_size_ = 0;
};

}  // namespace rollouts
