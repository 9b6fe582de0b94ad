"""The paper's table of complexities (its supplement) by measurement: how time and memory grow with B, h, p and N.

One thread, under a minute of its processor. Time is of a training batch, forward and backward; a slope is that of a line
through the logarithms of size and time: 1 means twice as large takes twice as long. Orders are upper bounds, so a slope at
or below the exponent of the leading term agrees with it. `kept` is what stays for the backward pass, as a share of the
features' bytes. Orders are those of our code; where they differ from the paper's, docs/methods says why.

    python benchmarks/complexity.py
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import rmdn
from rmdn.progress import track
from rmdn.strategies import Batch, BRNet
from rmdn.strategies.base import forward

BASE = {"B": 512, "h": 16384, "p": 8}
SIZES = {"B": (512, 1024, 2048), "h": (16384, 32768, 65536), "p": (32, 64, 128)}
ROWS = (2**14, 2**15, 2**16, 2**17)  # N, of a training set whose Gram matrix is taken
SECONDS = 0.1  # for each time
SLACK = 0.3  # above the exponent: noise, and caches that no longer hold the larger sizes


@dataclass
class Contestant:
    """A method, its orders and their leading exponents."""

    name: str
    make: Callable  # (B, h, p) -> a step to time, and what holds its state
    time: str
    memory: str
    exponents: dict[str, int]  # of time where p < B < h


class Published(nn.Module):
    """R-MDN in the form of the paper, with its B x B inverse."""

    def __init__(self, confounders, classes):
        super().__init__()
        p = confounders + classes
        self.register_buffer("P", 1000 * torch.eye(p))
        self.register_buffer("beta", torch.zeros(p, 0))

    def forward(self, z, confounders, labels):
        X = torch.cat([labels[:, None].float(), confounders, torch.ones(len(z), 1)], dim=1)  # (B, p)
        with torch.no_grad():
            if not self.beta.shape[1]:
                self.beta = torch.zeros(X.shape[1], z.shape[1])
            V = self.P @ X.T
            K = V @ torch.linalg.inv(torch.eye(len(X)) + X @ V)  # (p, B)
            self.beta = self.beta + K @ (z - X @ self.beta)
            self.P = self.P - K @ V.T + 1e-4 * torch.eye(len(V))
        return z - X[:, 1:] @ self.beta[1:]


def batch(B, p):
    """Confounders (B, p - 2) and labels (B,) of two classes: p columns with that of ones."""
    return torch.randn(B, p - 2), torch.arange(B) % 2


def layer_step(kind):
    """A layer by itself."""

    def make(B, h, p):
        layer, z, (c, y) = kind(p - 2, 2), torch.randn(B, h, requires_grad=True), batch(B, p)
        if isinstance(layer, rmdn.MDN):
            layer.set_gram(c, y)
        upstream = torch.ones(B, h)
        layer(z, c, y)  # takes its shape over

        def run(backward=True):
            out = layer(z, c, y)
            if backward:
                z.grad = None
                out.backward(upstream)

        return run, list(layer.buffers())

    return make


def brnet_step(B, h, p):
    """The adversaries' two updates on features of one linear layer, which is the least of encoders."""
    from lightning.fabric import Fabric

    network = nn.Sequential(nn.Linear(1, h), nn.Linear(h, 2))
    given = Batch(torch.randn(B, 1), *batch(B, p))
    strategy = BRNet(at="0")
    strategy.setup(network, Fabric(accelerator="cpu", devices=1), given)

    def run(backward=True):
        if not backward:
            features = forward(network[:1], given)
            return strategy.predictor(features)
        features = strategy.features(network, given)
        strategy.read(features.detach(), given, lambda loss: loss.backward())
        return strategy.hide(features, given, lambda loss: loss.backward())

    run()
    predictor = list(strategy.predictor.parameters())
    return run, [*predictor, *predictor, *predictor]  # and Adam's two averages of it


