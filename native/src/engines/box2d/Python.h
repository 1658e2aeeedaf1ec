// SPDX-License-Identifier: Apache-2.0
// The part of Python.h that box2d-py's sources use: they tell the interpreter a failed assertion
// before they throw. Here the report itself throws what the pool knows how to tell.
#pragma once

#include <stdexcept>
#include <string>

enum Box2DReport { PyExc_AssertionError };

[[noreturn]] inline void PyErr_SetString(Box2DReport, const char* condition) {
  throw std::runtime_error(std::string("Box2D cannot simulate this: its assertion ") + condition +
                           " failed");
}
