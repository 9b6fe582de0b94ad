"""Brains of a stand-in: the MNI152 template (which nilearn ships), warped and shaded in known places.

Effects are smooth bumps around the centres of REGIONS (millimetres, MNI): `grow` moves the tissue outwards,
so that a region swells (shrinks below 0), `light` makes it brighter. On top come each person's own head size
and smooth random warp, and each scan's slow shading and noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rmdn.extras import need

# Centres on both sides, and the width (standard deviation) of the bump, in millimetres.
REGIONS: dict[str, tuple[tuple[tuple[float, float, float], ...], float]] = {
    "ventricles": (((-14, -22, 18), (14, -22, 18), (-10, 16, 8), (10, 16, 8)), 11.0),
    "hippocampus": (((-27, -22, -14), (27, -22, -14)), 8.0),
    "cerebellum": (((-24, -64, -36), (24, -64, -36), (0, -60, -30)), 14.0),
    "insula": (((-37, 6, 0), (37, 6, 0)), 8.0),
}


@dataclass(frozen=True)
class Effects:
    """How much each region grows and how much lighter it is; both about -0.5 to 0.5."""

    grow: Mapping[str, float] = field(default_factory=dict)
    light: Mapping[str, float] = field(default_factory=dict)


class Brains:
    """Makes volumes at one resolution; the template is read once."""

    def __init__(self, resolution: int = 3) -> None:
        self.template, self.affine = _template(resolution)
        shape = self.template.shape
        voxels = np.stack(np.meshgrid(*(np.arange(s) for s in shape), indexing="ij"), axis=-1)
        places = voxels @ self.affine[:3, :3].T + self.affine[:3, 3]
        self.places = places.astype(np.float32)  # (x, y, z, 3) in mm
        self.bumps = {name: self._bumps(name) for name in REGIONS}

    def draw(self, effects: Effects, person: np.random.Generator, scan: np.random.Generator) -> np.ndarray:
        """(x, y, z) int16, zero outside the brain. `person` gives anatomy, `scan` noise and shading."""
        ndimage = need("scipy.ndimage", "study")
        source = self.places / person.normal(1.0, 0.02, size=3).astype(np.float32) + _smooth(person, self.places.shape, 1.5)
        for name, amount in effects.grow.items():
            for center, bump in zip(REGIONS[name][0], self.bumps[name], strict=True):
                source = source - (amount * bump)[..., None] * (self.places - np.array(center, dtype=np.float32))
        to_voxels = np.linalg.inv(self.affine).astype(np.float32)
        voxels = source @ to_voxels[:3, :3].T + to_voxels[:3, 3]
        brain = ndimage.map_coordinates(self.template, np.moveaxis(voxels, -1, 0), order=1, cval=0.0)
        shade = 1 + _smooth(scan, (*brain.shape, 1), 0.03)[..., 0]
        for name, amount in effects.light.items():
            shade = shade + amount * np.max(self.bumps[name], axis=0)
        noisy = brain * shade * scan.normal(1.0, 0.05) + 0.015 * scan.standard_normal(brain.shape, dtype=np.float32)
        return np.where(brain > 0.05, np.clip(noisy, 0.01, 2) * 1000, 0).astype(np.int16)

    def save(self, volume: np.ndarray, path: Path) -> None:
        """Write a NIfTI file; its header says that it is simulated."""
        nibabel = need("nibabel", "imaging")
        image = nibabel.Nifti1Image(volume, self.affine)
        image.header["descrip"] = b"rmdn stand-in, not real data"
        path.parent.mkdir(parents=True, exist_ok=True)
        nibabel.save(image, path)

    def _bumps(self, name: str) -> np.ndarray:
        centers, width = REGIONS[name]
        distances = [((self.places - np.array(center)) ** 2).sum(axis=-1) for center in centers]
        return np.stack([np.exp(-d / (2 * width**2)) for d in distances]).astype(np.float32)  # (centres, x, y, z)


@lru_cache(maxsize=2)
def _template(resolution: int) -> tuple[np.ndarray, Any]:
    datasets = need("nilearn.datasets", "imaging")
    image = datasets.load_mni152_template(resolution=resolution)
    values = np.asarray(image.get_fdata(), dtype=np.float32)
    return values / values.max(), image.affine


def _smooth(rng: np.random.Generator, shape: tuple[int, ...], amount: float) -> np.ndarray:
    """Random fields (x, y, z, k) that change over about a fifth of the volume."""
    coarse = rng.normal(0, amount, size=(5, 5, 5, shape[-1])).astype(np.float32)
    for axis, size in enumerate(shape[:3]):
        coarse = np.moveaxis(np.tensordot(_blend(size), coarse, axes=(1, axis)), 0, axis)
    return coarse


@lru_cache(maxsize=16)
def _blend(size: int) -> np.ndarray:
    """(size, 5) smooth weights of five knots at each voxel of an axis."""
    distance = np.linspace(0, 4, size)[:, None] - np.arange(5)
    weights = np.exp(-(distance**2) / 0.6)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)
