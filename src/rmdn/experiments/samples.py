"""Whether synthetic samples are what theory says of them: what Figures 7 and 9 share."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rmdn.data.synthetic import Samples, Stage
from rmdn.experiments.summary import claim
from rmdn.report import Claim

NEAR = 0.02


def limit(draws: Sequence[Sequence[Stage]]) -> Claim:
    """Whether the main effect tells the groups apart just as often as theory says, over all stages and draws."""
    stages = [stage for stages in draws for stage in stages]
    reached = sum(best_cut(stage.test) for stage in stages) / len(stages)
    best = sum(stage.best for stage in stages) / len(stages)
    return claim(
        f"Without the confounder {best:.3g} of the images can be told right, and no more",
        abs(reached - best) <= NEAR,
        f"the best cut of the main effect of test images, fitted to them: {reached:.3f}; close: {NEAR}",
        len(draws),
    )


def best_cut(samples: Samples) -> float:
    """The highest accuracy of calling group 2 all that lies above one magnitude of the main effect."""
    ordered = samples.labels[samples.main_effect.argsort()].double()
    below = torch.cat([torch.zeros(1), (1 - ordered).cumsum(0)])  # group 1 at or below each cut
    above = ordered.sum() - torch.cat([torch.zeros(1), ordered.cumsum(0)])
    return float((below + above).max() / len(ordered))
