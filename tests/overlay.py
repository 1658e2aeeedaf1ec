# SPDX-License-Identifier: Apache-2.0
"""Makes an environment of a few packages over all that this interpreter's has.

overlay.py FOLDER REQUIREMENT...: the requirements without their dependencies, which come from here.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path


def main() -> None:
    folder, *requirements = sys.argv[1:]
    venv.create(folder, clear=True, symlinks=True)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    python = Path(folder) / "bin" / "python"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    packages = Path(found.stdout.strip())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
    subprocess.run([*pip, "--target", packages, *requirements], check=True)
    # with what is installed there to be edited: a plain path would not bring it
    here = sysconfig.get_path("purelib")
    (packages / "below.pth").write_text(f"import site; site.addsitedir({here!r})\n")


if __name__ == "__main__":
    main()
