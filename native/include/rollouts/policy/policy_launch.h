// SPDX-License-Identifier: Apache-2.0
// The arguments of a policy's kernels.
#pragma once

#include "rollouts/data/gae.h"
#include "rollouts/data/nstep.h"
#include "rollouts/device/launch.h"
#include "rollouts/policy/heads.h"

namespace rollouts::policy {

// The rows of scratch memory that an output of the network takes.
struct OutputPlace {
  std::int32_t row;
  std::int32_t size;
};

enum class DenseActivation : std::int32_t { kNone, kTanh, kRelu };

// A linear layer, as dense_forward.h computes it: its features are counted in blocks of 32, and the
// last block is padded with zeros.
struct DenseLayer {
  std::int32_t reads_obs;   // whether the observation is put at `input` first
  std::int32_t input;       // the place of hidden features that it reads; it may also write there
  std::int32_t in_blocks;   // 0: its outputs are its biases, the same for every row
  std::int32_t out_blocks;
  std::int32_t output;      // the place of hidden features for the result; -1: network outputs
  std::int32_t output_row;  // first row in the network's outputs
  std::int32_t size;        // number of outputs
  DenseActivation activation;
};

// A network of such layers; without layers, the kernel runs the instructions of KernelPolicy.
struct DenseNetwork {
  const DenseLayer* layers;
  const std::uint32_t* weights;  // bfloat16: layer by layer, block by block of outputs
  const float* biases;           // (32,) for each block of outputs, in the same order
  std::int32_t num_layers;
  std::int32_t hidden_blocks;    // blocks of each place of hidden features
  std::int32_t num_outputs;
  std::int32_t warp_bytes;       // a warp's memory: outputs, then hidden places
};

// A policy as a kernel reads it. Only the arrays that it points to change between launches.
struct KernelPolicy {
  const Instruction* instructions;
  const float* params;     // as Network::Pack returns them
  const std::int32_t* nvec;
  const OutputPlace* states;  // outputs that become the new states
  const float* initial;    // (state_size,)
  const float* bounds;     // for a squashed action, see HeadInputs; or null
  Head head;
  std::int32_t num_instructions;
  std::int32_t num_rows;      // rows of the network's scratch memory
  std::int32_t num_elements;  // in a MultiDiscrete action
  std::int32_t num_states;
  std::int32_t obs_size;
  std::int32_t state_size;
  OutputPlace first, second, value;  // size 0 where there is none
  DenseNetwork dense;
};

// The agents that act: `num_agents` of the environment's `all_agents`, from `first_agent` on.
struct KernelAgents {
  std::int32_t num_agents;
  std::int32_t first_agent;
  std::int32_t all_agents;
};

// Rows of the last step as environments wrote them; null `terminated`: there was no last step.
struct SeenRows {
  const std::uint8_t* terminated;
  std::uint8_t* truncated;     // also set here for agents that left before their episode ended
  const std::uint8_t* active;  // null: environments with one agent
  const std::uint8_t* ended;   // (N,), where there are agents
  const void* final_obs;
  float* bootstrap_value;
};

// Rows for the next actions; null `log_prob`: no actions are chosen.
struct ChosenRows {
  void* action;       // int64 (rows,), int32 (rows, elements) or float (rows, d), as sampled
  float* env_action;  // (rows, d), clipped to the bounds; null for discrete actions
  const float* low;   // (d,), as is `high`
  const float* high;
  float* log_prob;
  float* value;
  float* entropy;       // null unless wanted, as are the next two
  float* inputs;        // (rows, size of the outputs that the head reads)
  float* policy_state;  // (rows, state_size): states before the observations
};

// Returns of a whole rollout, estimated after its last step; null `advantage`: not wanted.
struct ReturnsRows {
  Fragment<float> fragment;  // all rows
  Returns out;
  double gamma;
  double gae_lambda;
  std::int64_t n;  // > 0: n-step returns
};

struct PolicyLaunch {
  std::int64_t num_rows;
  KernelPolicy policy;
  KernelAgents agents;
  ClockColumns clock;
  const void* obs;    // (rows, obs_size)
  float* state;       // (state_size, rows)
  // (rows,): whether the row's episode ended in the last step of a rollout, written by the last
  // launch of it. The first launch of the next rollout reads it and begins the states anew, because
  // that rollout's weights may have another initial state. Null in other launches.
  std::uint8_t* begins;
  // (threads / 16, num_rows + size of an action + elements, 16); null: each block's scratch memory
  // is in its shared memory.
  float* scratch;
  std::int64_t scratch_rows;
  SeenRows seen;
  ChosenRows chosen;
  float* last_value;  // (rows,): value of the observation, where no actions are chosen
  ReturnsRows returns;
  std::uint64_t* fault;
};

}  // namespace rollouts::policy
