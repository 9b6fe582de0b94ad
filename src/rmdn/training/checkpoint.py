"""Where a run stands, and the file from which a killed run goes on as if nothing had happened."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rmdn.errors import SettingError
from rmdn.strategies.base import Strategy, Wrapper
from rmdn.training.data import mixed
from rmdn.training.result import Result
from rmdn.training.settings import Settings

if TYPE_CHECKING:
    from lightning.fabric import Fabric

FILE = "checkpoint.pt"


@dataclass
class Position:
    """Where the loop stands, between two batches, and the sums over the epoch under way."""

    loss: Tensor  # () summed over the epoch's rows so far
    hits: Tensor  # () rows predicted right
    stage: int = 0
    begun: bool = False  # the stage's begin_stage is done
    epoch: int = 0
    step: int = 0  # batches done in the epoch
    rows: int = 0
    seconds: float = 0.0  # of the epoch, in earlier lives of this run

    @classmethod
    def start(cls, device: torch.device) -> Position:
        """Before anything."""
        return cls(loss=torch.zeros((), device=device), hits=torch.zeros((), dtype=torch.int64, device=device))

    def next_epoch(self) -> None:
        """Clear the epoch's sums."""
        self.epoch, self.step, self.rows, self.seconds = self.epoch + 1, 0, 0, 0.0
        self.loss, self.hits = torch.zeros_like(self.loss), torch.zeros_like(self.hits)

    def next_stage(self) -> None:
        """To the next stage's start."""
        self.next_epoch()
        self.stage, self.begun, self.epoch = self.stage + 1, False, 0


@dataclass
class Run:
    """All that changes while a run goes on."""

    network: nn.Module  # the user's own module
    strategy: Strategy
    optimizer: torch.optim.Optimizer
    position: Position
    result: Result


@dataclass
class Checkpoints:
    """Writes a run's state into a folder at stage ends and every so many minutes; without a folder, does nothing."""

    folder: Path | None
    minutes: float
    settings: Settings
    rows: list[int]  # of each stage's training data
    fabric: Fabric

    def __post_init__(self) -> None:
        self.saved = time.monotonic()

    def due(self, epoch_done: bool) -> bool:
        """Whether to save now. Several ranks, which must agree, ask only at the end of an epoch."""
        if self.folder is None or (self.fabric.world_size > 1 and not epoch_done):
            return False
        due = time.monotonic() - self.saved >= 60 * self.minutes
        return due if self.fabric.world_size == 1 else bool(self.fabric.broadcast(due))

    def save(self, run: Run) -> None:
        """Write all of the run's state: to a new file first, which then takes the old one's place."""
        if self.folder is None:
            return
        state: dict[str, Any] = {
            "identity": self._identity(run.strategy),
            "position": asdict(run.position),
            "result": run.result.state_dict(),
            "network": run.network.state_dict(),
            "optimizer": run.optimizer.state_dict(),
            "strategy": run.strategy.state_dict(),
            "random": random_state(self.fabric.device),
        }
        if self.fabric.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.fabric.save(self.folder / f".{FILE}", state)
        if self.fabric.is_global_zero:
            os.replace(self.folder / f".{FILE}", self.folder / FILE)
        self.fabric.barrier()
        self.saved = time.monotonic()

    def load(self, run: Run) -> bool:
        """Take up what the folder holds, if anything; a checkpoint of another run is refused."""
        if self.folder is None or not (self.folder / FILE).exists():
            return False
        state = torch.load(self.folder / FILE, map_location=self.fabric.device, weights_only=True)
        self._check_identity(state["identity"], self._identity(run.strategy))
        run.network.load_state_dict(state["network"])
        run.optimizer.load_state_dict(state["optimizer"])
        run.strategy.load_state_dict(state["strategy"])
        run.position = Position(**state["position"])
        run.result = Result.from_state(state["result"])
        at, rank = run.position, self.fabric.global_rank
        if rank == 0:
            set_random_state(state["random"], self.fabric.device)
        else:  # each rank has its own random numbers, of which only the first rank's are kept
            torch.manual_seed(mixed(self.settings.seed, rank, at.stage, at.epoch, at.step))
        return True

    def _identity(self, strategy: Strategy) -> dict[str, Any]:
        return {
            "settings": asdict(self.settings),
            "strategy": describe(strategy),
            "rows": self.rows,
        }

    def _check_identity(self, saved: dict[str, Any], now: dict[str, Any]) -> None:
        if saved == now:
            return
        flat = [{**one, **one["settings"]} for one in (saved, now)]
        changed = [
            f"{key} was {flat[0].get(key)!r} and is {flat[1].get(key)!r}"
            for key in flat[1]
            if key != "settings" and flat[0].get(key) != flat[1].get(key)
        ]
        raise SettingError(
            f"{self.folder} holds the checkpoint of another run: {'; '.join(changed)}. Give another folder, take back "
            f"the change, or delete {FILE} there to start anew."
        )


def describe(strategy: Strategy) -> str:
    """A strategy and what it wraps, by their classes' names: "EWC(LwF(Plain))"."""
    name = type(strategy).__name__
    return f"{name}({describe(strategy.base)})" if isinstance(strategy, Wrapper) else name


def random_state(device: torch.device) -> list[Tensor]:
    """The state of torch's random numbers on the CPU and, where it is one, on the GPU."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def set_random_state(states: list[Tensor], device: torch.device) -> None:
    """Go on with the random numbers of `random_state`."""
    torch.set_rng_state(states[0].cpu())
    if device.type == "cuda" and len(states) > 1:
        torch.cuda.set_rng_state(states[1].cpu(), device)
