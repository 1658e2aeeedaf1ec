// SPDX-License-Identifier: Apache-2.0
// OpenGL without a window, by EGL or OSMesa. Their libraries are loaded when the first context is
// made and stay loaded; building needs none of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rollouts {

// A context of OpenGL, which belongs to no thread: a thread makes it current for the time in which
// it draws. Used by one thread at a time, and not in a process that was forked after it was made.
class GlContext {
 public:
  // Chooses the library for contexts made from now on, "egl" or "osmesa". Thread-safe.
  static void Choose(const std::string& library);

  // Throws EngineError where the library is not installed or has no device. Thread-safe.
  static std::unique_ptr<GlContext> Make(std::int32_t width, std::int32_t height);
  // Destroys the context, which must not be current.
  virtual ~GlContext() = default;

  // Makes the context current in this thread while the object exists; then restores the one before,
  // such as the caller's own. Throws EngineError.
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
  // Makes the context current; returns what was current before, as the argument of Leave.
  virtual std::vector<void*> Enter() = 0;
  virtual void Leave(const std::vector<void*>& before) noexcept = 0;
};

}  // namespace rollouts
