# SPDX-License-Identifier: Apache-2.0
"""JAX: environments inside compiled functions, and batches as JAX arrays.

What to change where the loop is compiled (EnvPool's signature):

    handle, recv, send, step = rollouts.integrations.jax.xla(env)     # or env.xla()

    @jax.jit
    def rollout(handle, obs):
        def one(carry, _):
            handle, obs = carry
            handle, batch = step(handle, policy(obs))
            return (handle, batch.obs), batch.reward
        return jax.lax.scan(one, (handle, obs), length=128)

and where it is not: `to_jax(env.recv_batch())`, which copies nothing that JAX can share.

How it works. On the CPU, XLA calls the native pool without Python. Where `step` is used on all of a
synchronous pool, the environments write an observation that keeps its dtype into XLA's own memory.
All else is copied once. On other devices (route="callback", also chosen when JAX's default device
is not a CPU) the same functions go through `jax.experimental.io_callback`: correct, but each step
waits for a copy to the host and back.

Traps.
  * The order of calls is that of the handles: use each handle once, pass on the one returned. A
    computation that uses a handle twice still runs, in an order that XLA chooses.
  * Environments are not functions of their arguments: `jax.vmap` and `jax.grad` refuse.
  * A wrong action, a closed environment or a failed one becomes JAX's runtime error when the
    result is used; nothing is in flight after a `step` that failed.
  * Without `jax_enable_x64` there is no float64: rewards are float32, int64 observations int32.
  * Keep the environment as long as its handle is used; a handle whose environment is gone raises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from rollouts.integrations.shared.missing import needs

from rollouts import _native
from rollouts.batch import STEP_ARRAYS, StepBatch
from rollouts.envs.registry import resolve
from rollouts.envs.vector_env import VectorEnv
from rollouts.errors import EngineError, SpecError

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise needs("jax", error) from error

ShapeResult = Callable[[StepBatch], Any]
_TARGET = "rollouts_pool"


def xla(
    env: VectorEnv, *, route: str | None = None, shape_result: ShapeResult | None = None
) -> tuple[Any, Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """Makes functions of an environment that JAX can compile.

    Args:
      env: Synchronous or asynchronous. Reset it before the first `step`, or `async_reset` it
        before the first `recv`.
      route: "ffi": XLA on the CPU calls native code. "callback": through Python, on any device.
        None: "ffi" if JAX's default device is a CPU.
      shape_result: Converts a StepBatch of JAX arrays to the result of `recv` and `step`; None
        returns the StepBatch itself.

    Returns:
      handle: uint32 scalar.
      recv(handle) -> (handle, result)
      send(handle, action, env_id=None) -> handle; env_id (n,) int32 is needed in asynchronous
        mode, else it may name some environments.
      step(handle, action, env_id=None) -> (handle, result)

    Raises:
      SpecError: Another route. EngineError: JAX has no such call.
    """
    engine = getattr(env, "engine", None)
    if engine is None or engine.groups:
        raise SpecError(f"env is {env!r}, expected a VectorEnv of make_vec with one agent")
    number = engine.xla_handle()
    shape_result = shape_result or (lambda batch: batch)
    chosen = route or ("ffi" if jax.default_backend() == "cpu" else "callback")
    if chosen not in ("ffi", "callback"):
        raise SpecError(f"route is {route!r}, expected 'ffi', 'callback' or None")
    if chosen == "ffi":
        _register()
    run = _by_ffi if chosen == "ffi" else functools.partial(_by_callback, env)
    layout = _Layout(env)

    def send(handle: Any, action: Any, env_id: Any = None) -> Any:
        (handle,) = run((handle, *layout.sent(action, env_id)), (_HANDLE,))
        return handle

    def recv(handle: Any) -> tuple[Any, Any]:
        results = run((handle,), (_HANDLE, *layout.results(env.batch_size)))
        return results[0], shape_result(layout.batch(results[1:]))

    def step(handle: Any, action: Any, env_id: Any = None) -> tuple[Any, Any]:
        sent = layout.sent(action, env_id)
        rows = env.batch_size if layout.is_async else len(sent[0])
        results = run((handle, *sent), (_HANDLE, *layout.results(rows)))
        return results[0], shape_result(layout.batch(results[1:]))

    return jnp.uint32(number), recv, send, step


def to_jax(batch: StepBatch) -> StepBatch:
    """A batch as JAX arrays; memory is shared through DLPack where JAX can, else copied.

    The pool writes into shared memory only after the arrays are gone. Without jax_enable_x64,
    float64 and int64 arrays are converted, which copies them.
    """
    arrays = (None if array is None else _shared(array) for array in batch[:-1])
    return StepBatch._make((*arrays, {name: _shared(array) for name, array in batch.info.items()}))


_shape: Any = jax.ShapeDtypeStruct
_HANDLE = _shape((), np.uint32)


class _Layout:
    """Shapes and dtypes of the arguments and results of an environment's calls."""

    def __init__(self, env: VectorEnv) -> None:
        self.is_async = env.batch_size < env.num_envs
        self._num_envs = env.num_envs
        self._discrete = not env.single_action_space.shape
        self._action_shape = tuple(env.single_action_space.shape or ())
        space = env.single_observation_space
        obs = (tuple(space.shape or ()), space.dtype)
        self._columns: list[tuple[tuple[int, ...], Any]] = [
            obs,
            ((), np.float64),
            ((), np.bool_),
            ((), np.bool_),
            ((), np.int32),
            ((), np.float64),
            ((), np.int32),
        ]
        self._has_final_obs = env.autoreset_mode is AutoresetMode.SAME_STEP
        if self._has_final_obs:
            self._columns.append(obs)
        self._info_names = env.info_names
        infos = resolve(env.env_spec.id, None, env.env_spec.options).native_spec()["infos"]
        self._columns += [
            (() if length is None else (length,), dtype) for _, dtype, length in infos
        ]

    def results(self, rows: int) -> tuple[Any, ...]:
        """The results of a call after the handle, for `rows` environments."""
        return tuple(
            _shape((rows, *shape), jax.dtypes.canonicalize_dtype(dtype))
            for shape, dtype in self._columns
        )

    def sent(self, action: Any, env_id: Any) -> tuple[Any, ...]:
        """Actions and perhaps env_id, checked as far as possible before the computation runs."""
        action = jnp.asarray(action)
        kinds = "iu" if self._discrete else "iuf"
        if action.dtype.kind not in kinds:
            wanted = "an integer dtype" if self._discrete else "float32"
            raise SpecError(f"action has dtype {action.dtype}, expected {wanted}")
        if env_id is None:
            if self.is_async:
                raise SpecError(
                    "this environment is asynchronous (batch_size < num_envs): give env_id, as "
                    "the last recv returned it"
                )
            rows = self._num_envs
        else:
            env_id = jnp.asarray(env_id, np.int32)
            rows = env_id.size
        if action.shape != (rows, *self._action_shape):
            raise SpecError(
                f"action has shape {action.shape}, expected {(rows, *self._action_shape)}: one "
                "row per environment that is stepped"
            )
        return (action,) if env_id is None else (action, env_id)

    def batch(self, results: Any) -> StepBatch:
        """Results after the handle by name."""
        names = [name for name in STEP_ARRAYS if self._has_final_obs or name != "final_obs"]
        arrays: dict[str, Any] = {"final_obs": None, **dict(zip(names, results, strict=False))}
        info = dict(zip(self._info_names, results[len(names) :], strict=True))
        return StepBatch(**arrays, info=info)


