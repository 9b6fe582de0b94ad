"""What the ranks of a distributed training tell each other: sums, in one call."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

group: Any = None  # the layers' own process group, inside `rmdn.distributed.join`; None is everybody's


def world(sync: bool) -> int:
    """How many ranks add their batches up."""
    if not (sync and dist.is_available() and dist.is_initialized()):
        return 1
    return dist.get_world_size()


def add(world: int, *parts: Tensor) -> tuple[Tensor, ...]:
    """The sum over all ranks of every part (p, ...), by one call; a rank without rows brings zeros."""
    if world == 1:
        return parts
    widths = [part.shape[1] for part in parts]
    joint = torch.cat([part.double() for part in parts], dim=1)
    dist.all_reduce(joint, group=group)
    return tuple(total.to(part.dtype) for total, part in zip(joint.split(widths, dim=1), parts, strict=True))


def refuse(world: int, like: Tensor) -> None:
    """Tell the others, who wait for this rank's part, that its batch does not fit: a sum with NaN is not taken."""
    if world > 1:
        dist.all_reduce(torch.full_like(like, math.nan, dtype=torch.float64), group=group)
