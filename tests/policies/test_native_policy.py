# SPDX-License-Identifier: Apache-2.0
"""`NativePolicy`: its numbers against torch's, its noise, and whose weights it has."""

from __future__ import annotations

import hashlib
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from forked import run_forked
from torch import nn

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.policies.native import Head, NativePolicy

DISCRETE = gymnasium.spaces.Discrete(3)
BOX = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
WIDE = gymnasium.spaces.Box(np.float32([-3, 0.1]), np.float32([1, 0.7]))


class Layers(nn.Module):
    """Any layers, then what a head takes and a value."""

    def __init__(self, layers: nn.Module, size: int, outputs: int, log_std: bool = False) -> None:
        super().__init__()
        self.layers, self.value = layers, nn.Linear(size, 1)
        self.first = nn.Linear(size, outputs)
        self.log_std = nn.Parameter(torch.linspace(-1, 0.5, outputs)) if log_std else None

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.layers(obs)
        heads = (
            (self.first(hidden),) if self.log_std is None else (self.first(hidden), self.log_std)
        )
        return (*heads, self.value(hidden))


def two_layers(inputs: int, size: int, function: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, size), function, nn.Linear(size, size), nn.Tanh())


def policy(module: nn.Module, space: Any = DISCRETE, inputs: int = 5, **given: Any) -> NativePolicy:
    return NativePolicy.from_torch(module, space, inputs, **given)


def outputs_of(native: NativePolicy, obs: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    return native.refresh().evaluate(obs)


@pytest.mark.parametrize("size", [1, 3, 4, 8, 11, 16, 17, 64, 100])
@pytest.mark.parametrize(
    "function",
    [nn.Tanh(), nn.ReLU(), nn.ELU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Sigmoid(),
     nn.Softplus(), nn.LeakyReLU(0.1)],
    ids=lambda function: str(function),
)  # fmt: skip
def test_outputs_are_torchs_at_every_width_of_a_layer(size: int, function: nn.Module) -> None:
    torch.manual_seed(size)
    module = Layers(two_layers(5, size, function), size, 3)
    obs = np.random.default_rng(size).normal(size=(33, 5)).astype(np.float32) * 3
    with torch.no_grad():
        expected = module.double()(torch.from_numpy(obs).double())
    for found, exact in zip(outputs_of(policy(module.float()), obs), expected, strict=True):
        np.testing.assert_allclose(found, exact.numpy(), atol=1e-5, rtol=1e-5)


def test_normalisation_skips_and_two_trunks_are_read() -> None:
    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.a, self.b = nn.LayerNorm(5), nn.Linear(5, 7), nn.Linear(7, 7)
            self.critic = two_layers(5, 9, nn.ReLU())
            self.logits, self.value = nn.Linear(14, 3), nn.Linear(9, 1)
            self.register_buffer("mean", torch.full((5,), 0.3))
            self.register_buffer("var", torch.linspace(0.1, 4, 5))

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            seen = ((obs - self.mean) / torch.sqrt(self.var + 1e-8)).clamp(-2, 2)
            a = torch.relu(self.a(self.norm(seen)))
            skipped = torch.cat([a + self.b(a), a], -1)
            return self.logits(skipped), self.value(self.critic(seen)).squeeze(-1)

    torch.manual_seed(0)
    module = Agent()
    obs = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32) * 4
    native = policy(module)
    with torch.no_grad():
        logits, value = module(torch.from_numpy(obs))
    found = outputs_of(native, obs)
    np.testing.assert_allclose(found[0], logits.numpy(), atol=1e-5)
    np.testing.assert_allclose(native.value(obs), value.numpy(), atol=1e-5)


def test_a_rows_answer_does_not_depend_on_its_batch() -> None:
    native = policy(Layers(two_layers(5, 20, nn.Tanh()), 20, 3))
    obs = np.random.default_rng(1).normal(size=(37, 5)).astype(np.float32)
    keys = np.random.default_rng(2).integers(0, 9, (3, 37)).astype(np.uint32)
    computes = native.refresh()
    together = computes.act(obs, keys)
    for row in range(37):
        alone = computes.act(obs[row : row + 1], np.ascontiguousarray(keys[:, row : row + 1]))
        for one, all_rows in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one[0], all_rows[row])


def digest_of_actions() -> str:
    """Hash of what some policies answer."""
    torch.manual_seed(0)
    digest = hashlib.sha256()
    obs = np.random.default_rng(0).normal(size=(100, 5)).astype(np.float32)
    keys = np.arange(300, dtype=np.uint32).reshape(3, 100)
    for space, outputs in ((DISCRETE, 3), (BOX, 2)):
        for function in (nn.Tanh(), nn.GELU(), nn.ELU(), nn.Softplus()):
            module = Layers(two_layers(5, 70, function), 70, outputs, space is BOX)
            for array in policy(module, space).refresh().act(obs, keys):
                digest.update(array.tobytes())
            if space is BOX:
                for head in (Head("tanh_gaussian"), Head("gaussian", damping=0.1)):
                    for array in policy(module, WIDE, head=head).refresh().act(obs, keys):
                        digest.update(array.tobytes())
    return digest.hexdigest()


