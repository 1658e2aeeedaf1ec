#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One node's Ray, for train.sbatch: runs `ray start --block` with these arguments. Starts it again where
# it ends by itself: on a node that is busy, or reads Python from a slow file system, Ray gives up
# after 30 s.
set -u
stopped=0 ray=
trap 'stopped=1; kill -TERM ${ray:+"$ray"} 2> /dev/null' TERM
for ((attempt = 0; attempt < 5 && !stopped; attempt++)); do
  # a start that failed leaves processes behind, which are known by this variable
  export ROLLOUTS_RAY_NODE=$SLURM_JOB_ID-$$-$attempt
  ray start --block "$@" &
  ray=$!
  wait "$ray"
  # a signal ends the first wait
  ((stopped)) && wait "$ray"
  while read -r file; do
    kill -KILL "${file//[^0-9]/}" 2> /dev/null
  done < <(grep -lszx "ROLLOUTS_RAY_NODE=$ROLLOUTS_RAY_NODE" /proc/[0-9]*/environ)
done
((stopped)) || echo "Ray ended $attempt times on $(hostname)" >&2
((stopped))
