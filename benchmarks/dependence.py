"""Speed and memory of rmdn.metrics.dcor2 beside the dcor package.

    python benchmarks/dependence.py            # all, about two minutes at one thread
    python benchmarks/dependence.py speed      # n = 4,096 x 84 against dcor; bar: 8 times faster
    python benchmarks/dependence.py memory     # n = 50,000 x 84; bar: 1 GiB of extra memory
    python benchmarks/dependence.py line       # pairs of plain numbers, and a permutation test

Times are medians of three; each part runs in a process of its own, so that peak memory is its own and
neither library's threads disturb the other's.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROUNDS = 3


def seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    work()  # compilation, caches
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def pair(n: int, p: int, q: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, p))
    return x, x[:, :1] ** 2 + rng.normal(size=(n, q))


def ours(n: int, p: int, q: int) -> None:
    from rmdn.metrics import dcor2

    x, y = pair(n, p, q)
    print(f"{seconds(lambda: dcor2(x, y)):.6f} {float(dcor2(x, y)):.12f}")


def theirs(n: int, p: int, q: int) -> None:
    import dcor

    x, y = pair(n, p, q)
    value = dcor.u_distance_correlation_sqr
    print(f"{seconds(lambda: value(x, y), 1 if n * p > 1e5 else ROUNDS):.6f} {value(x, y):.12f}")


def memory(n: int, p: int, q: int) -> None:
    from rmdn.metrics import dcor2

    x, y = pair(n, p, q)
    dcor2(x[:1000], y[:1000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    value = float(dcor2(x, y))
    taken = time.perf_counter() - start
    extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    print(f"n = {n:,} x {p} against {q}: {taken:.1f} s, {extra:.3f} GiB more (bar 1), dcor2 {value:.6f}")


def test(n: int, p: int, q: int) -> None:
    from rmdn.metrics import dcor2_test

    x, y = pair(n, p, q)
    start = time.perf_counter()
    dcor2_test(x, y, permutations=999)
    print(f"999 permutations, n = {n:,} x {p} against {q}: {time.perf_counter() - start:.1f} s")


def child(part: str, n: int, p: int, q: int) -> str:
    command = [sys.executable, str(Path(__file__)), part, str(n), str(p), str(q)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def compare(n: int, p: int, q: int) -> None:
    mine, value = map(float, child("ours", n, p, q).split())
    other, reference = map(float, child("theirs", n, p, q).split())
    print(
        f"n = {n:,} x {p} against {q}: rmdn {mine:.4f} s, dcor {other:.4f} s, {other / mine:.1f} times "
        f"faster; values differ by {abs(value - reference):.1e}"
    )


def main() -> None:
    wanted = sys.argv[1:2] or ["all"]
    if len(sys.argv) == 5:
        globals()[sys.argv[1]](*map(int, sys.argv[2:]))
        return
    if wanted[0] in ("all", "speed"):
        compare(4096, 84, 1)
        compare(4096, 84, 84)
    if wanted[0] in ("all", "line"):
        compare(50_000, 1, 1)
        print(child("test", 2000, 1, 1))
        print(child("test", 2000, 84, 1))
    if wanted[0] in ("all", "memory"):
        print(child("memory", 50_000, 84, 1))
        print(child("memory", 50_000, 84, 84))


if __name__ == "__main__":
    main()
