# SPDX-License-Identifier: Apache-2.0
"""The other interpreter's program: answers the lines that `child.Child` writes.

serve.py SCRIPT: SCRIPT defines `make(**arguments)`. Its result has `told`, a dictionary,
`run(calls)`, which returns seconds and env-steps, and `close()`. Requests and answers are JSON, a
line each: {"make": arguments} is answered by `told`, {"run": calls} by {"seconds", "env_steps"},
and a failure is answered by {"error"}.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # text that libraries print must not mix with answers
    made: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "make" in request:
                made = runpy.run_path(sys.argv[1])["make"](**request["make"])
                answer = made.told
            else:
                seconds, env_steps = made.run(request["run"])
                answer = {"seconds": seconds, "env_steps": env_steps}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    if made is not None:
        made.close()


if __name__ == "__main__":
    main()
