"""A split of a stage as batches: tensors that stay on the device, or a Dataset through a DataLoader.

Which rows form which batch is decided in one place, `epoch_batches`, from (seed, stage, epoch) alone: a resumed run
and every rank work it out anew and agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from rmdn.errors import InputError
from rmdn.strategies.base import Batch, check_batch
from rmdn.training.settings import Settings

if TYPE_CHECKING:
    from lightning.fabric import Fabric

Triple = tuple[Tensor, Tensor, Tensor]


class HasTensors(Protocol):
    """Samples in memory, as those of `rmdn.data.synthetic`."""

    def tensors(self) -> Triple:
        """(images, confounders, labels)."""


Split = Triple | HasTensors | Dataset[Any]


class StageLike(Protocol):
    """One stage's training and test data."""

    @property
    def train(self) -> Any:
        """A `Split`."""

    @property
    def test(self) -> Any:
        """A `Split`. A stage may also have `more_tests`, further test sets by name."""


@dataclass(frozen=True)
class Source:
    """One split: how many rows, and the batches of given rows, on the device."""

    rows: int
    fetch: Callable[[Sequence[Tensor]], Iterator[Batch]]

    def sample(self) -> Batch:
        """The first few rows, to show the shapes."""
        return next(self.in_order(4))

    def part(self, rows: Tensor) -> Source:
        """Some of the rows, as a source of their own."""
        return Source(len(rows), lambda batches: self.fetch([rows[batch] for batch in batches]))

    def in_order(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """All rows once, in their order; of several ranks, each has its own part (parts may be unequal)."""
        return self.fetch(torch.arange(rank, self.rows, world).split(batch_size))


def open_split(split: Split, stage: int, fabric: Fabric, workers: int, name: str) -> Source:
    """A split as a source; what cannot be right is refused here, before any training."""
    given = cast(Any, split)
    if isinstance(given, TensorDataset):
        given = given.tensors
    elif hasattr(given, "tensors"):
        given = given.tensors()
    if isinstance(given, tuple):
        return _in_memory(given, stage, fabric, name)
    if not (hasattr(given, "__getitem__") and hasattr(given, "__len__")):
        raise InputError(
            f"The {name} are a {type(given).__name__}; give tensors (images, confounders, labels), or a Dataset "
            "with a length whose items are (image, confounder, label)."
        )
    return _loaded(given, stage, fabric, workers, name)


def mixed(*numbers: int) -> int:
    """One well-mixed 63-bit seed of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def epoch_batches(rows: int, settings: Settings, stage: int, epoch: int, rank: int = 0, world: int = 1) -> Sequence[Tensor]:
    """The rows of each batch of an epoch (this rank's share): one permutation, cut into batches."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(mixed(settings.seed, stage, epoch)))
    batches = order.split(settings.batch_size)
    if len(batches[-1]) < settings.batch_size and settings.drop_last:
        batches = batches[:-1]
    if world == 1:
        return batches
    even = (batch[: len(batch) // world * world] for batch in batches)
    return [batch[rank::world] for batch in even if len(batch)]


def _in_memory(tensors: tuple[Tensor, ...], stage: int, fabric: Fabric, name: str) -> Source:
    images, confounders, labels = _checked(tensors, name)
    if _fits(tensors, fabric.device):
        images, confounders, labels = (tensor.to(fabric.device) for tensor in (images, confounders, labels))

    def fetch(batches: Sequence[Tensor]) -> Iterator[Batch]:
        for rows in batches:
            rows = rows.to(images.device)
            x, c, y = (part.index_select(0, rows) for part in (images, confounders, labels))
            yield Batch(x.to(fabric.device), c.to(fabric.device), y.to(fabric.device), stage)

    return Source(len(labels), fetch)


def _checked(tensors: tuple[Tensor, ...], name: str) -> Triple:
    if len(tensors) != 3 or not all(isinstance(part, Tensor) for part in tensors):
        raise InputError(f"The {name} are {len(tensors)} things; give three tensors: images, confounders, labels.")
    images, confounders, labels = tensors
    if confounders.ndim == 1:
        confounders = confounders[:, None]
    try:
        check_batch(Batch(images, confounders, labels))
    except InputError as error:
        raise InputError(f"In the {name}: {error}") from None
    if not len(labels):
        raise InputError(f"The {name} have no rows.")
    if not torch.isfinite(images).all():
        row = int((~torch.isfinite(images.flatten(1))).any(1).nonzero()[0])
        raise InputError(f"In the {name}, image {row} holds NaN or infinity; mend or leave it out.")
    if not labels.is_floating_point() and int(labels.min()) < 0:
        raise InputError(f"In the {name}, label {int(labels.min())} is negative; classes count from 0.")
    return images, confounders, labels


def _fits(tensors: tuple[Tensor, ...], device: torch.device) -> bool:
    """Whether the tensors may stay on a GPU: they take at most a third of what is free there."""
    if device.type != "cuda":
        return True
    free, _total = torch.cuda.mem_get_info(device)
    return sum(part.nbytes for part in tensors) <= free // 3


def _loaded(dataset: Any, stage: int, fabric: Fabric, workers: int, name: str) -> Source:
    if not len(dataset):
        raise InputError(f"The {name} have no rows.")
    rows, random = _Rows(), torch.Generator()
    loader = fabric.setup_dataloaders(
        DataLoader(
            dataset,
            batch_sampler=rows,
            num_workers=workers,
            generator=random,  # of its own: a pass over the data must not move the network's random numbers
            persistent_workers=workers > 0,
            pin_memory=fabric.device.type == "cuda",
        ),
        use_distributed_sampler=False,  # `epoch_batches` has dealt the rows out already
    )

    def fetch(batches: Sequence[Tensor]) -> Iterator[Batch]:
        rows.batches = [batch.tolist() for batch in batches]
        random.manual_seed(mixed(stage, *(rows.batches[0] if rows.batches else ())))
        for item in loader:
            if len(item) != 3:
                raise InputError(f"An item of the {name} has {len(item)} parts; expected (image, confounder, label).")
            images, confounders, labels = item
            confounders = confounders[:, None] if confounders.ndim == 1 else confounders
            # The collation of Python floats gives float64, which the images are not.
            yield Batch(images, confounders.to(images.dtype), labels, stage)

    return Source(len(dataset), fetch)


class _Rows(torch.utils.data.Sampler[list[int]]):
    """The batches of the next pass, in the form that a DataLoader asks for."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)
