"""Figure 5: ADNI by year of acquisition, accuracy on every test set and what the features know of age and sex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rmdn.experiments import brains
from rmdn.experiments.brains import GROUPS, OURS, PLAIN
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.summary import claim, missing
from rmdn.experiments.table5 import Floats, Found, accuracy, dcor2, found_records, nanmean, runs, seeds
from rmdn.report import Claim, Part, Picture, Section, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RIVALS = (PLAIN, "P-MDN")


def section(plan: Plan, find: Find) -> Section:
    """The picture, and what the paper says of it."""
    found = {method: of for method, of in found_records(plan, find).items() if of}
    parts: list[Part] = []
    if found:
        names = next(iter(found.values()))[0]["names"]
        parts.append(
            Picture(
                "Above: accuracy on the test set of every year, a curve for each year that the network was trained up to "
                "(the first is the first acquisition year's forward transfer). Below: dcor² with age and sex within each "
                "group, mean over the test sets, as training goes on. Means over seeds.",
                picture({method: (accuracy(of), nanmean(dcor2(of), 1)) for method, of in found.items()}, names),
                "A column of two panels for each method: five accuracy curves over test years, three curves of dcor² over "
                "training years.",
            )
        )
    return Section(
        "figure5",
        "Figure 5. ADNI by year of acquisition",
        "The runs of Table 5, stage by stage.",
        parts,
        claims(found),
        command=plan.command("figure5"),
        warnings=missing(runs(plan), find),
    )


@style.drawing()
def picture(panels: dict[str, tuple[Floats, Floats]], names: list[str]) -> Figure:
    """For each method: accuracy (trained on, tested on) above, dcor2 (trained on, group) below."""
    from matplotlib.figure import Figure

    years = [name.replace("<=", "≤ ").replace(">=", "≥ ") for name in names]
    figure = Figure(figsize=(1.2 + 2.4 * len(panels), 6.2))
    axes = figure.subplots(2, len(panels), sharey="row", squeeze=False)
    for (method, (hits, knows)), (above, below) in zip(panels.items(), axes.T, strict=True):
        _lines(above, hits, [f"trained up to {year}" for year in years], years, "tested on")
        _lines(below, knows.T, [f"within {group}" for group in GROUPS], years, "trained up to")
        above.set_title(method)
    axes[0, 0].set_ylabel("accuracy")
    axes[1, 0].set_ylabel("dcor²")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    figure.legend(*axes[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _lines(ax: Any, values: Floats, names: list[str], years: list[str], xlabel: str) -> None:
    for line, (name, look) in zip(values, style.looks(names).items(), strict=True):
        ax.plot(range(len(years)), line, label=name, **look.line)
    ax.set_xticks(range(len(years)), years, rotation=45)
    ax.set_xlabel(xlabel)


def claims(found: Found) -> list[Claim]:
    """What the paper says of this figure."""
    return [_falls(found), _forward(found), _knows_less(found)]


def _falls(found: Found) -> Claim:
    text = "After the first year, the base network and P-MDN do worse on later years than on it, by more than R-MDN"
    count = seeds(found, *RIVALS, OURS)
    if not count:
        return claim(text, None, "not enough runs", 0)
    first = {method: accuracy(found[method])[0] for method in (*RIVALS, OURS)}
    fall = {method: float(values[0] - values[1:].mean()) for method, values in first.items()}
    why = ", ".join(f"{method} falls by {value:.3f}" for method, value in fall.items())
    return claim(text, min(fall[rival] for rival in RIVALS) > max(fall[OURS], 0), why, count)


def _forward(found: Found) -> Claim:
    text = "R-MDN is more accurate on years that it was not yet trained on"
    count = seeds(found, *RIVALS, OURS)
    if not count:
        return claim(text, None, "not enough runs", 0)
    ahead = {}
    for method in (*RIVALS, OURS):
        R = accuracy(found[method])
        ahead[method] = float(R[np.triu_indices(len(R), 1)].mean())
    why = ", ".join(f"{method} {value:.3f}" for method, value in ahead.items())
    return claim(text, ahead[OURS] > max(ahead[rival] for rival in RIVALS), why, count)


def _knows_less(found: Found) -> Claim:
    text = "Over all stages, R-MDN has the lowest dcor² in every group"
    count = seeds(found, *RIVALS, OURS)
    if not count:
        return claim(text, None, "not enough runs", 0)
    mean = {method: nanmean(dcor2(found[method]), (0, 1)) for method in (*RIVALS, OURS)}
    parts = [f"{method} {' '.join(f'{value:.2f}' for value in values)}" for method, values in mean.items()]
    holds = all((mean[OURS] < mean[rival]).all() for rival in RIVALS)
    known = bool(np.isfinite(np.concatenate(list(mean.values()))).all())
    return claim(text, holds if known else None, f"{', '.join(GROUPS)}: {'; '.join(parts)}", count)


register(
    Experiment(
        "figure5",
        "Figure 5. ADNI by year of acquisition",
        brains.ADNI_MINUTES,
        runs,
        section,
        needs=brains.ADNI_NEEDS,
    )
)
