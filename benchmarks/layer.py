"""The layer's cost against its bars: ratios within one run, the contestants taking turns, the best time of each.

python benchmarks/layer.py [--markdown FILE]
"""

import argparse
import gc
import os
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import rmdn
from rmdn.models import CNN2d
from rmdn.progress import track

SHAPES = [(128, 16, 28, 28), (128, 32, 24, 24), (1024, 32, 24, 24), (16, 32, 24, 24), (2, 32, 24, 24)]
SECONDS = 4  # for each shape and number of threads, and for the training step
ROUNDS = 10  # at least
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "time-per-sample.png"


@dataclass
class Bar:
    """One promise and what was measured."""

    what: str
    measured: float
    bar: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self):
        return self.measured >= self.bar if self.at_least else self.measured <= self.bar

    def cells(self):
        sign = "at least" if self.at_least else "at most"
        return (
            self.what,
            f"{self.measured:,.3g}{self.unit}",
            f"{sign} {self.bar:,g}{self.unit}",
            "yes" if self.met else "NO",
        )


class Published(nn.Module):
    """The published form of the recursion, with its B x B inverse, for one confounder and two classes."""

    def __init__(self):
        super().__init__()
        self.P = 1000 * torch.eye(3)
        self.beta = None

    def forward(self, z, confounders, labels):
        X = torch.cat([labels[:, None].float(), confounders, torch.ones(len(z), 1)], dim=1)  # (B, 3)
        flat = z.flatten(1)  # (B, h)
        with torch.no_grad():
            if self.beta is None:
                self.beta = torch.zeros(3, flat.shape[1])
            K = self.P @ X.T @ torch.linalg.inv(torch.eye(len(X)) + X @ self.P @ X.T)  # (3, B)
            self.beta = self.beta + K @ (flat - X @ self.beta)
            self.P = self.P - K @ X @ self.P + 1e-4 * torch.eye(3)
        return (flat - X[:, 1:] @ self.beta[1:]).view(z.shape)


def batch(rows):
    """Confounders (B, 1) and labels (B,) of two classes."""
    return torch.randn(rows, 1), torch.arange(rows) % 2


def best_times(contestants, prepare):
    """The least seconds of each contestant, all of them taking a turn in every round, each on inputs of its own."""
    best = dict.fromkeys(contestants, float("inf"))
    rounds, end = 0, time.perf_counter() + SECONDS
    while rounds < ROUNDS or time.perf_counter() < end:
        for name, contestant in contestants.items():
            given = prepare()
            begin = time.perf_counter()
            out = contestant(*given)
            took = time.perf_counter() - begin
            del out  # giving memory back is not timed
            best[name] = min(best[name], took)
        rounds += 1
    return best


def forward_times(shape):
    """Seconds of one training forward pass of each contestant on fresh features in an autograd graph."""
    leaf = torch.randn(shape, requires_grad=True)
    norm, published = nn.BatchNorm2d(shape[1]), Published()
    layer, inplace = rmdn.RMDN(1, 2), rmdn.RMDN(1, 2, inplace=True)
    contestants = {
        "clone": lambda z, c, y: torch.clone(z),
        "BatchNorm2d": lambda z, c, y: norm(z),
        "published": published,
        "R-MDN": layer,
        "in place": inplace,
    }
    return best_times(contestants, lambda: (leaf + 0, *batch(shape[0])))


def forward_bars(shape, times):
    """The promises for one shape."""
    name, ours = "x".join(map(str, shape)), times["in place"]
    limit = {16: 1.0, 2: 1.5}.get(shape[0], 0.5)
    bars = [Bar(f"{name}, in place, of BatchNorm2d", ours / times["BatchNorm2d"], limit)]
    if shape[0] >= 128:
        bars.append(Bar(f"{name}, in place, the published form takes", times["published"] / ours, 10, " x", at_least=True))
        bars.append(Bar(f"{name}, in place, of clone", ours / times["clone"], 3))
    return bars


def step_bar():
    """What three layers in the paper's CNN add to a training step."""
    images = torch.randn(128, 1, 32, 32)
    c, y = batch(128)

    def stepper(model, **more):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

        def step():
            optimizer.zero_grad()
            F.cross_entropy(model(images, **more), y).backward()
            optimizer.step()

        return step

    places = ["conv1", "conv2", "fc1"]
    model = rmdn.deconfound(CNN2d(), places, num_confounders=1, num_classes=2, inplace=True)
    times = best_times({"plain": stepper(CNN2d()), "R-MDN": stepper(model, confounders=c, labels=y)}, tuple)
    added = 100 * (times["R-MDN"] / times["plain"] - 1)
    return Bar(f"three layers added to a CNN's step of {1000 * times['plain']:.1f} ms", added, 8, " %")


def size_bar():
    """Bytes of state beyond the coefficients' (p x h) x 4: a handful of p x p matrices."""
    layer = rmdn.RMDN(1, 2)
    layer(torch.randn(8, 32, 24, 24), *batch(8))
    p, h = 3, 32 * 24 * 24
    state = sum(buffer.numel() * buffer.element_size() for buffer in layer.buffers())
    return Bar(
        f"state of {h} features beyond p x h x 4 = {4 * p * h:,} bytes", state - 4 * p * h, 8 * 4 * p * (p + 1), " bytes"
    )


