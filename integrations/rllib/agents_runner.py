# SPDX-License-Identifier: Apache-2.0
"""RLlib's multi-agent EnvRunner over a native pool, with episodes built in bulk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.env.env_runner import ENV_STEP_FAILURE
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.metrics import (
    NUM_AGENT_STEPS_SAMPLED,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
    NUM_MODULE_STEPS_SAMPLED,
    NUM_MODULE_STEPS_SAMPLED_LIFETIME,
    RLMODULE_INFERENCE_TIMER,
)

from rollouts.errors import SpecError
from rollouts.machine.torch_threads import beside_a_pool

from .actions import check_module
from .agent_actions import AgentActions, AgentCheck, in_eval_mode
from .agent_segments import AgentSegments, AgentsEnded
from .agents_env import AgentDictsEnv, AgentsEnv
from .env import EnvCreator, context_of, creator_of
from .plain import config_reason, connector_reason, refuse_output


class RolloutsMultiAgentEnvRunner(MultiAgentEnvRunner):
    """Samples as MultiAgentEnvRunner does, and builds the episodes of a call in bulk.

    Weights, connectors' states, metrics, checkpoints, fault tolerance and what callbacks see
    are RLlib's own. One native pool steps all environments; each module is called once per step,
    for all the agents that `policy_mapping_fn` gives it in any environment.

    `config.environment(env=...)` is an id of `rollouts.multi_agent_ids()`, with or without
    "rollouts/", or a name given to `register`; env_config goes to `rollouts.make_multi_agent_vec`.
    Agents have the names that `MultiAgentVectorEnv.agents` has. Any other environment is stepped
    by RLlib's own loop.

    In the bulk loop the time limit truncates agents and does not terminate them, so that learners
    go on from the value of the last observation. In RLlib's own loop it does both.

    Attributes:
      slow_reason: Why RLlib's own loop runs in place of the bulk one; "" where it does not.
      num_torch_threads: Threads that torch computes with while sampling; None for 1 unless the
        modules are large: `rollouts.machine.torch_threads`.
    """

    num_torch_threads: int | None = None

    env: Any  # None in a process that samples nothing
    module: Any

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        """As MultiAgentEnvRunner.

        Raises:
          ValueError: The config is not multi-agent.
          SpecError: The config records its output, has environments with one agent or an unknown
            module, asks for another autoreset mode than next-step, or an agent's spaces differ from
            its module's.
        """
        refuse_output(config)
        self.slow_reason = ""
        self._module_reason = ""
        self._creator: EnvCreator | None = None
        self._ended: list[AgentsEnded] = []
        super().__init__(config=config, **kwargs)

    # -- what RLlib calls ----------------------------------------------------------

    def make_env(self) -> None:
        """Makes `self.env`: a native pool in the autoreset mode of the loop that will run."""
        # once, because a registered name is looked up in Ray
        self._creator = creator = creator_of(self.config.env)
        self.slow_reason = self._find_slow_reason()
        if creator is None:
            super().make_env()
            return
        if self.env is not None:
            self.env.close()
        context = context_of(self)
        mode = AutoresetMode.NEXT_STEP if self.slow_reason else AutoresetMode.SAME_STEP
        pool = creator.make_agents(self.config.num_envs_per_env_runner, context, mode)
        self.env = AgentDictsEnv(pool) if self.slow_reason else AgentsEnv(pool)
        self.num_envs = pool.num_envs
        self._needs_initial_reset = True
        self._check_agents = AgentCheck(pool.groups)
        self._check_config_spaces()
        make_callback(
            "on_environment_created",
            callbacks_objects=self._callbacks,
            callbacks_functions=self.config.callbacks_on_environment_created,
            kwargs={
                "env_runner": self,
                "metrics_logger": self.metrics,
                "env": self.env,
                "env_context": context,
            },
        )

    def make_module(self) -> None:
        """Makes `self.module`, and tries each module on observations of its agents."""
        super().make_module()
        self._module_reason = ""
        if self.env is None or self.module is None or self._creator is None:
            return
        # custom connectors may change what the modules see
        if connector_reason(self) or self.config._env_to_module_connector is not None:
            return
        self._new_bulk_episode()
        self._module_reason = self._find_module_reason()

    def get_metrics(self) -> Any:
        """As MultiAgentEnvRunner, for the episodes that ended since the last call."""
        for each in self._ended:
            self._log_episode_metrics(
                each.length,
                sum(each.returns.values()),
                each.duration_s,
                each.returns,
                each.module_returns,
                each.steps,
            )
        self._ended.clear()
        return super().get_metrics()

    def _sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[MultiAgentEpisode]:
        """Samples in bulk, or by RLlib's own loop where something has to see every step."""
        reason = self._find_slow_reason()
        if bool(reason) != bool(self.slow_reason):
            # the two loops need the pool in different autoreset modes
            self.slow_reason = reason
            self.make_env()
        self.slow_reason = reason
        if reason:
            with self._beside_the_pool():
                return super()._sample(  # type: ignore[no-any-return]
                    num_timesteps=num_timesteps,
                    num_episodes=num_episodes,
                    explore=explore,
                    random_actions=random_actions,
                    force_reset=force_reset,
                )
        with in_eval_mode(self.module), self._beside_the_pool():
            if force_reset or num_episodes is not None or self._needs_initial_reset:
                self._reset_in_bulk()
            self._needs_initial_reset = num_episodes is not None
            self._agents.forget()
            done, going, steps = self._sample_in_bulk(
                num_timesteps, num_episodes, explore, random_actions
            )
        self._log_env_steps(metric=self._metrics_num_env_steps_sampled, num_steps=steps)
        self._log_steps(steps, len(done))
        return done + going

    # -- the bulk loop -------------------------------------------------------------

    def _sample_in_bulk(
        self,
        num_timesteps: int | None,
        num_episodes: int | None,
        explore: bool,
        random_actions: bool,
    ) -> tuple[list[MultiAgentEpisode], list[MultiAgentEpisode], int]:
        """Returns chunks whose episode ended, chunks that go on, and the env-steps taken."""
        per_step = self.num_envs
        by_agents = self.config.count_steps_by == "agent_steps"
        self._steps.resume(-(-(num_timesteps or 0) // per_step))
        done: list[MultiAgentEpisode] = []
        steps = counted = 0
        while True:
            missing = (num_episodes or 0) - len(done) - self._steps.num_ended
            if missing <= 0 if num_timesteps is None else counted >= num_timesteps:
                break
            acted = self._agents.num_acting
            if self._step(steps, explore, random_actions):
                steps += per_step
                counted += acted if by_agents else per_step
                continue
            # the environments were made anew: whole episodes count, as in RLlib's loop
            done += self._take()[0]
            self._reset_in_bulk()
            steps = counted = 0
        # the last step may have ended more episodes than were asked for
        surplus = 0 if num_episodes is None else -missing
        ended, going = self._take(surplus)
        return done + ended, going if num_episodes is None else [], steps

    def _take(self, surplus: int = 0) -> tuple[list[MultiAgentEpisode], list[MultiAgentEpisode]]:
        """Cuts what was sampled; the last `surplus` episodes that ended are left out."""
        taken = self._steps.take(self._agents.said)
        count = len(taken.done) - surplus
        self._ended += taken.ended[:count]
        return taken.done[:count], taken.going

    def _step(self, steps: int, explore: bool, random_actions: bool) -> bool:
        """Acts and steps all environments once; False where the environments were made anew."""
        env, agents = self.env, self._agents
        if random_actions:
            acted = agents.random(env.by_group(env.pool.action_space.sample()))
        else:
            # the steps of all runners together, roughly, as RLlib counts them
            runners = self.config.num_env_runners or 1
            lifetime = (self.num_env_steps_sampled_lifetime // runners + steps) * runners
            with self.metrics.log_time(RLMODULE_INFERENCE_TIMER):
                acted = agents.act(
                    self.module, self._steps.obs, self._device, explore=explore, t=lifetime
                )
        outcome = self._try_env_step(acted.for_env)
        if isinstance(outcome, str) and outcome == ENV_STEP_FAILURE:
            return False
        agents.count()
        *grouped, info = outcome
        names = ("obs", "reward", "terminated", "truncated", "final_obs")
        by_group = (env.by_group(each) for each in (*grouped, info["final_obs"]))
        said = dict(zip(names, by_group, strict=True))
        said |= {"ended": info["ended"], "_env_error": info.get("_env_error")}
        if self._steps.add(acted, self._weights_seq_no, said):
            agents.assign(self._steps.episodes, self._steps.acting)
        return True

    def _reset_in_bulk(self) -> None:
        seed = self._seed if self._needs_initial_reset else None
        obs, _ = self._try_env_reset(seed=seed, options=None)
        groups = self.env.pool.groups
        self._agents = AgentActions(
            groups,
            self.num_envs,
            normalize=self.config.normalize_actions,
            clip=self.config.clip_actions,
        )
        self._steps = AgentSegments(
            groups,
            self.num_envs,
            self._new_bulk_episode,
            lookback=self.config.episode_lookback_horizon,
        )
        self._steps.begin(self.env.by_group(obs))
        self._agents.assign(self._steps.episodes, self._steps.acting)
        self._ongoing_episodes_for_metrics.clear()
        self._needs_initial_reset = False

    def _new_bulk_episode(self) -> MultiAgentEpisode:
        """Makes an episode without data that maps its agents to modules."""
        env = self.env
        episode = MultiAgentEpisode(
            observation_space=env.single_observation_spaces,
            action_space=env.single_action_spaces,
            agent_to_module_mapping_fn=self.config.policy_mapping_fn,
        )
        module_of = {agent: episode.module_for(agent) for agent in env.pool.agents}
        if self.module is not None:
            self._check_agents(self.module, module_of)
        return episode

    # -- helpers -------------------------------------------------------------------

    def _find_slow_reason(self) -> str:
        if self._creator is None:
            return f"{self.config.env!r} is not an environment of rollouts"
        return config_reason(self) or connector_reason(self) or self._module_reason

    def _find_module_reason(self) -> str:
        cls = type(self.module)
        for name in ("forward_exploration", "forward_inference"):
            for each in (name, f"_{name}"):
                if getattr(cls, each) is not getattr(MultiRLModule, each):
                    return f"{cls.__name__} is a MultiRLModule with its own {each}"
        for module_id, module in self.module.items():
            reason = check_module(module, module.observation_space, module.action_space)
            if reason:
                return f"{reason} (module {module_id!r})"
        return ""

    @contextlib.contextmanager
    def _beside_the_pool(self) -> Iterator[None]:
        modules = [
            module
            for module in (self.module.values() if self.module is not None else ())
            if isinstance(module, torch.nn.Module)
        ]
        policy = torch.nn.ModuleList(modules)
        with beside_a_pool(policy, self.num_envs, self.num_torch_threads):
            yield

    def _log_steps(self, steps: int, num_done: int) -> None:
        """Logs what MultiAgentEnvRunner logs step by step."""
        log = self.metrics.log_value
        log(NUM_ENV_STEPS_SAMPLED, steps, reduce="sum")
        log(NUM_ENV_STEPS_SAMPLED_LIFETIME, steps, reduce="lifetime_sum", with_throughput=True)
        if num_done:
            log(NUM_EPISODES, num_done, reduce="sum")
            log(NUM_EPISODES_LIFETIME, num_done, reduce="lifetime_sum")
        for counts, name, lifetime in (
            (self._agents.agent_steps, NUM_AGENT_STEPS_SAMPLED, NUM_AGENT_STEPS_SAMPLED_LIFETIME),
            (
                self._agents.module_steps,
                NUM_MODULE_STEPS_SAMPLED,
                NUM_MODULE_STEPS_SAMPLED_LIFETIME,
            ),
        ):
            for key, count in counts.items():
                log((name, key), count, reduce="sum")
                log((lifetime, key), count, reduce="lifetime_sum")

    def _check_config_spaces(self) -> None:
        """Refuses spaces of the config that are not the environment's."""
        for what, asked, made in (
            ("observation", self.config.observation_space, self.env.single_observation_space),
            ("action", self.config.action_space, self.env.single_action_space),
        ):
            if isinstance(asked, spaces.Space) and asked != made:
                raise SpecError(
                    f"config.environment() has the {what} space {asked}, {self.config.env} has "
                    f"{made}: leave {what}_space out"
                )
