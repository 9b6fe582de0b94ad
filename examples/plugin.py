"""A data set, a method and a table of your own, in one file:

rmdn reproduce stripes --plugin examples/plugin.py
"""

import torch

from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.methods import Prepared, deconfounded, method
from rmdn.experiments.problems import Problem, ProblemStage, problem
from rmdn.experiments.run import Recipe, Run, make
from rmdn.experiments.summary import cell, claim, mean_dependence, missing, records
from rmdn.report import Section, Table
from rmdn.strategies import Plain

# A data set: a function that gives stages of (images, confounders, labels), and what a network must know of them.


@problem("stripes")
def stripes(rows: int = 512, seed: int = 0) -> Problem:
    """Stripes, stronger in one group (the disease); a corner, brighter in it, more so at the second stage (the scanner)."""
    generator = torch.Generator().manual_seed(seed)

    def draw(shift: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        labels = torch.arange(rows) % 2
        contrast = 1 + 0.4 * labels + 0.4 * torch.randn(rows, generator=generator)  # (N,)
        brightness = shift * labels + torch.randn(rows, generator=generator)  # (N,)
        images = 0.1 * torch.randn(rows, 1, 16, 16, generator=generator)
        images[..., ::4] += contrast[:, None, None, None]
        images[:, :, :6, :6] += brightness[:, None, None, None]
        return images, brightness[:, None], labels

    stages = [ProblemStage(f"shift {shift:g}", draw(shift), draw(shift)) for shift in (1.0, 2.0)]
    return Problem(stages, num_confounders=1, num_classes=2, in_channels=1, image_size=(16, 16), stand_in="Drawn stripes.")


# A method: a function from a network to a network and a strategy. The settings are where it departs from an experiment's.


@method("Projected R-MDN", code=("rmdn.layers.rmdn", "rmdn.recursion"), settings={"recalibration": "stage"})
def projected(network: torch.nn.Module, data: Problem) -> Prepared:
    """R-MDN with the gradient of the least-squares residual, recalibrated at the end of each stage."""
    return deconfounded(network, data, gradient="projected"), Plain()


# A table: the runs that it needs, and what it shows of them.

METHODS = ("Plain", "R-MDN", "Projected R-MDN")


def runs_of(name: str, plan: Plan) -> list[Run]:
    data = Recipe("stripes", plan.at_scale({"rows": 2048}, {"rows": 128}))
    settings = plan.at_scale({"epochs": 50, "batch_size": 64}, {"epochs": 3, "batch_size": 32})
    return [make(data, Recipe("rmdn.models.CNN2d"), name, settings, seed) for seed in plan.runs_of(paper=5, quick=2)]


def runs(plan: Plan) -> list[Run]:
    return [run for name in plan.chosen(METHODS) for run in runs_of(name, plan)]


def section(plan: Plan, find: Find) -> Section:
    found = {name: records(runs_of(name, plan), find) for name in plan.chosen(METHODS)}
    accuracy = {name: [sum(record["R"][-1]) / 2 for record in some] for name, some in found.items()}
    dcor2 = {name: [mean_dependence(record) for record in some] for name, some in found.items()}
    rows = [[name, cell(accuracy[name]), cell(dcor2[name])] for name in found]
    table = Table("After the last stage, over both stages' test images", ["Method", "Accuracy", "dcor²"], rows)
    plain, ours = cell(dcor2.get("Plain", [])).ours, cell(dcor2.get("Projected R-MDN", [])).ours
    less = None if plain is None or ours is None else ours < plain
    verdict = claim(
        "Features of R-MDN tell less of the scanner", less, f"{ours} against {plain}", len(dcor2.get("Plain", []))
    )
    command = "rmdn reproduce stripes --plugin examples/plugin.py"
    return Section(
        "stripes", "Stripes", parts=[table], claims=[verdict], command=command, warnings=missing(runs(plan), find)
    )


register(Experiment("stripes", "Stripes and a bright corner", {"quick": 0.5, "paper": 10}, runs, section))
