# SPDX-License-Identifier: Apache-2.0
"""Asked: all keywords of a `Collector`; CollectorOptions: those that workers have, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, get_args

from rollouts.checks import flag, one_of, whole_number
from rollouts.collecting.policy_engine import Engine, check_engine
from rollouts.collecting.wanted import check_wanted
from rollouts.envs.kernel.kernel_source import PolicyDtype
from rollouts.errors import SpecError
from rollouts.machine.torch_threads import check_threads
from rollouts.returns import Gae, Nstep
from rollouts.run_log.record_options import RunLog

# metadata of the fields of `Asked` that the pool's native loop carries out
_RULE = {"is_rule": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions:
    """Keywords of a `Collector` and of `CollectOptions`; each value is checked alone."""

    _prefix: ClassVar[str] = ""  # begins their names in messages

    keep_final_obs: bool = field(default=False, metadata=_RULE)
    num_torch_threads: int | None = None
    engine: Engine = "auto"
    outputs: Sequence[str] = ()
    returns: Gae | Nstep | None = field(default=None, metadata=_RULE)
    mask_actions: bool = False
    cuda_graph: bool = False
    policy_dtype: PolicyDtype = "float32"

    def __post_init__(self) -> None:
        """Raises SpecError or DTypeError where a value is out of range or of another kind."""
        prefix = self._prefix
        check_threads(f"{prefix}num_torch_threads", self.num_torch_threads)
        check_engine(self.engine, f"{prefix}engine")
        check_wanted(self.outputs, self.returns, prefix)
        for name in ("keep_final_obs", "mask_actions", "cuda_graph"):
            flag(prefix + name, getattr(self, name))
        one_of(f"{prefix}policy_dtype", self.policy_dtype, get_args(PolicyDtype))
        if self.policy_dtype != "float32" and self.engine == "torch":
            raise SpecError(
                f"{prefix}policy_dtype={self.policy_dtype!r} is of the policies that kernels "
                f"compute, and {prefix}engine='torch' was asked for: leave {prefix}policy_dtype "
                "out, and use torch.autocast in the module"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(CollectorOptions):
    """The keywords of a `Collector`, which explains them."""

    rollout_length: int
    prefetch: int = 0
    record: RunLog | None = None

    def __post_init__(self) -> None:
        """Raises SpecError or DTypeError where a value is out of range or of another kind."""
        CollectorOptions.__post_init__(self)
        whole_number("rollout_length", self.rollout_length, 1, 2**31 - 1)
        whole_number("prefetch", self.prefetch, 0, 1)

    @property
    def rules(self) -> dict[str, Any]:
        """The `rules` of `VectorEnv.collect`."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.metadata == _RULE}
        return {name: getattr(one, "rule", one) for name, one in given.items() if one is not None}
