"""What the experiments on brains share: ADNI over acquisition years and ABCD in folds, as data, networks and settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rmdn.data import abcd, adni, simulate
from rmdn.experiments import clinical
from rmdn.experiments.experiment import Plan, Scale
from rmdn.experiments.run import Recipe, Run, make
from rmdn.experiments.summary import best
from rmdn.extras import need
from rmdn.report import Cell

PLAIN, OURS = "Plain", "R-MDN"  # the network alone, and the paper's
GUARDED = "Guarded R-MDN"
GROUPS = adni.DIAGNOSES
GIRL, BOY = 0, 1  # the classes of ABCD
FOLDS = 5
RACES = ("White", "Black", "Hispanic", "Asian", "Other")  # 1 to 5 in ABCD's table

ADNI_NEEDS = "extra: imaging; ADNI in RMDN_ADNI, else a stand-in; at paper scale a GPU"
ABCD_NEEDS = "extra: imaging; ABCD in RMDN_ABCD, else a stand-in; at paper scale a GPU"
# About how long all methods take on two cores.
ADNI_MINUTES: dict[Scale, float] = {"quick": 1.5, "paper": 1900}
ABCD_MINUTES: dict[Scale, float] = {"quick": 4, "paper": 44_000}

# Real data have as many rows as they have. The paper took 3,880 scans, and 10,686 children with a puberty score; without
# one are 3 % more in the stand-in.
ADNI_STAND_IN = {"n": 3880, "seed": 0, "resolution": 3}
ABCD_STAND_IN = {"n": 11_016, "seed": 0, "resolution": 3}

# To the letter of the supplement. It does not say how often ADNI was run, nor where R-MDN stands in its network: here
# before the class scores alone, which was best of the paper's placements in a transformer.
ADNI = {
    "epochs": 50,
    "batch_size": 128,
    "optimizer": "adamw",
    "lr": 1e-5,
    "weight_decay": 1e-6,
    "schedule": "cosine",
}
VIT = {"patch_size": 16, "num_layers": 6, "num_heads": 8, "hidden_size": 384, "mlp_dim": 1536, "pre_logits_dim": 768}
ABCD = {"epochs": 50, "batch_size": 128, "lr": 5e-4, "decay": 0.7, "decay_every": 4, "workers": 8}
CNN = {"channels": [8, 16, 32], "pools": [2, 2, 4], "hidden_size": 32}

ADNI_QUICK = {"epochs": 12, "batch_size": 32, "lr": 1e-3}
VIT_QUICK = {"patch_size": 8, "num_layers": 2, "num_heads": 4, "hidden_size": 48, "mlp_dim": 96, "pre_logits_dim": 32}
ABCD_QUICK = {"epochs": 14, "batch_size": 16, "lr": 2e-3, "workers": 0}


def stand_in(name: str, plan: Plan) -> dict[str, Any]:
    """The numbers of "adni"'s or "abcd"'s stand-in."""
    if name == "adni":
        return plan.at_scale(ADNI_STAND_IN, {"n": 1500, "resolution": 8})
    return plan.at_scale(ABCD_STAND_IN, {"n": 320, "resolution": 6})


def recipe_of(method: str, plan: Plan) -> Recipe:
    """A row's method. The paper's R-MDN has no regularization on either study."""
    if method == GUARDED:
        return Recipe(method, plan.at_scale({}, {"looks": 4}))
    return Recipe(method, {"regularization": 0.0} if method == OURS else {})


def adni_runs(method: str, plan: Plan) -> list[Run]:
    """The seeds of one method on ADNI."""
    size = plan.at_scale({"size": [64, 64, 64]}, {"size": [16, 16, 16]})
    data = clinical.recipe("adni", size, stand_in("adni", plan))
    network = Recipe("rmdn.models.ViT3d", plan.at_scale(VIT, VIT_QUICK))
    settings = plan.at_scale(ADNI, ADNI_QUICK)
    return [make(data, network, recipe_of(method, plan), settings, seed) for seed in plan.runs_of(paper=5, quick=2)]


def abcd_runs(method: str, plan: Plan) -> list[list[Run]]:
    """The repetitions of one method on ABCD, each of five folds; maps of where they look for the two that are drawn."""
    arguments = plan.at_scale({"size": [64, 64, 64], "augment": True}, {"size": [16, 16, 16], "augment": False})
    data = [clinical.recipe("abcd", {"fold": fold, **arguments}, stand_in("abcd", plan)) for fold in range(FOLDS)]
    network = Recipe("rmdn.models.CNN3d", plan.at_scale(CNN, {"pools": [2, 1, 1]}))
    settings = plan.at_scale(ABCD, ABCD_QUICK)
    also = ("saliency",) if method in (PLAIN, OURS) else ()
    seeds = plan.runs_of(paper=5, quick=2)
    return [[make(fold, network, recipe_of(method, plan), settings, seed, also) for fold in data] for seed in seeds]


def scans(plan: Plan) -> Any:
    """The table of ADNI: label, sex (M, F), age and year of each scan. Of a stand-in it needs no image."""
    if clinical.is_real("adni"):
        return adni.read_rows(clinical.folder("adni", None, simulate.simulate_adni))[0]
    numbers = stand_in("adni", plan)
    return simulate.adni.draw_scans(numbers["n"], np.random.default_rng(numbers["seed"])).rename(columns={"group": "label"})


def children(plan: Plan) -> Any:
    """The table of ABCD: sex (boy, girl), age in months, pds and race (as a word) of each child."""
    if clinical.is_real("abcd"):
        rows, _ = abcd.read_rows(clinical.folder("abcd", None, simulate.simulate_abcd))
    else:
        numbers = stand_in("abcd", plan)
        drawn = simulate.abcd.draw_children(numbers["n"], np.random.default_rng(numbers["seed"]))
        rows = drawn.assign(sex=drawn["sex"].map(abcd.SEXES)).rename(columns={"score": "pds"})
    names = dict(enumerate(RACES, start=1))
    told = need("pandas", "study").to_numeric(rows["race"], errors="coerce").map(names) if "race" in rows else None
    return rows.assign(race=told)


def stand_in_note(name: str) -> list[str]:
    """What must be said of a table of data that are simulated."""
    if clinical.is_real(name):
        return []
    return [f"{name.upper()} is a stand-in: simulated people, drawn with the published distributions."]


def with_best(cells: dict[str, list[Cell]], columns: Iterable[int]) -> list[list[str | Cell]]:
    """The rows of a table, a row a method; of these columns, our number nearest to 0 is marked."""
    for i in columns:
        for method, entry in best({method: of[i] for method, of in cells.items()}).items():
            cells[method][i] = entry
    return [[method, *of] for method, of in cells.items()]
