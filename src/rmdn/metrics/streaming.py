"""The measures as torchmetrics: fed batch by batch, on every rank, with the result of all rows at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rmdn.errors import InputError, MissingExtraError, SettingError, UsageError
from rmdn.metrics._inputs import at_least, matrix
from rmdn.metrics.dependence import dcor2, dcor2_per_class
from rmdn.metrics.fairness import ClassRates, rates_of_confusion

try:
    from torchmetrics import Metric
except ImportError as error:
    raise MissingExtraError(f"Streaming metrics need 'torchmetrics': pip install 'rmdn[study]' ({error}).") from error


class Collected(Metric):
    """Any measure that needs all rows at once, fed in batches: rows are kept, and joined over ranks.

        metric = Collected(partial_confounder_test, permutations=999)
        metric.update(predictions, labels, confounders)        # or by the names of the measure's arguments
        metric.compute()

    It assumes what the measure assumes, and that every rank makes at least one update (of no rows, if it has
    none). It cannot show that rows are different: a sampler that repeats rows to fill up ranks makes them
    count twice.
    """

    full_state_update = False
    rows: list[Tensor]

    def __init__(self, measure: Callable[..., Any], **options: Any) -> None:
        super().__init__()
        self.measure, self.options = measure, options
        self.layout: list[tuple[str | int, tuple[int, ...]]] = []  # argument and the shape of its rows
        self.add_state("rows", default=[], dist_reduce_fx="cat")

    def update(self, *batch: Any, **named: Any) -> None:
        """Add rows: the measure's per-row arguments, by place or by name, the same ones at each call."""
        given: dict[str | int, Any] = dict(enumerate(batch))
        given.update(named)
        if not given:
            raise InputError("update needs the rows of at least one argument of the measure.")
        tensors = {key: _numeric(value, key) for key, value in given.items()}
        sizes = {key: len(tensor) for key, tensor in tensors.items()}
        if len(set(sizes.values())) > 1:
            raise InputError(f"All arguments must have the same number of rows; got {sizes}.")
        layout = [(key, tuple(tensor.shape[1:])) for key, tensor in tensors.items()]
        if self.layout and layout != self.layout:
            raise InputError(f"This batch has arguments and row shapes {layout}, earlier ones had {self.layout}.")
        self.layout = layout
        flat = [tensor.reshape(len(tensor), int(np.prod(tensor.shape[1:]))) for tensor in tensors.values()]
        self.rows.append(torch.cat([part.detach().to(self.device, _double(self.device)) for part in flat], 1))

    def compute(self) -> Any:
        """The measure of all rows of all ranks."""
        if not self.layout or len(self.rows) == 0:
            raise UsageError("Nothing was added yet: call update first, on every rank (with no rows, if it has none).")
        rows = torch.cat(self.rows) if isinstance(self.rows, list) else self.rows  # joined already after a sync
        ends = np.cumsum([int(np.prod(shape)) for _, shape in self.layout])
        parts = torch.tensor_split(rows, ends.tolist()[:-1], 1)
        arguments = {key: part.reshape(len(rows), *shape) for part, (key, shape) in zip(parts, self.layout, strict=True)}
        places = [value for key, value in arguments.items() if isinstance(key, int)]
        return self.measure(*places, **{k: v for k, v in arguments.items() if isinstance(k, str)}, **self.options)


class DistanceCorrelation(Collected):
    """`dcor2` of features and confounder over all batches and ranks; with labels, the mean within classes.

    It assumes what `dcor2` assumes, and keeps every row in memory. It cannot show more than `dcor2` does.
    """

    def __init__(self) -> None:
        super().__init__(_dependence)

    def update(self, x: Any, y: Any, labels: Any = None) -> None:
        """Add features x (b, ...), confounders y (b, ...) and, if it is to be within class, labels (b,)."""
        super().update(*((x, y) if labels is None else (x, y, labels)))