@functools.cache
def _register() -> None:
    if not hasattr(jax, "ffi"):
        raise EngineError("this JAX has no jax.ffi: pip install 'jax>=0.5', or use the callback")
    jax.ffi.register_ffi_target(_TARGET, _native.xla_handler(), platform="cpu")


def _by_ffi(arguments: tuple[Any, ...], results: tuple[Any, ...]) -> Any:
    return jax.ffi.ffi_call(_TARGET, results, has_side_effect=True)(*arguments)


def _by_callback(env: VectorEnv, arguments: tuple[Any, ...], results: tuple[Any, ...]) -> Any:
    from jax.experimental import io_callback

    def call(handle: Any, *sent: Any) -> tuple[Any, ...]:
        if sent:
            env.send(np.asarray(sent[0]), np.asarray(sent[1]) if len(sent) > 1 else None)
        if len(results) == 1:
            return (np.asarray(handle),)
        batch = env.recv_batch()
        arrays = [array for array in batch[:-1] if array is not None] + list(batch.info.values())
        return (
            np.asarray(handle),
            *(np.asarray(a, r.dtype) for a, r in zip(arrays, results[1:], strict=True)),
        )

    # the handles keep the order
    return io_callback(call, results, *arguments, ordered=False)


def _shared(array: Any) -> Any:
    if array.dtype != jax.dtypes.canonicalize_dtype(array.dtype) or not array.size:
        return jnp.asarray(array)
    try:
        return jax.dlpack.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError):
        return jnp.asarray(array)  # JAX cannot share an array of this dtype or alignment
