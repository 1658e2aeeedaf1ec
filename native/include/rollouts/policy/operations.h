// SPDX-License-Identifier: Apache-2.0
// Every operation of a network, one per line. A new operation that computes feature by feature
// needs only a line here and one in rollouts/policies/program.py. Other operations also have loops
// in layer_loops.h and backward_loops.h.
#pragma once

// EACH(Name, "name in Python", formula, needs x, slope): z of each feature x. The slope is dz/dx,
// which reads x only where `needs x`, because z may have overwritten x.
// WITH(Name, "name in Python", numbers, formula, needs x, slope): also uses the numbers a and b.
// PAIR(Name, "name in Python", formula, needs x and y, slope of x, slope of y): features x and y of
// two registers.
// LOOP(Name, "name in Python", inputs, numbers, elementwise): a separate loop. -1 stands for any
// number; elementwise: feature i of the result needs only feature i of the first input.
#define ROLLOUTS_OPERATIONS(EACH, WITH, PAIR, LOOP)                                                \
  LOOP(Linear, "linear", 1, 0, false)                                                              \
  LOOP(LayerNorm, "layer_norm", 1, 1, false)                                                       \
  LOOP(Embedding, "embedding", 1, 0, false)                                                        \
  LOOP(Constant, "constant", 0, 0, false)                                                          \
  LOOP(Literal, "literal", 0, -1, false) /* a constant that is no parameter */                     \
  LOOP(Concat, "concat", -1, 0, false)   /* laid out as copies of its parts */                     \
  LOOP(Slice, "slice", 1, 1, false)      /* laid out as rows of its input */                       \
  LOOP(Where, "where", 3, 0, true)                                                                 \
  EACH(Tanh, "tanh", Tanh(x), false, 1.0f - z * z)                                                 \
  EACH(Relu, "relu", AtLeast(x, Splat(0.0f)), false, One(z > 0.0f))                                \
  EACH(Sigmoid, "sigmoid", Sigmoid(x), false, z * (1.0f - z))                                      \
  EACH(Silu, "silu", x * Sigmoid(x), true, SiluSlope(x, z))                                        \
  /* x times the share of a normal distribution below x; the factor is sqrt(1/2) */                \
  EACH(Gelu, "gelu", 0.5f * x * (1.0f + Erf(x * 0.707106781186547524f)), true, GeluSlope(x))       \
  /* its approximation (Hendrycks and Gimpel 2016); the first factor is sqrt(2 / pi) */            \
  EACH(GeluTanh, "gelu_tanh",                                                                      \
       0.5f * x *                                                                                  \
           (1.0f + Tanh(0.797884560802865356f * Fma(x * x * x, Splat(0.044715f), x))),             \
       true, GeluTanhSlope(x))                                                                     \
  EACH(Softplus, "softplus", Softplus(x), true, Sigmoid(x))                                        \
  EACH(Exp, "exp", Exp(x), false, z)                                                               \
  EACH(Log, "log", Log(x), true, 1.0f / x)                                                         \
  EACH(Sqrt, "sqrt", Sqrt(x), false, 0.5f / z)                                                     \
  EACH(Square, "square", x * x, true, 2.0f * x)                                                    \
  EACH(Detach, "detach", x, false, Splat(0.0f)) /* no gradient goes through it */                  \
  WITH(Elu, "elu", 1, Select(x > 0.0f, x, a * Expm1OfNegative(x)), true,                           \
       Select(x > 0.0f, Splat(1.0f), z + a))                                                       \
  WITH(LeakyRelu, "leaky_relu", 1, Select(x > 0.0f, x, a * x), true,                               \
       Select(x > 0.0f, Splat(1.0f), Splat(a)))                                                    \
  WITH(Clamp, "clamp", 2, AtMost(AtLeast(x, Splat(a)), Splat(b)), true, One((x >= a) & (x <= b)))  \
  WITH(Scale, "scale", 2, Fma(x, Splat(a), Splat(b)), false, Splat(a))                             \
  PAIR(Add, "add", x + y, false, Splat(1.0f), Splat(1.0f))                                         \
  PAIR(Sub, "sub", x - y, false, Splat(1.0f), Splat(-1.0f))                                        \
  PAIR(Mul, "mul", x * y, true, y, x)                                                              \
  PAIR(Div, "div", x / y, true, 1.0f / y, -(x / y) / y)                                            \
  /* of equal ones each has half */                                                                \
  PAIR(Minimum, "minimum", Select(x < y, x, y), true, Share(y, x), Share(x, y))                    \
  PAIR(Maximum, "maximum", Select(x > y, x, y), true, Share(x, y), Share(y, x))                    \
  PAIR(Greater, "greater", One(x > y), false, Splat(0.0f), Splat(0.0f))                            \
  PAIR(GreaterEqual, "greater_equal", One(x >= y), false, Splat(0.0f), Splat(0.0f))                \
  PAIR(Equal, "equal", One(x == y), false, Splat(0.0f), Splat(0.0f))
