// SPDX-License-Identifier: Apache-2.0
// Movements of an Atari joystick or paddle in a frame, and ale-py's conversion of a continuous
// action into them (ale_py/vector_env.py, AtariVectorEnv.send, 0.12.1).
#pragma once

#include <cstdint>

namespace rollouts {

inline constexpr std::int32_t kNumAleActions = 18;

struct AtariPress {
  std::int32_t action = 0;  // an AleAction; 0: nothing is pressed
  float strength = 1;       // turn of a paddle; 1: as far as a button turns it in a frame
};

// Above 33 a paddle turns from one end to the other within a frame; from 9e4 on, ALE's position
// would not fit its int.
inline constexpr float kMaxStrength = 1000;

// A continuous action: (radius, theta, fire), the joystick in polar coordinates and its button.
inline constexpr std::int32_t kJoystickAxes = 3;

// The press for `axes`, kJoystickAxes numbers: the directions in which x = radius cos(theta) and y
// = radius sin(theta) exceed `threshold`, and FIRE where `fire` exceeds it. A paddle turns by
// |radius|. All numbers are allowed: a radius above 1 turns a paddle further than a button can, a
// negative one points the other way, and NaN exceeds nothing.
AtariPress PressOf(const float* axes, float threshold);

}  // namespace rollouts
