"""Better than the paper: what mends each weakness of R-MDN, and the recipe that came of it."""

from __future__ import annotations

from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Recipe, Run
from rmdn.experiments.variations import Variation, at_scale
from rmdn.report import Section

DATASETS = (1, 2, 3)
SEEDS = 3
SLOWER = 1e-4
HOLDOUT = {"holdout": 0.2}
RECALIBRATED = {"recalibration": "stage"}
PUBLISHED, OURS = "R-MDN as published", "Guarded R-MDN"
BEST_BEFORE = "Projected gradient, LwF, recalibration"


def around(**options: float) -> Recipe:
    """The published layer on raw columns, with something around its training."""
    return Recipe("R-MDN variant", {"standardize": False, **options})


PIECES = [
    Variation(PUBLISHED, Recipe("R-MDN"), quick=True),
    Variation("+ recalibration at stage ends", Recipe("R-MDN"), RECALIBRATED, quick=True),
    Variation("+ recalibration every 10 epochs", Recipe("R-MDN"), {"recalibration": 10}),
    Variation("+ projected gradient", Recipe("R-MDN", {"gradient": "projected"})),
    Variation("+ standardized confounder", Recipe("R-MDN", {"standardize": True})),
    Variation("+ hinges", around(knots=5)),
    Variation("+ LwF", around(lwf=2.0)),
    Variation("+ EWC", around(ewc=400.0)),
    Variation("+ gate", around(looks=10), HOLDOUT, quick=True),
    Variation("Projected gradient, recalibration", Recipe("R-MDN", {"gradient": "projected"}), RECALIBRATED),
    Variation(
        BEST_BEFORE,
        Recipe("R-MDN variant", {"standardize": False, "gradient": "projected", "lwf": 2.0}),
        RECALIBRATED,
        quick=True,
    ),
    Variation("Gate, hinges", around(looks=10, knots=5), HOLDOUT),
    Variation(OURS, Recipe(OURS), quick=True),
    Variation("Guarded, without hinges", Recipe(OURS, {"knots": 0})),
    Variation("Guarded, judged at stage ends alone", Recipe(OURS, {"looks": 1})),
    Variation("Guarded, projected gradient", Recipe(OURS, {"gradient": "projected"})),
    Variation("Guarded, LwF", Recipe(OURS, {"lwf": 2.0})),
]
SOME = (PUBLISHED, "+ gate", BEST_BEFORE, OURS)


def pieces(dataset: int, plan: Plan, *, slower: bool = False) -> list[Variation]:
    """What is tried on a data set: on data set 3 everything, elsewhere and at the slower rate what matters most."""
    there = at_scale(PIECES, plan)
    if dataset == 3 and not slower:
        return there
    if plan.scale == "quick":  # too few steps for the slower rate
        return [] if slower else [piece for piece in there if piece.name in (PUBLISHED, OURS)]
    names = (PUBLISHED, OURS) if slower and dataset != 3 else SOME
    return [piece for piece in there if piece.name in names]


def runs_of(piece: Variation, dataset: int, plan: Plan, *, slower: bool = False) -> list[Run]:
    """The seeds of one cell."""
    return piece.runs(dataset, plan, seeds=SEEDS, **({"lr": SLOWER} if slower else {}))


def runs(plan: Plan) -> list[Run]:
    """Every piece on data set 3, the best on the others, both learning rates where it matters."""
    return [
        run
        for dataset in DATASETS
        for slower in (False, True)
        for piece in pieces(dataset, plan, slower=slower)
        for run in runs_of(piece, dataset, plan, slower=slower)
    ]


def section(plan: Plan, find: Find) -> Section:
    """Not written yet."""
    return Section("beyond", "Better than the paper")


register(Experiment("beyond", "Better than the paper", {"quick": 3, "paper": 240}, runs, section))
