// SPDX-License-Identifier: Apache-2.0
// OpenGL without a window, by EGL or OSMesa. Their libraries are loaded when the first context is
// made and stay loaded; nothing of theirs is needed to build.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rollouts {

// A context of OpenGL, which belongs to no thread: each that uses it makes it current for as long
// as it draws. One thread at a time. Not to be used in a process that was forked since.
class GlContext {
 public:
  // Chooses the library of contexts made from now on, "egl" or "osmesa". Thread-safe.
  static void Choose(const std::string& library);

  // Throws EngineError where the library is not installed or has no device. Thread-safe.
  static std::unique_ptr<GlContext> Make(std::int32_t width, std::int32_t height);
  // It must not be current.
  virtual ~GlContext() = default;

  // While it lives the context is current in this thread; then that one is again which was before,
  // a caller's own. Throws EngineError.
  class Use {
   public:
    explicit Use(GlContext& context) : context_(context), before_(context.Enter()) {}
    ~Use() { context_.Leave(before_); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    GlContext& context_;
    const std::vector<void*> before_;
  };

 private:
  // What was current, as Leave takes it.
  virtual std::vector<void*> Enter() = 0;
  virtual void Leave(const std::vector<void*>& before) noexcept = 0;
};

}  // namespace rollouts
