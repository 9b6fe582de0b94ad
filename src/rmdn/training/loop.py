"""The one training loop, over stages; Lightning Fabric takes care of devices, precision and ranks."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from rmdn.errors import TrainingError
from rmdn.strategies.base import Strategy, predicted
from rmdn.strategies.plain import Plain
from rmdn.training.checkpoint import Checkpoints, Position, Run
from rmdn.training.data import Source, StageLike, epoch_batches
from rmdn.training.evaluate import evaluate
from rmdn.training.opening import (
    OpenStage,
    check_fabric,
    one_device,
    open_stages,
    own_randomness,
    recalibrate,
    shown,
    stage_data,
)
from rmdn.training.progress import Bars
from rmdn.training.result import Epoch, Result
from rmdn.training.settings import Settings

if TYPE_CHECKING:
    from lightning.fabric import Fabric

OnEpoch = Callable[[Epoch, nn.Module], None]


def train(
    network: nn.Module,
    stages: Sequence[StageLike],
    strategy: Strategy | None = None,
    settings: Settings | None = None,
    *,
    fabric: Fabric | None = None,
    folder: str | os.PathLike[str] | None = None,
    checkpoint_minutes: float = 10.0,
    keep_logits: bool = False,
    features: str | None = None,
    on_epoch: OnEpoch | None = None,
    progress: bool | None = None,
) -> Result:
    """Train a network on one stage after another; after each, evaluate it on every stage's test set.

    Args:
        network: plain (called with images) or deconfounded; it is trained in place.
        stages: each with `.train` and `.test`: tensors (images, confounders, labels), samples with `.tensors()`, or a
            map-style Dataset of (image, confounder, label). A stage may have `.name`, and in `.more_tests` further test
            sets by name, whose accuracies go into `Result.more`.
        strategy: how to learn; plain training by default.
        settings: how long, how fast, how random; the paper's by default.
        fabric: a launched Fabric for several devices or nodes; by default one device, a GPU if there is one.
        folder: where to keep a checkpoint. If it holds one of this same run, the run goes on from there.
        checkpoint_minutes: how often to write it within a stage (at a stage's end always).
        keep_logits: keep the logits on every test set after every stage in the result.
        features: keep the features of the module of this name as well.
        on_epoch: called after each epoch with its record and the network (a resumed run may repeat one call).
        progress: show bars; by default where the error output is a terminal.
    """
    strategy, settings = strategy or Plain(), settings or Settings()
    fabric = fabric or one_device(settings)
    check_fabric(fabric, settings)
    opened = open_stages(stages, fabric, settings)
    rows = [stage.train.rows for stage in opened]
    checkpoints = Checkpoints(Path(folder) if folder else None, checkpoint_minutes, settings, rows, fabric)
    wrapped = fabric.setup_module(network)
    with own_randomness(fabric, settings.seed), Bars(len(stages), shown(fabric, progress)) as bars:
        strategy.setup(network, fabric, opened[0].train.sample())
        optimizer = settings.build_optimizer(network)
        result = Result.empty([stage.name for stage in opened])
        run = Run(network, strategy, optimizer, Position.start(fabric.device), result)
        checkpoints.load(run)
        while run.position.stage < len(stages):
            train_stage(run, wrapped, opened[run.position.stage], settings, fabric, checkpoints, bars, on_epoch)
            evaluate_stage(run, opened, settings, fabric, keep_logits, features)
            run.position.next_stage()
            checkpoints.save(run)
        bars.finish()
    return run.result


def train_stage(
    run: Run,
    network: nn.Module,
    opened: OpenStage,
    settings: Settings,
    fabric: Fabric,
    checkpoints: Checkpoints,
    bars: Bars,
    on_epoch: OnEpoch | None,
) -> None:
    """The epochs of one stage, from wherever the run stands in it. `network` is `run.network` in Fabric's wrapper."""
    at, strategy, source = run.position, run.strategy, opened.train
    epochs = strategy.epochs(at.stage, settings.epochs)
    data = stage_data(opened, at.stage, epochs, strategy, settings, fabric)
    if not at.begun:
        strategy.begin_stage(run.network, data)
        if settings.schedule_scope == "stage":
            run.optimizer = settings.build_optimizer(run.network)
        at.begun = True
    optimizer = cast(torch.optim.Optimizer, fabric.setup_optimizers(run.optimizer))
    bars.stage(at.stage, data.steps, at.step + at.epoch * data.steps // max(epochs, 1))
    while at.epoch < epochs:
        clock = time.perf_counter()
        lr = settings.learning_rate(at.stage, at.epoch, epochs, len(run.result.names))
        for group in optimizer.param_groups:
            group["lr"] = lr
        network.train()
        batches = epoch_batches(source.rows, settings, at.stage, at.epoch, fabric.global_rank, fabric.world_size)
        for batch in source.fetch(batches[at.step :]):
            batch = strategy.prepare(batch)
            outcome = strategy.step(network, batch, optimizer, fabric.backward)
            with torch.no_grad():  # sums stay on the device: nothing waits for them before the epoch's end
                at.loss += outcome.loss.detach() * len(batch.labels)
                at.hits += (predicted(outcome.logits) == batch.labels).sum()
            at.rows += len(batch.labels)
            at.step += 1
            bars.step()
            if checkpoints.due(at.step == len(batches)):
                at.seconds, clock = at.seconds + time.perf_counter() - clock, time.perf_counter()
                checkpoints.save(run)
        if settings.recalibrates(at.epoch, last=at.epoch + 1 == epochs):
            recalibrate(run.network, source, strategy, settings, fabric)
        strategy.end_epoch(run.network, data, at.epoch, epochs)
        record = close_epoch(run, lr, time.perf_counter() - clock, fabric)
        bars.epoch(record, epochs)
        if on_epoch:
            on_epoch(record, run.network)
    strategy.end_stage(run.network, data)


def close_epoch(run: Run, lr: float, seconds: float, fabric: Fabric) -> Epoch:
    """The epoch's means over all ranks, into the history; the one moment at which the loop waits for the device."""
    at = run.position
    sums = torch.stack((at.loss.double(), at.hits.double(), torch.full_like(at.loss, at.rows).double()))
    loss, hits, rows = fabric.all_reduce(sums, reduce_op="sum").tolist()  # type: ignore[union-attr]
    if not math.isfinite(loss):
        raise TrainingError(
            f"The loss became {loss} in stage {at.stage + 1}, epoch {at.epoch + 1}. Lower lr={lr:g}, look for values "
            "far out of range in images and confounders, or use precision='32-true'."
        )
    record = Epoch(at.stage, at.epoch, loss / max(rows, 1), hits / max(rows, 1), lr, at.seconds + seconds)
    run.result.history.append(record)
    run.result.seconds += record.seconds
    at.next_epoch()
    return record


def evaluate_stage(
    run: Run, opened: Sequence[OpenStage], settings: Settings, fabric: Fabric, keep_logits: bool, features: str | None
) -> None:
    """Row `stage` of R: the accuracy on every stage's test set; and of the same for further test sets."""
    clock, i, result = time.perf_counter(), run.position.stage, run.result

    def accuracy_of(source: Source, features: str | None = None) -> tuple[float, Tensor, Tensor | None]:
        logits, labels, seen = evaluate(run.network, run.strategy, source, fabric, settings.eval_batch_size, features)
        return float((predicted(logits) == labels).double().mean()), logits, seen

    for j, stage in enumerate(opened):
        result.R[i, j], logits, seen = accuracy_of(stage.test, features)
        if keep_logits:
            result.logits[i, j] = logits.cpu()
        if seen is not None:
            result.features[i, j] = seen.cpu()
        for name, source in stage.more_tests.items():
            result.more.setdefault(name, torch.full_like(result.R, torch.nan))[i, j] = accuracy_of(source)[0]
    result.seconds += time.perf_counter() - clock
