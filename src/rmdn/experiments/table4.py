"""Table 4: HAM10000, a vision transformer in five stages of rising age; twelve methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rmdn.experiments import ham10000
from rmdn.experiments.experiment import Experiment, Find, Plan, Scale, register
from rmdn.experiments.ham10000 import LAST, Scores
from rmdn.experiments.run import Run
from rmdn.experiments.summary import cell, claim, missing, records, tested
from rmdn.metrics import kruskal_conover
from rmdn.report import Cell, Claim, Section, Table

TITLE = "Table 4. HAM10000: skin lesions by age"
MEASURES = {"accuracy": "Accuracy", "dcor2": "Average dcor²", "BWT": "BWT", "FWT": "FWT"}
OURS = "Guarded R-MDN"
# Mean and standard deviation over the test sets of the stages, of each of MEASURES.
PUBLISHED = {
    "Plain": (0.7095, 0.0626, 0.0864, 0.0336, 0.0278, 0.0446, 0.5125, 0.0705),
    "BR-Net": (0.7247, 0.0627, 0.0544, 0.0534, -0.0207, 0.0166, 0.5592, 0.0897),
    "P-MDN": (0.6750, 0.0945, 0.2595, 0.0620, 0.0706, 0.0622, 0.4391, 0.0372),
    "R-MDN (A)": (0.5503, 0.0541, 0.0928, 0.0630, -0.0268, 0.0248, 0.4130, 0.0709),
    "R-MDN (B)": (0.5288, 0.0571, 0.0739, 0.0555, 0.0571, 0.0693, 0.3362, 0.0881),
    "R-MDN (C)": (0.6919, 0.0723, 0.0475, 0.0247, 0.1246, 0.2123, 0.3997, 0.1555),
    "EWC": (0.6437, 0.0586, 0.0938, 0.0506, 0.0698, 0.0238, 0.4457, 0.0620),
    "EWC + R-MDN": (0.6739, 0.0686, 0.0592, 0.0488, 0.0754, 0.1614, 0.4404, 0.1305),
    "LwF": (0.7356, 0.0757, 0.0512, 0.0407, 0.0387, 0.0390, 0.5277, 0.0605),
    "LwF + R-MDN": (0.7186, 0.0736, 0.0354, 0.0210, 0.1348, 0.1994, 0.4434, 0.1403),
    "PackNet": (0.6849, 0.0745, 0.0470, 0.0304, 0.0538, 0.0670, 0.4965, 0.0611),
}
MINUTES: dict[Scale, float] = {"quick": 4, "paper": 25_000}
NEEDS = "extra: imaging; HAM10000 in RMDN_HAM10000, else a stand-in; at paper scale a GPU"
SPLITS = {"lesion": "lesions apart", "random": "images at random, as in the paper"}


def runs(plan: Plan) -> list[Run]:
    """Every method with lesions apart; two methods once more with the paper's split."""
    return [run for name in ham10000.chosen(plan) for run in ham10000.runs_of(name, plan)] + _random(plan)


def _random(plan: Plan) -> list[Run]:
    names = ham10000.chosen(plan, ham10000.PICTURED)
    return [run for name in names for run in ham10000.runs_of(name, plan, split="random")]


def section(plan: Plan, find: Find) -> Section:
    """The table, the tests under it, what the split does, and what the paper says."""
    found = ham10000.found_scores(plan, find)
    return Section(
        "table4",
        TITLE,
        "Seven diagnoses, confounded by age, in five stages of rising age. A vision transformer; AdamW, 30 epochs a stage,"
        " a fresh schedule at each stage. (A): R-MDN after every self-attention and the pre-logits layer; (B): after every"
        " block and the pre-logits layer; (C), and wherever nothing is said: after the pre-logits layer alone. PackNet is"
        " told the stage of each test image, the others are not.\n\nAccuracy is no aim here: a model that looks at age has"
        " more of it. Lower dcor² and higher BWT and FWT are better. dcor² averages over"
        " diagnoses, of which the rare ones have few test images: it is noisy, the more so at the quick scale.",
        [_table(plan, found), _splits(plan, find)],
        claims(found),
        command=plan.command("table4"),
        warnings=missing(runs(plan), find),
    )


def _table(plan: Plan, found: dict[str, Scores]) -> Table:
    names = ham10000.chosen(plan)
    rows: list[list[str | Cell]] = [[name, *_cells(found.get(name), PUBLISHED.get(name))] for name in names]
    notes = [
        tested(
            kruskal_conover,
            f"{title} over seeds, Kruskal-Wallis and Conover with Bonferroni",
            {name: of_name.by_seed(measure).tolist() for name, of_name in found.items()},
            LAST,
        )
        for measure, title in MEASURES.items()
    ]
    return Table(
        "After the last stage: mean and standard deviation over the stages' test sets (of the mean over seeds), as in the"
        " paper, which names no test for this table. Bold: the best of ours.",
        ["Method", *MEASURES.values()],
        _with_best(rows),
        notes,
    )


