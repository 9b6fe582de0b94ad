"""Figure 10: HAM10000, the ages of each diagnosis and of each stage; nothing is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmdn.data import ham10000 as adapter
from rmdn.data.simulate import simulate_ham10000
from rmdn.data.simulate.ham10000 import patients
from rmdn.data.stages import HAM10000_AGES, HAM10000_SHARES, by_shares
from rmdn.experiments import clinical, ham10000
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Run
from rmdn.extras import need
from rmdn.report import Claim, Picture, Section, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Figure 10. HAM10000: age by diagnosis and by stage"
GROUPS = ("below 20", "20 to 39", "40 to 49", "50 to 59", "60 and above")
HATCHES = ("", "//", "", "..", "")
OLD = 50  # years
CAPTION = (
    "Shares of the age groups among the images of each diagnosis (left) and of each stage, training and test (right);"
    " at the right end: the number of images whose age is known."
)
ALT = (
    "A horizontal bar for each diagnosis and each stage: from the young, dark at the left, to the old, light at the right."
)


class Ages(NamedTuple):
    """The images whose age is known."""

    ages: NDArray[np.float64]  # (n,)
    diagnoses: NDArray[np.str_]  # (n,)
    stages: NDArray[np.int64]  # (n,) from 0


def runs(plan: Plan) -> list[Run]:
    """None."""
    return []


def section(plan: Plan, find: Find) -> Section:
    """The picture, and what is said of the ages."""
    data = ham10000.data(plan)
    found = ages(table(data.arguments["stand_in"]))
    stand_in = data.arguments["stand_in"] is not None
    return Section(
        "figure10",
        TITLE,
        "Age goes along with the diagnosis, and it shows in the skin: it is a confounder.\n\nThe paper gives the stages as"
        " percentages of age groups, which sum to 100 over the groups of a stage and over the stages of a group. Here each"
        " group is dealt over the stages by them, so that every image is used once. The groups differ in size, so the"
        " shares within a stage, as drawn, are not the percentages.",
        [Picture(CAPTION, picture(found), ALT)],
        claims(found),
        command=plan.command("figure10"),
        warnings=["HAM10000 is a stand-in: simulated patients, which say nothing of people."] if stand_in else [],
    )


def table(stand_in: dict[str, Any] | None) -> Any:
    """The metadata of the real data, or of a stand-in of these numbers, whose images need not be drawn for it."""
    if stand_in is not None:
        return patients(stand_in["n"], stand_in["seed"])
    return adapter.read_rows(clinical.folder("ham10000", None, simulate_ham10000))


def ages(rows: Any) -> Ages:
    """What is known of each image's age, with the stages as the runs have them."""
    stages, _ = by_shares("age", HAM10000_AGES, HAM10000_SHARES)(rows)
    known = rows["age"].notna().to_numpy()
    numbers = rows["age"].to_numpy(np.float64)[known]
    return Ages(numbers, rows["dx"].to_numpy().astype(str)[known], np.asarray(stages)[known])


@style.drawing()
def picture(found: Ages) -> Figure:
    """Shares of the age groups, a bar for each diagnosis and each stage."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8))
    left, right = figure.subplots(1, 2)
    by_diagnosis = {name: found.ages[found.diagnoses == name] for name in np.unique(found.diagnoses)}
    in_order = sorted(by_diagnosis, key=lambda name: float(by_diagnosis[name].mean()))
    _bars(left, {name: by_diagnosis[name] for name in in_order}, "diagnosis, by mean age")
    _bars(right, {f"{k + 1}": found.ages[found.stages == k] for k in range(len(HAM10000_SHARES[0]))}, "stage")
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, title="age", loc="outside lower center", ncols=len(names))
    return figure


def _bars(axes: Axes, parts: dict[str, NDArray[np.float64]], title: str) -> None:
    """A bar of shares for the ages of each part."""
    colours = need("matplotlib", "study").colormaps["cividis"](np.linspace(0.1, 0.95, len(GROUPS)))
    counts = np.array([np.bincount(np.digitize(part, HAM10000_AGES), minlength=len(GROUPS)) for part in parts.values()])
    shares = counts / counts.sum(1, keepdims=True)
    starts = np.cumsum(shares, axis=1) - shares
    for k, group in enumerate(GROUPS):
        look = {"color": colours[k], "edgecolor": "white", "hatch": HATCHES[k], "label": group}
        axes.barh(list(parts), shares[:, k], left=starts[:, k], **look)
    for row, count in enumerate(counts.sum(1)):
        axes.text(1.01, row, f"{count:,}", va="center", fontsize=9)
    axes.set(xlim=(0, 1), xlabel="share of the images", ylabel=title)
    axes.invert_yaxis()
    axes.grid(visible=False)


def claims(found: Ages) -> list[Claim]:
    """What the paper says of age."""
    parts = [found.ages[found.diagnoses == name] for name in np.unique(found.diagnoses)]
    test = need("scipy.stats", "study").kruskal(*parts)
    melanoma = found.ages[found.diagnoses == "mel"]
    old = float((melanoma >= OLD).mean()) if len(melanoma) else float("nan")
    means = [float(found.ages[found.stages == k].mean()) for k in range(found.stages.max() + 1)]
    return [
        _claim(
            "The distribution of age differs significantly between diagnoses",
            bool(test.pvalue < 0.05),
            f"Kruskal-Wallis over {len(parts)} diagnoses: statistic {test.statistic:.4g}, p = {test.pvalue:.2g}",
        ),
        _claim(
            "Melanoma occurs mostly in older patients", old > 0.5, f"{old:.0%} of its images are of {OLD} years or more"
        ),
        _claim(
            "Earlier stages hold younger people, later ones older people",
            all(np.diff(means) > 0),
            f"mean age by stage: {', '.join(f'{mean:.1f}' for mean in means)}",
        ),
    ]


def _claim(text: str, holds: bool, why: str) -> Claim:
    """A verdict on the data, which needs no seeds."""
    return Claim(text, "holds" if holds else "does not hold", why)


register(Experiment("figure10", TITLE, {"quick": 0.1, "paper": 0.1}, runs, section, needs="HAM10000, else a stand-in"))
