"""Figure 2: how soon the recursion's coefficients are those of ordinary least squares; nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence

from rmdn.experiments.estimates import Estimates, estimates, picture
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Run
from rmdn.experiments.summary import claim
from rmdn.report import Cell, Claim, Picture, Section, Table

DRAWS = 3
GOOD = (10.0, 100.0, 1000.0)  # the epsilons that the paper names
SOON, NEAR = 1000, 0.01  # after so many samples so near
SHOWN = (10, 100, 1000, 10_000)  # samples, in the table


def runs(plan: Plan) -> list[Run]:
    """None."""
    return []


def section(plan: Plan, find: Find) -> Section:
    """The picture of one draw, and a verdict over several."""
    draws = [estimates(seed=seed) for seed in range(DRAWS)]
    return Section(
        "figure2",
        "Figure 2. Estimates against ordinary least squares",
        "The distance between the coefficients of the recursion, started with P = epsilon I, and those of ordinary least "
        "squares on the samples seen so far: features that follow a label and a confounder with noise.",
        [
            Picture("One draw of the samples, a line for each epsilon.", picture(draws[0]), ALT),
            table(draws[0]),
        ],
        claims(draws),
        command=plan.command("figure2"),
    )


ALT = "On logarithmic axes all lines fall with the samples seen; the larger epsilon is, the lower its line."


def table(found: Estimates) -> Table:
    """The distances at some numbers of samples."""
    rows: list[list[str | Cell]] = [
        [f"{epsilon:g}", *(f"{distance(found, i, samples):.1e}" for samples in SHOWN)]
        for i, epsilon in enumerate(found.epsilons)
    ]
    return Table("Distance after so many samples.", ["epsilon", *(f"{samples:,}" for samples in SHOWN)], rows)


def distance(found: Estimates, epsilon: int, samples: int) -> float:
    """The distance of the `epsilon`-th line at the first size with so many samples."""
    return float(found.distances[epsilon, int((found.samples >= samples).nonzero()[0])])


def claims(draws: Sequence[Estimates]) -> list[Claim]:
    """What the caption says."""
    worst = {
        epsilon: max(distance(found, found.epsilons.index(epsilon), SOON) for found in draws)
        for epsilon in draws[0].epsilons
    }
    why = ", ".join(f"{epsilon:g}: {found:.1e}" for epsilon, found in worst.items())
    return [
        claim(
            "Estimates are soon those of ordinary least squares for epsilon 10, 100 and 1000",
            all(worst[epsilon] <= NEAR for epsilon in GOOD),
            f"largest distance after {SOON:,} samples by epsilon: {why}; near: at most {NEAR}",
            len(draws),
        )
    ]


register(Experiment("figure2", "Figure 2. Estimates against least squares", {"quick": 0.1, "paper": 0.1}, runs, section))
