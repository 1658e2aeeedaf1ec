# SPDX-License-Identifier: Apache-2.0
"""WarpDrive's run configurations as the arguments of `ppo_on_device.py`."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import yaml

from rollouts import SpecError

ENV_IDS = {"tag_gridworld": "TagGridWorld-v0", "tag_continuous": "TagContinuous-v0"}
# WarpDrive's own defaults of settings that a file does not have
POLICY = {
    "algorithm": "A2C",
    "vf_loss_coeff": 0.01,
    "entropy_coeff": 0.05,
    "clip_grad_norm": True,
    "max_grad_norm": 0.5,
    "normalize_advantage": False,
    "normalize_return": False,
    "clip_param": 0.01,
    "gamma": 0.98,
    "lr": 1e-4,
}
TRAINER = {"num_envs": 10, "num_episodes": 10_000, "train_batch_size": 10_000, "num_gpus": 1}
EPISODE_LENGTH = 100


def read_warpdrive(path: Path) -> dict[str, Any]:
    """Returns a configuration's settings as those of `ppo_on_device.parse_args`.

    `saving` is left out: --run-dir is the folder of outputs. So is `trainer.env_backend`: --device
    chooses where environments run.

    Raises:
      SpecError: A key has no counterpart here, or none with this value. OSError: no such file.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise SpecError(f"{path} is no YAML: {error}") from error
    content = _mapping(content, str(path))
    _only(content, ("name", "env", "trainer", "policy", "saving"), str(path))
    name = content.get("name")
    if name not in ENV_IDS:
        raise SpecError(f"name is {name!r}, expected one of {', '.join(ENV_IDS)}")
    env = dict(_mapping(content.get("env"), "env"))
    episode_length = env.pop("episode_length", EPISODE_LENGTH)
    seed = env.pop("seed", None)
    if seed is not None and name == "tag_continuous":
        # this seed decides where agents begin, in all episodes
        env["start_seed"] = seed
    policies, trainer = _policies(content, name)
    return {
        "env_id": ENV_IDS[name],
        "option": [*env.items(), ("max_episode_steps", episode_length)],
        "shared": "shared" in policies,
        **({} if seed is None else {"seed": seed}),
        **_sizes(trainer, episode_length),
        **_learning(policies),
    }


def _policies(content: Mapping[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of each policy with all defaults, and those of the trainer."""
    trainer = dict(_mapping(content.get("trainer"), "trainer"))
    trainer.pop("env_backend", None)
    # older files have one value for all policies, newer ones a value for each
    of_all = {key: trainer.pop(key) for key in POLICY if key in trainer}
    _only(trainer, (*TRAINER, "seed"), "trainer")
    policies = {}
    for tag, given in _mapping(content.get("policy"), "policy").items():
        where = f"policy.{tag}"
        if tag not in ("shared", "tagger", "runner"):
            raise SpecError(f"{where}: expected shared, or tagger and runner, groups of {name}")
        own = dict(_mapping(given, where))
        model = dict(_mapping(own.pop("model", None), f"{where}.model"))
        kinds = [each.pop(key, None) for each, key in ((own, "name"), (model, "type"))]
        _only(own, (*POLICY, "to_train"), where)
        _only(model, ("fc_dims", "model_ckpt_filepath"), f"{where}.model")
        _expect(f"{where}: the model", {*kinds} - {None}, (set(), {"fully_connected"}))
        _expect(f"{where}.model.model_ckpt_filepath", model.get("model_ckpt_filepath", ""), ("",))
        settings = {"to_train": False, **POLICY, **of_all, **own}
        policies[tag] = {**settings, "fc_dims": list(model.get("fc_dims", [64, 64]))}
    return policies, {**TRAINER, **trainer}


def _sizes(trainer: Mapping[str, Any], episode_length: int) -> dict[str, Any]:
    _expect("trainer.num_gpus", trainer["num_gpus"], (1,))
    batch, num_envs = trainer["train_batch_size"], trainer["num_envs"]
    if batch % num_envs:
        raise SpecError(
            f"trainer.train_batch_size is {batch}, expected a multiple of num_envs = {num_envs}"
        )
    return {
        "num_envs": num_envs,
        "rollout_length": batch // num_envs,
        "total_steps": trainer["num_episodes"] * episode_length,
        **({"seed": trainer["seed"]} if "seed" in trainer else {}),
    }


def _learning(policies: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Settings of the learners, which are the same for all here."""
    trained = {tag: one for tag, one in policies.items() if one["to_train"]}
    if not trained:
        raise SpecError("policy has none with to_train: True, expected one that learns")
    for key in POLICY:
        if len({repr(one[key]) for one in trained.values()}) > 1:
            raise SpecError(f"{key} differs between {' and '.join(trained)}, expected one for all")
    if len({repr(one["fc_dims"]) for one in policies.values()}) > 1:
        raise SpecError("model.fc_dims differ between policies, expected one size for all")
    tag, one = next(iter(trained.items()))
    hint = "examples/sac_on_device.py --algorithm ddpg" if one["algorithm"] == "DDPG" else ""
    _expect(f"policy.{tag}.algorithm", one["algorithm"], ("A2C", "PPO"), hint)
    _expect(f"policy.{tag}.normalize_return", one["normalize_return"], (False,))
    for key in ("lr", "vf_loss_coeff", "entropy_coeff", "gamma"):
        if not isinstance(one[key], int | float):
            raise SpecError(f"policy.{tag}.{key} is {one[key]!r}, expected a number: no schedule")
    return {
        # its PPO takes one step of the whole batch, too, where the probability ratio is 1
        "num_epochs": 1,
        "num_minibatches": 1,
        "gae_lambda": 1.0,
        "anneal": False,
        "train": None if "shared" in trained else [*trained],
        "hidden": one["fc_dims"],
        "learning_rate": one["lr"],
        "gamma": one["gamma"],
        "value_coef": one["vf_loss_coeff"],
        "entropy_coef": one["entropy_coeff"],
        "clip": one["clip_param"],
        "normalize_advantage": one["normalize_advantage"],
        "max_grad_norm": one["max_grad_norm"] if one["clip_grad_norm"] else inf,
    }


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SpecError(f"{where} is {value!r}, expected keys and values")
    return value


def _only(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [str(key) for key in given if key not in known]
    if unknown:
        raise SpecError(
            f"{where} has {', '.join(unknown)}, which has no counterpart here; expected some of "
            f"{', '.join(known)}"
        )


def _expect(name: str, value: Any, accepted: tuple[Any, ...], hint: str = "") -> None:
    if value not in accepted:
        expected = " or ".join(map(str, accepted))
        raise SpecError(f"{name} is {value!r}, expected {expected}{': use ' if hint else ''}{hint}")