def _cells(of_name: Scores | None, published: tuple[float, ...] | None) -> list[Cell]:
    """A cell for each of MEASURES."""
    beside = published or (None,) * 2 * len(MEASURES)
    return [
        cell(of_name.by_set(measure).tolist() if of_name else [], beside[2 * i], beside[2 * i + 1], digits=4)
        for i, measure in enumerate(MEASURES)
    ]


def _with_best(rows: list[list[str | Cell]]) -> list[list[str | Cell]]:
    """The rows with the best of ours marked: low dcor², high BWT and FWT."""
    for column, sign in ((2, -1), (3, 1), (4, 1)):
        there = [
            (sign * entry.ours, row) for row in rows if isinstance(entry := row[column], Cell) and entry.ours is not None
        ]
        if len(there) > 1:
            best = max(there, key=lambda pair: pair[0])[1]
            best[column] = replace(best[column], best=True)  # type: ignore[type-var]
    return rows


def _splits(plan: Plan, find: Find) -> Table:
    """What it does to let images of one lesion stand in training and in test."""
    rows: list[list[str | Cell]] = []
    for name in ham10000.chosen(plan, ham10000.PICTURED):
        for split, words in SPLITS.items():
            found = records(ham10000.runs_of(name, plan, split=split), find)
            rows.append([f"{name}, {words}", *_cells(ham10000.scores(found) if found else None, None)])
    return Table(
        "Two ways to hold a fifth out. A quarter of the lesions have several images; at random over images, most of these"
        " lesions are in training and in test. The table above keeps lesions apart.",
        ["Method, split", *MEASURES.values()],
        rows,
    )


def claims(found: dict[str, Scores]) -> list[Claim]:
    """What the paper says of this table, and what we say of ours."""
    single = ("Plain", "BR-Net", "P-MDN", "R-MDN (A)", "R-MDN (B)")
    return [
        _below(found, f"{LAST} has the lowest dcor² of the methods without continual learning", LAST, single),
        _forgets(found),
        _below(found, "P-MDN fails to remove the confounder: its dcor² is above the base model's", "Plain", ("P-MDN",)),
        _best_variant(found),
        *(
            _below(found, f"With {name}, R-MDN still drives dcor² down", f"{name} + R-MDN", (name,))
            for name in ("EWC", "LwF")
        ),
        _below(found, f"{OURS} has a lower dcor² than {LAST}", OURS, (LAST,)),
    ]


def _below(found: dict[str, Scores], text: str, low: str, others: tuple[str, ...]) -> Claim:
    """Whether one method's dcor² is below all the others'."""
    if not {low, *others} <= found.keys():
        return claim(text, None, "not enough runs", 0)
    rest = {name: found[name].mean("dcor2") for name in others}
    ours, least = found[low].mean("dcor2"), min(rest, key=lambda name: rest[name])
    seeds = min(found[name].seeds for name in (low, *others))
    holds = ours < rest[least] if np.isfinite([ours, *rest.values()]).all() else None
    return claim(text, holds, f"dcor² of {low} {ours:.4f}, of {least} {rest[least]:.4f}", seeds)


def _forgets(found: dict[str, Scores]) -> Claim:
    text = "BR-Net forgets: its backward transfer is below 0"
    if "BR-Net" not in found:
        return claim(text, None, "not enough runs", 0)
    BWT = found["BR-Net"].mean("BWT")
    return claim(text, BWT < 0, f"BWT {BWT:.4f}", found["BR-Net"].seeds)


def _best_variant(found: dict[str, Scores]) -> Claim:
    text = "Of the three places, (C) is the best: highest accuracy and BWT, lowest dcor²"
    variants = [name for name in found if name.startswith("R-MDN (")]
    if len(variants) < 3:
        return claim(text, None, "not enough runs", 0)
    best = {
        title: max(variants, key=lambda name: sign * found[name].mean(measure))
        for measure, title, sign in (("accuracy", "accuracy", 1), ("BWT", "BWT", 1), ("dcor2", "dcor²", -1))
    }
    why = ", ".join(f"{title}: {name}" for title, name in best.items())
    return claim(text, set(best.values()) == {LAST}, f"best in {why}", min(found[name].seeds for name in variants))


register(Experiment("table4", TITLE, MINUTES, runs, section, needs=NEEDS))
