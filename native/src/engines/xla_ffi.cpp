// SPDX-License-Identifier: Apache-2.0
#include "engines/xla_ffi.h"

#include <cstddef>
#include <exception>
#include <string>

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// The oldest version of the ABI that has all that is used here. XLA accepts handlers of this
// version and of all newer ones up to its own, and only appends to structs.
constexpr int kMajorVersion = 0;
constexpr int kMinorVersion = 1;

// XLA_FFI_Error_Code, whose numbers are those of absl::StatusCode.
enum ErrorCode : int {
  kUnknown = 2,
  kInvalidArgument = 3,
  kFailedPrecondition = 9,
  kInternal = 13,
};

constexpr int kMetadataExtension = 1;
constexpr int kExecuteStage = 3;
constexpr int kBuffer = 1;  // the only type of argument and of result

// XLA's structs. Each begins with its size in bytes and a list of extensions.

struct Extension {
  std::size_t struct_size;
  int type;
  Extension* next;
};

struct Version {
  std::size_t struct_size;
  Extension* extensions;
  int major_version;
  int minor_version;
};

struct Metadata {
  std::size_t struct_size;
  Version version;      // filled in here
  std::uint32_t traits; // filled in here
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct ErrorArguments {
  std::size_t struct_size;
  Extension* extensions;
  const char* message;
  int code;
};

struct Api {
  std::size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  void* (*create_error)(ErrorArguments* arguments);
};

struct Buffer {
  std::size_t struct_size;
  Extension* extensions;
  int dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* extents;
};

struct Buffers {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t count;
  int* types;
  Buffer** buffers;
};

struct CallFrame {
  std::size_t struct_size;
  Extension* extensions;
  const Api* api;
  void* context;
  int stage;
  Buffers arguments;
  Buffers results;
};

// Offsets of XLA's fields on the platforms that wheels are made for.
static_assert(sizeof(void*) == 8 && offsetof(Api, create_error) == 48);
static_assert(offsetof(CallFrame, arguments) == 40 && offsetof(CallFrame, results) == 80);
static_assert(offsetof(Metadata, traits) == 32 && offsetof(Buffer, extents) == 40);

// Returns the ABI's version, if the call asks for it.
bool AnswerMetadata(const CallFrame& frame) {
  for (Extension* extension = frame.extensions; extension; extension = extension->next) {
    // XLA may add extensions of other kinds
    if (extension->type != kMetadataExtension) continue;
    Metadata& metadata = *reinterpret_cast<MetadataExtension*>(extension)->metadata;
    metadata.version.struct_size = sizeof(Version);
    metadata.version.major_version = kMajorVersion;
    metadata.version.minor_version = kMinorVersion;
    // no traits, because calls have effects and wait for threads
    metadata.traits = 0;
    return true;
  }
  return false;
}

// Views of XLA's memory, which are valid until the call returns.
XlaArrays ReadBuffers(const Buffers& given) {
  XlaArrays arrays;
  arrays.reserve(static_cast<std::size_t>(given.count));
  for (std::int64_t i = 0; i < given.count; ++i) {
    if (given.types[i] != kBuffer) throw SpecError("XLA passed a token, expected arrays alone");
    const Buffer& buffer = *given.buffers[i];
    arrays.push_back({static_cast<XlaDType>(buffer.dtype), buffer.data,
                      {buffer.extents, static_cast<std::size_t>(buffer.rank)}});
  }
  return arrays;
}

void* MakeError(const CallFrame& frame, int code, const char* message) {
  // XLA copies the message, and frees the error itself
  ErrorArguments arguments{sizeof(ErrorArguments), nullptr, message, code};
  return frame.api->create_error(&arguments);
}

}  // namespace

void* AnswerXla(void* frame_address, const XlaBody& body) noexcept {
  const auto& frame = *static_cast<const CallFrame*>(frame_address);
  if (AnswerMetadata(frame)) return nullptr;
  // other stages prepare a computation, for which there is nothing to do
  if (frame.stage != kExecuteStage) return nullptr;
  // XLA calls through C, which no exception may cross
  try {
    body(ReadBuffers(frame.arguments), ReadBuffers(frame.results));
    return nullptr;
  } catch (const SpecError& error) {
    return MakeError(frame, kInvalidArgument, error.what());
  } catch (const DTypeError& error) {
    return MakeError(frame, kInvalidArgument, error.what());
  } catch (const ProtocolError& error) {
    return MakeError(frame, kFailedPrecondition, error.what());
  } catch (const ClosedError& error) {
    return MakeError(frame, kFailedPrecondition, error.what());
  } catch (const std::exception& error) {
    return MakeError(frame, kInternal, error.what());
  } catch (...) {
    return MakeError(frame, kUnknown, "an exception of unknown type");
  }
}

}  // namespace rollouts
