// SPDX-License-Identifier: Apache-2.0
// Distance of the elementary functions of policies from libm's in double, in ulp of float: over
// every `stride`th float. Prints name, worst distance, and a hash of all results.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(WIDTH_512)
#define ROLLOUTS_POLICY_TARGET avx512
#define ROLLOUTS_POLICY_LANES 16
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#elif defined(WIDTH_256)
#define ROLLOUTS_POLICY_TARGET avx2
#define ROLLOUTS_POLICY_LANES 8
#pragma GCC target("avx2,fma")
#endif
#include "rollouts/policy/elementary.h"

using namespace rollouts::policy;

namespace {

double UlpsOff(float found, double exact) {
  constexpr double kLeastNormal = 1.17549435e-38, kMost = 3.4028235e38;
  if (std::isnan(exact)) return std::isnan(found) ? 0 : HUGE_VAL;
  if (std::fabs(exact) > kMost) {
    return std::isinf(found) || std::fabs(exact) < 1.01 * kMost ? 0 : HUGE_VAL;
  }
  if (std::fabs(exact) < kLeastNormal) return std::fabs(found) <= kLeastNormal ? 0 : HUGE_VAL;
  int exponent;
  std::frexp(exact, &exponent);
  return std::fabs(found - exact) / std::ldexp(1.0, exponent - 24);
}

template <typename Function, typename Exact>
void Compare(const char* name, std::uint64_t stride, Function function, Exact exact) {
  double worst = 0;
  std::uint64_t hash = 0;
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFF; bits += stride * kLanes) {
    float in[kLanes], out[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits + i * stride));
    }
    Store(out, function(Load(in)));
    for (int i = 0; i < kLanes; ++i) {
      // lanes that wrapped past the last float are the first ones again, on some widths alone
      if (bits + i * stride > 0xFFFFFFFF) continue;
      const auto result = std::isnan(out[i]) ? 1u : std::bit_cast<std::uint32_t>(out[i]);
      hash = (hash ^ result) * 0x100000001b3;
      worst = std::fmax(worst, UlpsOff(out[i], exact(static_cast<double>(in[i]))));
    }
  }
  std::printf("%s %.3f %016llx\n", name, worst, static_cast<unsigned long long>(hash));
}

}  // namespace

int main(int, char** arguments) {
  const std::uint64_t stride = std::strtoull(arguments[1], nullptr, 10);
  Compare("exp", stride, [](Floats x) { return Exp(x); }, [](double x) { return std::exp(x); });
  Compare("expm1", stride, [](Floats x) { return Expm1OfNegative(AtMost(x, Splat(0.0f))); },
          [](double x) { return std::expm1(x > 0 ? 0 : x); });
  Compare("log", stride, [](Floats x) { return Log(x); }, [](double x) { return std::log(x); });
  Compare("tanh", stride, [](Floats x) { return Tanh(x); }, [](double x) { return std::tanh(x); });
  Compare("sigmoid", stride, [](Floats x) { return Sigmoid(x); },
          [](double x) { return 1 / (1 + std::exp(-x)); });
  Compare("softplus", stride, [](Floats x) { return Softplus(x); },
          [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))) + (x - x); });
  Compare("erf", stride, [](Floats x) { return Erf(x); }, [](double x) { return std::erf(x); });
  return 0;
}
