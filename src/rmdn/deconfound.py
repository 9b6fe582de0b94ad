"""Confounder layers inside any network, by name, and the way back.

A layer follows a module by a forward hook, so that the network keeps its classes, attributes and parameter names. The
hook is an object, not a closure: copies and pickles of the model carry their own. What a layer needs beside its features
travels in a `Slot`, which the wrapper fills before it calls the network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rmdn.errors import UsageError
from rmdn.layers.base import ConfounderLayer, graph_task
from rmdn.layers.rmdn import RMDN
from rmdn.placement import At, choose, first_tensor, never_reached, replace_first_tensor, tensors


class Batch(NamedTuple):
    """What the layers of a network need beside their features."""

    confounders: Tensor | None
    labels: Tensor | None
    called: list[str]  # the layers that this forward pass has reached, in order


class Slot:
    """Where the wrapper leaves a batch for the layers: one for each thread, so that inference may run in several."""

    def __init__(self) -> None:
        self.latest: Batch | None = None
        self.running: Batch | None = None
        self.by_thread: dict[int, Batch] = {}

    def fill(self, batch: Batch) -> None:
        """Leave a batch for the forward pass that begins."""
        self.latest = self.running = batch
        if not torch.compiler.is_compiling():
            self.by_thread[threading.get_ident()] = batch

    def recall(self, batch: Batch, gradient: Tensor) -> None:
        """A hook on a network's output: what its backward pass computes again finds its own batch, not a later one."""
        self.latest = batch

    def empty(self) -> None:
        """Take it away again, so that no later call past the wrapper finds it."""
        self.running = None
        if not torch.compiler.is_compiling():
            self.by_thread.pop(threading.get_ident(), None)

    def get(self) -> Batch | None:
        """The batch of the forward pass that runs now."""
        if torch.compiler.is_compiling():  # cannot ask for the thread
            return self.running
        # A recompute of activation checkpointing runs after the forward pass, at times in a thread of autograd's own.
        again = self.latest if graph_task() is not None else None
        return self.by_thread.get(threading.get_ident()) or again or self.running

    def __getstate__(self) -> dict[str, Any]:
        return {"latest": None, "running": None, "by_thread": {}}


class Insertion:
    """The hook that puts a layer behind a module."""

    def __init__(self, name: str, layer: ConfounderLayer, slot: Slot) -> None:
        self.name, self.layer, self.slot = name, layer, slot
        self.watcher: Callable[[Insertion, Tensor, Batch], Tensor] | None = None

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        """The module's output with its features residualized."""
        batch = self.slot.get()
        if batch is None:
            raise UsageError(
                f"The network was called past its wrapper, so the layer behind '{self.name}' has no confounders. Call the"
                " model that rmdn.deconfound returned, or take the layers out again with model.remove()."
            )
        features = first_tensor(output)
        again = self.name in batch.called
        batch.called.append(self.name)
        if self.watcher is not None:
            return replace_first_tensor(output, self.watcher(self, features, batch))
        if again and self.layer.learning and graph_task() is None:
            raise UsageError(
                f"'{self.name}' was called twice in one forward pass. One state cannot follow two sets of features: give"
                " each call a module of its own, or place the layer behind a module that is called once."
            )
        return replace_first_tensor(output, self.layer(features, batch.confounders, batch.labels))


