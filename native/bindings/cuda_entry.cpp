// SPDX-License-Identifier: Apache-2.0
#include "bindings/cuda_entry.h"

#include <string>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "bindings/python_calls.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

template <typename Function>
void Read(const py::dict& addresses, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(addresses[name].cast<std::uintptr_t>());
}

// Makes a context current in the thread, for a scope, unless it already is, as in most threads.
class InContext {
 public:
  InContext(const CudaDriver& driver, void* context) : driver_(driver) {
    void* current = nullptr;
    result_ = driver_.get_context(&current);
    if (result_ != 0 || current == context) return;
    result_ = driver_.push_context(context);
    pushed_ = result_ == 0;
  }
  ~InContext() {
    void* popped = nullptr;
    if (pushed_) driver_.pop_context(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

  int result() const { return result_; }

 private:
  const CudaDriver& driver_;
  int result_;
  bool pushed_ = false;
};

}  // namespace

CudaDriver CudaDriver::Of(const py::dict& addresses) {
  CudaDriver driver{};
  Read(addresses, "cuLaunchKernel", driver.launch_kernel);
  Read(addresses, "cuCtxGetCurrent", driver.get_context);
  Read(addresses, "cuCtxPushCurrent_v2", driver.push_context);
  Read(addresses, "cuCtxPopCurrent_v2", driver.pop_context);
  Read(addresses, "cuStreamIsCapturing", driver.is_capturing);
  Read(addresses, "cuGetErrorString", driver.error_string);
  return driver;
}

CudaEntry::CudaEntry(const py::dict& driver, std::uintptr_t context, std::uintptr_t function,
                     py::object current_stream, int device)
    : driver_(CudaDriver::Of(driver)),
      context_(reinterpret_cast<void*>(context)),
      function_(reinterpret_cast<void*>(function)),
      current_stream_(std::move(current_stream)),
      device_(py::int_(device)) {}

bool CudaEntry::Launch(void* args, const Grid& grid, bool unless_captured) {
  PyObject* const device = device_.ptr();
  const auto number = Owned(PyObject_Vectorcall(current_stream_.ptr(), &device, 1, nullptr));
  void* const stream = PyLong_AsVoidPtr(number.ptr());
  int result = 0;
  {
    const ReleaseGil no_gil;
    const InContext in_context(driver_, context_);
    result = in_context.result();
    if (result == 0 && unless_captured) {
      int status = 0;
      if (driver_.is_capturing(stream, &status) != 0 || status != 0) return false;
    }
    if (result == 0) {
      void* params[] = {args};
      result = driver_.launch_kernel(function_, grid.num_blocks, 1, 1, grid.num_threads, 1, 1,
                                     grid.shared_bytes, stream, params, nullptr);
    }
  }
  Check(result);
  ++num_launches_;
  return true;
}

void CudaEntry::Check(int result) const {
  if (result == 0) return;
  const char* text = nullptr;
  driver_.error_string(result, &text);
  throw EngineError("CUDA: " + (text ? std::string(text) : "error " + std::to_string(result)));
}

void BindCudaEntry(py::module_& module) {
  py::class_<CudaEntry>(module, "CudaEntry")
      .def(py::init<const py::dict&, std::uintptr_t, std::uintptr_t, py::object, int>(),
           py::arg("driver"), py::arg("context"), py::arg("function"), py::arg("current_stream"),
           py::arg("device"))
      .def(
          "launch",
          [](CudaEntry& entry, std::uintptr_t args, std::uint32_t num_blocks,
             std::uint32_t num_threads, std::uint32_t shared_bytes) {
            entry.Launch(reinterpret_cast<void*>(args), {num_blocks, num_threads, shared_bytes},
                         /*unless_captured=*/false);
          },
          py::arg("args"), py::arg("num_blocks"), py::arg("num_threads"), py::arg("shared_bytes"))
      .def_property_readonly("num_launches", &CudaEntry::num_launches);
}

}  // namespace rollouts
