// SPDX-License-Identifier: Apache-2.0
// Elementary functions of float columns: the same bits for every vector width. Exp, Expm1, Log,
// Tanh and Sigmoid are at most 2 ulp from the exact value, over all floats whose result is a normal
// number (tests/policies/test_policy_elementary.py checks every one).
//
// Polynomials are minimax fits (Remez), highest power first.
#pragma once

#include "rollouts/policy/simd.h"

namespace rollouts::policy {
inline namespace ROLLOUTS_POLICY_TARGET {

// Horner's rule.
template <int kCount>
ROLLOUTS_HD inline Floats Polynomial(const float (&highest_first)[kCount], Floats x) {
  Floats sum = Splat(highest_first[0]);
  for (int i = 1; i < kCount; ++i) sum = Fma(sum, x, Splat(highest_first[i]));
  return sum;
}

// x = n ln 2 + r, |r| <= ln 2 / 2, and e^r - 1.
struct ReducedExponent {
  Floats n;
  Floats expm1;
};

ROLLOUTS_HD inline ReducedExponent ReduceExponent(Floats x) {
  constexpr float kPerLn2 = 1.44269504088896341f;
  // ln 2 in two parts; n times the first is exact for |n| < 2^9
  constexpr float kHigh = 0.693145751953125f;
  constexpr float kLow = 1.42860682030941723e-6f;
  const Floats n = Round(x * kPerLn2);
  const Floats r = Fma(n, Splat(-kLow), Fma(n, Splat(-kHigh), x));
  // e^r - 1 = r + r^2 q(r)
  constexpr float kQ[] = {0.0001996463688556105f, 0.0013944313395768404f, 0.008333215489983559f,
                          0.041666314005851746f,  0.1666666716337204f,    0.5f};
  return {n, Fma(r * r, Polynomial(kQ, r), r)};
}

// 2^n for whole -126 <= n <= 127.
ROLLOUTS_HD inline Floats PowerOfTwo(Floats n) { return FloatBits((ToInts(n) + 127) << 23); }

// NaN stays NaN; below -103.98 the result is 0, above 88.73 it is infinite.
ROLLOUTS_HD inline Floats Exp(Floats x) {
  const Floats bounded = AtLeast(AtMost(x, Splat(89.0f)), Splat(-104.0f));
  const auto [n, expm1] = ReduceExponent(Select(x == x, bounded, Splat(0.0f)));
  // in two steps, because 2^n alone may be no normal number
  const Floats half = Round(n * 0.5f);
  const Floats y = (1.0f + expm1) * PowerOfTwo(half) * PowerOfTwo(n - half);
  return Select(x == x, y, x);
}

// e^x - 1 of numbers that are not positive, as exact near 0 as elsewhere.
ROLLOUTS_HD inline Floats Expm1OfNegative(Floats x) {
  const auto [n, expm1] = ReduceExponent(AtLeast(AtMost(x, Splat(0.0f)), Splat(-26.0f)));
  const Floats power = PowerOfTwo(Select(n == n, n, Splat(0.0f)));
  return Fma(expm1, power, power - 1.0f);
}

ROLLOUTS_HD inline Floats Tanh(Floats x) {
  // from 9.02 on the result is 1 in float
  const Floats size = AtMost(Abs(x), Splat(10.0f));
  // |x| = n ln 2 / 2 + r. The sum is rounded as in Round, and its lowest bits are n + 127
  constexpr float kRounder = 12582912.0f + 127.0f;
  const Floats sum = Fma(size, Splat(2.88539008177792681f), Splat(kRounder));
  // one float for ln 2 / 2 is exact enough: the result hardly depends on its error where n is large
  const Floats r = Fma(sum - kRounder, Splat(-0.346573590279972655f), size);
  // (e^2r - 1) / 2 = r + r^2 q(r), and from it (e^2|x| - 1) / 2
  constexpr float kQ[] = {0.044424064457416534f, 0.13386423885822296f, 0.33333760499954224f,
                          0.6666617393493652f, 1.0f};
  const Floats half = Fma(r * r, Polynomial(kQ, r), r);
  const Floats power = FloatBits(IntBits(sum) << 23);  // 2^n
  const Floats half_power = FloatBits((IntBits(sum) - 1) << 23);
  const Floats e = Fma(half, power, half_power - 0.5f);
  const Floats y = Quotient(e, e + 1.0f);
  // where e is small, e - e y is more exact than y, which depends on the rounded sum e + 1
  const Floats positive = Select(size < 0.5f, Fma(-e, y, e), y);
  return FloatBits(IntBits(positive) | (IntBits(x) & static_cast<std::int32_t>(0x80000000)));
}

ROLLOUTS_HD inline Floats Sigmoid(Floats x) {
  // the power is -|x|, so that nothing overflows
  const Floats e = Exp(-Abs(x));
  const Floats sum = 1.0f + e;
  const Floats y = Select(x < 0.0f, e, Splat(1.0f)) / sum;
  // subtracts the effect of the sum's rounding error on y: y * lost / sum
  const Floats lost = e - (sum - 1.0f);
  return Fma(-(y * lost), Select(x < 0.0f, 1.0f - y, y), y);
}

// For numbers that are not negative: -inf at 0, NaN below it.
ROLLOUTS_HD inline Floats Log(Floats x) {
  constexpr float kLeastNormal = 1.17549435e-38f;
  const Mask tiny = x < kLeastNormal;
  const Floats scaled = Select(tiny, x * 8388608.0f, x);
  // x = 2^k m, sqrt(1/2) <= m < sqrt(2)
  const Ints bits = IntBits(scaled) - 0x3F3504F3;
  const Floats m = FloatBits((bits & 0x7FFFFF) + 0x3F3504F3);
  const Floats k = ToFloats(bits >> 23) - Select(tiny, Splat(23.0f), Splat(0.0f));
  const Floats f = m - 1.0f;
  constexpr float kQ[] = {0.06746651232242584f,  -0.11675654351711273f, 0.11888159066438675f,
                          -0.1240558847784996f,  0.14219552278518677f,  -0.1666799634695053f,
                          0.2000211924314499f,   -0.25000008940696716f, 0.3333331346511841f};
  const Floats square = f * f;
  const Floats tail = Fma(square * f, Polynomial(kQ, f), square * -0.5f);
  constexpr float kHigh = 0.693145751953125f;
  constexpr float kLow = 1.42860682030941723e-6f;
  const Floats y = Fma(k, Splat(kHigh), f + Fma(k, Splat(kLow), tail));
  const Floats infinity = FloatBits(Ints{} + 0x7F800000);
  const Floats special = Select(x == 0.0f, -infinity, Select(x > 0.0f, x, infinity - infinity));
  return Select((x > 0.0f) & (x < infinity), y, special);
}

// log(1 + e^x).
ROLLOUTS_HD inline Floats Softplus(Floats x) {
  const Floats e = Exp(-Abs(x));
  const Floats sum = 1.0f + e;
  // the last term makes up for the sum's rounding error
  return AtLeast(x, Splat(0.0f)) + (Log(sum) + (e - (sum - 1.0f)) / sum);
}

// The error function, to 4 ulp.
ROLLOUTS_HD inline Floats Erf(Floats x) {
  const Floats size = AtMost(Abs(x), Splat(4.1f));
  const Floats square = size * size;
  constexpr float kNear[] = {7.853867282392457e-05f, -0.0008010195451788604f, 0.005188327748328447f,
                             -0.026853812858462334f, 0.1128358542919159f,     -0.3761262595653534f,
                             1.1283791065216064f};
  const Floats near = size * Polynomial(kNear, square);
  // 1 - e^(-x g(x))
  constexpr float kFar[] = {4.314335910748923e-06f,  -3.793136784224771e-05f,
                            -8.884102862793952e-05f, 0.003039454808458686f,
                            -0.022852538153529167f,  0.10543348640203476f,
                            0.6355364322662354f,     1.1285711526870728f};
  const Floats far = 1.0f - Exp(-size * Polynomial(kFar, size));
  const Floats y = WithSign(Select(size < 1.0f, near, far), x);
  return Select(x == x, y, x);
}

struct SineCosine {
  Floats sine;
  Floats cosine;
};

// Sine and cosine of 2 pi times `turns`, 0 <= turns < 1.
ROLLOUTS_HD inline SineCosine SineCosineOfTurns(Floats turns) {
  const Floats quarters = turns * 4.0f;
  const Floats quadrant = Round(quarters);
  const Floats t = quarters - quadrant;
  const Floats z = t * t;
  constexpr float kSine[] = {-0.004605279304087162f, 0.07968156784772873f, -0.6459636688232422f,
                             1.57079632679489662f};
  constexpr float kCosine[] = {0.0009040155564434826f, -0.02086028642952442f, 0.25366923213005066f,
                               -1.2337005138397217f, 1.0f};
  const Floats sine = t * Polynomial(kSine, z);
  const Floats cosine = Polynomial(kCosine, z);
  const Ints q = ToInts(quadrant);
  const Mask swapped = (q & 1) != 0;
  const Mask sine_negative = (q & 2) != 0;
  const Mask cosine_negative = ((q + 1) & 2) != 0;
  const Floats s = Select(swapped, cosine, sine);
  const Floats c = Select(swapped, sine, cosine);
  return {Select(sine_negative, -s, s), Select(cosine_negative, -c, c)};
}

}  // namespace ROLLOUTS_POLICY_TARGET
}  // namespace rollouts::policy
