// SPDX-License-Identifier: Apache-2.0
// XLA's calls into native code ("FFI"), through its C ABI. Only this file and xla_ffi.cpp depend on
// the ABI; nothing of XLA is included, compiled or linked.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace rollouts {

// Element types; the values are XLA's.
enum class XlaDType : std::int32_t {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF32 = 11,
  kF64 = 12,
};

// An argument or a result of a call: dense, row-major, in host memory. Borrowed from XLA
// until the call returns.
struct XlaArray {
  XlaDType dtype;
  void* data;
  std::span<const std::int64_t> shape;

  std::int64_t size() const {
    std::int64_t total = 1;
    for (const std::int64_t extent : shape) total *= extent;
    return total;
  }
};

using XlaArrays = std::vector<XlaArray>;
using XlaBody = std::function<void(const XlaArrays& arguments, const XlaArrays& results)>;

// Handles one call of XLA, whose argument is `frame`: returns the version of the ABI that this was
// written for when the handler is registered, and runs `body` when the computation is executed.
// Returns the handler's result for XLA: null, or an error with the message of the exception that
// `body` threw.
void* AnswerXla(void* frame, const XlaBody& body) noexcept;

}  // namespace rollouts