def tensors():
    """All tensors that Python holds."""
    return [one for one in gc.get_objects() if type(one) is torch.Tensor]


def saved_bar(gradient):
    """Bytes that the layer keeps for the backward pass in tensors of the features' size."""
    layer = rmdn.RMDN(1, 2, gradient=gradient)
    saved = []
    leaf = torch.randn(64, 32, 24, 24, requires_grad=True)
    features = leaf + 0
    large = features.numel() * features.element_size()
    given = batch(64)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor.nbytes), lambda _: None):
        out = layer(features, *given)
    del features
    # What an autograd function keeps for itself passes no hook, but the garbage collector knows of it.
    storages = {one.data_ptr(): one.nbytes() for one in map(torch.Tensor.untyped_storage, tensors())}
    for ours in (leaf, out):
        storages.pop(ours.untyped_storage().data_ptr())
    kept = [nbytes for nbytes in [*storages.values(), *saved] if nbytes >= large]
    return Bar(f'kept for backward of {large:,} bytes of features, "{gradient}"', sum(kept), 0, " bytes")


def growth_bar():
    """Time of an update late against early, and a picture of it from 1 to 1,000,000 samples seen."""
    size, features = 25, torch.randn(25, 1024)
    seen, times = [], []
    for layer, updates in ((rmdn.RMDN(1, 2), 100), (rmdn.RMDN(1, 2), 40_001)):  # the first to warm up
        seen.clear(), times.clear()
        for update in track(range(updates), "a million samples"):
            rows = 1 if update == 0 else size
            c, y = batch(rows)
            begin = time.perf_counter()
            layer(features[:rows], c, y)
            times.append(time.perf_counter() - begin)
            seen.append(1 + update * size)
    draw(np.array(seen), 1e6 * np.array(times))
    early, late = np.percentile(times[:4000], 10), np.percentile(times[-4000:], 10)
    return Bar(
        "time of an update (10th percentile) in the last of a million samples, of that in the first", late / early, 1.2
    )


def draw(seen, microseconds):
    """The 10th, 50th and 90th percentile of each stretch of updates."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.2), layout="constrained")
    ax = figure.subplots()
    edges = np.geomspace(1, seen[-1] + 1, 31)
    stretches = {
        (low * high) ** 0.5: microseconds[(seen >= low) & (seen < high)]
        for low, high in pairwise(edges)
        if ((seen >= low) & (seen < high)).any()
    }
    middles = list(stretches)
    fast, median, slow = np.array([np.percentile(one, [10, 50, 90]) for one in stretches.values()]).T
    ax.fill_between(middles, fast, slow, color="0.85", label="10 to 90 %")
    ax.plot(middles, fast, "k--", label="10 %")
    ax.plot(middles, median, "k-o", markersize=3, label="median")
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="samples seen",
        ylabel="time of an update, µs",
        title="25 samples x 1,024 features, one thread",
    )
    ax.legend(frameon=False)
    figure.savefig(PICTURE, dpi=90)


def measure(threads):
    """All bars that depend on the number of threads, and the forward passes' milliseconds for the table."""
    torch.set_num_threads(threads)
    bars, rows = [], []
    for shape in track(SHAPES, f"forward passes, {threads} thread(s)"):
        times = forward_times(shape)
        bars += forward_bars(shape, times)
        rows.append(("x".join(map(str, shape)), str(threads), *(f"{1000 * took:.3g}" for took in times.values())))
    bars.append(step_bar())
    for bar in bars:
        bar.what = f"{threads} thread{'s'[: threads - 1]}: {bar.what}"
    return bars, rows


def load():
    """The load average of the last minute, on how many cores."""
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--markdown", type=Path, help="write the tables to this file too")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    before = load()
    torch.set_num_threads(1)
    alone = [size_bar(), saved_bar("constant"), saved_bar("projected"), growth_bar()]
    (bars, rows), (more_bars, more_rows) = measure(1), measure(2)
    note = f"torch {torch.__version__}, float32, CPU; load average {before} before, {load()} after; best of many rounds."
    tables = [
        (("features", "threads", "clone", "BatchNorm2d", "published form", "R-MDN", "in place"), rows + more_rows),
        (("bar", "measured", "wanted", "met"), [bar.cells() for bar in [*bars, *more_bars, *alone]]),
    ]
    print_tables("Training forward passes, milliseconds", tables, note)
    if arguments.markdown:
        arguments.markdown.write_text("\n\n".join([*(markdown(*table) for table in tables), note]) + "\n")


def print_tables(title, tables, note):
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if os.isatty(1) else 124)
    for (head, rows), name in zip(tables, (title, "Bars"), strict=True):
        table = Table(*head, title=name)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print(note)


def markdown(head, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


if __name__ == "__main__":
    main()
