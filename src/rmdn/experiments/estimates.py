"""Figure "Estimates": how soon the recursion's coefficients are those of ordinary least squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rmdn import recursion
from rmdn.errors import SettingError
from rmdn.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILONS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
FEATURES = 16


class Estimates(NamedTuple):
    """Distances of the recursive from the ordinary least-squares coefficients of the same samples."""

    epsilons: tuple[float, ...]
    samples: Tensor  # (n,) int64: samples seen
    distances: Tensor  # (epsilons, n) float64: l2 norm of the difference of the coefficients


def estimates(epsilons: Sequence[float] = EPSILONS, samples: int = 10_000, *, points: int = 40, seed: int = 0) -> Estimates:
    """Follow both estimates over a growing sample of features that a label and a confounder drive.

    Args:
        epsilons: the starts of P, epsilon I, to compare.
        samples: how many samples there are at the end.
        points: at how many sample sizes, evenly spread on a logarithmic axis, the estimates are compared.
        seed: the same seed gives the same samples.
    """
    if not epsilons or min(epsilons) <= 0 or samples < 10 or points < 2:
        raise SettingError(
            f"epsilons={tuple(epsilons)}, samples={samples} and points={points} were given; expected epsilons above 0, at"
            " least 10 samples and at least 2 points."
        )
    X, Z = _data(samples, seed)
    sizes = np.unique(np.geomspace(10, samples, points).round().astype(int)).tolist()
    states = [recursion.start(X.shape[1], FEATURES, epsilon=epsilon) for epsilon in epsilons]
    distances = []
    for begin, end in zip([0, *sizes], sizes, strict=False):
        states = [recursion.update(state, X[begin:end], Z[begin:end]) for state in states]
        ordinary = recursion.solve(X[:end].mT @ X[:end], X[:end].mT @ Z[:end])
        distances.append(torch.stack([(state.beta - ordinary).norm() for state in states]))
    return Estimates(tuple(epsilons), torch.tensor(sizes), torch.stack(distances, dim=1))


@style.drawing()
def picture(found: Estimates) -> Figure:
    """Draw the distances against the samples seen, a line for each epsilon."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2))
    ax = figure.subplots()
    names = [f"$\\epsilon$ = {epsilon:g}" for epsilon in found.epsilons]
    for i, ((name, look), distances) in enumerate(zip(style.looks(names).items(), found.distances, strict=True)):
        ax.loglog(found.samples.numpy(), distances.numpy(), markevery=(i, 6), label=name, **look.line)
    ax.set(xlabel="samples seen", ylabel="$\\ell_2$ distance to ordinary least squares")
    ax.legend(title="start of P: $\\epsilon$ I", ncols=2)
    return figure


def _data(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """A design of label, confounder and ones (N, 3), and features (N, FEATURES) that follow it with noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples, dtype=torch.float64) % 2
    # The groups differ in the confounder as in the paper's static data, standardized: means 1.2 apart.
    confounders = 1.2 * (labels - 0.5) + 0.8 * torch.randn(samples, generator=generator, dtype=torch.float64)
    X = torch.stack([labels, confounders, torch.ones_like(labels)], dim=1)
    truth = torch.randn(3, FEATURES, generator=generator, dtype=torch.float64)
    noise = torch.randn(samples, FEATURES, generator=generator, dtype=torch.float64)
    return X, X @ truth + noise
