"""Two network namespaces of this machine with a link between them that has a rate."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType

ADDRESSES = ("10.203.0.1", "10.203.0.2")
DEVICES = ("tnfd0", "tnfd1")


class Link:
    """Makes the namespaces, and removes them at the end. Needs root, and `ip` and `tc` of iproute2."""

    def __init__(self, megabits: float, burst: int | None = None) -> None:
        """A rate in megabits a second; `burst` is how many bytes pass at once however slow that is."""
        for tool in ("ip", "tc"):
            if shutil.which(tool) is None:
                raise SystemExit(f"{tool} is not there; install iproute2")
        if os.geteuid() != 0:
            raise SystemExit("network namespaces need root")
        self._rate = megabits
        # A millisecond or a frame that offloading makes, whichever is more; then packets wait.
        self._burst = burst or max(int(megabits * 1e6 / 8 / 1000), 131_072)
        self._names = [f"tenfold-{os.getpid()}-{end}" for end in (0, 1)]

    def __enter__(self) -> Link:
        first, second = self._names
        try:
            for name in self._names:
                _run("ip", "netns", "add", name)
            _run("ip", "link", "add", DEVICES[0], "netns", first, "type", "veth", "peer", "name", DEVICES[1], "netns", second)
            for end in (0, 1):
                self._up(end)
        except BaseException:
            self._remove()
            raise
        return self

    def _up(self, end: int) -> None:
        device = DEVICES[end]
        self._inside(end, "ip", "addr", "add", f"{ADDRESSES[end]}/30", "dev", device)
        for one in (device, "lo"):
            self._inside(end, "ip", "link", "set", one, "up")
        self._inside(
            end, "tc", "qdisc", "add", "dev", device, "root", "tbf",
            "rate", f"{self._rate:g}mbit", "burst", str(self._burst), "latency", "100ms",
        )  # fmt: skip

    def start(self, end: int, command: Sequence[str], **options: object) -> subprocess.Popen[str]:
        """Starts a process in a namespace."""
        environment = os.environ | {"GLOO_SOCKET_IFNAME": DEVICES[end]}
        inside = ["ip", "netns", "exec", self._names[end], *command]
        return subprocess.Popen(inside, text=True, stdout=subprocess.PIPE, env=environment)

    def _inside(self, end: int, *command: str) -> None:
        _run("ip", "netns", "exec", self._names[end], *command)

    def _remove(self) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
