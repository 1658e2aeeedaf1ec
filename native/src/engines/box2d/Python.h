// SPDX-License-Identifier: Apache-2.0
// The part of Python.h that box2d-py's sources use: they report a failed assertion to the
// interpreter before they throw. Here the report itself throws an exception that the pool can
// report.
#pragma once

#include <stdexcept>
#include <string>

enum Box2DReport { PyExc_AssertionError };

[[noreturn]] inline void PyErr_SetString(Box2DReport, const char* condition) {
  throw std::runtime_error(std::string("Box2D cannot simulate this: its assertion ") + condition +
                           " failed");
}
