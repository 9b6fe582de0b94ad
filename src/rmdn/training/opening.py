"""What the loop needs before and around its steps: the device, the data of all stages, randomness, recalibration."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import rmdn
from rmdn.deconfound import Deconfounded
from rmdn.errors import InputError, MissingExtraError, SettingError
from rmdn.layers import RMDN
from rmdn.strategies.base import StageData, Strategy
from rmdn.training.data import Source, StageLike, epoch_batches, mixed, open_split
from rmdn.training.settings import Settings

if TYPE_CHECKING:
    from lightning.fabric import Fabric


def one_device(settings: Settings) -> Fabric:
    """Fabric on one device: a GPU if there is one."""
    try:
        from lightning.fabric import Fabric
    except ImportError as error:
        raise MissingExtraError("Training needs Lightning Fabric: pip install 'rmdn[study]'.") from error
    return Fabric(devices=1, precision=settings.precision)


def check_fabric(fabric: Fabric, settings: Settings) -> None:
    """Refuse a Fabric that contradicts the settings."""
    precision = fabric.strategy.precision.precision
    if precision != settings.precision:
        raise SettingError(
            f"The given Fabric has precision {precision!r} and the settings {settings.precision!r}; make them the same."
        )
    if settings.batch_size < fabric.world_size:
        raise SettingError(
            f"batch_size={settings.batch_size} is shared by {fabric.world_size} ranks; give each at least one row."
        )


@dataclass(frozen=True)
class OpenStage:
    """A stage whose data are checked and ready to be read."""

    name: str
    train: Source
    held_out: Source
    test: Source
    more_tests: dict[str, Source]


def open_stages(stages: Sequence[StageLike], fabric: Fabric, settings: Settings) -> list[OpenStage]:
    """Every stage's data, checked before any training."""
    if not len(stages):
        raise InputError("There are no stages; give at least one with .train and .test.")
    opened = []
    for i, stage in enumerate(stages):
        name = str(getattr(stage, "name", f"stage {i + 1}"))
        more = getattr(stage, "more_tests", {})

        def source(split: Any, what: str, i: int = i, name: str = name) -> Source:
            return open_split(split, i, fabric, settings.workers, f"{what} of {name}")

        train, held_out = set_apart(source(stage.train, "training data"), i, settings)
        if not len(epoch_batches(train.rows, settings, i, 0, 0, fabric.world_size)):
            raise SettingError(
                f"{name} has {train.rows} training rows, which fill no batch of {settings.batch_size} on "
                f"{fabric.world_size} ranks; give a smaller batch_size or drop_last=False."
            )
        tests = {key: source(split, f"test data {key!r}") for key, split in more.items()}
        opened.append(OpenStage(name, train, held_out, source(stage.test, "test data"), tests))
    return opened


def set_apart(source: Source, stage: int, settings: Settings) -> tuple[Source, Source]:
    """The rows to train on and those held out: the same ones in every life of a run, and on every rank."""
    held = round(settings.holdout * source.rows)
    if settings.holdout == 0:
        return source, source.part(torch.arange(0))
    random = torch.Generator().manual_seed(mixed(settings.seed, stage))
    held_out, train = torch.randperm(source.rows, generator=random).split([held, source.rows - held])
    return source.part(train.sort().values), source.part(held_out.sort().values)


def stage_data(
    opened: OpenStage, stage: int, epochs: int, strategy: Strategy, settings: Settings, fabric: Fabric
) -> StageData:
    """A stage's training data as strategies see them."""
    rows = opened.train.rows
    per_epoch = len(epoch_batches(rows, settings, stage, 0, fabric.global_rank, fabric.world_size))
    return StageData(
        stage=stage,
        rows=rows,
        steps=epochs * per_epoch,
        raw=lambda: opened.train.in_order(settings.eval_batch_size),
        prepare=strategy.prepare,
        raw_held_out=lambda: opened.held_out.in_order(settings.eval_batch_size),
    )


@contextmanager
def own_randomness(fabric: Fabric, seed: int) -> Iterator[None]:
    """Random numbers from the seed, for each rank its own; the caller's are as before when the run is over."""
    devices = [fabric.device] if fabric.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(mixed(seed, fabric.global_rank))
        yield


def shown(fabric: Fabric, progress: bool | None) -> bool:
    """Whether to draw bars: where asked for, or on a terminal; on the first rank alone."""
    return fabric.is_global_zero and (sys.stderr.isatty() if progress is None else progress)


def recalibrate(network: nn.Module, source: Source, strategy: Strategy, settings: Settings, fabric: Fabric) -> None:
    """Exact coefficients for the weights as they are, where a network has R-MDN layers; ranks add up their rows."""
    if isinstance(network, Deconfounded) and any(isinstance(layer, RMDN) for layer in network.layers.values()):
        rmdn.recalibrate(network, _OwnRows(source, strategy, settings, fabric), exact=True)


@dataclass
class _OwnRows:
    """This rank's rows of a stage, in batches of (images, confounders, labels), as often as wanted."""

    source: Source
    strategy: Strategy
    settings: Settings
    fabric: Fabric

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        rank, world = self.fabric.global_rank, self.fabric.world_size
        for batch in self.source.in_order(self.settings.eval_batch_size, rank, world):
            yield self.strategy.prepare(batch)[:3]
