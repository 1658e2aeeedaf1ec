# SPDX-License-Identifier: Apache-2.0
"""The report behind `rollouts report`: every comparison in one run, as a page with plots.

`plan` lists the measures, `running` runs each command in a process of its own, `rows` reads its
output, and `plots` and `page` show it. `latency`, `footprint`, `states` and `solving` measure what
`rollouts.bench` does not; `soak` runs all parts for an hour.
"""

from __future__ import annotations

from comparisons.report.make_report import make_report

__all__ = ["make_report"]
