# SPDX-License-Identifier: Apache-2.0
"""The parts of a HostedEngine, each by itself."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from host_envs import RAISE, BadReset, Counter, Moody

from rollouts.envs.hosted.batches import BatchReader, HostedEpisodes
from rollouts.envs.hosted.counts import Counts
from rollouts.envs.hosted.in_flight import InFlight
from rollouts.envs.hosted.processes.episode_rules import EpisodeRules
from rollouts.envs.hosted.processes.lifecycle import HostOptions, to_context
from rollouts.envs.hosted.processes.local_host import LocalHost
from rollouts.envs.hosted.processes.records import Setup
from rollouts.envs.hosted.receiver import BatchReceiver
from rollouts.envs.hosted.resets import Resets
from rollouts.envs.hosted.sender import ActionSender
from rollouts.errors import CallPendingError, EnvError, ProtocolError, SpecError

N, OFFSET = 3, 10


def begun(mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> HostedEpisodes:
    """N episodes that have begun."""
    episodes = HostedEpisodes(N, mode)
    nothing = np.zeros(N, np.bool_)
    episodes.add(slice(None), np.zeros(N), nothing, ~nothing)
    return episodes


def flight(episodes: HostedEpisodes | None = None, *, is_synchronous: bool = True) -> InFlight:
    return InFlight(episodes or begun(), N, env_id_offset=OFFSET, is_synchronous=is_synchronous)


def rows(*values: int) -> Any:
    return np.array(values, np.intp)


# -- what is in flight -------------------------------------------------------------


def test_rows_are_in_flight_from_send_to_receive() -> None:
    one = flight()
    one.send(rows(2, 0), is_reset=True)
    one.send(rows(1))
    assert one.count == 3 and one.num_calls == 2
    order = one.take_order()
    assert order is not None and order.tolist() == [2, 0, 1]
    assert one.receive(order) == 1  # the others were resets
    assert one.count == 0 and one.take_order() is not None


def test_a_send_of_all_comes_back_as_all() -> None:
    one = flight()
    one.send(None)
    assert one.take_order() is None and one.receive(None) == N


def test_rows_that_are_in_flight_are_not_sent_again() -> None:
    one = flight()
    one.send(rows(1))
    one.check_sendable(rows(0, 2))
    with pytest.raises(ProtocolError, match="env_id 11 is in flight already"):
        one.check_sendable(None)
    with pytest.raises(ProtocolError, match="same environment twice"):
        one.check_sendable(rows(0, 0))
    with pytest.raises(CallPendingError, match=r"^a save while environments are in flight"):
        one.check_rest("a save")
    one.forget()
    one.check_sendable(None)
    one.check_rest("a save")


def test_episodes_that_ended_need_a_reset_where_autoreset_is_disabled() -> None:
    episodes = begun(AutoresetMode.DISABLED)
    one = flight(episodes)
    nothing = np.zeros(1, np.bool_)
    episodes.add(rows(2), np.ones(1), ~nothing, nothing)
    with pytest.raises(ProtocolError, match="env_id 12 has ended its episode"):
        one.check_sendable(None)
    one.check_sendable(rows(0, 1))
    with pytest.raises(ProtocolError, match="env_id 10 was never reset"):
        flight(HostedEpisodes(N, AutoresetMode.DISABLED)).check_sendable(None)


def test_no_ids_mean_all_rows_or_those_of_the_last_batch() -> None:
    assert flight().rows(None) is None
    one = flight(is_synchronous=False)
    with pytest.raises(ProtocolError, match="nothing was received yet"):
        one.rows(None)
    one.send(None)
    one.receive(rows(2, 1))
    assert one.rows(None) is one.last_rows and one.last_rows.tolist() == [2, 1]
    with pytest.raises(SpecError, match=r"env_id\[0\] is 9, expected 10 to 12"):
        one.rows([9])


# -- sending, receiving, resetting -------------------------------------------------


class Parts:
    """The parts around a host in this process."""

    def __init__(self, makers: list[Any], *, same_step: bool = False, seed: int | None = None):
        mode = AutoresetMode.SAME_STEP if same_step else AutoresetMode.NEXT_STEP
        options = HostOptions(
            num_processes=0,
            context=to_context(None),
            autoreset_mode=mode,
            reports_each=False,
            env_id_offset=OFFSET,
            seed=seed,
        )
        self.host = host = LocalHost(makers, options)
        hello = host.hellos[0]
        (space,) = hello.observation_spaces
        host.share(space, hello.action_spaces[0])
        self.episodes = HostedEpisodes(N, mode)
        self.flight = flight(self.episodes)
        self.reader = BatchReader(host, space, self.episodes, env_id_offset=OFFSET, copies=True)
        self.counts = Counts(host)
        self.sender = ActionSender(
            host, self.episodes, self.flight, is_synchronous=True, same_step=same_step
        )
        self.receiver = BatchReceiver(
            host, self.flight, self.reader, self.counts, batch_size=N, same_step=same_step,
            raises_errors=True,
        )  # fmt: skip
        self.resets = Resets(
            host, self.episodes, self.flight, self.reader, self.receiver, batch_size=N,
            env_id_offset=OFFSET, same_step=same_step, seed=seed,
        )  # fmt: skip


def counters(**options: Any) -> Parts:
    return Parts([functools.partial(Counter, 3)] * N, **options)


def seeds_of(batch: Any) -> list[Any]:
    return [record.info["seed"] for _, record in batch.records]


def test_the_first_reset_alone_uses_the_seed_of_the_construction() -> None:
    parts = counters(seed=5)
    assert seeds_of(parts.resets.end(parts.resets.begin(None, None), None)) == [15, 16, 17]
    assert seeds_of(parts.resets.end(parts.resets.begin(None, None), None)) == [-1] * N
    assert seeds_of(parts.resets.end(parts.resets.begin([4, None, 6], None), None)) == [4, -1, 6]


def test_a_refused_reset_leaves_the_seed_to_the_next() -> None:
    parts = counters(seed=5)
    with pytest.raises(SpecError, match="must have shape"):
        parts.resets.begin(None, {"reset_mask": np.ones(2, np.bool_)})
    assert seeds_of(parts.resets.end(parts.resets.begin(None, None), None)) == [15, 16, 17]


@pytest.mark.parametrize("same_step", [False, True])
def test_a_masked_reset_shows_all_rows_and_counts_no_step(same_step: bool) -> None:
    parts = counters(same_step=same_step)
    parts.resets.end(parts.resets.begin(None, None), None)
    parts.sender.send(np.array([1, 2, 3]), None, None)
    parts.receiver.next_batch(None)
    mask = np.array([False, True, False])
    batch = parts.resets.end(parts.resets.begin(None, {"reset_mask": mask}), None)
    assert batch.obs[:, 0].tolist() == [1, 0, 1] and batch.episode_return.tolist() == [1, 0, 3]
    assert batch.env_id.tolist() == [10, 11, 12] and len(batch.reward) == N
    assert [row for row, _ in batch.records] == [1]
    assert (batch.final_obs is None) is not same_step
    assert parts.counts.num_steps == N


def test_a_batch_with_a_failure_comes_with_the_next_call() -> None:
    parts = Parts([Moody] * N)
    parts.resets.end(parts.resets.begin(None, None), None)
    parts.sender.send(np.array([1, RAISE, 1]), None, None)
    with pytest.raises(EnvError, match="env_id 11 failed"):
        parts.receiver.next_batch(None)
    assert parts.flight.count == 0 and parts.counts.num_errors == 1
    assert parts.receiver.next_batch(None).truncated.tolist() == [False, True, False]
    with pytest.raises(ProtocolError, match="0 environments are in flight"):
        parts.receiver.next_batch(None)


def test_what_is_discarded_is_never_received() -> None:
    parts = counters()
    parts.resets.end(parts.resets.begin(None, None), None)
    parts.sender.send(np.array([1, 2, 3]), None, None)
    parts.receiver.discard()
    assert parts.flight.count == 0 and parts.counts.num_steps == 0
    with pytest.raises(ProtocolError, match="too few for a batch"):
        parts.receiver.next_batch(None)


# -- counts ------------------------------------------------------------------------


def test_counts_begin_anew_with_the_times_of_the_environments() -> None:
    parts = counters()
    parts.resets.end(parts.resets.begin(None, None), None)
    parts.sender.send(np.array([1, 2, 3]), None, None)
    parts.receiver.next_batch(None)
    parts.host.arrays["step_time_max"][...] = 1.0
    stats = parts.counts.stats(num_in_flight=2)
    assert (stats.env_steps, stats.num_recvs, stats.num_in_flight) == (N, 2, 2)
    parts.counts.reset()
    stats = parts.counts.stats(num_in_flight=0)
    assert (stats.env_steps, stats.num_recvs, stats.num_env_errors) == (0, 0, 0)
    assert not parts.host.arrays["step_time_max"].any()


def test_waits_are_warned_of_once() -> None:
    parts = counters()
    # as of environments that wait for nearly all of their time
    parts.host.arrays["waited_s"][...] = 1e6
    parts.host.arrays["stepped_s"][...] = 1.001e6
    with pytest.warns(RuntimeWarning, match="the environments wait for 100%"):
        parts.counts.warn_of_waits()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts.counts.warn_of_waits()


# -- rules of episodes -------------------------------------------------------------


def rules_of(mode: AutoresetMode, *, seed: int | None = None) -> tuple[EpisodeRules, list[Any]]:
    makers = [functools.partial(Counter, 3), BadReset]
    setup = Setup(
        index=0, first=4, env_id_offset=OFFSET, seed=seed, incarnation=0, autoreset_mode=mode,
        reports_each=False, host_pid=0,
    )  # fmt: skip
    envs = [make() for make in makers]
    return EpisodeRules(envs, makers, setup), envs


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_mode_says_when_the_next_episode_begins(mode: AutoresetMode) -> None:
    rules, _ = rules_of(mode)
    assert rules.must_reset == [True, True]
    rules.begin(0, None, None)
    assert rules.must_reset == [False, True]
    assert rules.end(0) is (mode is AutoresetMode.SAME_STEP)
    assert rules.must_reset[0] is (mode is AutoresetMode.NEXT_STEP)
    # one that failed begins anew with its next step, whatever the mode
    assert rules.fail(0) is (mode is AutoresetMode.SAME_STEP)
    assert rules.must_reset[0]


def test_an_environment_whose_reset_failed_is_made_again_with_a_seed_of_its_own() -> None:
    BadReset.made = 0
    rules, envs = rules_of(AutoresetMode.SAME_STEP, seed=3)
    first = envs[1]
    rules.begin(1, 17, None)
    shown: list[Any] = []
    with pytest.raises(RuntimeError, match="reset is broken"):
        rules.begin(1, None, None)
    rules.recover(1, 2, lambda obs, info: shown.append(info["seed"]))
    assert envs[1] is not first and not rules.must_reset[1]
    assert len(shown) == 1 and shown[0] not in (-1, 17)


def test_recovering_ends_when_all_attempts_have_failed() -> None:
    rules, envs = rules_of(AutoresetMode.SAME_STEP)

    def refuse(obs: Any, info: Any) -> None:
        raise ValueError("another shape")

    rules.recover(0, 0, refuse)
    assert envs[0].episodes == -1
    rules.recover(0, 2, refuse)
    assert envs[0].episodes == 1
