# SPDX-License-Identifier: Apache-2.0
"""Several nodes on this machine, each in namespaces of its own, behind a switch with slow links.

A node's processes see a loopback of their own and one interface, whose packets come to this
process. A thread here hands them on as a switch would: over links of limited bandwidth and with a
delay, or not at all where a node is cut off. `Network.why_not()` tells what a machine lacks.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
from processes import HANG_S
from small_cluster import NUM_ATTEMPTS

SUBNET = "10.77.0"
MTU = 9000
# a switch with more than this in a queue drops what comes, as real ones do; TCP then slows down
MAX_QUEUE_S = 2.0
# runs in the namespace: opens the interface, and passes it to the process that began it
OPENS_INTERFACE = """
import fcntl, os, socket, struct, subprocess, sys
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH", b"net0", 0x1001))  # TUNSETIFF: IFF_TUN | IFF_NO_PI
for words in ("link set dev lo up", f"addr add {sys.argv[1]}/24 dev net0",
              f"link set dev net0 mtu {sys.argv[2]} up"):
    subprocess.run(["ip", *words.split()], check=True)
with socket.socket(fileno=int(sys.argv[3])) as parent:
    socket.send_fds(parent, [b"x"], [tun])
os.close(tun)
sys.stdin.read()
"""


@dataclass(slots=True, kw_only=True)
class Link:
    """The link of a node to the switch.

    Attributes:
      bytes_per_s: Bandwidth in each direction.
      delay_s: Seconds that a packet takes from the node to the switch, or back.
      is_cut: Packets in both directions are dropped.
      num_bytes: Bytes that the node has sent.
    """

    bytes_per_s: float
    delay_s: float
    is_cut: bool = False
    num_bytes: int = 0
    _is_free_at: dict[str, float] = field(default_factory=lambda: {"up": 0.0, "down": 0.0})

    def passes(self, way: str, size: int, now: float) -> float | None:
        """Returns when a packet of `size` bytes has passed; None where it is dropped."""
        begin = max(now, self._is_free_at[way])
        if self.is_cut or begin - now > MAX_QUEUE_S:
            return None
        self._is_free_at[way] = begin + size / self.bytes_per_s
        return self._is_free_at[way] + self.delay_s


class Node:
    """Namespaces of Linux: a network with one interface, and mounts of its own."""

    def __init__(self, address: str, link: Link) -> None:
        self.address, self.link = address, link
        ours, theirs = socket.socketpair()
        with ours, theirs:
            arguments = [address, str(MTU), str(theirs.fileno())]
            self._holder = subprocess.Popen(
                [*_unshare(), sys.executable, "-c", OPENS_INTERFACE, *arguments],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )
            theirs.close()
            _, (self.tun,), _, _ = socket.recv_fds(ours, 1, 1)
        os.set_blocking(self.tun, False)
        self._namespace = os.readlink(f"/proc/{self._holder.pid}/ns/net")

    def popen(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Starts a command in the node, as `subprocess.Popen` does."""
        return subprocess.Popen([*self.enter, *command], env=env, text=True, **options)

    def start_ray(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Runs a command that starts Ray, again where the node was too slow for Ray's 30 s."""
        for _ in range(NUM_ATTEMPTS):
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            starting = self.popen(command, env, **pipes)
            said, _ = starting.communicate(timeout=HANG_S)
            if starting.returncode == 0 or "timed out during startup" not in said:
                break
            self.power_off()
        assert starting.returncode == 0, said

    @property
    def enter(self) -> list[str]:
        """Command that runs another in the node."""
        as_root = [] if not os.geteuid() else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self._holder.pid}", "--net", "--mount", "--wd=.", *as_root]

    def power_off(self) -> None:
        """Kills all processes of the node at once."""
        for pid in self._pids():
            if pid != self._holder.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        while any(pid != self._holder.pid for pid in self._pids()):
            self.power_off()
        self._holder.communicate()
        os.close(self.tun)

    def _pids(self) -> Iterator[int]:
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                is_here = os.readlink(f"/proc/{process.pid}/ns/net") == self._namespace
                if is_here and process.status() != psutil.STATUS_ZOMBIE:
                    yield process.pid


class Network:
    """Nodes and the switch between them; a context manager."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._by_address: dict[bytes, Node] = {}
        self._queue: list[tuple[float, int, Node, bytes]] = []
        self._count = itertools.count()
        self._looks = selectors.DefaultSelector()
        self._wakes, self._wake = os.pipe()
        self._looks.register(self._wakes, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="switch", daemon=True)
        self._thread.start()

    @staticmethod
    @functools.cache
    def why_not() -> str | None:
        """Returns why this machine cannot have such networks; None where it can."""
        try:
            with Network() as network:
                network.add(megabits_per_s=1.0)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            return f"network namespaces and /dev/net/tun are needed: {error}"
        return None

    def add(self, *, megabits_per_s: float, delay_s: float = 0.0) -> Node:
        """Returns a further node. The first has the address 10.77.0.1, the next 10.77.0.2."""
        link = Link(bytes_per_s=megabits_per_s * 125e3, delay_s=delay_s)
        node = Node(f"{SUBNET}.{len(self.nodes) + 1}", link)
        self.nodes.append(node)
        self._by_address[socket.inet_aton(node.address)] = node
        self._looks.register(node.tun, selectors.EVENT_READ, node)
        os.write(self._wake, b"x")  # the thread looks at the new interface, too
        return node

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.power_off()
        os.write(self._wake, b"q")
        self._thread.join()
        for node in self.nodes:
            node.close()
        self._looks.close()
        os.close(self._wake)
        os.close(self._wakes)

    def _run(self) -> None:
        while True:
            wait_s = max(self._queue[0][0] - time.monotonic(), 0.0) if self._queue else None
            for key, _ in self._looks.select(wait_s):
                if key.data is not None:
                    self._receive(key.data)
                elif b"q" in os.read(self._wakes, 100):
                    return
            while self._queue and self._queue[0][0] <= time.monotonic():
                _, _, node, packet = heapq.heappop(self._queue)
                with contextlib.suppress(OSError):  # a full interface drops the packet
                    os.write(node.tun, packet)

    def _receive(self, node: Node) -> None:
        with contextlib.suppress(BlockingIOError):
            while packet := os.read(node.tun, MTU + 100):
                self._pass_on(node, packet)

    def _pass_on(self, source: Node, packet: bytes) -> None:
        target = self._by_address.get(packet[16:20])
        if packet[0] >> 4 != 4 or target is None:
            return  # neither IPv6 nor strangers
        source.link.num_bytes += len(packet)
        at = source.link.passes("up", len(packet), time.monotonic())
        at = None if at is None else target.link.passes("down", len(packet), at)
        if at is not None:
            heapq.heappush(self._queue, (at, next(self._count), target, packet))


def _unshare() -> list[str]:
    """Returns the command that runs another in a new node; a user may do so as its own root."""
    as_root = [] if not os.geteuid() else ["--user", "--map-root-user"]
    return ["unshare", "--net", "--mount", *as_root]
