"""Figure 8: features of the static synthetic data, and how soon they lose the confounder, by batch size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmdn.data import synthetic
from rmdn.experiments import embedding, static
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Run
from rmdn.experiments.store import Record
from rmdn.experiments.summary import cell, missing, records
from rmdn.extras import need
from rmdn.report import Cell, Claim, Picture, Section, Table, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
At = tuple[str, int]  # a method and a batch size
OURS = "Guarded R-MDN"
OVERLAP = (3.0, 4.0)  # of the main effect: there it says nothing of the group
PLACES = ("group 1, below 3", "group 1, overlap", "group 2, overlap", "group 2, above 4")
ROWS = 300  # of a cloud
NEIGHBOURS = 15
# How often the overlap's groups are told apart: by chance .5, by the confounder alone .83.
TOGETHER, APART = 0.6, 0.7
EARLY = 0.1  # the share of the epochs in which a quick method has removed the confounder
SMALL = 64  # batches


class Cloud(NamedTuple):
    """Test rows of a run."""

    features: embedding.Floats  # (N, h)
    labels: embedding.Integers  # (N,)
    main_effect: Floats  # (N,)

    @property
    def overlap(self) -> NDArray[np.bool_]:
        """The rows whose main effect both groups have."""
        return (self.main_effect > OVERLAP[0]) & (self.main_effect < OVERLAP[1])

    @property
    def places(self) -> embedding.Integers:
        """Of each row, which of PLACES it stands in."""
        return np.where(self.overlap, 1 + self.labels, 3 * self.labels)


def runs(plan: Plan) -> list[Run]:
    """Every method at every batch size; those of Table 7 are among them."""
    return [
        run
        for at in itertools.product(plan.rows(static.METHODS), static.curve_sizes(plan))
        for run in static.runs(*at, plan)
    ]


def section(plan: Plan, find: Find) -> Section:
    """Clouds, curves, and what they show in numbers."""
    methods = plan.rows(static.METHODS)
    found = {at: records(static.runs(*at, plan), find) for at in itertools.product(methods, static.curve_sizes(plan))}
    courses = {at: course(of_cell) for at, of_cell in found.items()}
    clouds = {at: clouds_of(found[at]) for at in itertools.product(methods, static.PICTURED)}
    shares = {at: [told_apart(cloud) for cloud in of_cell] for at, of_cell in clouds.items()}
    parts: list[Table | Picture] = []
    if any(clouds.values()):
        parts += [Picture(CAPTION_A, cloud_picture({at: of[0] for at, of in clouds.items() if of}), ALT_A), table(shares)]
    if any(map(len, courses.values())):
        parts.append(Picture(CAPTION_B, curve_picture(courses), ALT_B))
    return Section(
        "figure8",
        "Figure 8. Learned features and squared distance correlation",
        "Where the main effect lies between 3 and 4 it says nothing of the group: what parts the groups there is the "
        "confounder. As a number: how often the 15 nearest neighbours in the overlap, asked in feature space by "
        "cross-validation, find an image's group.",
        parts,
        claims(shares, courses),
        command=plan.command("figure8"),
        warnings=missing(runs(plan), find),
    )


CAPTION_A = "a. t-SNE of the pre-logits features of 300 test images, of one run each."
ALT_A = (
    "A cloud for each method and batch size. Where a network has used the confounder, the groups of the overlap lie apart; "
    "where it has not, over each other."
)
CAPTION_B = "b. dcor2 of features and confounder on test images after each epoch, mean over both groups and over seeds."
ALT_B = "A panel for each method: dcor2 against the epoch, a curve for each batch size, light for the largest."


def clouds_of(found: Sequence[Record]) -> list[Cloud]:
    """The features that runs have kept; the main effect comes from the data's recipe."""
    clouds = []
    for record in found:
        kept = embedding.kept(record, rows=2 * ROWS)
        if kept is not None:
            main_effect = synthetic.static(**record["run"]["data"]["arguments"]).test.main_effect
            clouds.append(Cloud(kept.features, kept.labels, main_effect[: len(kept.labels)].numpy()))
    return clouds


def told_apart(cloud: Cloud) -> float:
    """The share of the overlap's rows whose group their neighbours know; NaN where there are too few rows."""
    features, labels = cloud.features[cloud.overlap], cloud.labels[cloud.overlap]
    if len(labels) < 4 * NEIGHBOURS or np.bincount(labels, minlength=2).min() < 5:
        return float("nan")
    neighbors, selection = need("sklearn.neighbors", "study"), need("sklearn.model_selection", "study")
    folds = selection.StratifiedKFold(5, shuffle=True, random_state=0)
    said = selection.cross_val_predict(neighbors.KNeighborsClassifier(NEIGHBOURS), features, labels, cv=folds)
    return float((said == labels).mean())


def course(found: Sequence[Record]) -> Floats:
    """dcor2 after each epoch, mean over groups (seeds, epochs)."""
    values = [
        [np.mean([np.nan if value is None else value for value in now.values()]) for now in record["course"]]
        for record in found
        if record.get("course")
    ]
    return np.array(values)


def early(values: Floats) -> float:
    """The mean over seeds and the first of the epochs."""
    return static.mean(values[:, : max(1, round(EARLY * values.shape[1]))])


