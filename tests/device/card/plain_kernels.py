# SPDX-License-Identifier: Apache-2.0
"""Plain CUDA kernels of the same work as ours: what a card allows. Needs CuPy.

Prints a line of JSON for each size of CartPole, launched and as a graph.
"""

from __future__ import annotations

import json
from typing import Any

import cupy as cp

_CARTPOLE = r"""
extern "C" __global__ void step(const int* __restrict__ actions, float4* states, int* elapsed,
                                float4* obs, float* reward, unsigned char* terminated,
                                unsigned char* truncated, unsigned* episode, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 s = states[i];
  int t = elapsed[i] + 1;
  const float force = actions[i] ? 10.f : -10.f;
  float sine, cosine;
  sincosf(s.z, &sine, &cosine);
  const float temp = (force + 0.05f * s.w * s.w * sine) / 1.1f;
  const float turn =
      (9.8f * sine - cosine * temp) / (0.5f * (4.f / 3.f - 0.1f * cosine * cosine / 1.1f));
  const float push = temp - 0.05f * turn * cosine / 1.1f;
  s.x += 0.02f * s.y;
  s.y += 0.02f * push;
  s.z += 0.02f * s.w;
  s.w += 0.02f * turn;
  const bool fell = fabsf(s.x) > 2.4f || fabsf(s.z) > 0.2095f, late = t >= 500;
  terminated[i] = fell;
  truncated[i] = late;
  reward[i] = 1.f;
  if (fell || late) {
    unsigned bits = (i * 2654435761u) ^ (++episode[i] * 40503u);
    float drawn[4];
    for (int k = 0; k < 4; k++) {
      bits ^= bits << 13; bits ^= bits >> 17; bits ^= bits << 5;
      drawn[k] = (bits * 2.3283064e-10f - 0.5f) * 0.1f;
    }
    s = make_float4(drawn[0], drawn[1], drawn[2], drawn[3]);
    t = 0;
  }
  states[i] = s;
  elapsed[i] = t;
  obs[i] = s;
}
"""
_SIZES = (1000, 10_000, 100_000, 1 << 20)
_GRAPH_STEPS, _REPLAYS, _LAUNCHES = 50, 10, 200


def _ms(call: Any, count: int) -> float:
    """Milliseconds of a call by the card's clock, on the current stream."""
    begun, ended = cp.cuda.Event(), cp.cuda.Event()
    begun.record()
    for _ in range(count):
        call()
    ended.record()
    ended.synchronize()
    return float(cp.cuda.get_elapsed_time(begun, ended)) / count


def measure(n: int) -> dict[str, float]:
    """Env-steps per second of `n` CartPoles."""
    kernel = cp.RawModule(code=_CARTPOLE, options=("-std=c++17",)).get_function("step")
    actions = cp.random.randint(0, 2, n).astype(cp.int32)
    states = (cp.random.rand(n, 4) * 0.1 - 0.05).astype(cp.float32)
    zeros = [cp.zeros(n, dtype) for dtype in (cp.int32, cp.float32, cp.uint8, cp.uint8, cp.uint32)]
    elapsed, reward, terminated, truncated, episode = zeros
    obs = cp.zeros((n, 4), cp.float32)
    arrays = (actions, states, elapsed, obs, reward, terminated, truncated, episode)

    def launch() -> None:
        kernel(((n + 255) // 256,), (256,), (*arrays, cp.int32(n)))

    for _ in range(20):
        launch()
    cp.cuda.Device().synchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for _ in range(_GRAPH_STEPS):
            launch()
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        graph_ms = _ms(lambda: graph.launch(stream), _REPLAYS) / _GRAPH_STEPS
    launch_ms = _ms(launch, _LAUNCHES)
    return {"graph": n / graph_ms * 1e3, "launched": n / launch_ms * 1e3}


if __name__ == "__main__":
    for size in _SIZES:
        print(json.dumps({"kernel": f"CartPole x {size}", **measure(size)}), flush=True)
