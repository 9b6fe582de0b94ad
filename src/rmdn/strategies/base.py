"""The contract between a way of learning (a strategy) and the loop over stages.

How to write one
----------------
Subclass `Strategy` and define what differs. The loop calls, on the same object for the whole run:

    setup(network, fabric, sample)        once: build modules and optimizers of your own
    for each stage:
        begin_stage(network, data)        `for batch in data` sees the stage's whole training data
        for each batch:                   (step, which you may replace:)
            loss(network, batch)          -> Outcome(loss, logits); ONE forward pass, by `forward`
            after_backward(network)       gradients are there, the optimizer has not stepped yet
        end_epoch(network, data, ...)     after each epoch, and after recalibration where that is due
        end_stage(network, data)          after recalibration; then every test set goes through `predict`

State that matters goes into `state_dict` (plain tensors, numbers, strings, lists, dicts); a resumed run calls setup and
load_state_dict, then goes on, without begin_stage where that was done. To replace the network, load other weights into
it: the object stays. Methods combine by wrapping: `EWC(LwF(Plain()))`; a `Wrapper` calls its `base` and adds its own.
R-MDN is no strategy but a property of the network (`rmdn.deconfound`), so it combines with all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rmdn.deconfound import Deconfounded
from rmdn.errors import InputError, SettingError
from rmdn.models.probe import full_name

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Batch(NamedTuple):
    """Some rows of one stage."""

    images: Tensor  # (B, ...)
    confounders: Tensor  # (B, c)
    labels: Tensor  # (B,) class indices
    stage: int = 0  # the stage that the rows come from (a method that needs a task's identity reads it here)


class Outcome(NamedTuple):
    """What a batch gave: the whole loss to descend, and the logits of the one forward pass."""

    loss: Tensor  # ()
    logits: Tensor  # (B, K); K = 1: the score of class 1 against class 0


@dataclass(frozen=True)
class StageData:
    """A stage's training data: iterating gives all rows, in the same order each time, on every rank alike."""

    stage: int
    rows: int
    steps: int  # how many times `step` will be called in this stage
    raw: Callable[[], Iterator[Batch]]  # batches before `prepare`
    prepare: Callable[[Batch], Batch] = lambda batch: batch
    raw_held_out: Callable[[], Iterator[Batch]] = lambda: iter(())  # rows that no step sees (`Settings.holdout`)

    def __iter__(self) -> Iterator[Batch]:
        return map(self.prepare, self.raw())

    def held_out(self) -> Iterator[Batch]:
        """The rows held out of the stage's training, in the same order each time, on every rank alike."""
        return map(self.prepare, self.raw_held_out())


class Strategy:
    """Plain training; the ancestor of every other way."""

    def setup(self, network: nn.Module, fabric: Fabric, sample: Batch) -> None:
        """Once per run: build your own modules and optimizers (`fabric.setup`); `sample` shows the shapes."""

    def begin_stage(self, network: nn.Module, data: StageData) -> None:
        """Before a stage's first batch. `network` is the user's own module, as in all calls but `loss` and `step`."""

    def loss(self, network: nn.Module, batch: Batch) -> Outcome:
        """The whole loss of a batch. `network` may be in Fabric's wrapper: call it by `forward(network, batch)`."""
        logits = forward(network, batch)
        return Outcome(task_loss(logits, batch.labels), logits)

    def after_backward(self, network: nn.Module) -> None:
        """Read or change gradients; a parameter whose `grad` is None keeps its value in this step."""

    def end_epoch(self, network: nn.Module, data: StageData, epoch: int, epochs: int) -> None:
        """After an epoch (from 0) of so many, and after recalibration where that is due."""

    def end_stage(self, network: nn.Module, data: StageData) -> None:
        """After a stage's last batch, and after recalibration; the evaluation follows."""

    def epochs(self, stage: int, planned: int) -> int:
        """How many epochs to train in a stage for which the settings plan so many; 0: begin and end alone."""
        return planned

    def prepare(self, batch: Batch) -> Batch:
        """The batch as all else shall see it, in training, evaluation and recalibration; labels may not be used."""
        return batch

    def step(
        self,
        network: nn.Module,
        batch: Batch,
        optimizer: torch.optim.Optimizer,
        backward: Callable[[Tensor], None],
    ) -> Outcome:
        """One batch of training; replace it whole where one loss and one optimizer do not describe it."""
        optimizer.zero_grad()
        outcome = self.loss(network, batch)
        backward(outcome.loss)
        self.after_backward(unwrapped(network))
        optimizer.step()
        return outcome

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        """Logits (B, K) in evaluation, not from the labels, no talk between ranks; eval is on and gradients are off."""
        return forward(network, batch)

    def state_dict(self) -> dict[str, Any]:
        """All that the next calls depend on, as plain tensors, numbers, strings, lists and dicts."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state; `setup` was called before, on an equal network."""


