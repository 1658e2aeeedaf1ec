// SPDX-License-Identifier: Apache-2.0
// send, recv and step, which XLA calls in one of its threads and without the GIL.
// rollouts.integrations.jax makes the functions that users call.
#include "bindings/pool/xla.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "bindings/interrupts.h"
#include "bindings/pool/actions.h"
#include "bindings/step_arrays.h"
#include "engines/xla_ffi.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using Clock = CpuPool::Clock;

// Pools by handle. A traced computation has only the number, and may outlive the pool.
struct Numbers {
  std::mutex mutex;
  struct Entry {
    std::weak_ptr<CpuPool> pool;
    std::int64_t num_calls = 0;
  };
  std::map<std::uint32_t, Entry> pools;
  std::uint32_t last = 0;
};

Numbers& AllNumbers() {
  static Numbers& numbers = *new Numbers;  // XLA's threads may outlive the module
  return numbers;
}

// Keeps a pool alive during a call.
class PoolInUse {
 public:
  explicit PoolInUse(std::uint32_t number) {
    Numbers& numbers = AllNumbers();
    const std::lock_guard lock(numbers.mutex);
    const auto found = numbers.pools.find(number);
    if (found != numbers.pools.end()) {
      pool_ = found->second.pool.lock();
      ++found->second.num_calls;
    }
    if (!pool_) {
      throw ClosedError("the environments of handle " + std::to_string(number) +
                        " are gone: keep them as long as computations use their handle");
    }
  }
  ~PoolInUse() {
    // with the GIL: this may be the pool's last owner, and arrays are freed with a pool's buffers
    const AcquireGil gil;
    pool_.reset();
  }
  CpuPool& operator*() const { return *pool_; }

 private:
  std::shared_ptr<CpuPool> pool_;
};

// One array of a batch: the address of its first row, and the number of elements in a row.
struct Column {
  const void* data;
  DType dtype;
  std::int64_t row_size;
};

// All arrays of received rows, in the order of the results after the handle.
std::vector<Column> ColumnsOf(const CpuPool& pool, const CpuPool::Received& received) {
  const EnvSpec& spec = pool.spec();
  // target, not view: observations may have been written into XLA's memory
  const BatchView& view = received.buffer->target();
  const auto column = [&](const void* base, DType dtype, std::int64_t row_size) -> Column {
    const std::int64_t skipped = received.first * row_size * SizeOf(dtype);
    return {static_cast<const std::uint8_t*>(base) + skipped, dtype, row_size};
  };
  std::vector<Column> columns;
  const StepPointers pointers = PointersOf(view);
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    const StepArray& array = kStepArrays[i];
    // XLA has no result for final_obs where there is none
    if (!pointers[i]) continue;
    columns.push_back(array.is_obs
                          ? column(pointers[i], spec.observation.dtype, spec.observation.size())
                          : column(pointers[i], array.dtype, 1));
  }
  for (std::int32_t i = 0; i < spec.num_infos; ++i) {
    const InfoSpec& info = spec.infos[i];
    columns.push_back(column(view.infos[i], info.dtype, info.size()));
  }
  return columns;
}

// Converts element by element: results have JAX's dtypes, batches those of the pool.
template <typename From, typename To>
void CopyAs(const void* from, std::int64_t count, void* to) {
  const auto* values = static_cast<const From*>(from);
  std::transform(values, values + count, static_cast<To*>(to),
                 [](From value) { return static_cast<To>(value); });
}

template <typename From>
void CopyTo(const void* from, std::int64_t count, const XlaArray& to) {
  // JAX has no float64 unless it is enabled: rewards are converted here
  switch (to.dtype) {
    case XlaDType::kPred:
    case XlaDType::kU8: return CopyAs<From, std::uint8_t>(from, count, to.data);
    case XlaDType::kS8: return CopyAs<From, std::int8_t>(from, count, to.data);
    case XlaDType::kS32: return CopyAs<From, std::int32_t>(from, count, to.data);
    case XlaDType::kS64: return CopyAs<From, std::int64_t>(from, count, to.data);
    case XlaDType::kF32: return CopyAs<From, float>(from, count, to.data);
    case XlaDType::kF64: return CopyAs<From, double>(from, count, to.data);
    default: throw DTypeError("a result has a dtype that no column of a batch is converted to");
  }
}

