# SPDX-License-Identifier: Apache-2.0
"""`python -m rollouts.distributed.bench_weights`: what it costs to hand out weights."""

from rollouts.bench.weights import main

if __name__ == "__main__":
    main()
