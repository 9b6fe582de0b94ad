"""What is written down of a run: numbers that every table and figure can be made of."""

from __future__ import annotations

import json
import os
import platform
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import rmdn
from rmdn.errors import RMDNWarning
from rmdn.experiments.problems import Problem
from rmdn.metrics import dcor2_per_class
from rmdn.models.probe import features as features_of
from rmdn.strategies import Batch, Gate, Strategy, Wrapper
from rmdn.strategies.base import predicted
from rmdn.training import Epoch, Result

COURSE_ROWS = 512  # test rows that a measure after each epoch looks at
KEPT_ROWS = 600  # of each test set, whose features are kept


def record(result: Result, problem: Problem, strategy: Strategy) -> dict[str, Any]:
    """Plain numbers: matrices [i][j] are of stage j's test set after training on stage i."""
    stages = range(len(problem.stages))
    tests = [test_rows(stage.test) for stage in problem.stages]
    return {
        "names": result.names,
        "best": list(problem.best) if problem.best is not None else None,
        "stand_in": problem.stand_in,
        "R": rounded(result.R),
        "more": {name: rounded(R) for name, R in result.more.items()},
        "recall": [[recalls(result.logits[i, j], tests[j][1], problem.num_classes) for j in stages] for i in stages],
        "dcor2": [[dependence(result.features[i, j], *tests[j]) for j in stages] for i in stages],
        "loss": [round(epoch.loss, 4) for epoch in result.history],
        "accuracy": [round(epoch.accuracy, 4) for epoch in result.history],
        "taken": next((part.taken for part in chain(strategy) if isinstance(part, Gate)), None),
        "seconds": round(result.seconds, 1),
        "machine": machine(),
    }


def chain(strategy: Strategy) -> list[Strategy]:
    """A strategy and all that it wraps, from the outside in."""
    return [strategy, *chain(strategy.base)] if isinstance(strategy, Wrapper) else [strategy]


def test_rows(test: Any) -> tuple[Tensor, Tensor]:
    """Confounders (N, c) and labels (N,) of a test set."""
    if isinstance(test, tuple):
        _, confounders, labels = test
        return confounders, labels
    rows = [test[i][1:] for i in range(len(test))]
    return torch.stack([torch.as_tensor(c) for c, _ in rows]), torch.tensor([int(y) for _, y in rows])


def recalls(logits: Tensor, labels: Tensor, num_classes: int) -> list[float | None]:
    """The share of each class that is predicted right; None of a class without rows."""
    right = (predicted(logits) == labels.to(logits.device)).double().cpu()
    shares = [right[labels.cpu() == k] for k in range(num_classes)]
    return [round(float(share.mean()), 4) if len(share) else None for share in shares]


def dependence(features: Tensor, confounders: Tensor, labels: Tensor) -> dict[str, float | None]:
    """dcor2 of features and confounders within each class; None where a class has too few rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RMDNWarning)  # a small class has no value, which None says
        found = dcor2_per_class(features.flatten(1).cpu(), confounders.cpu(), labels.cpu())
    return {str(int(name)): _finite(value) for name, value in found.classes.items()}


def _finite(value: Tensor) -> float | None:
    number = float(value)
    return round(number, 5) if np.isfinite(number) else None


def rounded(R: Tensor) -> list[list[float]]:
    """A matrix of accuracies as lists."""
    return [[round(a, 5) for a in row] for row in R.tolist()]


def kept_features(result: Result, problem: Problem) -> Mapping[str, np.ndarray]:
    """After the last stage: some of each test set's features, and what they belong to."""
    last = len(problem.stages) - 1
    kept: dict[str, np.ndarray] = {}
    for j, stage in enumerate(problem.stages):
        confounders, labels = test_rows(stage.test)
        kept[f"features_{j}"] = result.features[last, j][:KEPT_ROWS].flatten(1).half().cpu().numpy()
        kept[f"confounders_{j}"] = confounders[:KEPT_ROWS].float().cpu().numpy()
        kept[f"labels_{j}"] = labels[:KEPT_ROWS].cpu().numpy().astype(np.int16)
    return kept


def machine() -> dict[str, Any]:
    """Where a run was made, without naming anybody."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "tf32": {"matmul": torch.backends.cuda.matmul.allow_tf32, "cudnn": torch.backends.cudnn.allow_tf32}
        if gpu
        else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "rmdn": rmdn.__version__,
    }


class Course:
    """dcor2 on the last stage's test set after each epoch, written as it goes, so that a killed run goes on."""

    def __init__(self, file: Path, problem: Problem, strategy: Strategy, pre_logits: str) -> None:
        self.file, self.strategy, self.pre_logits = file, strategy, pre_logits
        images, confounders, labels = problem.stages[-1].test
        self.batch = Batch(images[:COURSE_ROWS], confounders[:COURSE_ROWS], labels[:COURSE_ROWS])
        file.parent.mkdir(parents=True, exist_ok=True)

    @torch.no_grad()
    def add(self, epoch: Epoch, network: nn.Module) -> None:
        """Look at the network as it is."""
        device = next(network.parameters()).device
        images, confounders, labels = (part.to(device) for part in self.batch[:3])
        batch = self.strategy.prepare(Batch(images, confounders, labels))
        training = network.training
        network.eval()
        extra: dict[str, Any] = {"confounders": batch.confounders} if isinstance(network, rmdn.Deconfounded) else {}
        seen = features_of(network, self.pre_logits, batch.images, **extra)
        network.train(training)
        line = {"epoch": [epoch.stage, epoch.epoch], "dcor2": dependence(seen, self.batch.confounders, self.batch.labels)}
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def read(self) -> list[dict[str, float | None]]:
        """Each epoch's values, in order; of one that was repeated, the last."""
        lines = [json.loads(line) for line in self.file.read_text(encoding="utf-8").splitlines()]
        last = {tuple(line["epoch"]): line["dcor2"] for line in lines}
        return [last[epoch] for epoch in sorted(last)]
