# SPDX-License-Identifier: Apache-2.0
"""Random interleavings of every call of a pool, against environments that are stepped alone.

What an environment does is a function of its seed, its id and its actions. So the model of
a pool of N environments is N pools of one, each stepped at once with the same commands.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from lone_pools import Model, Row, Saved, rows_of_batch, rows_of_five

import rollouts

pytestmark = pytest.mark.system

# small pools run on the caller alone; 118 Acrobots and more are work for the threads
POOLS = st.one_of(
    st.tuples(st.sampled_from(["CartPole-v1", "FrozenLake-v1", "Blackjack-v1"]), st.integers(1, 6)),
    st.tuples(st.just("Acrobot-v1"), st.integers(115, 130)),
)
SEEDS = st.integers(0, 2**64 - 1)
DICE = st.integers(0, 2**32 - 1).map(np.random.default_rng)


class Protocol(RuleBasedStateMachine):
    """Holds a pool, its models, and the rows that the models say are in flight.

    The environments of an asynchronous batch differ from run to run. So no rule's
    precondition may depend on it: hypothesis repeats runs.
    """

    @initialize(
        pool=POOLS,
        share=st.floats(0, 1),
        num_threads=st.integers(1, 3),
        mode=st.sampled_from(["next_step", "same_step", "disabled"]),
        seed=SEEDS,
        offset=st.sampled_from([0, 7, 2**31 - 200]),
        limit=st.integers(1, 6),
    )
    def make(self, pool, share, num_threads, mode, seed, offset, limit) -> None:
        self.env_id, self.num_envs = pool
        # half of the pools are synchronous
        batch_size = self.num_envs if share >= 0.5 else 1 + int(2 * share * (self.num_envs - 1))
        self.threads = {"num_threads": num_threads, "batch_size": batch_size}
        self.mode, self.limit, self.seed = mode, limit, seed
        self.offset = offset
        self.held: list[tuple[list[np.ndarray], list[np.ndarray]]] = []
        self.saved: list[Saved] = []
        self.models: dict[int, Model] = {}
        self.open()

    def open(self) -> None:
        self.env = rollouts.make_vec(
            self.env_id,
            self.num_envs,
            seed=self.seed,
            autoreset_mode=self.mode,
            max_episode_steps=self.limit,
            env_id_offset=self.offset,
            **self.threads,
        )
        self.synchronous = self.env.batch_size == self.num_envs
        self.num_actions = int(self.env.single_action_space.n)
        ids = range(self.offset, self.offset + self.num_envs)
        self.models = {
            one: Model(self.env_id, one, self.mode, self.limit, self.seed) for one in ids
        }
        self.in_flight: dict[int, Row] = {}
        self.last_received: list[int] | None = None

    def teardown(self) -> None:
        if hasattr(self, "env"):
            self.env.close()
            self.held_views_are_what_they_were()

    # -- helpers ---------------------------------------------------------------------

    def choose(self, dice: np.random.Generator) -> list[int]:
        """A random part of the environments, in random order."""
        return dice.permutation(list(self.models))[: dice.integers(1, self.num_envs + 1)].tolist()

    def steppable(self, ids: list[int]) -> bool:
        disabled = self.mode == "disabled"
        models = [self.models[one] for one in ids]
        return (
            len({*ids}) == len(ids)
            and not self.in_flight.keys() & {*ids}
            and all(model.started and not (disabled and model.ended) for model in models)
        )

    def idle_ids(self, dice: np.random.Generator) -> list[int]:
        """Environments that may be stepped, some or all of them."""
        ids = [one for one in dice.permutation(list(self.models)).tolist() if self.steppable([one])]
        return ids if dice.random() < 0.5 else ids[: dice.integers(0, len(ids) + 1)]

    def actions_for(self, ids: list[int], dice: np.random.Generator) -> np.ndarray:
        return dice.integers(self.num_actions, size=len(ids))

    def model_sends(self, ids: list[int], actions: np.ndarray) -> None:
        for one, action in zip(ids, actions.tolist(), strict=True):
            self.in_flight[one] = self.models[one].step(action)

    def check_received(self, rows: dict[int, Row]) -> None:
        """Every row is what the model said; in synchronous mode they come in the order sent."""
        if self.synchronous:
            assert list(rows) == list(self.in_flight)
        else:
            assert len(rows) == self.env.batch_size
        for one, row in rows.items():
            assert row == self.in_flight.pop(one), f"env_id {one}"
        self.last_received = list(rows)

    def hold(self, batch: rollouts.StepBatch, dice: np.random.Generator) -> None:
        """Keeps one row of one array, and all of another: either must keep the batch whole."""
        arrays = [array for array in batch[:8] if array is not None]
        whole, part = dice.choice(len(arrays), 2)
        views = [arrays[whole], arrays[part][-1:]]
        self.held.append((views, [view.copy() for view in views]))

    def can_receive(self) -> bool:
        return len(self.in_flight) >= (1 if self.synchronous else self.env.batch_size)

    # -- rules -----------------------------------------------------------------------

    @rule(dice=DICE)
    def send(self, dice: np.random.Generator) -> None:
        ids = self.idle_ids(dice)
        actions = self.actions_for(ids, dice)
        self.env.send(actions, np.array(ids, dtype=np.int64))
        self.model_sends(ids, actions)

    @rule(dice=DICE)
    def send_whatever(self, dice: np.random.Generator) -> None:
        """Maybe in flight, ended, never reset or listed twice: then nothing is sent."""
        ids = self.choose(dice)
        if dice.random() < 0.3:
            ids.append(ids[0])
        actions = self.actions_for(ids, dice)
        if self.steppable(ids):
            self.env.send(actions, ids)
            self.model_sends(ids, actions)
        else:
            with pytest.raises(rollouts.ProtocolError):
                self.env.send(actions, ids)

    @rule(dice=DICE)
    def send_to_the_default_environments(self, dice: np.random.Generator) -> None:
        ids = list(self.models) if self.synchronous else self.last_received
        rows = self.env.batch_size if ids is None else len(ids)
        actions = dice.integers(self.num_actions, size=rows)
        if ids is not None and self.steppable(ids):
            self.env.send(actions)
            self.model_sends(ids, actions)
        else:
            with pytest.raises(rollouts.ProtocolError):
                self.env.send(actions)

    @rule(dice=DICE, wrong=st.sampled_from(["action", "id below", "id above", "shape"]))
    def send_nonsense(self, dice: np.random.Generator, wrong: str) -> None:
        ids = self.idle_ids(dice) or self.choose(dice)
        actions = self.actions_for(ids, dice)
        at = dice.integers(len(ids))
        if wrong == "action":
            actions[at] = dice.choice([-1, self.num_actions, 2**40])
        elif wrong == "shape":
            actions = actions[:, None]
        else:
            ids[at] = self.offset + (-1 if wrong == "id below" else self.num_envs)
        # an action is looked at only when the environments may be stepped
        expected = (rollouts.SpecError, rollouts.ProtocolError)
        with pytest.raises(expected if wrong == "action" else rollouts.SpecError):
            self.env.send(actions, ids)

    @rule(dice=DICE, hold=st.booleans(), timeout_s=st.sampled_from([None, 0, 3600]))
    def recv_batch(self, dice: np.random.Generator, hold: bool, timeout_s: float | None) -> None:
        if not self.can_receive():
            with pytest.raises(rollouts.ProtocolError, match="never return"):
                self.env.recv_batch(timeout_s)
            return
        try:
            batch = self.env.recv_batch(timeout_s)
        except TimeoutError:
            assert timeout_s == 0  # nothing was lost: a later recv has the rows
            return
        self.check_received(rows_of_batch(batch))
        if hold:
            self.hold(batch, dice)

    @rule()
    def recv(self) -> None:
        if self.can_receive():
            self.check_received(rows_of_five(self.env.recv()))

    @rule(dice=DICE)
    def step(self, dice: np.random.Generator) -> None:
        ids = self.idle_ids(dice)
        if len(self.in_flight) + len(ids) < (1 if self.synchronous else self.env.batch_size):
            return
        actions = self.actions_for(ids, dice)
        five = self.env.step(actions, np.array(ids, dtype=np.int64))
        self.model_sends(ids, actions)
        self.check_received(rows_of_five(five))

    @rule(dice=DICE, seed=st.none() | SEEDS, each=st.booleans())
    def reset(self, dice: np.random.Generator, seed: int | None, each: bool) -> None:
        seeds = [seed] * self.num_envs
        if each:
            seeds = [None if dice.random() < 0.5 else one for one in range(self.num_envs)]
        obs, info = self.env.reset(seed=seeds if each else seed)
        self.in_flight = {
            one: model.reset(seeds[i]) for i, (one, model) in enumerate(self.models.items())
        }
        nothing = np.zeros(len(obs))
        self.check_received(rows_of_five((obs, nothing, nothing != 0, nothing != 0, info)))

    @rule()
    def async_reset(self) -> None:
        self.env.async_reset()
        self.in_flight = {one: model.reset(None) for one, model in self.models.items()}

    @precondition(lambda self: self.synchronous)
    @rule(dice=DICE, seed=st.none() | SEEDS)
    def reset_some(self, dice: np.random.Generator, seed: int | None) -> None:
        chosen = {*self.choose(dice)}
        mask = np.array([one in chosen for one in self.models])
        left_out = [model for one, model in self.models.items() if one not in chosen]
        options = {"reset_mask": mask}
        if self.in_flight or not all(model.started for model in left_out):
            with pytest.raises(rollouts.ProtocolError):
                self.env.reset(seed=seed, options=options)
            return
        obs, info = self.env.reset(seed=seed, options=options)
        self.in_flight = {
            one: model.reset(seed) if one in chosen else model.observe()
            for one, model in self.models.items()
        }
        nothing = np.zeros(len(obs))
        self.check_received(rows_of_five((obs, nothing, nothing != 0, nothing != 0, info)))

    @rule(dice=DICE)
    def save(self, dice: np.random.Generator) -> None:
        ids = self.choose(dice)[:4]
        models = [self.models[one] for one in ids]
        if self.in_flight.keys() & {*ids} or not all(model.started for model in models):
            with pytest.raises(rollouts.ProtocolError):
                self.env.get_state(ids)
            return
        saved = [model.save() for model in models]
        assert self.env.get_state(ids) == [one.state for one in saved]
        self.saved = (saved + self.saved)[:8]

    @rule(dice=DICE)
    def load(self, dice: np.random.Generator) -> None:
        if not self.saved:
            return
        ids = self.choose(dice)[:4]
        saved = [self.saved[i] for i in dice.integers(len(self.saved), size=len(ids))]
        states = [one.state for one in saved]
        if self.in_flight.keys() & {*ids}:
            with pytest.raises(rollouts.ProtocolError):
                self.env.set_state(ids, states)
            return
        self.env.set_state(ids, states)
        for one, state in zip(ids, saved, strict=True):
            self.models[one].load(state)

    @rule(dice=DICE)
    def drop(self, dice: np.random.Generator) -> None:
        if self.held:
            del self.held[dice.integers(len(self.held))]

    @rule()
    def close_and_begin_anew(self) -> None:
        self.env.close()
        self.env.close()
        ids = list(self.models)
        for call in (
            self.env.recv,
            self.env.recv_batch,
            self.env.reset,
            self.env.async_reset,
            self.env.get_state,
            lambda: self.env.send([0] * len(ids), ids),
            lambda: self.env.step([0] * len(ids), ids),
        ):
            with pytest.raises(rollouts.ClosedError):
                call()
        self.held_views_are_what_they_were()
        self.open()

    # -- invariants ------------------------------------------------------------------

    @invariant()
    def in_flight_is_what_was_sent_and_not_received(self) -> None:
        if hasattr(self, "env"):
            assert self.env.num_in_flight == len(self.in_flight)

    @invariant()
    def held_views_are_what_they_were(self) -> None:
        for views, copies in getattr(self, "held", []):
            for view, copied in zip(views, copies, strict=True):
                assert view.tobytes() == copied.tobytes()


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
