"""Clouds of features: t-SNE of what runs have kept, by group, stage or confounder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmdn.errors import SettingError
from rmdn.experiments.store import Record
from rmdn.extras import need
from rmdn.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

Floats = NDArray[np.floating]
Integers = NDArray[np.integer]
SHADES = "cividis"  # runs from dark to light, so that it reads without colour
HALF = 65_504.0  # half precision, in which features are kept, ends there


class Kept(NamedTuple):
    """Test rows whose features a run has kept after its last stage, all stages' one after another."""

    features: Floats  # (N, h)
    confounders: Floats  # (N, c)
    labels: Integers  # (N,)
    stages: Integers  # (N,) from 0


def kept(record: Record, rows: int = 400) -> Kept | None:
    """At most so many rows in all, as many of each stage; None where the run has kept none."""
    if "arrays" not in record:
        return None
    with np.load(record["arrays"]) as arrays:
        stages = range(sum(name.startswith("features_") for name in arrays))
        taken = {
            name: [arrays[f"{name}_{j}"][: rows // len(stages)] for j in stages]
            for name in ("features", "confounders", "labels")
        }
    features = np.concatenate(taken["features"]).astype(np.float32)
    return Kept(
        np.nan_to_num(features, posinf=HALF, neginf=-HALF),
        np.concatenate(taken["confounders"]),
        np.concatenate(taken["labels"]),
        np.repeat(stages, [len(labels) for labels in taken["labels"]]),
    )


def embed(features: Floats, *, perplexity: float = 30.0, seed: int = 0) -> Floats:
    """t-SNE (van der Maaten and Hinton 2008) of features (N, h) on a plane (N, 2); the same input gives the same plane."""
    if features.ndim != 2 or len(features) < 5:
        raise SettingError(f"Features of shape {features.shape} were given; t-SNE takes (rows, features), 5 rows or more.")
    manifold = need("sklearn.manifold", "study")
    centred = features.astype(np.float32) - features.mean(0, dtype=np.float32)
    spread = float(centred.std())
    tsne = manifold.TSNE(
        perplexity=min(perplexity, (len(features) - 1) / 3), init="pca" if spread > 0 else "random", random_state=seed
    )
    # Its threads wait for each other at every step: beside a grid that keeps the cores busy, for minutes. One is as quick.
    with need("threadpoolctl", "study").threadpool_limits(limits=1, user_api="openmp"):
        found: Floats = tsne.fit_transform(centred / (spread or 1.0))
    return found


@style.drawing()
def by_category(axes: Axes, plane: Floats, categories: Integers, names: Sequence[str]) -> None:
    """Draw a cloud, a marker and a colour for each category (N,), which index `names`."""
    _frame(axes)
    for k, (name, look) in enumerate(style.looks(names).items()):
        chosen = plane[categories == k]
        # Every other category is open: shape and filling tell them apart in black and white.
        fill: dict[str, Any] = {"facecolors": "none", "edgecolors": look.colour} if k % 2 else {"color": look.colour}
        axes.scatter(chosen[:, 0], chosen[:, 1], s=14, marker=look.marker, linewidths=0.8, label=name, **fill)


@style.drawing()
def by_value(axes: Axes, plane: Floats, values: Floats) -> PathCollection:
    """Draw a cloud, darker for smaller values (N,); what it returns is for `figure.colorbar`."""
    _frame(axes)
    return axes.scatter(plane[:, 0], plane[:, 1], c=values, cmap=SHADES, s=14, edgecolors=style.GREY, linewidths=0.3)


def _frame(axes: Axes) -> None:
    """A frame without numbers: the plane's axes mean nothing."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color=style.GREY)
