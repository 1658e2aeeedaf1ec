// SPDX-License-Identifier: Apache-2.0
// The arguments of a policy's kernels.
#pragma once

#include "rollouts/data/gae.h"
#include "rollouts/data/nstep.h"
#include "rollouts/device/launch.h"
#include "rollouts/policy/heads.h"

namespace rollouts::policy {

// The rows of the scratch memory that one of the network's outputs takes.
struct OutputPlace {
  std::int32_t row;
  std::int32_t size;
};

enum class DenseActivation : std::int32_t { kNone, kTanh, kRelu };

// A linear layer, as dense_forward.h computes it: features count in blocks of 32, the last of which
// is padded with zeros.
struct DenseLayer {
  std::int32_t reads_obs;   // whether the observation is put at `input` first
  std::int32_t input;       // the place of hidden features that it reads; it may write there too
  std::int32_t in_blocks;   // 0: the same numbers for every row, which are its biases
  std::int32_t out_blocks;
  std::int32_t output;      // a place of hidden features, or -1: rows of the network's outputs
  std::int32_t output_row;  // the first of these
  std::int32_t size;        // how many
  DenseActivation activation;
};

// A network of such layers; none: a kernel reads the program.
struct DenseNetwork {
  const DenseLayer* layers;
  const std::uint32_t* weights;  // bfloat16: layer by layer, block by block of outputs
  const float* biases;           // (32,) for each block of outputs, in the same order
  std::int32_t num_layers;
  std::int32_t hidden_blocks;    // blocks of each hidden place
  std::int32_t num_outputs;
  std::int32_t warp_bytes;       // a warp's memory: outputs, then hidden places
};

// A policy as a kernel reads it. All stays from launch to launch but the numbers pointed to.
struct KernelPolicy {
  const Instruction* instructions;
  const float* params;     // as Network::Pack gives them
  const std::int32_t* nvec;
  const OutputPlace* states;  // what the states become
  const float* initial;    // (state_size,)
  const float* bounds;     // for a squashed action, see HeadInputs; or null
  Head head;
  std::int32_t num_instructions;
  std::int32_t num_rows;      // those of the network's scratch memory
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

// Rows of the last step as environments wrote them; null `terminated`: there was none.
struct SeenRows {
  const std::uint8_t* terminated;
  std::uint8_t* truncated;     // agents who left before are added where the episode ended
  const std::uint8_t* active;  // null: environments with one agent
  const std::uint8_t* ended;   // (N,), where there are agents
  const void* final_obs;
  float* bootstrap_value;
};

// Rows for the choice of the next actions; null `log_prob`: none is made.
struct ChosenRows {
  void* action;       // int64 (rows,), int32 (rows, elements) or float (rows, d), as sampled
  float* env_action;  // (rows, d), clipped to the bounds; null: those of discrete actions
  const float* low;   // (d,), as is the next
  const float* high;
  float* log_prob;
  float* value;
  float* entropy;       // null unless wanted, as are the next
  float* inputs;        // (rows, sizes of what the head reads)
  float* policy_state;  // (rows, state_size): what the observations met
};

// Returns of a whole rollout, once its last observation is valued; null `advantage`: not wanted.
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
  // (rows,): whose episode ended in the last step of a rollout, for the next one, whose weights may
  // begin otherwise. Written by a rollout's last launch, read by the first; else null.
  std::uint8_t* begins;
  // (threads / 16, num_rows + size of an action + elements, 16); null: each block has its own in the
  // memory that its threads share.
  float* scratch;
  std::int64_t scratch_rows;
  SeenRows seen;
  ChosenRows chosen;
  float* last_value;  // (rows,): of the observation, where no choice is made
  ReturnsRows returns;
  std::uint64_t* fault;
};

}  // namespace rollouts::policy
