# SPDX-License-Identifier: Apache-2.0
"""Door to `rollouts.bench.weights`, for `python -m rollouts.distributed.bench_weights`."""

from rollouts.bench.weights import main

if __name__ == "__main__":
    main()
