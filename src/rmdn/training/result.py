"""What a training leaves behind, and how it is written to two small files."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rmdn.errors import InputError
from rmdn.files import write_atomically


@dataclass(frozen=True)
class Epoch:
    """One epoch of training: means over the rows it has seen, with the weights as they were at each batch."""

    stage: int
    epoch: int
    loss: float
    accuracy: float
    lr: float
    seconds: float


@dataclass
class Result:
    """R[i, j]: accuracy on stage j's test set after training on stage i; NaN where that was not reached."""

    names: list[str]
    R: Tensor  # (S, S) float64
    history: list[Epoch] = field(default_factory=list)
    more: dict[str, Tensor] = field(default_factory=dict)  # the same as R, on further test sets by name
    logits: dict[tuple[int, int], Tensor] = field(default_factory=dict)  # (i, j) -> (N_j, K), on request
    features: dict[tuple[int, int], Tensor] = field(default_factory=dict)  # (i, j) -> (N_j, ...), on request
    seconds: float = 0.0  # of training and evaluation, over all resumptions

    @classmethod
    def empty(cls, names: list[str]) -> Result:
        """The result of a run that has not begun."""
        return cls(names, torch.full((len(names), len(names)), torch.nan, dtype=torch.float64))

    def state_dict(self) -> dict[str, Any]:
        """Plain tensors, numbers, strings, lists and dicts."""
        return {
            "names": self.names,
            "R": self.R,
            "history": [asdict(epoch) for epoch in self.history],
            "more": self.more,
            "logits": self.logits,
            "features": self.features,
            "seconds": self.seconds,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Result:
        """The result that `state_dict` described."""
        matrices = {"R": state["R"].cpu(), "more": {name: R.cpu() for name, R in state["more"].items()}}
        return cls(**{**state, **matrices, "history": [Epoch(**epoch) for epoch in state["history"]]})

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write result.json (R, history) and, where asked for in training, result.npz (logits, features)."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {
            f"{kind}_{i}_{j}": tensor.numpy()
            for kind, tensors in (("logits", self.logits), ("features", self.features))
            for (i, j), tensor in tensors.items()
        }
        write_atomically(folder / "result.npz", lambda file: np.savez_compressed(file, **arrays))  # type: ignore[arg-type]
        more = {name: listed(R) for name, R in self.more.items()}
        plain = {**self.state_dict(), "R": listed(self.R), "more": more}
        del plain["logits"], plain["features"]
        text = json.dumps(plain, indent=1)
        write_atomically(folder / "result.json", lambda file: file.write(text.encode()))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Result:
        """Read what `save` wrote."""
        folder = Path(folder)
        try:
            plain = json.loads((folder / "result.json").read_text())
            with np.load(folder / "result.npz") as arrays:
                tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        except (OSError, ValueError) as error:
            raise InputError(f"{folder} holds no readable result.json and result.npz: {error}") from error
        plain["R"] = matrix(plain["R"])
        plain["more"] = {name: matrix(rows) for name, rows in plain["more"].items()}
        kept: dict[str, dict[tuple[int, int], Tensor]] = {"logits": {}, "features": {}}
        for name, tensor in tensors.items():
            kind, i, j = name.split("_")
            kept[kind][int(i), int(j)] = tensor
        return cls.from_state({**plain, **kept})


def listed(R: Tensor) -> list[list[float | None]]:
    """A matrix of accuracies as JSON knows it: what was not reached is null."""
    return [[None if np.isnan(a) else a for a in row] for row in R.tolist()]


def matrix(rows: list[list[float | None]]) -> Tensor:
    """The matrix that `listed` wrote down."""
    return torch.tensor([[np.nan if a is None else a for a in row] for row in rows], dtype=torch.float64)
