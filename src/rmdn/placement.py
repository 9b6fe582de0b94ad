"""Places in a network: from names, patterns or a rule to modules, and whether a place matters at all."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rmdn.errors import PlacementError

_BLOCK = r"(.*\.)?(blocks|layers?)\.\d+"

At = str | Sequence[str] | Callable[[str, nn.Module], bool]


def choose(network: nn.Module, at: At) -> list[str]:
    """The names of the modules that `at` means, in the network's order; at least one."""
    modules = {name: module for name, module in network.named_modules() if name}
    if callable(at):
        chosen = [name for name, module in modules.items() if at(name, module)]
        if not chosen:
            raise PlacementError(f"at={at!r} says yes to none of the {len(modules)} modules.{_near('', list(modules))}")
        return chosen
    if isinstance(at, str):
        try:
            pattern = re.compile(at)
        except re.error as error:
            raise PlacementError(f"at={at!r} is not a regular expression: {error}.") from error
        chosen = [name for name in modules if pattern.fullmatch(name)]
        if not chosen:
            raise PlacementError(f"at={at!r} matches no module's whole name.{_near(at, list(modules))}")
        return chosen
    wanted: set[str] = set()
    for name in at:
        found = [name] if name in modules else [full for full in modules if full.endswith(f".{name}")]
        if not found:
            raise PlacementError(
                f"There is no module '{name}', nor one that ends in '.{name}'.{_near(name, list(modules))}"
            )
        wanted.update(found)
    if not wanted:
        raise PlacementError(f"at={at!r} names no place.{_near('', list(modules))}")
    return [name for name in modules if name in wanted]


def vit_places(network: nn.Module, variant: str) -> list[str]:
    """The paper's places in a vision transformer, this package's, MONAI's or Hugging Face's, for `at`.

    "A" is after every self-attention and the pre-logits layer, "B" after every block and the pre-logits layer, "C" after
    the pre-logits layer alone (where a network has none: after the last norm).
    """
    patterns = {"A": rf"{_BLOCK}\.(attn|attention|self_attention)", "B": _BLOCK, "C": r"(?!)"}
    if variant not in patterns:
        raise PlacementError(f"variant={variant!r} was given; the paper's placements are 'A', 'B' and 'C'.")
    names = [name for name, _ in network.named_modules()]
    last = [
        [name for name in names if re.fullmatch(rf"(\w+\.)?{end}", name)] for end in ("pre_logits", "layernorm", "norm")
    ]
    places = [name for name in names if re.fullmatch(patterns[variant], name)]
    if not any(last) or (variant != "C" and not places):
        raise PlacementError(
            f"The {type(network).__name__} has no blocks, or no pre-logits layer or last norm, named as in this package's"
            f" ViTs, MONAI's or Hugging Face's; give `at` the names yourself.{_near('blocks.0.attn', names[1:])}"
        )
    return places + next(found for found in last if found)[-1:]


def _near(given: str, names: list[str]) -> str:
    tail = {name.rsplit(".", 1)[-1]: name for name in reversed(names)}
    near = difflib.get_close_matches(given, names, n=5, cutoff=0.5)
    near += [tail[key] for key in difflib.get_close_matches(given.rsplit(".", 1)[-1], tail, n=3, cutoff=0.5)]
    if near:
        return f" Near it: {', '.join(dict.fromkeys(near))}."
    shown = ", ".join(names[:12]) or "none"
    return f" The modules are: {shown}{f' and {len(names) - 12} more' if len(names) > 12 else ''}."


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in a network's output, however it is packed."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from tensors(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))


def first_tensor(output: Any) -> Tensor:
    """A module's features: its output, or the first of them."""
    features = output[0] if isinstance(output, tuple | list) and output else output
    if not isinstance(features, Tensor):
        raise PlacementError(
            f"The module gives a {type(output).__name__}; a layer can follow modules that give a tensor, or a tuple whose"
            " first is one. Place it behind a part of this module."
        )
    return features


def replace_first_tensor(output: Any, features: Tensor) -> Any:
    """The module's output with other features."""
    if isinstance(output, Tensor):
        return features
    if hasattr(output, "_replace"):
        return output._replace(**{output._fields[0]: features})
    return type(output)([features, *output[1:]])


def never_reached(names: Sequence[str], probes: Mapping[str, Tensor], output: Any) -> None:
    """Refuse places whose probe (a zero added to their features) has no way to the network's output."""
    unused = [name for name in names if name not in probes]
    if unused:
        raise PlacementError(
            f"{', '.join(unused)}: nothing comes out there in a pass over the sample. Some modules are never called, only"
            " their weights are used (out_proj of nn.MultiheadAttention): place the layer behind the module around it."
        )
    ends = [tensor for tensor in tensors(output) if tensor.requires_grad]
    total = sum((tensor.sum() for tensor in ends), torch.zeros(()))
    grads = torch.autograd.grad(total, list(probes.values()), allow_unused=True) if ends else [None] * len(probes)
    lost = [name for name, grad in zip(probes, grads, strict=True) if grad is None]
    if lost:
        raise PlacementError(
            f"{', '.join(lost)}: what comes out there never reaches the network's output in a pass over the sample, so a"
            " layer there would do nothing. Choose a place on the way to the output."
        )
