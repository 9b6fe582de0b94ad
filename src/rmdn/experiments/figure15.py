"""Figure 15: what lambda does, on the static synthetic data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rmdn.experiments import static, static_picture
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Recipe, Run
from rmdn.experiments.static import Outcomes
from rmdn.experiments.summary import claim, missing
from rmdn.extras import need
from rmdn.report import Claim, Picture, Section

DEFAULT = 1e-4  # the paper's lambda, and the method's own: these runs are Table 7's
LAMBDAS = (0.0, 1e-5, DEFAULT, 1e-3, 1e-2, 1e-1)
ROBUST = 0.02  # of the accuracy, from the worst lambda to the best


def runs_of(regularization: float, plan: Plan) -> list[Run]:
    """The seeds at one lambda."""
    arguments = {} if regularization == DEFAULT else {"regularization": regularization}
    return static.runs(Recipe("R-MDN", arguments), static.ONE_SIZE, plan)


def runs(plan: Plan) -> list[Run]:
    """Every lambda."""
    return [run for value in LAMBDAS if plan.chosen(["R-MDN"]) for run in runs_of(value, plan)]


def section(plan: Plan, find: Find) -> Section:
    """The picture, its numbers and what they say."""
    found = {f"{value:g}": static.outcomes(runs_of(value, plan), find) for value in LAMBDAS}
    there = any(map(len, found.values()))
    picture = Picture("Mean and 95 % interval over seeds.", static_picture.picture(found, "lambda"), ALT) if there else None
    return Section(
        "figure15",
        "Figure 15. The regularization lambda",
        f"R-MDN on the static data as lambda, which is added to the diagonal of P after every batch, is varied. The paper "
        f"does not say its batch size: here {static.ONE_SIZE}.",
        [*([picture] if picture else []), static_picture.table("lambda", found)],
        [robust(found), helps(found)],
        command=plan.command("figure15"),
        warnings=missing(runs(plan), find),
    )


ALT = "Left: balanced accuracy for each lambda, with theory's line. Right: dcor2 in both groups for each lambda."


def robust(found: Mapping[str, Outcomes]) -> Claim:
    """Whether accuracy does not depend on lambda."""
    text = "Accuracy is robust to lambda"
    seeds = min(map(len, found.values()))
    if not seeds:
        return claim(text, None, "not enough runs", 0)
    means = {name: float(one.accuracy.mean()) for name, one in found.items()}
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    why = f"from {means[low]:.3f} (lambda {low}) to {means[high]:.3f} (lambda {high}); robust: at most {ROBUST} apart"
    return claim(text, means[high] - means[low] <= ROBUST, why, seeds)


def helps(found: Mapping[str, Outcomes]) -> Claim:
    """Whether a larger lambda removes more."""
    text = "A larger lambda removes more of the confounder"
    seeds = min(map(len, found.values()))
    if seeds < 2:
        return claim(text, None, "not enough runs", seeds)
    ranks = np.concatenate([np.full(len(one), i) for i, one in enumerate(found.values())])
    dcor2 = np.array([static.mean(run) for one in found.values() for run in one.dcor2])
    if np.ptp(dcor2) == 0:
        return claim(text, False, f"all runs have the same dcor2, {dcor2[0]:.3f}", seeds)
    test = need("scipy.stats", "study").spearmanr(ranks, dcor2, nan_policy="omit")
    why = f"Spearman correlation of lambda and dcor2 over runs {test.statistic:.2f}, p = {test.pvalue:.2g}"
    return claim(text, bool(test.statistic < 0 and test.pvalue < 0.05), why, seeds)


register(Experiment("figure15", "Figure 15. The regularization lambda", {"quick": 1, "paper": 1500}, runs, section))
