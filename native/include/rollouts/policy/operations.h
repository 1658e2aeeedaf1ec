// SPDX-License-Identifier: Apache-2.0
// Every operation of a network, on a line of its own. A new one that computes feature by feature is
// such a line here and one in rollouts/policies/program.py; others have a loop in layer_loops.h.
#pragma once

// EACH(Name, "name in Python", formula): of each feature x.
// WITH(Name, "name in Python", numbers, formula): of each feature x and of the numbers a and b.
// PAIR(Name, "name in Python", formula): of features x and y of two registers.
// LOOP(Name, "name in Python", inputs, numbers, elementwise): a loop of its own. -1 stands for any
// number; elementwise: feature i of the result needs no other one of the first input.
#define ROLLOUTS_OPERATIONS(EACH, WITH, PAIR, LOOP)                                                \
  LOOP(Linear, "linear", 1, 0, false)                                                              \
  LOOP(LayerNorm, "layer_norm", 1, 1, false)                                                       \
  LOOP(Embedding, "embedding", 1, 0, false)                                                        \
  LOOP(Constant, "constant", 0, 0, false)                                                          \
  LOOP(Literal, "literal", 0, -1, false) /* a constant that is no parameter */                     \
  LOOP(Concat, "concat", -1, 0, false)   /* laid out as copies of its parts */                     \
  LOOP(Slice, "slice", 1, 1, false)      /* laid out as rows of its input */                       \
  LOOP(Where, "where", 3, 0, true)                                                                 \
  EACH(Tanh, "tanh", Tanh(x))                                                                      \
  EACH(Relu, "relu", AtLeast(x, Splat(0.0f)))                                                      \
  EACH(Sigmoid, "sigmoid", Sigmoid(x))                                                             \
  EACH(Silu, "silu", x * Sigmoid(x))                                                               \
  /* x times the share of a normal distribution below x; the factor is sqrt(1/2) */                \
  EACH(Gelu, "gelu", 0.5f * x * (1.0f + Erf(x * 0.707106781186547524f)))                           \
  /* its approximation (Hendrycks and Gimpel 2016); the first factor is sqrt(2 / pi) */            \
  EACH(GeluTanh, "gelu_tanh",                                                                      \
       0.5f * x *                                                                                  \
           (1.0f + Tanh(0.797884560802865356f * Fma(x * x * x, Splat(0.044715f), x))))             \
  EACH(Softplus, "softplus", Softplus(x))                                                          \
  EACH(Exp, "exp", Exp(x))                                                                         \
  EACH(Log, "log", Log(x))                                                                         \
  EACH(Sqrt, "sqrt", Sqrt(x))                                                                      \
  EACH(Square, "square", x * x)                                                                    \
  WITH(Elu, "elu", 1, Select(x > 0.0f, x, a * Expm1OfNegative(x)))                                 \
  WITH(LeakyRelu, "leaky_relu", 1, Select(x > 0.0f, x, a * x))                                     \
  WITH(Clamp, "clamp", 2, AtMost(AtLeast(x, Splat(a)), Splat(b)))                                  \
  WITH(Scale, "scale", 2, Fma(x, Splat(a), Splat(b)))                                              \
  PAIR(Add, "add", x + y)                                                                          \
  PAIR(Sub, "sub", x - y)                                                                          \
  PAIR(Mul, "mul", x * y)                                                                          \
  PAIR(Div, "div", x / y)                                                                          \
  PAIR(Minimum, "minimum", Select(x < y, x, y))                                                    \
  PAIR(Maximum, "maximum", Select(x > y, x, y))                                                    \
  PAIR(Greater, "greater", Select(x > y, Splat(1.0f), Splat(0.0f)))                                \
  PAIR(GreaterEqual, "greater_equal", Select(x >= y, Splat(1.0f), Splat(0.0f)))                    \
  PAIR(Equal, "equal", Select(x == y, Splat(1.0f), Splat(0.0f)))
