// SPDX-License-Identifier: Apache-2.0
// The exceptions of the native core; bindings/ turns each into its Python class
// of the same name. Thrown on the caller's thread only.
#pragma once

#include <stdexcept>

namespace rollouts {

// An argument is wrong: unknown id or option, wrong shape, value out of range.
struct SpecError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};
// An argument has the wrong type.
struct DTypeError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};
// Calls in an order that cannot work: a send to an env in flight, a recv that
// could never return.
struct ProtocolError : std::logic_error {
  using std::logic_error::logic_error;
};
// The pool was closed.
struct ClosedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// An environment failed while stepping; the message names its env_id.
struct EnvError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// A foreign engine (ALE, MuJoCo) is missing or of an unsupported version.
struct EngineError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace rollouts
