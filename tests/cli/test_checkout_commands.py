# SPDX-License-Identifier: Apache-2.0
"""The command outside a checkout: what it shows, and what it says of comparisons."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rollouts.bench import checkout, peers
from rollouts.cli import main as cli

LEFT_OUT = [*sorted(checkout.COMMANDS), *(f"bench {one}" for one in sorted(checkout.SUBJECTS))]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> Iterator[None]:
    """rollouts as it lies in site-packages, with no checkout around it."""
    checkout.from_checkout.cache_clear()
    monkeypatch.setattr(checkout.rollouts, "__file__", f"{tmp_path}/rollouts/__init__.py")
    yield
    checkout.from_checkout.cache_clear()


def words(text: str) -> set[str]:
    return {word.strip(",{}") for word in text.split()}


@pytest.mark.parametrize("arguments", LEFT_OUT)
def test_a_command_of_a_checkout_says_where_it_is(
    installed: None, arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*arguments.split(), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"rollouts {arguments}: error: {checkout.WHERE_TO_GET_IT}\n"


def test_help_shows_only_what_is_there(installed: None, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, left_out in (([], checkout.COMMANDS), (["bench"], checkout.SUBJECTS)):
        with pytest.raises(SystemExit):
            cli.main([*arguments, "--help"])
        shown = words(capsys.readouterr().out)
        assert not shown & left_out
        assert shown & {"tune-batch", "collect"}


def test_a_checkout_adds_exactly_the_commands_that_a_wheel_knows_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments, added in (([], checkout.COMMANDS), (["bench"], checkout.SUBJECTS)):
        with pytest.raises(SystemExit):
            cli.main([*arguments, "--help"])
        assert added <= words(capsys.readouterr().out)


@pytest.mark.parametrize(
    "arguments",
    [
        "bench --env-id CartPole-v1 --peer envpool",
        "bench collect --env-id CartPole-v1 --in-process --peer sb3",
        "bench replay --peer torchrl",
    ],
)
def test_a_peer_of_a_checkout_says_where_it_is(
    installed: None, arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments.split()) == 2
    assert checkout.WHERE_TO_GET_IT in capsys.readouterr().err


def test_our_own_peers_are_measured_without_a_checkout(
    installed: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(peers()) == {
        *("rollouts-same-step", "loop", "rollouts-native"),
        *("rollouts-ale", "rollouts-lanes", "rollouts-mujoco"),
    }
    short = "--num-envs 2 --duration-s 0.01 --repeats 1"
    command = f"bench --env-id CartPole-v1 {short} --peer rollouts-same-step --peer loop"
    assert cli.main(command.split()) == 0
    assert "rollouts-same-step" in capsys.readouterr().out