void CopyColumn(const Column& column, std::int64_t rows, const XlaArray& to) {
  // the environments wrote there themselves
  if (column.data == to.data) return;
  const std::int64_t count = rows * column.row_size;
  switch (column.dtype) {
    case DType::kUint8: return CopyTo<std::uint8_t>(column.data, count, to);
    case DType::kInt8: return CopyTo<std::int8_t>(column.data, count, to);
    case DType::kInt16: return CopyTo<std::int16_t>(column.data, count, to);
    case DType::kInt32: return CopyTo<std::int32_t>(column.data, count, to);
    case DType::kInt64: return CopyTo<std::int64_t>(column.data, count, to);
    case DType::kFloat32: return CopyTo<float>(column.data, count, to);
    case DType::kFloat64: return CopyTo<double>(column.data, count, to);
  }
}

// The number of rows that the results have room for, which must be the same for all.
std::int64_t RowsOf(const XlaArrays& results) {
  for (std::size_t i = 1; i < results.size(); ++i) {
    if (results[i].shape.empty() || results[i].shape[0] != results[1].shape[0]) {
      throw SpecError("result " + std::to_string(i) + " of an XLA call has not as many rows as result 1");
    }
  }
  return results[1].shape[0];
}

// Copies a batch into the results of a call, once their numbers and shapes fit.
void CopyBatch(const CpuPool& pool, const CpuPool::Received& received, const XlaArrays& results) {
  const std::vector<Column> columns = ColumnsOf(pool, received);
  // XLA fixed its shapes when the computation was traced; the pool may have returned other rows
  const std::int64_t rows = RowsOf(results);
  if (received.rows != rows) {
    throw SpecError("received " + std::to_string(received.rows) + " environments, expected " +
                    std::to_string(rows) + ", for which the computation was traced: send as many");
  }
  if (columns.size() != results.size() - 1) {
    throw SpecError("an XLA call has " + std::to_string(results.size() - 1) + " results, expected " +
                    std::to_string(columns.size()));
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (results[i + 1].size() != rows * columns[i].row_size) {
      throw SpecError("result " + std::to_string(i + 1) + " of an XLA call has " +
                      std::to_string(results[i + 1].size()) + " elements, expected " +
                      std::to_string(rows * columns[i].row_size));
    }
    CopyColumn(columns[i], rows, results[i + 1]);
  }
}

// The NumPy dtype of actions, which are read as those of `send` are.
py::dtype NumpyDTypeOf(XlaDType dtype) {
  switch (dtype) {
    case XlaDType::kS8: return py::dtype::of<std::int8_t>();
    case XlaDType::kS16: return py::dtype::of<std::int16_t>();
    case XlaDType::kS32: return py::dtype::of<std::int32_t>();
    case XlaDType::kS64: return py::dtype::of<std::int64_t>();
    case XlaDType::kU8: return py::dtype::of<std::uint8_t>();
    case XlaDType::kU16: return py::dtype::of<std::uint16_t>();
    case XlaDType::kU32: return py::dtype::of<std::uint32_t>();
    case XlaDType::kU64: return py::dtype::of<std::uint64_t>();
    case XlaDType::kF32: return py::dtype::of<float>();
    case XlaDType::kF64: return py::dtype::of<double>();
    default: break;
  }
  throw DTypeError("actions have a dtype that NumPy has not, expected an integer dtype or float32");
}

// A view of XLA's memory, for the length of the call.
py::array AsNumpy(const XlaArray& array) {
  const std::vector<py::ssize_t> shape(array.shape.begin(), array.shape.end());
  return py::array(NumpyDTypeOf(array.dtype), shape, array.data, py::none());
}

// Global ids as indices into the pool, without the GIL.
std::vector<std::int32_t> ReadEnvIds(const CpuPool& pool, const XlaArray& env_id) {
  if (env_id.dtype != XlaDType::kS32 || env_id.shape.size() != 1) {
    throw DTypeError("env_id must be a one-dimensional array of int32, such as recv returns");
  }
  const auto* ids = static_cast<const std::int32_t*>(env_id.data);
  std::vector<std::int32_t> envs(static_cast<std::size_t>(env_id.shape[0]));
  // ids are global, as recv returned them
  const std::int32_t offset = pool.options().env_id_offset;
  for (std::size_t i = 0; i < envs.size(); ++i) {
    envs[i] = ids[i] - offset;
    if (envs[i] < 0 || envs[i] >= pool.options().num_envs) {
      throw SpecError("env_id " + std::to_string(ids[i]) + " in row " + std::to_string(i) +
                      " is not in this pool");
    }
  }
  return envs;
}

