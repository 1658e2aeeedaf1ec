# SPDX-License-Identifier: Apache-2.0
"""RLlib's single-agent EnvRunner over a native pool, with episodes built in bulk."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any

import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import DictInfoToList
from numpy.typing import NDArray
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.env.env_runner import ENV_STEP_FAILURE
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import RLMODULE_INFERENCE_TIMER

from rollouts.collecting.policy_engine import Engine
from rollouts.errors import SpecError
from rollouts.machine.torch_threads import beside_a_pool

from .actions import ActionScaling, Forward, check_module, choose, forwards, to_numpy, to_tensor
from .env import BatchSteps, EnvCreator, context_of, creator_of, require_next_step
from .inference_threads import InferenceThreads, can_split
from .module_engine import ModuleEngine
from .native import NativeActor
from .plain import changes_obs, config_reason, connector_reason, refuse_output
from .segment import Block, EndedEpisode, Segment

Array = NDArray[Any]

logger = logging.getLogger("ray.rllib")

# steps of one native call where `sample` is asked for episodes instead of steps
_EPISODES_STEPS = 64


class RolloutsEnvRunner(SingleAgentEnvRunner):
    """Samples as SingleAgentEnvRunner does, and builds the episodes of a call in bulk.

    Weights, connectors' states, metrics, checkpoints, fault tolerance and the arguments of
    callbacks are as in RLlib. One native pool steps all environments. Its threads compute the
    module, too, where native code can read it; torch runs it once per step otherwise. A stateful
    module, such as those with use_lstm, is sampled in bulk only where these threads compute it.

    `config.environment(env=...)` is an id of `rollouts.env_ids()`, with or without "rollouts/",
    or a name given to `register`; env_config goes to `rollouts.make_vec`. Any other
    environment is stepped by RLlib's own loop.

    Attributes:
      slow_reason: Why RLlib's own loop runs in place of the bulk one; "" where it does not.
      rollout_engine: Engine that computes the module in bulk. "native": the pool's own threads,
        between steps, without Python; "torch": the module itself, step by step; "auto": native
        where that is possible. Set it in a subclass.
      num_torch_threads: Number of torch's threads while sampling, where InferenceThreads are not
        used; None: 1 unless the module is large, see `rollouts.machine.torch_threads`.
    """

    records = False  # whether it records its samples, as `config.offline_data(output=)` asks
    rollout_engine: Engine = "auto"
    num_torch_threads: int | None = None

    env: Any  # None in a process that samples nothing
    module: Any

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        """As SingleAgentEnvRunner.

        Raises:
          SpecError: The config is multi-agent, asks for another autoreset mode than next-step or
            for recorded samples, which only RolloutsOfflineEnvRunner writes, or the spaces of
            module and environment differ.
        """
        if config.is_multi_agent:
            raise SpecError(
                "RolloutsEnvRunner samples single agents only, got a multi-agent config: use "
                "RolloutsMultiAgentEnvRunner, or leave env_runner_cls out for RLlib's own"
            )
        if not self.records:
            refuse_output(config)
        self.slow_reason = ""
        self._module_reason = ""
        self._engine = ModuleEngine(self.rollout_engine, kwargs.get("worker_index") or 0)
        self._creator: EnvCreator | None = None
        self._ended: list[EndedEpisode] = []
        self._threads: InferenceThreads | None = None
        super().__init__(config=config, **kwargs)

    @property
    def native_reason(self) -> str:
        """The reason why torch computes the module in the bulk loop; "" where native code does."""
        return self._engine.reason

    # -- what RLlib calls ----------------------------------------------------------

    def make_env(self) -> None:
        """Makes `self.env`: a native pool in the autoreset mode of the loop that will run."""
        # found once and kept, because the lookup of a registered name asks Ray
        self._creator = creator = creator_of(self.config.env)
        self.slow_reason = self._find_slow_reason()
        if creator is None:
            super().make_env()
            require_next_step(self.env)
            return
        self._engine.forget()
        self._close_env()
        context = context_of(self)
        mode = AutoresetMode.NEXT_STEP if self.slow_reason else AutoresetMode.SAME_STEP
        pool = creator.make(self.config.num_envs_per_env_runner, context, mode)
        self.env = DictInfoToList(pool) if self.slow_reason else BatchSteps(pool)
        self.num_envs = pool.num_envs
        self._scale = ActionScaling(
            pool.single_action_space,
            normalize=self.config.normalize_actions,
            clip=self.config.clip_actions,
        )
        self._needs_initial_reset = True
        self._check_config_spaces()
        make_callback(
            "on_environment_created",
            callbacks_objects=self._callbacks,
            callbacks_functions=self.config.callbacks_on_environment_created,
            kwargs={
                "env_runner": self,
                "metrics_logger": self.metrics,
                "env": self.env.unwrapped,
                "env_context": context,
            },
        )

    def make_module(self) -> None:
        """Makes `self.module`, and tries it on the environment's observations."""
        super().make_module()
        self._module_reason = ""
        if self.env is None or self.module is None or self._creator is None:
            return
        if connector_reason(self) or changes_obs(self):
            return
        self._module_reason = check_module(
            self.module, self.env.single_observation_space, self.env.single_action_space
        )
        self._end_threads()
        if can_split(self.module):
            self._threads = InferenceThreads()
        if self._is_stateful and not self.slow_reason:
            self._check_memory(bool(self.config.explore))
        elif not self._module_reason:
            with self._acting():
                self._choose_engine(bool(self.config.explore))

    def stop(self) -> None:
        """As SingleAgentEnvRunner."""
        super().stop()
        self._end_threads()
        self._engine.forget()

    def get_metrics(self) -> Any:
        """As SingleAgentEnvRunner, for the episodes that ended since the last call."""
        for each in self._ended:
            self._log_episode_metrics(each.length, each.episode_return, each.duration_s)
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
    ) -> list[SingleAgentEpisode]:
        """Samples in bulk, or by RLlib's own loop where something has to see every step."""
        if self._is_stateful and not self._find_slow_reason():
            self._check_memory(explore)
        reason = self._find_slow_reason()
        if bool(reason) != bool(self.slow_reason):
            # the two loops need the pool in different autoreset modes
            self.slow_reason = reason
            self.make_env()
        self.slow_reason = reason
        if reason:
            self._engine.give_up(SpecError(f"RLlib's own loop runs: {reason}"))
            with self._beside_the_pool():
                return super()._sample(  # type: ignore[no-any-return]
                    num_timesteps=num_timesteps,
                    num_episodes=num_episodes,
                    explore=explore,
                    random_actions=random_actions,
                    force_reset=force_reset,
                )
        with self._acting():
            if force_reset or num_episodes is not None or self._needs_initial_reset:
                self._reset_in_bulk()
            self._needs_initial_reset = num_episodes is not None
            done, going, steps = self._sample_in_bulk(
                num_timesteps, num_episodes, explore, random_actions
            )
        self._log_env_steps(metric=self._metrics_num_env_steps_sampled, num_steps=steps)
        self._increase_sampled_metrics(steps, len(done))
        return done + going

    # -- the bulk loop -------------------------------------------------------------

    def _sample_in_bulk(
        self,
        num_timesteps: int | None,
        num_episodes: int | None,
        explore: bool,
        random_actions: bool,
    ) -> tuple[list[SingleAgentEpisode], list[SingleAgentEpisode], int]:
        """Returns chunks whose episode ended, chunks that go on, and the env-steps taken."""
        self._steps.resume(-(-(num_timesteps or 0) // self.num_envs))
        done: list[SingleAgentEpisode] = []
        steps = 0
        actor = None if random_actions else self._choose_engine(explore)
        while True:
            missing = (num_episodes or 0) - len(done) - self._steps.num_ended
            if missing <= 0 if num_timesteps is None else steps >= num_timesteps:
                break
            if actor is None:
                taken = int(self._step(steps, explore, random_actions))
            elif num_timesteps is None:
                taken = self._step_natively(actor, _EPISODES_STEPS, missing)
            else:
                taken = self._step_natively(actor, -(-(num_timesteps - steps) // self.num_envs))
            steps += taken * self.num_envs
            if not taken:
                # the environments were made anew: only ended episodes are kept, as in RLlib's loop
                done += self._take()[0]
                self._reset_in_bulk()
                steps = 0
                # where native code gave up, torch acts for the rest of the call
                actor = None if self.native_reason else actor and self._choose_engine(explore)
        # the last step may have ended more episodes than were asked for
        surplus = 0 if num_episodes is None else -missing
        ended, going = self._take(surplus)
        return done + ended, going if num_episodes is None else [], steps

    def _take(self, surplus: int = 0) -> tuple[list[SingleAgentEpisode], list[SingleAgentEpisode]]:
        """Cuts what was sampled; the last `surplus` episodes that ended are left out."""
        taken = self._steps.take()
        count = len(taken.done) - surplus
        self._ended += taken.ended[:count]
        return taken.done[:count], taken.going

    def _step(self, steps: int, explore: bool, random_actions: bool) -> bool:
        """Acts and steps all environments once; False where the environments were made anew."""
        assert self.env is not None
        if random_actions:
            self._steps.memory.reset()
            extras: dict[str, Array] = {}
            action = for_env = self.env.action_space.sample()
        else:
            extras = self._act(self._steps.obs, steps, explore)
            action = extras.pop(Columns.ACTIONS)
            for_env = self._scale(action)
        outcome = self._try_env_step(for_env)
        if isinstance(outcome, str) and outcome == ENV_STEP_FAILURE:
            return False
        self._steps.add(action, extras, self._weights_seq_no, outcome)
        return True

    def _step_natively(
        self, actor: NativeActor, num_steps: int, num_ended: int | None = None
    ) -> int:
        """Lets the pool act and step; keeps only the steps until `num_ended` episodes have ended.

        Returns:
          Number of steps that every environment took; 0 where they were made anew.
        """
        room = self._steps.room(num_steps)
        collect = functools.partial(actor.collect, obs=room, memory=self._steps.memory)
        try:
            outcome = self._try_env_step(collect)
            if isinstance(outcome, SpecError):
                if self._is_stateful:
                    raise outcome  # torch has no bulk loop for stateful modules
                self._engine.give_up(outcome)
        except BaseException:
            self._needs_initial_reset = True  # environments are in the middle of a rollout
            raise
        if not isinstance(outcome, Block):
            return 0
        block = outcome if num_ended is None else outcome.until(num_ended)
        self._steps.add_block(block, self._weights_seq_no)
        return len(block.terminated)

    def _choose_engine(self, explore: bool) -> NativeActor | None:
        assert self.env is not None
        return self._engine.choose(
            self.env.unwrapped,
            self.module,
            self._scale,
            explore=explore,
            keep_infos=self._keeps_infos,
        )

    def _act(self, obs: Array, steps: int, explore: bool) -> dict[str, Array]:
        """Runs the module on (N, ...) observations; returns its outputs, with actions."""
        batch = {Columns.OBS: to_tensor(obs, self._device)}
        with torch.no_grad():
            with self.metrics.log_time(RLMODULE_INFERENCE_TIMER):
                if explore:
                    # the steps of all runners together, roughly, as RLlib counts them
                    runners = self.config.num_env_runners or 1
                    lifetime = (self.num_env_steps_sampled_lifetime // runners + steps) * runners
                    explorer = functools.partial(self._explore, t=lifetime)
                    output = self._run(explorer, batch)
                else:
                    output = self._run(self._exploit, batch)
            choose(output, self.module, explore=explore)
        return {name: to_numpy(tensor) for name, tensor in output.items()}

    def _run(self, forward: Forward, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return forward(batch) if self._threads is None else self._threads(forward, batch)

    @contextlib.contextmanager
    def _acting(self) -> Iterator[None]:
        """Keeps the module in eval mode, once for all steps of a call."""
        if self.module is None:
            yield
            return
        self._explore, self._exploit = forwards(self.module)
        was_training = self.module.training
        self.module.eval()
        try:
            with self._beside_the_pool() if self._threads is None else self._threads.alone():
                yield
        finally:
            self.module.train(was_training)

    def _beside_the_pool(self) -> contextlib.AbstractContextManager[None]:
        return beside_a_pool(self.module, self.num_envs, self.num_torch_threads)

    def _reset_in_bulk(self) -> None:
        seed = self._seed if self._needs_initial_reset else None
        obs, info = self._try_env_reset(seed=seed, options=None)
        assert self.env is not None
        self._steps = Segment(
            self.num_envs,
            self.env.single_observation_space,
            self.env.single_action_space,
            lookback=self.config.episode_lookback_horizon,
            keep_infos=self._keeps_infos,
        )
        self._steps.begin(obs, info)
        if seed is not None:
            self._engine.draw_anew()
        self._ongoing_episodes_for_metrics.clear()
        self._needs_initial_reset = False

    # -- helpers -------------------------------------------------------------------

    def _find_slow_reason(self) -> str:
        if self._creator is None:
            return f"{self.config.env!r} is not an environment of rollouts"
        return config_reason(self) or connector_reason(self) or self._module_reason

    def _check_memory(self, explore: bool) -> None:
        """Leaves a stateful module to RLlib's own loop unless the pool's threads compute it."""
        with self._acting():
            is_native = self._choose_engine(explore) is not None
        why = f"the RLModule is stateful, and {self.native_reason}"
        self._module_reason = "" if is_native else why

    @property
    def _is_stateful(self) -> bool:
        return isinstance(self.module, TorchRLModule) and bool(self.module.is_stateful())

    @property
    def _keeps_infos(self) -> bool:
        return self.config._learner_connector is not None

    def _end_threads(self) -> None:
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def _close_env(self) -> None:
        if self.env is not None:
            self.env.close()

    def _check_config_spaces(self) -> None:
        assert self.env is not None
        for what, asked, made in (
            ("observation", self.config.observation_space, self.env.single_observation_space),
            ("action", self.config.action_space, self.env.single_action_space),
        ):
            if asked is not None and asked != made:
                raise SpecError(
                    f"config.environment() has the {what} space {asked}, {self.config.env} has "
                    f"{made}: leave {what}_space out"
                )
