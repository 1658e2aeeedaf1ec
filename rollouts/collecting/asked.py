# SPDX-License-Identifier: Apache-2.0
"""`Asked`: the arguments of a Collector, on their way to the strategy that carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from rollouts.checks import flag, one_of, whole_number
from rollouts.collecting.engine import Engine, check_engine
from rollouts.envs.kernel.kernel_source import PolicyDtype
from rollouts.errors import SpecError
from rollouts.machine.torch_threads import check_threads
from rollouts.returns import Gae, Nstep
from rollouts.run_log.record_options import RunLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The keywords of a `Collector`, which explains them; each value is checked alone."""

    rollout_length: int
    keep_final_obs: bool = False
    num_torch_threads: int | None = None
    engine: Engine = "auto"
    prefetch: int = 0
    outputs: Sequence[str] = ()
    returns: Gae | Nstep | None = None
    mask_actions: bool = False
    cuda_graph: bool = False
    policy_dtype: PolicyDtype = "float32"
    record: RunLog | None = None

    def __post_init__(self) -> None:
        """Raises SpecError or DTypeError where a value is out of range or of another kind."""
        whole_number("rollout_length", self.rollout_length, 1, 2**31 - 1)
        check_threads("num_torch_threads", self.num_torch_threads)
        check_engine(self.engine)
        whole_number("prefetch", self.prefetch, 0, 1)
        for name in ("keep_final_obs", "mask_actions", "cuda_graph"):
            flag(name, getattr(self, name))
        one_of("policy_dtype", self.policy_dtype, get_args(PolicyDtype))
        if self.policy_dtype != "float32" and self.engine == "torch":
            raise SpecError(
                f"policy_dtype={self.policy_dtype!r} is of the policies that kernels compute, and "
                "engine='torch' was asked for: leave policy_dtype out, and use torch.autocast in "
                "the module"
            )
