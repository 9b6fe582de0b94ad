"""A user's plugin as small as can be: a problem, two methods of which one fails, an experiment. See test_grid.py."""

import torch

from rmdn.experiments.experiment import Experiment, register
from rmdn.experiments.methods import method
from rmdn.experiments.problems import Problem, ProblemStage, problem
from rmdn.experiments.run import Recipe, make
from rmdn.experiments.summary import cell, missing, records
from rmdn.report import Section, Table
from rmdn.strategies import Plain

NETWORK = Recipe("rmdn.models.CNN2d", {"channels": [2, 2], "hidden_size": 4})
SETTINGS = {"epochs": 2, "batch_size": 16, "lr": 1e-2}
METHODS = ("Tiny", "Broken")


@problem("tiny")
def tiny(rows=24, seed=0):
    random = torch.Generator().manual_seed(seed)

    def split():
        labels = torch.arange(rows) % 2
        confounders = torch.randn(rows, 1, generator=random)
        return torch.randn(rows, 1, 12, 12, generator=random) + labels.view(-1, 1, 1, 1), confounders, labels

    stages = [ProblemStage(f"stage {i}", split(), split()) for i in (1, 2)]
    return Problem(stages, 1, 2, 1, (12, 12), best=[0.9, 0.8], stand_in="Tiny images stand in.")


@method("Tiny")
def tiny_method(network, problem):
    return network, Plain()


@method("Broken")
def broken(network, problem):
    raise RuntimeError("no weights [/today]")


def make_run(method="Tiny", seed=0, also=(), data=None, **settings):
    return make(Recipe("tiny", data or {}), NETWORK, method, {**SETTINGS, **settings}, seed, also)


def runs(plan):
    return [make_run(name, seed) for name in plan.chosen(METHODS) for seed in plan.runs_of(paper=3)]


def section(plan, find):
    def accuracies(name):
        return [record["R"][-1][-1] for record in records([run for run in runs(plan) if run.method.name == name], find)]

    table = Table("Accuracy.", ["Method", "accuracy"], [[name, cell(accuracies(name))] for name in plan.chosen(METHODS)])
    return Section("tiny", "A tiny experiment", "", [table], warnings=missing(runs(plan), find))


register(Experiment("tiny", "A tiny experiment", {"quick": 0.1, "paper": 1}, runs, section))