def test_every_instruction_set_gives_the_same_bits() -> None:
    found = set()
    for name in _native.policy_kernels():
        ended = run_forked(digest_of_actions, environ={"ROLLOUTS_POLICY_KERNELS": name})
        assert ended.exitcode == 0, ended.stderr
        found.add(ended.returned)
    assert len(found) == 1


def kernels_in_use() -> str:
    return _native.policy_kernels_in_use()


def test_unknown_kernels_are_an_error_that_names_those_there_are() -> None:
    environ = {"ROLLOUTS_POLICY_KERNELS": "sse9"}
    said = run_forked(kernels_in_use, environ=environ).stderr
    assert "'sse9'" in said and _native.policy_kernels()[-1] in said


def constant(values: list[float], log_std: list[float] | None = None) -> nn.Module:
    """A network that says the same for every observation."""
    size = len(values)
    module = Layers(nn.Identity(), 5, size, log_std is not None)
    with torch.no_grad():
        module.first.weight.zero_()
        module.first.bias.copy_(torch.tensor(values))
        if module.log_std is not None and log_std is not None:
            module.log_std.copy_(torch.tensor(log_std))
    return module


def drawn(native: NativePolicy, rows: int) -> tuple[Any, ...]:
    keys = np.zeros((3, rows), np.uint32)
    keys[0], keys[2] = np.arange(rows) % 1000, np.arange(rows) // 1000
    return native.refresh().act(np.zeros((rows, 5), np.float32), keys)


def test_categorical_actions_have_their_probabilities() -> None:
    logits = torch.tensor([0.3, -1.2, 2.0, -4.0])
    exact = torch.distributions.Categorical(logits=logits)
    space = gymnasium.spaces.Discrete(4)
    action, log_prob, entropy, *_ = drawn(policy(constant(logits.tolist()), space, seed=5), 200_000)
    expected = exact.probs.numpy() * len(action)
    chi_square = ((np.bincount(action, minlength=4) - expected) ** 2 / expected).sum()
    assert chi_square < 16.3  # three degrees of freedom: exceeded once in a thousand seeds
    np.testing.assert_allclose(
        log_prob, exact.log_prob(torch.from_numpy(action)).numpy(), atol=2e-6
    )
    np.testing.assert_allclose(entropy, float(exact.entropy()), atol=2e-6)


def test_an_action_without_probability_is_never_drawn() -> None:
    native = policy(constant([0.0, -200.0, 0.0]))
    action, log_prob, entropy, *_ = drawn(native, 50_000)
    assert {*action.tolist()} == {0, 2}
    assert np.isfinite(entropy).all() and np.isfinite(log_prob).all()


@pytest.mark.parametrize("kind", ["gaussian", "tanh_gaussian"])
def test_gaussian_actions_have_mean_deviation_and_density(kind: Any) -> None:
    mean, log_std = [0.4, -1.0], [-1.0, 0.3]
    native = policy(constant(mean, log_std), BOX, head=Head(kind), seed=3)
    action, log_prob, entropy, *_ = drawn(native, 100_000)
    exact: Any = torch.distributions.Normal(torch.tensor(mean), torch.tensor(log_std).exp())
    np.testing.assert_allclose(entropy, exact.entropy().sum().item(), rtol=1e-5)
    sample = action
    if kind == "tanh_gaussian":
        # beyond this the inverse of tanh, which the reference takes, has lost the digits
        inner = (np.abs(action) < 0.999).all(1)
        sample, action, log_prob = np.arctanh(action[inner]), action[inner], log_prob[inner]
        to_action = [torch.distributions.transforms.TanhTransform()]
        exact = torch.distributions.TransformedDistribution(exact, to_action)
        assert np.abs(action).max() < 1
    else:
        np.testing.assert_allclose(sample.mean(0), mean, atol=5 * np.exp(log_std).max() / 316)
        np.testing.assert_allclose(sample.std(0), np.exp(log_std), rtol=0.02)
        # tails too: the share beyond two deviations is 4.55 %
        far = np.abs((sample - mean) / np.exp(log_std)) > 2
        np.testing.assert_allclose(far.mean(0), 0.0455, atol=0.004)
        assert abs(np.corrcoef(sample.T)[0, 1]) < 0.02
    expected = exact.log_prob(torch.from_numpy(action)).sum(-1).numpy()
    np.testing.assert_allclose(log_prob, expected, atol=2e-3 if kind == "tanh_gaussian" else 1e-5)


def test_epsilon_is_the_share_of_actions_drawn_from_all() -> None:
    module = constant([1.0, 3.0, 2.0])
    head = Head("epsilon_greedy", epsilon=0.3)
    action = drawn(policy(module, head=head), 50_000)[0]
    assert abs((action == 1).mean() - 0.8) < 0.01
    assert abs((action == 0).mean() - (action == 2).mean()) < 0.01
    greedy = drawn(policy(module, head=Head("epsilon_greedy", deterministic=True)), 100)[0]
    assert (greedy == 1).all()


