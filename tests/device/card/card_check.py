# SPDX-License-Identifier: Apache-2.0
"""Everything that only a machine with a card can tell, by one command, in order of value.

    python tests/device/card/card_check.py --out OUT --pack .card       all, within --budget seconds
    python tests/device/card/card_check.py --out OUT --pack .card --only bench,physics
    python tests/device/card/card_check.py --out OUT --emulate          without a card, small

It runs in the root of a checkout. Each part is a process of its own with a limit of its own. What
it prints goes to OUT/log.txt, its figures (lines "RESULT {json}") to OUT/results.jsonl, a line each
to OUT/summary.txt, which is written anew after every part and printed last. A part that fails,
hangs or breaks the context of the card costs the others nothing but time.

`--pack` names a folder that `make card-pack` has made, for a machine without a package index:
site.tar.xz (the wheel, Gymnasium, MuJoCo, mujoco_warp, a small build of Warp), cubins.tar.xz
(kernels compiled for sm_90), and warp-clang.so.xz (Warp's CPU device, which physics is compared
with) or ray.tar.xz. Python files and kernels' headers are taken from the checkout, so that the
pack must be made again only when native/src or native/bindings change; the check warns then.
Without a pack the checkout is built where nothing called `rollouts` is installed.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), *(str(ROOT / one) for one in ("tests/helpers", "examples"))]

import card_figures as figures  # noqa: E402
import card_smoke  # noqa: E402
import card_tools as tools  # noqa: E402
from card_common import CACHE, SITE, WORK  # noqa: E402

# part -> its function, seconds at most, and what of the budget must be left for it to begin
PARTS = {
    "facts": (card_smoke.facts, 40, 5),
    "smoke": (card_smoke.smoke, 75, 10),
    "tests": (tools.tests, 150, 20),
    "sanitizer": (tools.sanitizer, 70, 20),
    "bench": (figures.bench, 140, 20),
    "limits": (figures.limits, 40, 10),
    "ppo": (figures.ppo, 60, 15),
    "mlp": (figures.mlp, 50, 15),
    "physics": (figures.physics, 100, 25),
    "physics_tests": (tools.physics_tests, 90, 30),
    "ncu": (tools.ncu, 75, 20),
    "ray": (tools.ray, 120, 30),
}
# those that others start
HELPERS = {
    "warm": card_smoke.warm,
    "warm_physics": card_smoke.warm_physics,
    "tiny": tools.tiny,
    **{f"profiled_{case}": None for case in (*tools.PROFILED, "policy")},
}
NEED_A_CARD = ("sanitizer", "limits", "ncu")


class Check:
    """Runs parts one after the other and writes their figures."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Makes the folders."""
        self._args, self._started = args, time.monotonic()
        self._root, self._out = Path.cwd(), Path(args.out).absolute()
        self._pack = Path(args.pack).absolute() if args.pack else None
        self._out.mkdir(parents=True, exist_ok=True)
        for folder in (WORK, CACHE):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._log = (self._out / "log.txt").open("ab", buffering=0)
        self._lines: list[str] = []

    def run(self) -> int:
        """Runs all parts that were asked for; returns how many did not end well."""
        self._unpack()
        self._note(f"unpacked after {time.monotonic() - self._started:.0f} s")
        emulate = self._args.emulate
        names = self._args.only or [one for one in PARTS if one != "ray"]
        names = [one for one in names if not (emulate and one in NEED_A_CARD)]
        if self._pack is not None and (self._pack / "ray.tar.xz").exists() and not self._args.only:
            names.append("ray")
        warming = [] if emulate else [self._start("warm", WORK / "warm.out")]
        if not emulate and (SITE / "warp").is_dir() and {"physics", "physics_tests"} & {*names}:
            warming.append(self._start("warm_physics", WORK / "warm_physics.out"))
        failed = 0
        for name in names:
            if name == "bench":
                wait_for(warming[:1], 30)
            if name == "physics":
                wait_for(warming, 60)
            failed += not self._run_part(name)
        for process in warming:
            end(process)
        for name in ("warm", "warm_physics"):
            if (WORK / f"{name}.out").exists():
                said = (WORK / f"{name}.out").read_bytes()
                self._log.write(f"\n===== {name}\n".encode() + said)
        print("\n".join(self._lines))
        print(f"whole: {time.monotonic() - self._started:.0f} s, {failed} parts did not end well")
        return failed

    def _left(self) -> float:
        return float(self._args.budget) - (time.monotonic() - self._started)

    def _note(self, text: str) -> None:
        self._log.write(f"[{time.monotonic() - self._started:6.1f}] {text}\n".encode())
        print(text, flush=True)

    def _environment(self) -> dict[str, str]:
        python = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
        # the small build of Warp takes NVRTC and nvJitLink from NVIDIA's packages
        found = [one for base in sys.path for one in glob.glob(f"{base}/nvidia/cu1*/lib")]
        libraries = [*found, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(python),
            "PYTHONUNBUFFERED": "1",
            "ROLLOUTS_CACHE_DIR": str(CACHE / "rollouts"),
            "WARP_CACHE_PATH": str(CACHE / "warp"),
            "OMP_WAIT_POLICY": "PASSIVE",
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "CARD_ROOT": str(self._root),
            "CARD_OUT": str(self._out),
            "CARD_DEVICE": "cpu-emulation" if self._args.emulate else "cuda",
        }

    def _unpack(self) -> None:
        """Puts the pack where parts find it, and the checkout's Python and headers over it."""
        shutil.rmtree(SITE, ignore_errors=True)
        if self._pack is None:
            self._build()
            return
        for name, to in (("site", SITE), ("ray", SITE), ("cubins", CACHE / "rollouts")):
            if (self._pack / f"{name}.tar.xz").exists():
                to.mkdir(mode=0o700, parents=True, exist_ok=True)
                with tarfile.open(self._pack / f"{name}.tar.xz") as archive:
                    archive.extractall(to, filter="fully_trusted")
        clang = self._pack / "warp-clang.so.xz"
        if clang.exists():
            import lzma

            (SITE / "warp/bin/warp-clang.so").write_bytes(lzma.decompress(clang.read_bytes()))
        packed = self._pack / "native.sha256"
        if packed.exists() and packed.read_text().strip() != native_digest(self._root):
            self._note("WARNING: native/src or native/bindings differ from those of the pack")
        self._overlay()
        for one in (CACHE / "rollouts").rglob("*"):
            os.chown(one, os.getuid(), os.getgid())

    def _build(self) -> None:
        if importlib.util.find_spec("rollouts") is not None:
            return
        self._note("no pack, and no rollouts: building the checkout")
        command = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps"]
        command += ["--no-index", "--quiet", "--target", str(SITE), str(self._root)]
        subprocess.run(command, stdout=self._log, stderr=self._log, timeout=240, check=False)

    def _overlay(self) -> None:
        """Puts the checkout's Python files and headers in place of the wheel's."""
        for source, to in (
            (self._root / "rollouts", SITE / "rollouts"),
            (self._root / "integrations", SITE / "rollouts/integrations"),
            (self._root / "native/include/rollouts", SITE / "rollouts/include/rollouts"),
        ):
            if source.is_dir():
                shutil.copytree(source, to, dirs_exist_ok=True)

    def _start(self, name: str, output: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-u", str(HERE / "card_check.py"), "--part", name],
            cwd=WORK,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=output.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _run_part(self, name: str) -> bool:
        """Tells whether the part ended well; one that there was no time for did."""
        _, most, least = PARTS[name]
        limit = min(most * self._args.stretch, self._left() - 4)
        if limit < least:
            self._lines.append(f"-- {name}: not begun, {self._left():.0f} s are left")
            self._write()
            return True
        output, begun = WORK / f"{name}.out", time.monotonic()
        process = self._start(name, output)
        try:
            state = "ok" if process.wait(limit) == 0 else f"FAILED, exit {process.returncode}"
        except subprocess.TimeoutExpired:
            state = f"CUT OFF after {limit:.0f} s"
        end(process)
        text = output.read_bytes()
        self._log.write(f"\n===== {name}: {state}\n".encode() + text + b"\n")
        lines = text.decode(errors="replace").splitlines()
        found = [line[7:] for line in lines if line.startswith("RESULT ")]
        with (self._out / "results.jsonl").open("a") as results:
            results.writelines(f"{one}\n" for one in found)
        self._lines.append(f"-- {name}: {state}, {time.monotonic() - begun:.0f} s")
        self._lines += [f"   {as_line(json.loads(one))}" for one in found]
        if state != "ok" and not found:
            self._lines += ["   " + one[:160] for one in lines[-4:]]
        self._write()
        return state == "ok" and not any("FAILED" in json.loads(one) for one in found)

    def _write(self) -> None:
        (self._out / "summary.txt").write_text("\n".join(self._lines) + "\n")


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a part and what it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            continue
    process.poll()


def wait_for(processes: list[subprocess.Popen[bytes]], seconds: float) -> None:
    """Waits for what warms up, so long at most for each."""
    for process in processes:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            print("kernels are still being compiled: figures may be too low", flush=True)


def native_digest(root: Path) -> str:
    """A digest of the files that are compiled into the wheel."""
    found = hashlib.sha256()
    for folder in ("native/src", "native/bindings"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file():
                found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def as_line(row: dict[str, object]) -> str:
    """A row of figures on one line."""
    head = str(row.pop("what", ""))
    rest = [
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in row.items()
    ]
    return f"{head:<58} " + "  ".join(rest)


def main() -> int:
    """Runs the check, or a part of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--out", default="card_out", help="where log, figures and summary go")
    parser.add_argument("--pack", help="the folder that `make card-pack` has made")
    parser.add_argument("--budget", type=float, default=570, help="seconds of the whole")
    parser.add_argument("--stretch", type=float, default=1, help="parts' limits, times this")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--emulate", action="store_true", help="without a card, small")
    parser.add_argument("--part", choices=[*PARTS, *HELPERS], help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = [one for one in args.only or () if one not in PARTS]
    if unknown:
        parser.error(f"--only: {', '.join(unknown)}: expected some of {', '.join(PARTS)}")
    if args.part is None:
        return min(Check(args).run(), 100)
    if args.part.startswith("profiled_"):
        tools.profiled(args.part.removeprefix("profiled_"))
    elif args.part in PARTS:
        PARTS[args.part][0]()
    else:
        HELPERS[args.part]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
