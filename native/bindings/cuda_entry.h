// SPDX-License-Identifier: Apache-2.0
// Launches a kernel of a GPU from native code, by the installed driver. Nothing is linked: Python
// hands over the addresses of the driver's functions.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>

namespace rollouts {

// Functions of libcuda, with the types of cuda.h; a CUresult of 0 is success.
struct CudaDriver {
  int (*launch_kernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       void* stream, void** params, void** extra);
  int (*get_context)(void** context);
  int (*push_context)(void* context);
  int (*pop_context)(void** context);
  int (*is_capturing)(void* stream, int* status);
  int (*error_string)(int result, const char** text);

  // Reads the functions from a dict of names in libcuda -> addresses.
  static CudaDriver Of(const pybind11::dict& addresses);
};

struct Grid {
  std::uint32_t num_blocks, num_threads, shared_bytes;
};

// One function of a module on one device; calls are made with the GIL.
class CudaEntry {
 public:
  // `current_stream(device)` is torch's function; `context` is the device's, which need not be
  // current in a thread.
  CudaEntry(const pybind11::dict& driver, std::uintptr_t context, std::uintptr_t function,
            pybind11::object current_stream, int device);

  // Launches on torch's current stream, without the GIL: the driver waits where its queue is full,
  // and copies the arguments before it returns. `unless_captured`: returns false, and launches
  // nothing, where the stream is being captured or its state cannot be read. Throws EngineError.
  bool Launch(void* args, const Grid& grid, bool unless_captured);

  std::int64_t num_launches() const { return num_launches_; }

 private:
  void Check(int result) const;

  const CudaDriver driver_;
  void* const context_;
  void* const function_;
  const pybind11::object current_stream_, device_;
  std::atomic<std::int64_t> num_launches_ = 0;
};

}  // namespace rollouts
