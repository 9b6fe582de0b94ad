"""Figure 16: where in the network R-MDN stands, on the static synthetic data."""

from __future__ import annotations

from rmdn.experiments import static
from rmdn.experiments.experiment import Plan
from rmdn.experiments.run import Recipe, Run

LAYERS = ("conv1", "conv2", "fc1")
PLACES = (
    *(("conv1",), ("conv2",), ("fc1",)),
    *(("conv1", "conv2"), ("conv1", "fc1"), ("conv2", "fc1")),
    LAYERS,  # after every convolution and the pre-logits layer: the paper's choice, whose runs are Table 7's
)


def runs_of(places: tuple[str, ...], plan: Plan) -> list[Run]:
    """The seeds at one placement."""
    arguments = {} if places == LAYERS else {"at": list(places)}
    return static.runs(Recipe("R-MDN", arguments), static.ONE_SIZE, plan)


def runs(plan: Plan) -> list[Run]:
    """Every placement."""
    return [run for places in PLACES for run in runs_of(places, plan)]