class ClassRatesMetric(Metric):
    """`class_rates` over batches and ranks, from one K x K table; values without intervals.

    It assumes labels and predictions as class numbers 0..K-1. It cannot show
    how sure the rates are: `Collected(class_rates)` keeps rows and gives intervals.
    """

    full_state_update = False
    confusion: Tensor

    def __init__(self, num_classes: int, *, positive: int = 1, best: float | None = None) -> None:
        super().__init__()
        self.num_classes = at_least(num_classes, 2, "num_classes")
        if not 0 <= positive < num_classes:
            raise SettingError(f"positive must be a class from 0 to {num_classes - 1}; got {positive}.")
        self.positive, self.best = positive, best
        table = torch.zeros(num_classes, num_classes, dtype=torch.int64)
        self.add_state("confusion", default=table, dist_reduce_fx="sum")

    def update(self, predictions: Any, labels: Any) -> None:
        """Add predicted classes (b,) and labels (b,)."""
        predicted, truth = (self._classes(v, n) for v, n in ((predictions, "predictions"), (labels, "labels")))
        if len(predicted) != len(truth):
            raise InputError(f"predictions has {len(predicted)} rows, labels {len(truth)}.")
        cells = torch.bincount(truth * self.num_classes + predicted, minlength=self.num_classes**2)
        self.confusion += cells.reshape(self.num_classes, self.num_classes)

    def compute(self) -> dict[str, float]:
        """The rates by the names of `ClassRates`."""
        table = self.confusion.cpu().numpy().astype(np.float64)[None]
        values = rates_of_confusion(table, self.positive if self.num_classes == 2 else None, self.best)[0]
        return dict(zip(ClassRates._fields, values.tolist(), strict=True))

    def _classes(self, values: Any, name: str) -> Tensor:
        tensor = torch.as_tensor(values, device=self.device)
        if tensor.ndim != 1:
            raise InputError(f"{name} must be class numbers (b,); got shape {tuple(tensor.shape)}. Use argmax(1).")
        whole = tensor.long()
        if bool((whole != tensor).any()) or bool(((whole < 0) | (whole >= self.num_classes)).any()):
            raise InputError(f"{name} must be whole numbers from 0 to {self.num_classes - 1}.")
        return whole


class TransferMatrix(Metric):
    """The matrix R for `transfer`, summed over batches and ranks: R[i, j] is the mean score on j after i.

    It assumes one score a row (1 or 0 for accuracy). It cannot show
    how sure the entries are: `transfer_intervals` takes the rows.

    Entries that were never fed are NaN.
    """

    full_state_update = False
    sums: Tensor
    counts: Tensor

    def __init__(self, stages: int) -> None:
        super().__init__()
        self.stages = at_least(stages, 1, "stages")
        for name in ("sums", "counts"):
            self.add_state(name, torch.zeros(stages, stages, dtype=_double(self.device)), dist_reduce_fx="sum")

    def update(self, after: int, on: int, scores: Any) -> None:
        """Add scores (b,) on the test set of stage `on` after training on stage `after`, both from 0."""
        if not (0 <= after < self.stages and 0 <= on < self.stages):
            raise InputError(f"Stages run from 0 to {self.stages - 1}; got after={after}, on={on}.")
        values = torch.as_tensor(scores, device=self.device).reshape(-1)
        if len(values):
            self.sums[after, on] += matrix(values, "scores").sum()
            self.counts[after, on] += len(values)

    def compute(self) -> Tensor:
        """R (S, S)."""
        return self.sums / torch.where(self.counts > 0, self.counts, float("nan"))


def _dependence(x: Tensor, y: Tensor, labels: Tensor | None = None) -> Tensor:
    return dcor2(x, y) if labels is None else dcor2_per_class(x, y, labels).mean


def _numeric(value: Any, key: str | int) -> Tensor:
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"Argument {key!r} must be numbers (levels as codes); got {type(value).__name__}.") from error
    if tensor.ndim == 0:
        raise InputError(f"Argument {key!r} must have one row a sample; options go to the constructor.")
    return tensor


def _double(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64