def test_deterministic_heads_take_the_likeliest_action() -> None:
    assert (drawn(policy(constant([0, 2, 1]), head=Head(deterministic=True)), 40)[0] == 1).all()
    head = Head("gaussian", deterministic=True)
    action = drawn(policy(constant([0.5, -0.25], [0, 0]), BOX, head=head), 40)[0]
    np.testing.assert_array_equal(action, np.tile(np.float32([0.5, -0.25]), (40, 1)))


def test_noise_is_of_seed_env_episode_and_step() -> None:
    module = constant([0.0] * 2, [0.0] * 2)

    def noise(seed: int, *key: int) -> Any:
        keys = np.array(key, np.uint32).reshape(3, 1)
        return policy(module, BOX, seed=seed).refresh().act(np.zeros((1, 5), np.float32), keys)[0]

    np.testing.assert_array_equal(noise(1, 2, 3, 4), noise(1, 2, 3, 4))
    others = [noise(2, 2, 3, 4), noise(1, 1, 3, 4), noise(1, 2, 2, 4), noise(1, 2, 3, 3)]
    assert len({other.tobytes() for other in [noise(1, 2, 3, 4), *others]}) == 5


def test_weights_are_the_modules_however_they_are_changed() -> None:
    module = Layers(two_layers(5, 8, nn.Tanh()), 8, 3)
    native = policy(module)
    obs = np.ones((2, 5), np.float32)

    def check() -> None:
        with torch.no_grad():
            expected = module(torch.from_numpy(obs))[1].numpy().reshape(-1)
        np.testing.assert_allclose(native.value(obs), expected, atol=1e-6)

    before = native.value(obs).copy()
    with torch.no_grad():
        module.value.weight.add_(1)
    check()
    module.value.weight.data.mul_(-2)
    check()
    module.value.bias.detach().numpy()[:] = 5
    check()
    module.value.bias = nn.Parameter(torch.tensor([7.0]))
    check()
    module.value = nn.Linear(8, 1)
    check()
    native.load_weights(policy(Layers(two_layers(5, 8, nn.Tanh()), 8, 3)).weights(), 9)
    check()
    assert native.policy_version == 9 and not np.array_equal(before, native.value(obs))


def test_buffers_that_are_not_saved_are_followed_too() -> None:
    class Scaled(Layers):
        def __init__(self) -> None:
            super().__init__(nn.Identity(), 5, 3)
            self.register_buffer("mean", torch.zeros(5), persistent=False)

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return super().forward(obs - self.mean)

    module = Scaled()
    native = policy(module)
    module.mean.add_(3)  # type: ignore[operator]
    obs = np.ones((2, 5), np.float32)
    with torch.no_grad():
        expected = module(torch.from_numpy(obs))[1].numpy().reshape(-1)
    np.testing.assert_allclose(native.value(obs), expected, atol=1e-6)


def test_weights_that_are_not_finite_are_named_and_nothing_is_taken_over() -> None:
    module = Layers(two_layers(5, 8, nn.Tanh()), 8, 3)
    native = policy(module)
    with torch.no_grad():
        module.layers[2].bias[3] = float("nan")
    with pytest.raises(SpecError, match=r"'layers\.2\.bias'.*nan"):
        native.act(np.zeros((1, 5), np.float32))


@pytest.mark.parametrize(
    ("space", "outputs", "head", "message"),
    [
        (BOX, 3, Head("categorical"), "expected Discrete for a categorical"),
        (DISCRETE, 3, Head("gaussian"), "expected a Box of floats for a gaussian"),
        (DISCRETE, 3, "beta", "head.kind is 'beta'"),
    ],
)
def test_heads_that_do_not_fit_are_refused(
    space: Any, outputs: int, head: Any, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        head = Head(head) if isinstance(head, str) else head
        policy(Layers(nn.Identity(), 5, outputs, space is BOX), space, head=head)


def test_a_share_beyond_one_is_refused() -> None:
    with pytest.raises(SpecError, match=r"epsilon is 1\.5"):
        Head("epsilon_greedy", epsilon=1.5)


def test_observations_of_another_size_are_refused() -> None:
    with pytest.raises(SpecError, match=r"shape \(2, 4\), expected \(B, 5\)"):
        policy(Layers(nn.Identity(), 5, 3)).act(np.zeros((2, 4), np.float32))


def test_the_first_layer_tells_what_a_module_reads() -> None:
    native = NativePolicy.from_torch(Layers(two_layers(5, 8, nn.Tanh()), 8, 3), DISCRETE)
    assert native.program.obs_size == 5
    with pytest.raises(SpecError, match="give observation_space"):
        NativePolicy.from_torch(nn.Identity(), DISCRETE)
