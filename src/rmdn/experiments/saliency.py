"""Where a trained network looks: a map kept with the run's record, and means of such maps over runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from rmdn.deconfound import Deconfounded
from rmdn.errors import InputError, SettingError
from rmdn.experiments.problems import Problem
from rmdn.experiments.store import Record
from rmdn.extras import need
from rmdn.metrics import Saliency, region_saliency, saliency_map
from rmdn.strategies import Batch, Strategy

WIDTH = 5  # voxels that the paper smooths over, in volumes of so many a side:
SIDE = 64


def kept(network: nn.Module, strategy: Strategy, problem: Problem) -> Mapping[str, np.ndarray]:
    """The mean absolute gradient on the last stage's test images (X, Y, Z), and where its voxels lie in MNI space."""
    if problem.affine is None:
        raise SettingError("These data have no place in MNI space, so a saliency map would tell of no region.")
    test = problem.stages[-1].test
    rows = test if isinstance(test, tuple) else map(torch.stack, zip(*(test[i] for i in range(len(test))), strict=True))
    device = next(network.parameters()).device
    images, columns, labels = (part.to(device) for part in rows)
    batch = strategy.prepare(Batch(images, columns, labels))
    confounders = batch.confounders if isinstance(network, Deconfounded) else None
    try:
        found = saliency_map(network, batch.images, confounders=confounders)
    except InputError:  # the network has come to ignore its images, which is no reason to lose the run
        found = np.zeros(batch.images.shape[2:])
    return {"saliency": found.astype(np.float32), "affine": np.asarray(problem.affine, np.float64)}


def resized(path: str | Path, size: Sequence[int]) -> np.ndarray:
    """(4, 4) from the voxels of a volume file, turned to its canonical axes and resized, to millimetres."""
    nibabel = need("nibabel", "imaging")
    image = nibabel.as_closest_canonical(nibabel.load(path))
    factor = np.array(image.shape[:3]) / np.array(size)
    scale = np.diag([*factor, 1.0])
    scale[:3, 3] = (factor - 1) / 2  # the new first voxel's centre, in old voxels
    return np.asarray(image.affine @ scale)


def regions(records: Sequence[Record], atlas: str) -> Saliency | None:
    """The top regions of the mean map of several runs, as the paper finds them; None where no run has kept a map."""
    maps, affine = [], None
    for record in records:
        if "arrays" in record:
            with np.load(record["arrays"]) as arrays:
                maps.append(arrays["saliency"])
                affine = arrays["affine"]
    mean = np.asarray(np.mean(maps, axis=0, dtype=np.float64)) if maps else np.zeros(1)
    if not mean.any():
        return None
    # As wide in millimetres as the paper's, whatever the volumes' size; odd, so that nothing moves.
    smoothing = 1 + 2 * round((WIDTH * mean.shape[0] / SIDE - 1) / 2)
    return region_saliency(mean, affine, smoothing=max(1, smoothing), atlas=atlas)
