"""Studies that one must ask for, as problems: the user's own download, or else a stand-in, simulated once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor

from rmdn.data.images import ImageDataset
from rmdn.data.simulate.folder import MARK
from rmdn.data.study import Study
from rmdn.errors import SettingError
from rmdn.experiments.code import code_of, digest
from rmdn.experiments.problems import CODE, Problem, ProblemStage
from rmdn.experiments.run import Recipe

# Environment variables that hold the folders of real data.
DOWNLOADS = {"ham10000": "RMDN_HAM10000", "adni": "RMDN_ADNI", "abcd": "RMDN_ABCD"}
IN_MEMORY = 2**30  # bytes of a study's images; beyond, they are read from disk as they are needed

Simulate = Callable[..., None]  # of a new folder, and of the numbers that make a stand-in


def recipe(name: str, arguments: Mapping[str, Any], stand_in: Mapping[str, Any]) -> Recipe:
    """The data of a run: the real ones where the user says where they lie, else a stand-in of these numbers.

    Which of the two it is belongs to the run's key; where the real ones lie does not.
    """
    return Recipe(name, {**arguments, "stand_in": None if is_real(name) else dict(stand_in)})


def is_real(name: str) -> bool:
    """Whether the user names a folder of real data."""
    return bool(os.environ.get(DOWNLOADS[name]))


def folder(name: str, stand_in: Mapping[str, Any] | None, simulate: Simulate) -> Path:
    """Where a study's files lie: in the user's folder (None), or in a stand-in's, which is simulated if it is not there."""
    if stand_in is None:
        return _download(name)
    # A stand-in by other code is another one.
    code = [code_of(module) for module in CODE[name] if module.startswith("rmdn.data.simulate.")]
    place = _cache() / f"{name}-{digest([dict(stand_in), code])}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):  # of several runs that need it at once, the first makes it
        if not place.exists():
            simulate(place, **stand_in)
    return place


def _download(name: str) -> Path:
    variable = DOWNLOADS[name]
    given = os.environ.get(variable, "")
    if not given or not Path(given).is_dir():
        raise SettingError(
            f"{variable}={given!r} is no folder, but this run is of real data; give the folder of the download"
            f" (docs/data-{name}.md). Without the variable, a stand-in is simulated."
        )
    if (Path(given) / MARK).exists():
        raise SettingError(
            f"{variable}={given} is a stand-in, whose numbers would pass for real ones; give the folder of the download,"
            " or unset the variable, and a stand-in is simulated."
        )
    return Path(given)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rmdn" / "stand-ins"


def problem_of(study: Study) -> Problem:
    """A study's stages, in memory where they fit; training images that change at random are read one by one."""
    pairs = [study.datasets(i) for i in range(len(study.stages))]
    image = pairs[0][0][0][0]
    fits = len(study.rows) * image.nbytes <= IN_MEMORY

    def split(dataset: ImageDataset) -> Any:
        return tensors(dataset) if fits and dataset.augment is None else dataset

    return Problem(
        stages=[
            ProblemStage(stage.name, split(train), split(test))
            for stage, (train, test) in zip(study.stages, pairs, strict=True)
        ],
        num_confounders=pairs[0][0].confounders.shape[1],
        num_classes=len(study.label_names),
        in_channels=len(image),
        image_size=tuple(image.shape[1:]),
        stand_in=f"{study.name} is a stand-in: simulated images, which say nothing of people." if study.is_stand_in else "",
    )


def tensors(dataset: ImageDataset) -> tuple[Tensor, Tensor, Tensor]:
    """(images, confounders, labels) of a whole dataset."""
    return torch.stack([dataset.files[i] for i in range(len(dataset))]), dataset.confounders, dataset.labels
