// SPDX-License-Identifier: Apache-2.0
#include "race_track.h"

#include <algorithm>
#include <cmath>

#include "rollouts/core/math.h"

namespace rollouts::race {
namespace {

// names and values of car_racing.py
constexpr double kTrackRad = 900 / kScale;
constexpr double kDetailStep = 21 / kScale;
constexpr double kTurnRate = 0.31;
constexpr double kTrackWidth = 40 / kScale;
constexpr double kBorder = 8 / kScale;
constexpr std::int32_t kBorderMinCount = 4;
constexpr std::int32_t kCheckpoints = 12;
constexpr std::int32_t kMostSteps = 2500;
constexpr double kStartAlpha = 2 * kPi * -0.5 / kCheckpoints;

struct Checkpoint {
  double alpha;
  double x;
  double y;
};

struct Step {
  double alpha;  // direction from the middle to the place
  double beta;   // direction of the road
  double x;
  double y;
};

std::int32_t Sign(double value) { return (value > 0) - (value < 0); }

std::array<Checkpoint, kCheckpoints> DrawCheckpoints(TapeDraws& draws) {
  std::array<Checkpoint, kCheckpoints> checkpoints;
  for (std::int32_t c = 0; c < kCheckpoints; ++c) {
    const double noise = draws.Uniform(0, 2 * kPi * 1 / kCheckpoints);
    double alpha = 2 * kPi * c / kCheckpoints + noise;
    double rad = draws.Uniform(kTrackRad / 3, kTrackRad);
    if (c == 0 || c == kCheckpoints - 1) {
      alpha = 2 * kPi * c / kCheckpoints;
      rad = 1.5 * kTrackRad;
    }
    checkpoints[c] = {alpha, rad * std::cos(alpha), rad * std::sin(alpha)};
  }
  return checkpoints;
}

// Drives from one checkpoint to the next, for five laps or the largest number of steps.
std::vector<Step> Drive(const std::array<Checkpoint, kCheckpoints>& checkpoints) {
  std::vector<Step> steps;
  double x = 1.5 * kTrackRad;
  double y = 0;
  double beta = 0;
  std::int32_t dest = 0;
  std::int32_t laps = 0;
  bool visited_other_side = false;
  for (std::int32_t i = 0; i < kMostSteps; ++i) {
    double alpha = std::atan2(y, x);
    if (visited_other_side && alpha > 0) {
      ++laps;
      visited_other_side = false;
    }
    if (alpha < 0) {
      visited_other_side = true;
      alpha += 2 * kPi;
    }
    // after the last checkpoint comes the first one of the next lap
    while (alpha > checkpoints[dest % kCheckpoints].alpha) {
      ++dest;
      if (dest % kCheckpoints == 0) alpha -= 2 * kPi;
    }
    const Checkpoint& to = checkpoints[dest % kCheckpoints];

    const double r1x = std::cos(beta);
    const double r1y = std::sin(beta);
    double proj = r1x * (to.x - x) + r1y * (to.y - y);
    while (beta - alpha > 1.5 * kPi) beta -= 2 * kPi;
    while (beta - alpha < -1.5 * kPi) beta += 2 * kPi;
    const double prev_beta = beta;
    proj *= kScale;
    if (proj > 0.3) beta -= std::min(kTurnRate, std::abs(0.001 * proj));
    if (proj < -0.3) beta += std::min(kTurnRate, std::abs(0.001 * proj));
    x += -r1y * kDetailStep;
    y += r1x * kDetailStep;
    steps.push_back({alpha, prev_beta * 0.5 + beta * 0.5, x, y});
    if (laps > 4) break;
  }
  return steps;
}

// The last whole lap; empty where the road never closed.
std::vector<Step> LastLap(const std::vector<Step>& steps) {
  std::int32_t last = -1;
  for (auto i = static_cast<std::int32_t>(steps.size()) - 1; i > 0; --i) {
    if (!(steps[i].alpha > kStartAlpha && steps[i - 1].alpha <= kStartAlpha)) continue;
    if (last >= 0) return {steps.begin() + i, steps.begin() + std::max(i, last - 1)};
    last = i;
  }
  return {};
}

bool EndsMeet(const std::vector<Step>& lap) {
  const Step& first = lap.front();
  const Step& last = lap.back();
  const double across_x = std::cos(first.beta) * (first.x - last.x);
  const double across_y = std::sin(first.beta) * (first.y - last.y);
  return std::sqrt(across_x * across_x + across_y * across_y) <= kDetailStep;
}

// Tells if each tile has a kerb: the tiles of hard turns have one, and so have some tiles before
// them.
std::vector<std::uint8_t> Kerbs(const std::vector<Step>& lap) {
  const auto n = static_cast<std::int32_t>(lap.size());
  std::vector<std::uint8_t> kerbs(n);
  for (std::int32_t i = 0; i < n; ++i) {
    bool good = true;
    std::int32_t one_side = 0;
    for (std::int32_t neg = 0; neg < kBorderMinCount; ++neg) {
      const double turn = lap[(i - neg + n) % n].beta - lap[(i - neg - 1 + n) % n].beta;
      good &= std::abs(turn) > kTurnRate * 0.2;
      one_side += Sign(turn);
    }
    kerbs[i] = good && std::abs(one_side) == kBorderMinCount;
  }
  for (std::int32_t i = 0; i < n; ++i) {
    for (std::int32_t neg = 0; neg < kBorderMinCount; ++neg) kerbs[(i - neg + n) % n] |= kerbs[i];
  }
  return kerbs;
}

Point Beside(const Step& step, double away) {
  return {step.x + away * std::cos(step.beta), step.y + away * std::sin(step.beta)};
}

// A strip across the road, from one side to the other.
Quad Strip(const Step& step, const Step& before, double near, double far) {
  return {Beside(step, near), Beside(step, far), Beside(before, far), Beside(before, near)};
}

}  // namespace

Road LayRoad(TapeDraws& draws) {
  std::vector<Step> lap;
  do {
    lap = LastLap(Drive(DrawCheckpoints(draws)));
  } while (lap.size() <= kBorderMinCount || !EndsMeet(lap));

  Road road{.start_beta = lap[0].beta, .start = {lap[0].x, lap[0].y}};
  const std::vector<std::uint8_t> kerbs = Kerbs(lap);
  const auto n = static_cast<std::int32_t>(lap.size());
  for (std::int32_t i = 0; i < n; ++i) {
    const Step& step = lap[i];
    const Step& before = lap[(i - 1 + n) % n];
    road.tiles.push_back(Strip(step, before, -kTrackWidth, kTrackWidth));
    road.pieces.push_back({road.tiles.back(), i, /*kerb=*/false});
    if (!kerbs[i]) continue;
    const double side = Sign(before.beta - step.beta);
    road.pieces.push_back(
        {Strip(step, before, side * kTrackWidth, side * (kTrackWidth + kBorder)), i, true});
  }
  return road;
}

}  // namespace rollouts::race
