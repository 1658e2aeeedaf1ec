# SPDX-License-Identifier: Apache-2.0
"""A RolloutsEnvRunner that records its samples; imported only where used, as it needs ray.data."""

from __future__ import annotations

from ray.rllib.offline.offline_env_runner import OfflineSingleAgentEnvRunner

from .env_runner import RolloutsEnvRunner


class RolloutsOfflineEnvRunner(OfflineSingleAgentEnvRunner, RolloutsEnvRunner):
    """Samples as RolloutsEnvRunner does, and writes the samples to `config.offline_data(output=)`.

    Steps (output_write_episodes=False) are sampled in bulk. Whole episodes are sampled by RLlib's
    own loop. The files lie in a folder that is named after the environment's id.
    """

    records = True

    def stop(self) -> None:
        """Writes the remaining samples, and ends as RolloutsEnvRunner does."""
        super().stop()
        RolloutsEnvRunner.stop(self)

    def _find_slow_reason(self) -> str:
        reason = super()._find_slow_reason()
        if not reason and self.config.output_write_episodes:
            return "whole episodes are recorded (output_write_episodes)"
        return reason

    def _get_subdir_path(self) -> str:
        return str(self.config.env).lower().replace("/", "-")
