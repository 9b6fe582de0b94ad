"""How long the synthetic images take, on one thread; the aim is 2,048 images in at most 50 ms."""

import statistics
import time

import torch

from rmdn.data import synthetic

REPEATS = 20


def milliseconds(make):
    """The first call's time and the median and worst of the calls after it."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        make()
        times.append(1000 * (time.perf_counter() - start))
    return times[0], statistics.median(times[1:]), max(times[1:])


def main():
    torch.set_num_threads(1)
    cases = {
        "2,048 images (static(512): train and test)": lambda: synthetic.static(512),
        "4,096 images (static())": synthetic.static,
        "8,192 images (moving())": synthetic.moving,
        "20,480 images (continual(3))": lambda: synthetic.continual(3),
    }
    print(f"torch {torch.__version__}, one thread, {REPEATS} repeats; milliseconds")
    print(f"{'':44}{'first':>8}{'median':>8}{'worst':>8}")
    for name, make in cases.items():
        print(f"{name:44}" + "".join(f"{value:8.1f}" for value in milliseconds(make)))


if __name__ == "__main__":
    main()
