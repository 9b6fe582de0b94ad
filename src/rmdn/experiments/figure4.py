"""Figure 4: HAM10000, t-SNE of the features with and without R-MDN after the last stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from rmdn.data.ham10000 import DIAGNOSES
from rmdn.experiments import ham10000, table4
from rmdn.experiments.embedding import Kept, by_category, by_value, embed, kept
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.ham10000 import LAST
from rmdn.experiments.run import Run
from rmdn.experiments.summary import cell, claim, missing, records
from rmdn.extras import need
from rmdn.report import Cell, Claim, Picture, Section, Table, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Figure 4. HAM10000: learned features"
ROWS = 600  # of a cloud
NEIGHBOURS = 10
CAPTION = (
    "t-SNE of the pre-logits features of test images after the last stage, first seed; a row a method. The same points by"
    " age, by diagnosis, and by diagnosis in the fifth stage's test set alone."
)
ALT = "Two rows of three clouds of points: shaded by age, marked by diagnosis, and marked by diagnosis in stage 5 alone."


def runs(plan: Plan) -> list[Run]:
    """Those of Table 4 that keep features."""
    return [run for name in ham10000.chosen(plan, ham10000.PICTURED) for run in ham10000.runs_of(name, plan)]


def section(plan: Plan, find: Find) -> Section:
    """The clouds, and in numbers what is to be seen in them."""
    found = {name: _clouds(name, plan, find) for name in ham10000.chosen(plan, ham10000.PICTURED)}
    found = {name: clouds for name, clouds in found.items() if clouds}
    first = {name: clouds[0] for name, clouds in found.items()}
    return Section(
        "figure4",
        TITLE,
        "A picture of clusters convinces easily, so two numbers of the features, not of the plane, stand beside it."
        "\n\nSilhouette: how far the diagnoses stand apart in the last stage's test set (-1 to 1). Age of neighbours:"
        f" the correlation of an image's age with the mean age of its {NEIGHBOURS} nearest images of the same diagnosis.",
        [Picture(CAPTION, picture(first), ALT), _table(found)] if found else [],
        claims(found),
        command=plan.command("figure4"),
        warnings=missing(runs(plan), find),
    )


def _clouds(name: str, plan: Plan, find: Find) -> list[Kept]:
    """The features that each seed has kept."""
    clouds = [kept(record, ROWS) for record in records(ham10000.runs_of(name, plan), find)]
    return [cloud for cloud in clouds if cloud is not None]


def separation(cloud: Kept) -> float:
    """The silhouette of the diagnoses in the last stage's test set; NaN where that has one alone."""
    last = cloud.stages == cloud.stages.max()
    features, labels = cloud.features[last], cloud.labels[last]
    if not 1 < len(np.unique(labels)) < len(labels):
        return float("nan")
    return float(need("sklearn.metrics", "study").silhouette_score(features, labels))


def age_of_neighbours(cloud: Kept) -> float:
    """The correlation of a row's age with the mean age of its nearest rows of the same diagnosis; NaN where unknown."""
    neighbors = need("sklearn.neighbors", "study")
    ages, near = cloud.confounders[:, 0].astype(np.float64), np.full(len(cloud.labels), np.nan)
    for label in np.unique(cloud.labels):
        rows = np.flatnonzero(cloud.labels == label)
        if len(rows) > NEIGHBOURS:
            nearest = neighbors.NearestNeighbors(n_neighbors=NEIGHBOURS).fit(cloud.features[rows])
            own = nearest.kneighbors(return_distance=False)  # (rows, neighbours), each row's own left out
            # Diagnoses differ in age, which is no fault: within each, from its mean.
            centred = ages[rows] - ages[rows].mean()
            ages[rows], near[rows] = centred, centred[own].mean(1)
    told = np.isfinite(near)
    if told.sum() < 3 or not near[told].std() or not ages[told].std():
        return float("nan")
    return float(np.corrcoef(ages[told], near[told])[0, 1])


MEASURES: dict[str, Callable[[Kept], float]] = {
    "Silhouette of diagnoses": separation,
    "Age of neighbours": age_of_neighbours,
}


def _table(found: dict[str, list[Kept]]) -> Table:
    rows: list[list[str | Cell]] = [
        [name, *(cell([measure(cloud) for cloud in clouds]) for measure in MEASURES.values())]
        for name, clouds in found.items()
    ]
    return Table("Mean and standard deviation over seeds.", ["Method", *MEASURES], rows)


@style.drawing()
def picture(clouds: dict[str, Kept]) -> Figure:
    """A row a method: by age, by diagnosis, and by diagnosis in the last stage alone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 0.9 + 3.3 * len(clouds)))
    panels = figure.subplots(len(clouds), 3, squeeze=False)
    for row, (name, cloud) in zip(panels, clouds.items(), strict=True):
        plane = embed(cloud.features)
        last = cloud.stages == cloud.stages.max()
        # A few ages far out must not take all shades.
        ages = np.clip(cloud.confounders[:, 0], *np.percentile(cloud.confounders[:, 0], [2, 98]))
        shades = by_value(row[0], plane, ages)
        figure.colorbar(shades, ax=row[0], label="age (standardized)", location="left", shrink=0.8)
        by_category(row[1], plane, cloud.labels, DIAGNOSES)
        by_category(row[2], plane[last], cloud.labels[last], DIAGNOSES)
        row[2].set(xlim=row[1].get_xlim(), ylim=row[1].get_ylim())
        for axes, words in zip(row, ("by age", "by diagnosis", "by diagnosis, stage 5 alone"), strict=True):
            axes.set_title(f"{name}: {words}")
    handles, names = panels[0, 1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    return figure


def claims(found: dict[str, list[Kept]]) -> list[Claim]:
    """What the caption says."""
    texts = {
        "Silhouette of diagnoses": f"In the last stage, diagnoses stand less far apart with {LAST} than without",
        "Age of neighbours": f"With {LAST}, features follow age less than without",
    }
    return [_less(text, measure, found) for measure, text in texts.items()]


def _less(text: str, name: str, found: dict[str, list[Kept]]) -> Claim:
    if not {"Plain", LAST} <= found.keys():
        return claim(text, None, "not enough runs", 0)
    base, ours = (float(ham10000.means([MEASURES[name](cloud) for cloud in found[row]])) for row in ("Plain", LAST))
    holds = ours < base if np.isfinite([base, ours]).all() else None
    return claim(text, holds, f"{name.lower()}: {base:.3f} without, {ours:.3f} with", min(map(len, found.values())))


register(Experiment("figure4", TITLE, {"quick": 1, "paper": 4_000}, runs, section, needs=table4.NEEDS))
