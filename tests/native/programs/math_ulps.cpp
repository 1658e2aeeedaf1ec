// SPDX-License-Identifier: Apache-2.0
// Prints the largest differences of core/math.h from libm, one line a function:
// name, range, largest absolute difference.
#include <cmath>
#include <cstdio>
#include <random>

#include "rollouts/core/math.h"

int main() {
  std::mt19937_64 generator(1);
  for (const double range : {0.8, 3.2, 100.0, 1e4, 1e6}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    double sine = 0, cosine = 0, wrap = 0;
    for (int i = 0; i < 1000000; ++i) {
      const double x = uniform(generator);
      sine = std::fmax(sine, std::fabs(rollouts::Sin(x) - std::sin(x)));
      cosine = std::fmax(cosine, std::fabs(rollouts::Cos(x) - std::cos(x)));
      // as angles: -pi and pi are the same
      const double difference = rollouts::WrapAngle(x) - std::remainder(x, 2 * rollouts::kPi);
      wrap = std::fmax(wrap, std::fabs(std::remainder(difference, 2 * rollouts::kPi)));
    }
    std::printf("sin %g %.17g\ncos %g %.17g\nwrap %g %.17g\n", range, sine, range, cosine, range,
                wrap);
  }
}
