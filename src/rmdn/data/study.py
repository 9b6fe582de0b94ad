"""A study: a table of rows, in stages with a training and a test set each, ready for a training loop."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rmdn.cells import column, in_order, some, to_levels, to_numbers
from rmdn.data.folds import folds
from rmdn.data.images import ImageDataset, Images, readable
from rmdn.data.stages import Rule, everything
from rmdn.errors import InputError, RMDNWarning, SettingError
from rmdn.metrics.identifiability import identifiability
from rmdn.schema import Schema

STAND_IN = "stand_in"  # the column by which a simulated table says what it is
ENOUGH = 10  # rows of a class, and for each confounder column, before anything is said of what they share


@dataclass(frozen=True)
class Stage:
    """Row numbers of a stage's training and test images."""

    name: str
    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class StageImages:
    """A stage's training and test images."""

    name: str
    train: ImageDataset
    test: ImageDataset


@dataclass(frozen=True)
class Columns:
    """Which column of a table plays which part; `split` holds "train" and "test"."""

    image: str = "image"
    label: str = "label"
    subject: str | None = None
    site: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class Split:
    """How test rows are chosen where no column says: one fold of several, alike in label and stage.

    Rows that share a cell of the columns `by` stay together, in whatever stage they are.
    """

    by: tuple[str, ...] = ()
    folds: int = 5
    fold: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.fold < self.folds:
            raise SettingError(f"fold={self.fold} of {self.folds} folds: count from 0.")


@dataclass(frozen=True)
class Study:
    """All that training and a report need of the data. `label_names` is empty where the label is a number."""

    name: str
    rows: Any  # pandas.DataFrame, one row an image
    columns: Columns
    stages: tuple[Stage, ...]
    label_names: tuple[str, ...]
    confounders: tuple[str, ...]
    schema: Schema  # fitted on the training rows of all stages
    images: Images
    is_stand_in: bool
    notes: tuple[str, ...] = field(default=())

    def labels(self) -> np.ndarray:
        """(n,) class numbers in the order of `label_names`, or the numbers themselves."""
        cells = column(self.rows, self.columns.label)
        if not self.label_names:
            return to_numbers(cells, self.columns.label)
        number = {name: i for i, name in enumerate(self.label_names)}
        return np.array([number[str(cell)] for cell in to_levels(cells)], dtype=np.int64)

    def datasets(self, stage: int) -> tuple[ImageDataset, ImageDataset]:
        """Training and test images of one stage, as (image (C, ...), confounders (c,), label)."""
        if not 0 <= stage < len(self.stages):
            raise SettingError(f"stage={stage}: there are {len(self.stages)}, counted from 0.")
        here = self.stages[stage]
        return self._dataset(here.train, train=True), self._dataset(here.test, train=False)

    def splits(self) -> list[StageImages]:
        """All stages as `rmdn.training.train` takes them."""
        return [StageImages(stage.name, *self.datasets(i)) for i, stage in enumerate(self.stages)]

    def describe(self) -> str:
        """What is in the study and what was done to it, in words."""
        lines = [f"{self.name}: {len(self.rows)} images in {len(self.stages)} stage(s)."]
        if self.is_stand_in:
            lines.insert(0, "STAND-IN: these data are simulated; no result from them says anything of people.")
        labels = self.labels()
        for stage in self.stages:
            counts = [int((labels[stage.train] == i).sum()) for i in range(len(self.label_names))]
            classes = ", ".join(f"{name} {n}" for name, n in zip(self.label_names, counts, strict=True))
            sizes = f"{len(stage.train)} for training, {len(stage.test)} for test"
            lines.append(f"{stage.name}: {sizes}{f' (training: {classes})' if classes else ''}.")
        return "\n".join([*lines, *self.notes, "Confounders:", self.schema.describe()])

    def _dataset(self, index: np.ndarray, train: bool) -> ImageDataset:
        rows = self.rows.iloc[index]
        labels = self.labels()[index]
        return ImageDataset(
            list(rows[self.columns.image]),
            torch.from_numpy(self.schema.transform(rows)).float(),
            torch.from_numpy(labels) if self.label_names else torch.from_numpy(labels).float(),
            self.images,
            train,
        )


