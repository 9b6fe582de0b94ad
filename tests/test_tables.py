"""Tables 2, 3, 7, 8 and figures 2, 7, 8, 9, 15, 16, from made-up records: what they show, and what they conclude."""

import itertools
import math
import re

import numpy as np
import pytest
import torch

from rmdn.data import synthetic
from rmdn.experiments import embedding, figure2, figure7, figure8, figure9, figure15, figure16, samples, static
from rmdn.experiments import table2, table3, table7, table7_claims, table8
from rmdn.experiments.estimates import Estimates
from rmdn.experiments.experiment import Plan
from rmdn.experiments.registry import EXPERIMENTS
from rmdn.metrics import TransferDistances
from rmdn.report import Picture, Report, Table
from rmdn.report.html import render

QUICK = Plan("quick", seeds=3)
KEYS = ["table2", "table3", "table7", "table8", "figure2", "figure7", "figure8", "figure9", "figure15", "figure16"]
MACHINE = {"processor": "x", "cores": 2, "threads": 1, "gpu": None, "python": "3", "torch": "2", "rmdn": "0"}


# Made-up records


def record(run, accuracy=0.8, dcor2=(0.02, 0.01), arrays=None):
    """What a run would have written down, with this accuracy and dependence everywhere."""
    stages = {"static": 1, "moving": 4, "continual": 5}[run.data.name]
    best = {"static": [5 / 6], "moving": [0.75] * 4, "continual": [0.75, 0.6875, 0.625, 0.5625, 0.5]}[run.data.name]
    every = range(stages)
    found = {
        "run": run.plain(),
        "names": [str(i) for i in every],
        "best": best,
        "stand_in": "",
        "R": [[accuracy for _ in every] for _ in every],
        "more": {},
        "recall": [[[accuracy + 0.05, accuracy - 0.05] for _ in every] for _ in every],
        "dcor2": [[{"0": dcor2[0], "1": dcor2[1]} for _ in every] for _ in every],
        "course": [{"0": dcor2[0] * 2 / epoch, "1": dcor2[1] * 2 / epoch} for epoch in range(1, 11)],
        "seconds": 1.0,
        "machine": MACHINE,
    }
    return {**found, "arrays": arrays} if arrays is not None else found


def keep_features(path, run, confounded):
    """Features that hold the main effect, and as much of the confounder as asked, of the run's own test images."""
    test = synthetic.static(**run.data.arguments).test
    random = np.random.default_rng(run.seed)
    drivers = np.stack([test.main_effect.numpy(), confounded * test.confounders[:, 0].numpy()], 1)[:600]
    features = drivers @ random.normal(size=(2, 84)) + 0.3 * random.normal(size=(600, 84))
    np.savez(
        path,
        features_0=features.astype(np.float16),
        confounders_0=test.confounders[:600].numpy(),
        labels_0=test.labels[:600].numpy().astype(np.int16),
    )
    return path


@pytest.fixture
def find(tmp_path):
    """Records for all runs: the plain network cheats, the others do not."""

    def made(run):
        random = np.random.default_rng(run.seed)
        plain = run.method.name == "Plain"
        accuracy = (0.93 if plain else 5 / 6) + 0.002 * random.normal()
        dcor2 = (0.4, 0.39) if plain else (0.015 + 0.001 * run.seed, 0.004)
        if "features" not in run.also:
            return record(run, accuracy, dcor2)
        return record(run, accuracy, dcor2, keep_features(tmp_path / f"{run.key}.npz", run, 2.0 if plain else 0.0))

    return made


def nothing(run):
    return None
