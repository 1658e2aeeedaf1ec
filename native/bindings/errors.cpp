// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>

#include "bindings/bindings.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

// Raises rollouts.errors.<name>(message).
void Raise(const char* name, const std::exception& error) {
  // imported only when an error is raised: while this module loads, the package may be half loaded
  const py::object type = py::module_::import("rollouts.errors").attr(name);
  PyErr_SetString(type.ptr(), error.what());
}

}  // namespace

void BindErrors(py::module_&) {
  // local, so that other extension modules keep their translators
  py::register_local_exception_translator([](std::exception_ptr pending) {
    try {
      if (pending) std::rethrow_exception(pending);
    } catch (const SpecError& error) {
      Raise("SpecError", error);
    } catch (const DTypeError& error) {
      Raise("DTypeError", error);
    } catch (const ProtocolError& error) {
      Raise("ProtocolError", error);
    } catch (const ClosedError& error) {
      Raise("ClosedError", error);
    } catch (const EnvError& error) {
      Raise("EnvError", error);
    } catch (const EngineError& error) {
      Raise("EngineError", error);
    }
  });
}

}  // namespace rollouts