def assemble(
    name: str,
    rows: Any,
    columns: Columns,
    schema: Schema,
    *,
    stages: Rule | None = None,
    split: Split | None = None,
    images: Images | None = None,
    label_names: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> Study:
    """Check a table, split it and fit its schema; the one way in which every study is made.

    `label_names=None` takes the classes that the column has; () takes the label as a number. A schema that is
    already fitted (a model's own) is used as it is. Images are read once here, so a bad file is found now.
    """
    split, images = split or Split(), images or Images()
    for needed in (columns.image, columns.label, columns.subject, columns.site, columns.split, *split.by):
        if needed is not None:
            column(rows, needed)
    rows = rows.reset_index(drop=True)
    schema.check(rows)  # while rows have the numbers that they have in the table
    rows, notes = _complete(rows, schema, list(notes))
    names = _label_names(rows, columns.label, label_names)
    stage_of, stage_names = (stages or everything())(rows)
    test = _test_rows(rows, columns, split, stage_of, bool(names))
    refuse_leaks(rows, test, [part for part in (columns.subject, columns.image) if part])
    good = readable(list(rows[columns.image]), images)
    if not good.all():
        notes.append(f"{(~good).sum()} of {len(good)} rows left out: their images do not read.")
    found = tuple(
        Stage(str(title), _numbers(stage_of == k, ~test, good), _numbers(stage_of == k, test, good))
        for k, title in enumerate(stage_names)
    )
    _refuse_empty(found)
    if schema.fits is None:
        schema = schema.fit(rows[good].iloc[np.concatenate([stage.train for stage in found])])
    schema.transform(rows[good])  # an unseen level or a bad cell is found now, not in the last stage
    stand_in = STAND_IN in rows and any(cell is not None for cell in to_levels(rows[STAND_IN]))
    used = tuple(term.name for term in schema.columns)
    kept = rows[good].reset_index(drop=True)
    study = Study(name, kept, columns, found, names, used, schema, images, stand_in, tuple(notes))
    warn_where_inseparable(study)
    return study


def warn_where_inseparable(study: Study) -> None:
    """A warning, before training, where the training rows cannot tell the label from the confounders."""
    train = np.concatenate([stage.train for stage in study.stages])
    x, labels = study.schema.transform(study.rows.iloc[train]), study.labels()[train]
    telling = np.isfinite(x).all(axis=1)
    if study.label_names:  # a class of a few rows overlaps with nothing, by chance alone
        telling &= np.bincount(labels)[labels] >= ENOUGH
    if not x.shape[1] or telling.sum() < ENOUGH * x.shape[1]:
        return
    found = identifiability(x[telling], labels[telling], names=study.schema.names, warn=False)
    if found.inseparable:
        warnings.warn(
            f"{study.name}: the training rows can hardly tell the label from the confounders: "
            f"{'; '.join(found.inseparable)}. What is removed with them is the label's too: leave a column out, merge "
            "levels, or gather rows where they differ.",
            RMDNWarning,
            stacklevel=3,
        )


def refuse_leaks(rows: Any, test: np.ndarray, names: Sequence[str]) -> None:
    """An error where a subject, or an image, is in training and in test."""
    for name in names:
        cells = np.array([str(cell) for cell in to_levels(column(rows, name))], dtype=object)
        both = sorted((set(cells[test]) & set(cells[~test])) - {"None"})
        if both:
            raise InputError(
                f"{len(both)} values of column {name!r} are in training and in test: {some(both)}. "
                "Results would be too good. Put all rows of each on one side."
            )


def _complete(rows: Any, schema: Schema, notes: list[str]) -> tuple[Any, list[str]]:
    keep = schema.complete(rows)
    if keep.all():
        return rows, notes
    names = ", ".join(term.name for term in schema.columns if term.missing == "drop")
    note = f"{(~keep).sum()} of {len(keep)} rows left out: no value in {names}."
    return rows[keep].reset_index(drop=True), [*notes, note]


def _label_names(rows: Any, label: str, given: Sequence[str] | None) -> tuple[str, ...]:
    cells = to_levels(column(rows, label))
    absent = [row for row, cell in enumerate(cells) if cell is None]
    if absent:
        raise InputError(f"Column {label!r} has no label in {len(absent)} rows: rows {some(absent)}. Leave these rows out.")
    present = {str(cell) for cell in cells}
    names = tuple(in_order(present)) if given is None else tuple(given)
    if names and present - set(names):
        raise InputError(f"Column {label!r} has unknown labels: {some(sorted(present - set(names)))}.")
    if names and len(present) < 2:
        raise InputError(f"Column {label!r} has the one label {names[0]}; a classifier needs two.")
    if not names:
        to_numbers(rows[label], label)
    return names


def _test_rows(rows: Any, columns: Columns, split: Split, stage_of: np.ndarray, classes: bool) -> np.ndarray:
    if columns.split is not None:
        cells = [str(cell).lower() for cell in to_levels(column(rows, columns.split))]
        odd = sorted(set(cells) - {"train", "test"})
        if odd:
            raise InputError(f"Column {columns.split!r} holds {some(odd)}; it must hold train or test alone.")
        return np.array([cell == "test" for cell in cells], dtype=bool)
    alike = [columns.label] if classes else []
    table = rows.assign(**{"the stage": stage_of})
    fold = folds(table, split.by, [*alike, "the stage"], split.folds, split.seed)
    chosen: np.ndarray = fold == split.fold
    return chosen


def _numbers(here: np.ndarray, side: np.ndarray, good: np.ndarray) -> np.ndarray:
    """Row numbers, in the table of good rows alone, of those on one side of one stage."""
    return np.flatnonzero((here & side)[good])


def _refuse_empty(stages: Sequence[Stage]) -> None:
    for stage in stages:
        if not len(stage.train) or not len(stage.test):
            side = "test" if len(stage.train) else "training"
            raise InputError(f"Stage {stage.name!r} has no {side} row. Choose other stages, more data, or another split.")


def image_paths(rows: Any, name: str, root: Path) -> list[str]:
    """The image column as paths, relative ones from `root`."""
    cells = to_levels(column(rows, name))
    absent = [row for row, cell in enumerate(cells) if cell is None]
    if absent:
        raise InputError(f"Column {name!r} names no image in {len(absent)} rows: rows {some(absent)}.")
    return [str(root / str(cell)) for cell in cells]