CONTESTANTS = [
    Contestant("R-MDN, published", layer_step(Published), "B³ + B²p + Bp² + Bph", "ph + p²", {"B": 3, "h": 1, "p": 1}),
    Contestant("R-MDN, ours", layer_step(rmdn.RMDN), "p³ + Bp² + p²h + Bph", "ph + p²", {"B": 1, "h": 1, "p": 1}),
    Contestant("MDN", layer_step(rmdn.MDN), "Bp² + Bph, once Np² + p³", "ph + p²", {"B": 1, "h": 1, "p": 1}),
    Contestant("P-MDN", layer_step(rmdn.PMDN), "Bp² + p²h + Bph", "ph + p²", {"B": 1, "h": 1, "p": 1}),
    Contestant("BR-Net", brnet_step, "64 Bh", "64 h", {"B": 1, "h": 1, "p": 0}),
]


def best_time(run):
    """The least processor seconds of a call, within the time given to it: what else the machine does counts little."""
    run()
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return best


def slope(sizes, values):
    """Of the line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def nbytes(state):
    return sum(one.numel() * one.element_size() for one in state)


def kept(make):
    """Bytes kept for the backward pass, of the features' bytes; parameters and what is there in any case do not count."""
    run, state = make(**BASE)
    saved = {}
    there = {one.untyped_storage().data_ptr() for one in state}

    def see(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in there and not isinstance(tensor, nn.Parameter):
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(see, lambda tensor: tensor):
        run(backward=False)
    return sum(saved.values()) / (4 * BASE["B"] * BASE["h"])


def measure(one):
    """Cells of the table, and whether all slopes agree with the orders."""
    cells, agree = [], True
    at_base, state = one.make(**BASE)
    for variable, sizes in SIZES.items():
        steps = [one.make(**{**BASE, variable: size}) for size in sizes]
        found = slope(sizes, [best_time(run) for run, _ in steps])
        agree &= found <= one.exponents[variable] + SLACK
        cells.append(f"{found:.2f} of {one.exponents[variable]}")
    for variable in ("h", "p"):
        cells.append(
            f"{slope(SIZES[variable], [nbytes(one.make(**{**BASE, variable: n})[1]) for n in SIZES[variable]]):.2f}"
        )
    spent = f"{1e3 * best_time(at_base):.2f}"
    return [
        one.name,
        one.time,
        spent,
        *cells[:3],
        one.memory,
        f"{nbytes(state):,}",
        *cells[3:],
        f"{kept(one.make):.1%}",
    ], agree


def gram_slope():
    """How the time of MDN's one pass grows with N."""

    def make(N):
        layer, (c, y) = rmdn.MDN(BASE["p"] - 2, 2), batch(N, BASE["p"])
        return lambda: layer.set_gram(c, y)

    return slope(ROWS, [best_time(make(N)) for N in ROWS])


def main():
    from rich.console import Console
    from rich.table import Table

    torch.set_num_threads(1)
    torch.manual_seed(0)
    clock = time.perf_counter()
    measured = [measure(one) for one in track(CONTESTANTS, "complexity")]
    gram = gram_slope()
    head = ("method", "time, order", "ms", "in B", "in h", "in p", "state, order", "bytes", "in h", "in p", "kept", "agree")
    table = Table(*head, title="A training batch at " + ", ".join(f"{name} = {size:,}" for name, size in BASE.items()))
    for cells, agree in measured:
        table.add_row(*cells, "yes" if agree else "NO")
    console = Console(width=None if os.isatty(1) else 150)
    console.print(table)
    console.print(f"MDN's Gram matrix: the time grows with N by a slope of {gram:.2f} of 1.")
    console.print(
        f"torch {torch.__version__}, one thread, load {os.getloadavg()[0]:.1f}; {time.perf_counter() - clock:.0f} s"
    )


if __name__ == "__main__":
    main()
