"""The features inside a network: the output of any of its modules, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rmdn.errors import PlacementError


def features(network: nn.Module, name: str, *inputs: Any, gradient: bool = False, **keywords: Any) -> Tensor:
    """The output of the module called `name` (of its last call, if several) as the network runs on a batch.

    The network runs in the mode it is in: call `network.eval()` first where looking must not update anything.

    Args:
        network: any network.
        name: the module's name as in `named_modules`, or what follows a dot in it ("fc1" for "network.fc1");
            `network.pre_logits_name` in this package's networks.
        inputs: what the network takes (the images).
        gradient: keep the graph, to differentiate through the features.
        keywords: what else the network takes by keyword, such as `confounders=`.
    """
    with tapped(network, [name]) as seen, torch.set_grad_enabled(gradient):
        network(*inputs, **keywords)
    return seen[0]


@contextmanager
def tapped(network: nn.Module, names: Sequence[str]) -> Iterator[list[Tensor]]:
    """For one forward pass in here: the outputs of the named modules (of their last call), there when the block is left."""
    names = [full_name(network, name) for name in names]
    outputs: dict[str, Any] = {}
    seen: list[Tensor] = []

    def keep(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: tuple[Any, ...], output: Any) -> None:
            # A copy, for what comes next may work in place (as the ReLUs of MONAI's DenseNets do).
            outputs[name] = output.clone() if isinstance(output, Tensor) else output

        return hook

    handles = [network.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
    seen.extend(_tensor(outputs, name) for name in names)


def _tensor(outputs: dict[str, Any], name: str) -> Tensor:
    if name not in outputs:
        raise PlacementError(
            f"The module {name!r} was not called on this batch: it is unused, or its parent only takes its "
            "weights (as nn.MultiheadAttention does with out_proj). Name a module whose forward is called."
        )
    output = outputs[name]
    if not isinstance(output, Tensor):
        raise PlacementError(f"The module {name!r} returns a {type(output).__name__}, not one tensor; name one inside it.")
    return output


def full_name(network: nn.Module, name: str) -> str:
    """The whole name of the module that a name, or the end of one, means."""
    names = [known for known, _ in network.named_modules() if known]
    if name in names:
        return name
    matches: list[str] = [known for known in names if known.endswith(f".{name}")]
    if len(matches) == 1:
        return matches[0]
    near = matches or difflib.get_close_matches(name, names, n=5, cutoff=0.4) or names[:5]
    problem = "is the end of several names" if matches else "is not the name of a module"
    raise PlacementError(f"{name!r} {problem} in this {type(network).__name__}; did you mean {', '.join(near)}?")