def table(shares: dict[At, list[float]]) -> Table:
    """How well the overlap's groups are told apart."""
    methods = dict.fromkeys(method for method, _ in shares)
    rows: list[list[str | Cell]] = [
        [method, *(cell(shares[method, size], digits=2) for size in static.PICTURED)] for method in methods
    ]
    return Table(
        "How often an image's group is found in the overlap: .5 is chance, .83 what the confounder alone tells. Mean and "
        "standard deviation over the runs whose features were kept.",
        ["Method", *(f"batch size {size}" for size in static.PICTURED)],
        rows,
    )


def claims(shares: dict[At, list[float]], courses: dict[At, Floats]) -> list[Claim]:
    """What the caption and the text say."""
    return [
        _overlap(shares, "Plain", "{} tells the overlap's groups apart at every batch size", lambda share: share >= APART),
        *(
            _overlap(
                shares,
                method,
                "{} does not tell the overlap's groups apart at any batch size",
                lambda share: share <= TOGETHER,
            )
            for method in ("R-MDN", OURS)
        ),
        *(_sooner(courses, method) for method in ("R-MDN", OURS)),
    ]


def _overlap(shares: dict[At, list[float]], method: str, text: str, fits: Callable[[float], bool]) -> Claim:
    kept = {size: static.finite(np.asarray(shares.get((method, size), []), float)) for size in static.PICTURED}
    kept = {size: values for size, values in kept.items() if len(values)}
    return static.judged(
        text.format(method),
        static.PICTURED,
        {size: (fits(static.mean(values)), f"{static.mean(values):.2f}") for size, values in kept.items()},
        f"share found; apart from {APART}, together up to {TOGETHER}",
        min(map(len, kept.values()), default=0),
    )


def _sooner(courses: dict[At, Floats], ours: str) -> Claim:
    methods = (ours, "MDN", "P-MDN")
    sizes = sorted({size for _, size in courses if size <= SMALL})
    there = [size for size in sizes if all(len(courses.get((method, size), ())) for method in methods)]
    first = {size: [early(courses[method, size]) for method in methods] for size in there}
    return static.judged(
        f"With small batches {ours} removes the confounder sooner than MDN and P-MDN",
        sizes,
        {size: (a < min(b, c), f"{a:.3f} ({b:.3f}, {c:.3f})") for size, (a, b, c) in first.items()},
        "dcor2 in the first tenth of the epochs; in parentheses MDN's and P-MDN's",
        min((len(courses[method, size]) for method in methods for size in there), default=0),
    )


@style.drawing()
def cloud_picture(clouds: dict[At, Cloud]) -> Figure:
    """A row a method, a column a batch size."""
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(method for method, _ in clouds))
    sizes = sorted({size for _, size in clouds})
    figure = Figure(figsize=(2.6 * len(sizes) + 0.4, 2.3 * len(methods) + 0.6))
    axes = figure.subplots(len(methods), len(sizes), squeeze=False)
    for (row, method), (column, size) in itertools.product(enumerate(methods), enumerate(sizes)):
        ax = axes[row, column]
        if (method, size) in clouds:
            cloud = clouds[method, size]
            embedding.by_category(ax, embedding.embed(cloud.features[:ROWS]), cloud.places[:ROWS], PLACES)
        else:
            ax.set(xticks=[], yticks=[])
            ax.text(0.5, 0.5, "no run", ha="center", color=style.GREY, transform=ax.transAxes)
        if row == 0:
            ax.set_title(f"batch size {size}")
        if column == 0:
            ax.set_ylabel(method)
    handles, labels = next(ax.get_legend_handles_labels() for ax in axes.flat if ax.collections)
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


@style.drawing()
def curve_picture(courses: dict[At, Floats]) -> Figure:
    """A panel a method, a curve a batch size."""
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(method for method, _ in courses))
    figure = Figure(figsize=(2.3 * len(methods) + 0.8, 3.2))
    panels = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    for method, ax in zip(methods, panels, strict=True):
        _curves(ax, {size: values for (name, size), values in courses.items() if name == method})
        ax.set(title=method, xlabel="epoch", xscale="log")
        ax.xaxis.set_major_formatter("{x:g}")
    panels[0].set_ylabel("dcor$^2$")
    handles, labels = max((ax.get_legend_handles_labels() for ax in panels), key=lambda pair: len(pair[1]))
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), title="batch size")
    return figure


def _curves(ax: Axes, by_size: dict[int, Floats]) -> None:
    from matplotlib import colormaps

    shades = colormaps[embedding.SHADES](np.linspace(0, 0.85, len(by_size)))
    for i, (size, values) in enumerate(by_size.items()):
        if len(values):
            mean = np.array([*map(static.mean, values.T)])
            look = {"color": shades[i], "linestyle": style.LINES[i % 4], "marker": style.MARKERS[i % 7]}
            epochs = np.arange(1, len(mean) + 1)
            # A few marks evenly along the logarithmic axis, so that curves are told apart without colour.
            marks = np.unique(np.geomspace(1, len(mean), 6).astype(int)) - 1
            ax.plot(epochs, mean, markevery=list(marks), markersize=4, label=str(size), **look)


register(
    Experiment("figure8", "Figure 8. Features and dcor2 by batch size", {"quick": 3, "paper": 18000}, runs, section),
)