class Deconfounded(nn.Module):
    """A network with confounder layers in it. Made by `deconfound`."""

    def __init__(self, network: nn.Module, layers: Mapping[str, ConfounderLayer]) -> None:
        super().__init__()
        self.network = network
        self.layers = nn.ModuleDict({name.replace(".", "/"): layer for name, layer in layers.items()})
        self.slot = Slot()
        self.insertions = [Insertion(name, layer, self.slot) for name, layer in layers.items()]
        self._handles = [
            network.get_submodule(insertion.name).register_forward_hook(insertion) for insertion in self.insertions
        ]

    def forward(self, *inputs: Any, confounders: Tensor | None = None, labels: Tensor | None = None, **options: Any) -> Any:
        """The network's output; confounders and labels go to the layers, everything else to the network."""
        batch = Batch(confounders, labels, [])
        self.slot.fill(batch)
        try:
            output = self.network(*inputs, **options)
        finally:
            self.slot.empty()
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            for tensor in tensors(output):
                if tensor.requires_grad:
                    tensor.register_hook(partial(self.slot.recall, batch))
        return output

    @property
    def _ddp_params_and_buffers_to_ignore(self) -> list[str]:
        """What DistributedDataParallel must not overwrite with rank 0's: the state of layers that each rank has alone."""
        alone = [name for name, layer in self.layers.items() if not getattr(layer, "sync", True)]
        return [f"layers.{name}.{buffer}" for name in alone for buffer, _ in self.layers[name].named_buffers()]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Passes in here leave all layers alone, whatever the mode: for Fisher matrices, teachers, evaluation."""
        with ExitStack() as stack:
            for insertion in self.insertions:
                stack.enter_context(insertion.layer.frozen())
            yield

    def remove(self) -> nn.Module:
        """The plain network back, its own keys untouched; this wrapper is of no use afterwards."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        return self.network

    def describe(self) -> None:
        """Print where the layers are, of what shape and size, and what they remove."""
        rows = [("behind", "layer", "features", "state", "removes")]
        for insertion in self.insertions:
            layer = insertion.layer
            size = sum(buffer.numel() * buffer.element_size() for buffer in layer.buffers())
            shape = "x".join(map(str, layer.beta.shape[1:])) if layer.beta.shape[1] else "at the first batch"
            removed = ", ".join(layer.columns.names[layer.columns.labels :])
            rows.append((insertion.name, type(layer).__name__, shape, f"{size:,} bytes", removed))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        for row in rows:
            print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]))


def deconfound(
    network: nn.Module,
    at: At,
    *,
    num_confounders: int,
    num_classes: int | None = None,
    layer: Callable[..., ConfounderLayer] = RMDN,
    sample: Any = None,
    **options: Any,
) -> Deconfounded:
    """Put a confounder layer behind every module of `network` that `at` names.

    Args:
        network: any module; it is changed in place (hooks) until `.remove()`.
        at: a string is a regular expression that a whole name must match; a list holds exact names or dotted suffixes; a
            function takes (name, module) and says whether.
        num_confounders, num_classes, **options: the layers' own (see `RMDN`).
        layer: the kind of layer.
        sample: one input for a dry run in evaluation mode, a tensor, or a tuple or a mapping of arguments: it finds places
            that never reach the output and gives the layers their shape. Without it both wait for the first batch.
    """
    if isinstance(network, Deconfounded):
        raise UsageError("The network is deconfounded already; call .remove() first, and then rmdn.deconfound once.")
    names = choose(network, at)
    layers = {name: layer(num_confounders, num_classes, **options) for name in names}
    device = next((tensor.device for tensor in [*network.parameters(), *network.buffers()]), None)
    model = Deconfounded(network, {name: one.to(device) for name, one in layers.items()})
    if sample is not None:
        try:
            _dry_run(model, sample)
        except BaseException:
            model.remove()
            raise
    return model.train(network.training)


def _dry_run(model: Deconfounded, sample: Any) -> None:
    """Find layers that cannot matter; let the others adopt their features' shape."""
    probes: dict[str, Tensor] = {}

    def watch(insertion: Insertion, features: Tensor, batch: Batch) -> Tensor:
        insertion.layer.adopt(features)
        probes[insertion.name] = torch.zeros_like(features, requires_grad=True)
        return features + probes[insertion.name]

    training = model.network.training
    with watching(model, watch), torch.enable_grad():
        output = call(model.eval(), sample)
    model.network.train(training)
    never_reached([insertion.name for insertion in model.insertions], probes, output)


def call(model: nn.Module, inputs: Any, **more: Any) -> Any:
    """A model on a tensor, a tuple of arguments or a mapping of them."""
    if isinstance(inputs, Mapping):
        return model(**inputs, **more)
    if isinstance(inputs, Sequence):
        return model(*inputs, **more)
    return model(inputs, **more)


@contextmanager
def watching(model: Deconfounded, watcher: Callable[[Insertion, Tensor, Batch], Tensor]) -> Iterator[None]:
    """In here `watcher` stands in for every layer."""
    for insertion in model.insertions:
        insertion.watcher = watcher
    try:
        yield
    finally:
        for insertion in model.insertions:
            insertion.watcher = None