class Wrapper(Strategy):
    """A strategy around another: what a subclass does not define is its base's."""

    def __init__(self, base: Strategy | None = None) -> None:
        self.base = Strategy() if base is None else base
        if type(self).loss is not Wrapper.loss and takes_own_steps(self.base):
            outer, inner = type(self).__name__, type(self.base).__name__
            raise SettingError(
                f"{outer} adds to the loss, but {inner} takes gradient steps of its own, which would leave that out. "
                f"If {inner} wraps a strategy, put it outside: {inner}({outer}(...))."
            )

    def setup(self, network: nn.Module, fabric: Fabric, sample: Batch) -> None:
        """The base's; a subclass that defines it calls this too (as in all calls below)."""
        self.base.setup(network, fabric, sample)

    def begin_stage(self, network: nn.Module, data: StageData) -> None:
        """The base's."""
        self.base.begin_stage(network, data)

    def loss(self, network: nn.Module, batch: Batch) -> Outcome:
        """The base's."""
        return self.base.loss(network, batch)

    def after_backward(self, network: nn.Module) -> None:
        """The base's."""
        self.base.after_backward(network)

    def end_epoch(self, network: nn.Module, data: StageData, epoch: int, epochs: int) -> None:
        """The base's."""
        self.base.end_epoch(network, data, epoch, epochs)

    def end_stage(self, network: nn.Module, data: StageData) -> None:
        """The base's."""
        self.base.end_stage(network, data)

    def epochs(self, stage: int, planned: int) -> int:
        """The base's."""
        return self.base.epochs(stage, planned)

    def prepare(self, batch: Batch) -> Batch:
        """The base's."""
        return self.base.prepare(batch)

    def step(
        self,
        network: nn.Module,
        batch: Batch,
        optimizer: torch.optim.Optimizer,
        backward: Callable[[Tensor], None],
    ) -> Outcome:
        """The base's own step where it has one, else the common step on this strategy's loss."""
        if takes_own_steps(self.base):
            return self.base.step(network, batch, optimizer, backward)
        return super().step(network, batch, optimizer, backward)

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        """The base's."""
        return self.base.predict(network, batch)

    def state_dict(self) -> dict[str, Any]:
        """The base's state; a subclass returns `{**super().state_dict(), "its own": ...}`."""
        return {"base": self.base.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hand the base its state; a subclass then reads its own entries."""
        self.base.load_state_dict(state["base"])


def takes_own_steps(strategy: Strategy) -> bool:
    """Whether the strategy, or one that it wraps, replaces the gradient step of a batch."""
    if type(strategy).step not in (Strategy.step, Wrapper.step):
        return True
    return isinstance(strategy, Wrapper) and takes_own_steps(strategy.base)


def unwrapped(network: nn.Module) -> nn.Module:
    """The user's own module inside the wrappers that Fabric and DDP put around it."""
    while type(network).__name__ in ("_FabricModule", "DistributedDataParallel"):
        network = network.module  # type: ignore[assignment]
    return network


def inner(network: nn.Module) -> nn.Module:
    """The plain network inside all wrappers, `rmdn.deconfound`'s too: modules have the names in it that users know."""
    own = unwrapped(network)
    return own.network if isinstance(own, Deconfounded) else own


def forward(network: nn.Module, batch: Batch) -> Tensor:
    """Logits of a batch, from a plain network or a deconfounded one; labels go in while it trains, never else."""
    check_batch(batch)
    own = unwrapped(network)
    logits: Tensor
    if not isinstance(own, Deconfounded):
        logits = network(batch.images)
    elif own.training:  # not the wrapper's flag
        logits = network(batch.images, confounders=batch.confounders, labels=batch.labels)
    else:
        logits = network(batch.images, confounders=batch.confounders)
    return logits


def frozen(network: nn.Module) -> AbstractContextManager[Any]:
    """Passes within it, even in training mode, leave the state of a deconfounded network as it is."""
    own = unwrapped(network)
    return own.frozen() if isinstance(own, Deconfounded) else nullcontext()


@contextmanager
def looking(network: nn.Module) -> Iterator[None]:
    """Passes within it are those of evaluation, without gradients: they leave no trace."""
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        network.train(training)


def count_classes(network: nn.Module, sample: Batch) -> tuple[int, int]:
    """How many classes a network tells apart, and by how many logits; one logit is for two classes."""
    with looking(network):
        logits = forward(network, sample).shape[-1]
    return max(logits, 2), logits


def pre_logits(network: nn.Module, at: str | None) -> str:
    """The whole name, in `inner`, of the module whose features a method takes: `at`, or what it calls its pre-logits."""
    own = inner(network)
    name = at if at is not None else getattr(own, "pre_logits_name", None)
    if not isinstance(name, str):
        raise SettingError(
            f"This {type(own).__name__} does not say where its features are (it has no `pre_logits_name`); give the name "
            "of a module, as in at='fc1'."
        )
    return full_name(own, name)


def check_labels(labels: Tensor, classes: int) -> None:
    """Refuse labels that are no class indices."""
    if labels.is_floating_point() or ((labels < 0) | (labels >= classes)).any():
        raise InputError(
            f"Labels ({labels.dtype}, {labels.min().item()} to {labels.max().item()}) do not fit {classes} classes. Give "
            f"one int64 class index from 0 to {classes - 1} for each row."
        )


def check_batch(batch: Batch) -> None:
    """Refuse a batch whose parts do not belong together; reads shapes only, so it costs no waiting for a device."""
    images, confounders, labels = batch[:3]
    if not len(images) == len(confounders) == len(labels):
        raise InputError(
            f"A batch has {len(images)} images, {len(confounders)} rows of confounders and {len(labels)} labels; "
            "give one row and one label for each image."
        )
    if confounders.ndim != 2 or labels.ndim != 1:
        raise InputError(
            f"Confounders have shape {tuple(confounders.shape)} and labels {tuple(labels.shape)}; expected (B, number "
            "of confounders) and (B,)."
        )


def task_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of class indices under logits (B, K); with K = 1, of 0/1 labels under a score of class 1."""
    try:
        return F.cross_entropy(class_scores(logits), labels)
    except (IndexError, RuntimeError, ValueError) as error:
        raise InputError(
            f"Labels (shape {tuple(labels.shape)}, {labels.dtype}) do not fit logits of shape {tuple(logits.shape)}: "
            f"{error} Give one int64 class index from 0 to {max(logits.shape[-1], 2) - 1} for each row."
        ) from error


def class_scores(logits: Tensor) -> Tensor:
    """Logits of at least two classes: a single score s stands for (0, s)."""
    return logits if logits.shape[-1] > 1 else F.pad(logits, (1, 0))


def predicted(logits: Tensor) -> Tensor:
    """The class of each row. (B,)"""
    return class_scores(logits).argmax(dim=-1)
