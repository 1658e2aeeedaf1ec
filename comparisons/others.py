# SPDX-License-Identifier: Apache-2.0
"""Other libraries, engines and loops that are measured next to ours."""

from __future__ import annotations

from comparisons.elsewhere.child import FOLDER
from rollouts.bench.peer import NETWORKS, Peer, later

OTHERS = (
    Peer(
        name="envpool",
        step=later("comparisons.stepping.vector_libraries", "EnvPool"),
        module="envpool",
        install="pip install 'envpool>=1.2'",
    ),
    Peer(
        name="gymnasium",
        step=later("comparisons.stepping.vector_libraries", "Gymnasium"),
    ),
    Peer(
        name="ale",
        step=later("comparisons.stepping.vector_libraries", "Ale"),
        module="ale_py",
        install="pip install 'rollouts[atari]'",
    ),
    Peer(
        name="rollouts-hosted",
        step=later("comparisons.stepping.hosted", "Hosted"),
    ),
    Peer(
        name="emulation-native",
        step=later("comparisons.stepping.atari_emulators", "own_emulation"),
    ),
    Peer(
        name="emulation-ale",
        step=later("comparisons.stepping.atari_emulators", "ale_emulation"),
        module="ale_py",
        install="pip install 'rollouts[atari]'",
    ),
    Peer(
        name="mujoco",
        step=later("comparisons.stepping.mujoco", "MujocoRollout"),
        module="mujoco.rollout",
        install="pip install 'rollouts[mujoco]'",
    ),
    Peer(
        name="mujoco-batch",
        step=later("comparisons.stepping.mujoco_batch", "MujocoBatch"),
        module="mujoco.batch",
        install="pip install 'mujoco>=4'",
    ),
    Peer(
        name="vizdoom",
        step=later("comparisons.stepping.vizdoom", "VizdoomEngine"),
        module="vizdoom",
        install="pip install 'rollouts[vizdoom]'",
    ),
    # several agents
    Peer(
        name="warpdrive",
        step=later("comparisons.stepping.multi_agent", "WarpDrive"),
        agents="several",
        module="example_envs",
        install="pip install --no-deps rl-warp-drive",
    ),
    Peer(
        name="supersuit",
        step=later("comparisons.stepping.multi_agent", "SuperSuit"),
        agents="several",
        module="supersuit",
        install="pip install supersuit mpe2",
    ),
    Peer(
        name="pettingzoo",
        step=later("comparisons.stepping.multi_agent", "HostedMpe2"),
        agents="several",
        module="mpe2",
        install="pip install 'rollouts[pettingzoo]' mpe2",
    ),
    Peer(
        name="all-pairs",
        step=later("comparisons.stepping.multi_agent", "TagLoop"),
        agents="several",
    ),
    # peers in interpreters of their own
    Peer(
        name="pufferlib",
        step=later("comparisons.elsewhere.peers", "PufferLib"),
        module=f"{FOLDER}/pufferlib/bin/python",
        install="make peers",
    ),
    Peer(
        name="sample-factory",
        collect=later("comparisons.elsewhere.peers", "SampleFactory"),
        policies=frozenset({"layers"}),
        module=f"{FOLDER}/sample-factory/bin/python",
        install="make peers",
    ),
    # peers with a policy or a buffer
    Peer(
        name="envpool-torch",
        collect=later("comparisons.collecting.envpool_torch", "EnvPoolTorch"),
        policies=NETWORKS,
        module="envpool",
        install="pip install 'envpool>=1.2'",
    ),
    Peer(
        name="sb3",
        collect=later("comparisons.collecting.sb3_collect", "Sb3Collects"),
        add_step=later("comparisons.replaying.sb3_steps", "Sb3"),
        hindsight=later("comparisons.replaying.sb3_goals", "Sb3Goals"),
        policies=NETWORKS,
        module="stable_baselines3",
        install="pip install 'rollouts[sb3]'",
        distribution="stable-baselines3",
    ),
    Peer(
        name="torchrl-async",
        collect=later("comparisons.collecting.torchrl_async", "TorchrlAsync"),
        policies=NETWORKS,
        module="torchrl",
        install="pip install 'rollouts[torchrl]'",
    ),
    Peer(
        name="torchrl",
        replay=later("comparisons.replaying.replay_buffers", "TorchRL"),
        module="torchrl",
        install="pip install 'rollouts[torchrl]'",
        distribution="torchrl",
    ),
    Peer(
        name="tianshou",
        collect=later("comparisons.collecting.on_ray", "TianshouEnvs"),
        replay=later("comparisons.replaying.replay_buffers", "Tianshou"),
        needs_ray=True,
        module="tianshou",
        install="pip install 'rollouts[tianshou]'",
        distribution="tianshou",
    ),
    Peer(
        name="reverb",
        replay=later("comparisons.replaying.replay_buffers", "Reverb"),
        module="reverb",
        install="pip install dm-reverb",
        distribution="dm-reverb",
    ),
    # peers on Ray
    Peer(
        name="env-actors",
        collect=later("comparisons.collecting.on_ray", "EnvActors"),
        needs_ray=True,
        module="ray",
        install="pip install 'rollouts[ray]'",
    ),
    Peer(
        name="rllib",
        collect=later("comparisons.collecting.on_ray", "RLlibRunner"),
        module="ray.rllib",
        install="pip install 'rollouts[rllib]'",
    ),
    Peer(
        name="rllib-actors",
        collect=later("comparisons.collecting.on_ray", "RLlibActors"),
        needs_ray=True,
        module="ray.rllib",
        install="pip install 'rollouts[rllib]'",
    ),
)