// Sends; returns whether the environments will write their observations into `results`.
bool Send(CpuPool& pool, const XlaArrays& arguments, const XlaArrays& results) {
  std::vector<std::int32_t> ids;
  std::span<const std::int32_t> envs = pool.all_envs();
  if (arguments.size() > 2) {
    ids = ReadEnvIds(pool, arguments[2]);
    envs = ids;
  }
  const AcquireGil gil;
  // the lock also ensures that no other thread sends until this function ends
  const SpaceSpec& space = pool.spec().observation;
  bool direct = results.size() > 1 && pool.synchronous() && pool.num_in_flight() == 0;
  // number of elements and dtype are equal: environments may write XLA's result themselves
  direct = direct && results[1].size() == std::ssize(envs) * space.size() &&
           ((results[1].dtype == XlaDType::kU8 && space.dtype == DType::kUint8) ||
            (results[1].dtype == XlaDType::kF32 && space.dtype == DType::kFloat32) ||
            (results[1].dtype == XlaDType::kF64 && space.dtype == DType::kFloat64));
  BatchView out;
  if (direct) out.obs = static_cast<std::uint8_t*>(results[1].data);
  try {
    SendActions(pool, AsNumpy(arguments[1]), envs, direct ? &out : nullptr);
  } catch (const py::error_already_set& error) {
    throw SpecError(error.what());  // a Python exception must not outlive AcquireGil
  }
  return direct;
}

// Blocks a thread of XLA until the batch is there.
void Receive(CpuPool& pool, const XlaArrays& results) {
  CpuPool::Received received;
  // without a deadline: Close ends the wait
  while (!received.buffer) received = pool.Recv(Clock::now() + std::chrono::hours(1));
  const auto release = [&] {
    // with the GIL, as a closed pool's arrays are freed now
    const AcquireGil gil;
    if (received.pooled) pool.Release(received.buffer.get());
    received.buffer.reset();
  };
  try {
    CopyBatch(pool, received, results);
  } catch (...) {
    release();
    throw;
  }
  release();
}

// Waits until no environment writes into XLA's memory any more.
void Settle(CpuPool& pool) {
  try {
    while (!pool.Drain(Clock::now() + std::chrono::hours(1))) {
    }
  } catch (const ClosedError&) {
    pool.Close();  // returns when the threads are gone, also where another thread closed it
  }
}

// Arguments: handle [, actions [, env_id]]; with actions, it sends. Results: handle [, the arrays
// of a batch]; with arrays, it receives.
void Call(const XlaArrays& arguments, const XlaArrays& results) {
  if (arguments.empty() || results.empty() || arguments[0].dtype != XlaDType::kU32 ||
      results[0].dtype != XlaDType::kU32 || arguments[0].size() != 1 || results[0].size() != 1) {
    throw SpecError("handle must be the uint32 scalar that xla() returned");
  }
  // a computation may run on the main thread, where a step may never end
  const NativeCall call;
  const PoolInUse pool(*static_cast<const std::uint32_t*>(arguments[0].data));
  bool direct = false;
  // one handler for send, recv and step; the numbers of arrays show which one is called
  if (arguments.size() > 1) direct = Send(*pool, arguments, results);
  if (results.size() > 1) {
    try {
      Receive(*pool, results);
    } catch (...) {
      // XLA takes its memory back when this call returns, whatever happened
      if (direct) Settle(*pool);
      throw;
    }
  }
  // the handle is also a result, so that XLA keeps calls in their order
  std::memcpy(results[0].data, arguments[0].data, sizeof(std::uint32_t));
}

// The single function that XLA calls, for all pools.
void* Handler(void* frame) { return AnswerXla(frame, Call); }

}  // namespace

std::uint32_t XlaNumber::Of(const std::shared_ptr<CpuPool>& pool) {
  if (number_ != 0) return number_;
  Numbers& numbers = AllNumbers();
  const std::lock_guard lock(numbers.mutex);
  // numbers of pools that are gone; they are not used again
  std::erase_if(numbers.pools, [](const auto& entry) { return entry.second.pool.expired(); });
  if (++numbers.last == 0) throw SpecError("there were 2**32 handles, no number is left");
  numbers.pools[numbers.last].pool = pool;
  return number_ = numbers.last;
}

std::int64_t XlaNumber::num_calls() const {
  Numbers& numbers = AllNumbers();
  const std::lock_guard lock(numbers.mutex);
  const auto found = numbers.pools.find(number_);
  return found == numbers.pools.end() ? 0 : found->second.num_calls;
}

void BindXla(py::module_& module) {
  module.def(
      "xla_handler",
      [] { return py::capsule(reinterpret_cast<void*>(&Handler), "xla._CUSTOM_CALL_TARGET"); },
      "The function that XLA calls for send, recv and step, for jax.ffi.register_ffi_target.");
}

}  // namespace rollouts
