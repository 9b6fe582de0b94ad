"""Ranks with unequal numbers of batches: one that has run out goes on with empty batches until the last is through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.nn.parallel import DistributedDataParallel

from rmdn.deconfound import Deconfounded
from rmdn.errors import UsageError
from rmdn.layers import ranks
from rmdn.layers.base import ConfounderLayer


@contextmanager
def join(parallel: DistributedDataParallel) -> Iterator[None]:
    """What `parallel.join()` is for other models: training steps in here may run out earlier on one rank than on another.

    Every forward pass in here must be one of training. As with `parallel.join()`, gradients are divided by all ranks.
    Where a batch is refused when some rank has run out already, that rank notices only as the others end.
    """
    if not isinstance(parallel, DistributedDataParallel) or not isinstance(parallel.module, Deconfounded):
        raise UsageError(
            f"rmdn.distributed.join was given a {type(parallel).__name__}; expected a DistributedDataParallel around the"
            " model that rmdn.deconfound returned."
        )
    layers = {insertion.name: insertion.layer for insertion in parallel.module.insertions}
    latest = parallel.module.slot.latest
    order = list(dict.fromkeys(latest.called)) if latest else []
    if set(order) != set(layers) or not all(layer.beta.shape[1] for layer in layers.values()):
        raise UsageError(
            "A rank without batches cannot know the layers' order and shapes. Give rmdn.deconfound a sample=, or train on"
            " one batch with all ranks before the join."
        )
    parallel._assign_modules_buffers()  # it looks for them in forward passes, of which a rank may have none
    joining = _EmptyBatches(parallel, [layers[name] for name in order])
    notify = parallel.register_forward_pre_hook(joining.notify)
    # A group of their own: the layers' sums and DistributedDataParallel's need not come in one order on all ranks then.
    before, ranks.group = ranks.group, dist.new_group()
    try:
        with Join([joining, parallel]):
            yield
    finally:
        notify.remove()
        dist.destroy_process_group(ranks.group)
        ranks.group = before


class _EmptyBatches(Joinable, JoinHook):
    """What a rank without batches does in each iteration of the others."""

    def __init__(self, parallel: DistributedDataParallel, layers: Sequence[ConfounderLayer]) -> None:
        super().__init__()
        self.parallel, self.layers = parallel, layers
        self.thread = ThreadPoolExecutor(1)
        self.step: Future[None] | None = None

    def notify(self, module: Any, inputs: Any) -> None:
        """Say, before a forward pass, that this rank still has batches."""
        Join.notify_join_context(self)

    def join_hook(self, **options: Any) -> JoinHook:
        return self

    @property
    def join_device(self) -> torch.device:
        return self.parallel.join_device

    @property
    def join_process_group(self) -> Any:
        return self.parallel.join_process_group

    def main_hook(self) -> None:
        """Begin an iteration, in a thread: its sums wait for the others, who first need DistributedDataParallel's hook."""
        self.finish()
        self.step = self.thread.submit(self.learn_nothing)

    def post_hook(self, is_last_joiner: bool) -> None:
        self.finish()
        self.thread.shutdown()

    def finish(self) -> None:
        if self.step is not None:
            self.step.result()

    def learn_nothing(self) -> None:
        for layer in self.layers:
            features = layer.beta.new_empty(0, *layer.beta.shape[1:])
            layer(features, features.new_empty(0, layer.columns.num_confounders), features.new_empty(0))
