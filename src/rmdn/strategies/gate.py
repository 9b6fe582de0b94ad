"""A gate: new weights are kept only if held-out rows show that they know more than the weights kept so far."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rmdn.deconfound import Deconfounded
from rmdn.errors import SettingError
from rmdn.extras import need
from rmdn.layers import RMDN
from rmdn.recalibration import recalibrate
from rmdn.strategies.base import StageData, Strategy, Wrapper, class_scores


class Gate(Wrapper):
    """Ends every stage with the best network that it has seen, judged by what that knows beyond the confounders.

    Some times in a stage, the network as it is (its R-MDN layers recalibrated) is asked about rows which no step has seen
    (`Settings(holdout=0.2)`). What counts is how well its answers tell the labels, as they are and with the part that the
    confounders explain turned around, whichever is worse: so a network gains nothing by knowing a confounder. The best
    look of a stage is kept, if it is better than the network that the stage began with by more than chance explains;
    training goes on in any case. At the stage's end the kept network comes back, and the wrapped strategies see it (an LwF
    teacher has passed the gate).

    So a stage whose labels are noise changes nothing, where training on them would bury what was learned; and a stage in
    which the network begins to learn its rows by heart, by which it finds ways around the layers, ends before that.

    Args:
        base: how a stage is trained; plain training by default.
        z: by how many standard errors a look's mean log-likelihood must be above that of the stage's begin. Looking ten
            times, two of them are too few: in a stage of noise the luckiest look passes that often.
        looks: how many times a stage is judged, evenly spread, the last time at its end.
    """

    def __init__(self, base: Strategy | None = None, *, z: float = 3.0, looks: int = 10) -> None:
        super().__init__(base)
        if not math.isfinite(z) or looks < 1:
            raise SettingError(
                f"z={z}, looks={looks}: give a number of standard errors, such as 2, and at least one look a stage."
            )
        self.z, self.looks = z, looks
        self.kept: dict[str, Tensor] | None = None  # the network's state; None until the first look of all
        self.before: Tensor | None = None  # evidence of the network that the stage began with, on its held-out rows (N,)
        self.known: Tensor | None = None  # that of the kept network (N,)
        self.taken: list[int] = []  # of each stage: the look whose network was kept last, from 1; 0: none, nothing changed

    def begin_stage(self, network: nn.Module, data: StageData) -> None:
        """What the stage begins with must be beaten; before the first stage that is nothing."""
        check_held_out(data)
        super().begin_stage(network, data)
        self.before = self.known = None
        self.taken.append(0)
        if self.kept is not None:
            self.kept = copied(network)

    def end_epoch(self, network: nn.Module, data: StageData, epoch: int, epochs: int) -> None:
        """Look where that is due."""
        super().end_epoch(network, data, epoch, epochs)
        look = (epoch + 1) * self.looks // epochs
        if look > epoch * self.looks // epochs:
            self.look(network, data, look)

    def look(self, network: nn.Module, data: StageData, number: int) -> None:
        """Keep the network as it is if it is better than the one kept; it trains on as if nobody had looked."""
        now = copied(network)
        if self.kept is not None and self.known is None:  # the first look of a later stage
            network.load_state_dict(self.kept)
            self.before = self.known = evidence(self, network, data)
            network.load_state_dict(now)
        if isinstance(network, Deconfounded) and any(isinstance(layer, RMDN) for layer in network.layers.values()):
            recalibrate(network, [batch[:3] for batch in data])
        known = evidence(self, network, data)
        best = self.known is None or bool(known.mean() > self.known.mean())
        if best and (self.before is None or better(known, self.before, self.z)):
            self.kept, self.known, self.taken[-1] = copied(network), known, number
        network.load_state_dict(now)

    def end_stage(self, network: nn.Module, data: StageData) -> None:
        """The kept network comes back."""
        if self.kept is not None:
            network.load_state_dict(self.kept)
        super().end_stage(network, data)

    def state_dict(self) -> dict[str, Any]:
        """The kept network, what it knows, and when it was kept."""
        own = {"kept": self.kept, "before": self.before, "known": self.known, "taken": list(self.taken)}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them up."""
        super().load_state_dict(state)
        self.kept, self.before, self.known = state["kept"], state["before"], state["known"]
        self.taken = list(state["taken"])


def check_held_out(data: StageData) -> None:
    """Refuse a stage that cannot be judged before anything is trained on it."""
    labels = [batch.labels for batch in data.raw_held_out()]
    if not labels:
        raise SettingError("Gate judges on rows held out of training: give Settings(holdout=0.2), say.")
    rows = torch.cat(labels)
    if len(torch.unique(rows)) < 2:
        raise SettingError(
            f"Gate judges on held-out rows of two classes or more; the {len(rows)} of stage {data.stage} have fewer. "
            "Hold out more of it, by Settings(holdout=0.3), say, or train without a Gate."
        )


def better(one: Tensor, other: Tensor, z: float) -> bool:
    """Whether the mean of the one (N,) is above that of the other by more than z standard errors, row by row."""
    gain = one - other
    return bool(gain.mean() > z * gain.std() / math.sqrt(len(gain)))


@torch.no_grad()
def evidence(strategy: Strategy, network: nn.Module, data: StageData) -> Tensor:
    """Each held-out row's log-likelihood of its label by the network's answer, however the confounders turn. (N,)

    What splines of the confounders explain of the answers beside the labels is added once more, or taken away twice: the
    worse of the answers as they are and of these mirrored ones counts. One factor makes the answers as sure as they may be.
    """
    training = network.training
    network.eval()
    parts = [(strategy.predict(network, batch), batch.confounders, batch.labels) for batch in data.held_out()]
    network.train(training)
    logits, confounders, labels = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
    scores = F.log_softmax(class_scores(logits).double(), dim=1)  # (N, K)
    bends = splines(confounders)  # (N, s)
    known = F.one_hot(labels, scores.shape[1]).double()
    effects = torch.linalg.pinv(torch.cat([known, bends], dim=1)) @ scores  # (K + s, K)
    drift = bends @ effects[known.shape[1] :]  # (N, K)
    sure = surest(scores - drift, labels)
    as_is, mirrored = (likelihood(sure * answers, labels) for answers in (scores, scores - 2 * drift))
    return min(as_is, mirrored, key=lambda one: float(one.mean()))


def splines(confounders: Tensor) -> Tensor:
    """Smooth curves of each confounder (N, c), centred. (N, s)"""
    transformer = need("sklearn.preprocessing", "study").SplineTransformer(n_knots=5, degree=2, extrapolation="linear")
    curves = torch.from_numpy(transformer.fit_transform(confounders.double()))
    return curves - curves.mean(dim=0)


def surest(answers: Tensor, labels: Tensor) -> float:
    """The factor that makes answers (N, K) most likely."""
    factors = torch.logspace(-2, 2, 81, dtype=torch.float64).tolist()
    return max(factors, key=lambda factor: float(likelihood(factor * answers, labels).mean()))


def likelihood(answers: Tensor, labels: Tensor) -> Tensor:
    """Log-likelihood of labels by answers (N, K). (N,)"""
    return -F.cross_entropy(answers, labels, reduction="none")


def copied(network: nn.Module) -> dict[str, Tensor]:
    """A network's state, apart from what happens to it next."""
    return {name: value.detach().clone() for name, value in network.state_dict().items()}
