"""What the loop needs before and around its steps: the device, the data of all stages, randomness, recalibration."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

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


def open_stages(
    stages: Sequence[StageLike], fabric: Fabric, settings: Settings
) -> tuple[list[Source], list[Source], list[str]]:
    """Every stage's training and test data, checked, and the stages' names."""
    if not len(stages):
        raise InputError("There are no stages; give at least one with .train and .test.")
    trains, tests, names = [], [], []
    for i, stage in enumerate(stages):
        names.append(str(getattr(stage, "name", f"stage {i + 1}")))
        trains.append(open_split(stage.train, i, fabric, settings.workers, f"training data of {names[-1]}"))
        tests.append(open_split(stage.test, i, fabric, settings.workers, f"test data of {names[-1]}"))
        if not len(epoch_batches(trains[-1].rows, settings, i, 0, 0, fabric.world_size)):
            raise SettingError(
                f"{names[-1]} has {trains[-1].rows} training rows, which fill no batch of {settings.batch_size} on "
                f"{fabric.world_size} ranks; give a smaller batch_size or drop_last=False."
            )
    return trains, tests, names


def stage_data(
    source: Source, stage: int, epochs: int, strategy: Strategy, settings: Settings, fabric: Fabric
) -> StageData:
    """A stage's training data as strategies see them."""
    per_epoch = len(epoch_batches(source.rows, settings, stage, 0, fabric.global_rank, fabric.world_size))
    return StageData(
        stage=stage,
        rows=source.rows,
        steps=epochs * per_epoch,
        raw=lambda: source.in_order(settings.eval_batch_size),
        prepare=strategy.prepare,
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


def recalibrate(network: nn.Module, data: StageData) -> None:
    """Exact coefficients for the weights as they are, where a network has R-MDN layers."""
    if isinstance(network, Deconfounded) and any(isinstance(layer, RMDN) for layer in network.layers.values()):
        rmdn.recalibrate(network, _Triples(data), exact=True)


class _Triples:
    """A stage's batches as (images, confounders, labels), as often as wanted."""

    def __init__(self, data: StageData) -> None:
        self.data = data

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        return (batch[:3] for batch in self.data)
