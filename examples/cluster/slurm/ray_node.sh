#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One node's Ray, for train.sbatch: runs `ray start --block` with the arguments behind the first, which
# is the folder of this job's Ray. Starts it again where it ends by itself: on a node that is busy, or
# reads Python from a slow file system, Ray gives up after 30 s.
set -u
temp_dir=$1
shift
stopped=0 ray=
trap 'stopped=1; kill -TERM ${ray:+"$ray"} 2> /dev/null' TERM
for ((attempt = 0; attempt < 5 && !stopped; attempt++)); do
  ray start --block "$@" &
  ray=$!
  wait "$ray"
  # a signal ends the first wait
  ((stopped)) && wait "$ray"
  # a start that failed leaves processes behind; the folder's name has the job's number
  pkill -f -- "$temp_dir/session_" 2> /dev/null
done
((stopped)) || echo "Ray ended $attempt times on $(hostname)" >&2
((stopped))
