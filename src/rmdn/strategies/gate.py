"""A gate at each stage's end: new weights are taken only if held-out rows show that they know more than the old ones."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rmdn.errors import SettingError
from rmdn.extras import need
from rmdn.strategies.base import StageData, Strategy, Wrapper, class_scores


class Gate(Wrapper):
    """Takes a stage back that has brought nothing beyond the confounders.

    After a stage's training, and after recalibration, both networks, the new one and that of the stage before, are asked
    about rows which no step has seen (`Settings(holdout=0.2)`). What counts is how well a label can be told from the
    network's answer *and* the confounders together: so a network gains nothing by knowing the confounder. Where the new
    network is not better by more than chance explains, the old weights and coefficients come back, and the wrapped
    strategies see them at the stage's end (an LwF teacher is what has passed the gate). In a stage without signal the
    labels are noise, and training on noise buries what was learned; this keeps it.

    Args:
        base: how a stage is trained; plain training by default.
        z: by how many standard errors the new network's mean log-likelihood must be the better one.
    """

    def __init__(self, base: Strategy | None = None, *, z: float = 2.0) -> None:
        super().__init__(base)
        if not math.isfinite(z):
            raise SettingError(f"z={z} is not a number of standard errors; give one, such as 2.")
        self.z = z
        self.before: dict[str, Tensor] | None = None
        self.taken: list[bool] = []  # of each stage: whether it passed

    def begin_stage(self, network: nn.Module, data: StageData) -> None:
        """Keep what the network is now; the first stage passes in any case."""
        self.before = copied(network) if data.stage else None
        super().begin_stage(network, data)

    def end_stage(self, network: nn.Module, data: StageData) -> None:
        """Judge, and take the old state back if the new one is not better."""
        passed = True
        if self.before is not None:
            after = copied(network)
            new = evidence(self, network, data)
            network.load_state_dict(self.before)
            gain = new - evidence(self, network, data)  # (N,)
            passed = bool(gain.mean() > self.z * gain.std() / math.sqrt(len(gain)))
            if passed:
                network.load_state_dict(after)
        self.taken.append(passed)
        super().end_stage(network, data)

    def state_dict(self) -> dict[str, Any]:
        """The state to fall back to, and which stages have passed."""
        return {**super().state_dict(), "before": self.before, "taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take both up."""
        super().load_state_dict(state)
        self.before, self.taken = state["before"], list(state["taken"])


@torch.no_grad()
def evidence(strategy: Strategy, network: nn.Module, data: StageData) -> Tensor:
    """Each held-out row's log-likelihood of its label, given the network's answer and the confounders. (N,)

    By logistic regression on the log-odds and on splines of the confounders, each row judged by a fit on the others.
    """
    training = network.training
    network.eval()
    parts = [(strategy.predict(network, batch), batch.confounders, batch.labels) for batch in data.held_out()]
    network.train(training)
    if not parts:
        raise SettingError("Gate judges on rows held out of training: give Settings(holdout=0.2), say.")
    logits, confounders, labels = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
    scores = F.log_softmax(class_scores(logits).double(), dim=1)
    odds = scores[:, 1:] - scores[:, :1]  # (N, K - 1)
    model_selection, pipeline = need("sklearn.model_selection", "study"), need("sklearn.pipeline", "study")
    linear, preprocessing = need("sklearn.linear_model", "study"), need("sklearn.preprocessing", "study")
    splines = preprocessing.SplineTransformer(n_knots=5, degree=2, extrapolation="linear").fit_transform(
        confounders.double()
    )
    known = torch.cat([odds, torch.from_numpy(splines)], dim=1).numpy()
    model = pipeline.make_pipeline(preprocessing.StandardScaler(), linear.LogisticRegression(C=1.0, max_iter=1000))
    folds = model_selection.StratifiedKFold(5, shuffle=True, random_state=0)
    chances = model_selection.cross_val_predict(model, known, labels.numpy(), cv=folds, method="predict_proba")
    classes = torch.unique(labels)
    return torch.from_numpy(chances)[torch.arange(len(labels)), torch.searchsorted(classes, labels)].log()


def copied(network: nn.Module) -> dict[str, Tensor]:
    """A network's state, apart from what happens to it next."""
    return {name: value.detach().clone() for name, value in network.state_dict().items()}
