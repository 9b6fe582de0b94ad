"""Table 2: a vision transformer on the continual synthetic data set 3."""

from __future__ import annotations

from rmdn.experiments import continual
from rmdn.experiments.experiment import Experiment, Find, Plan, register
from rmdn.experiments.run import Recipe, Run, make
from rmdn.experiments.summary import missing
from rmdn.experiments.transfer_table import MEASURES, Published, nearer, scores, table
from rmdn.report import Section

PUBLISHED: Published = {
    "Plain": (0.110, 0.027, -0.173, 0.024, 0.306, 0.009),
    "R-MDN": (0.061, 0.013, -0.111, 0.019, 0.188, 0.015),
}
OURS = "Guarded R-MDN"
METHODS = (*PUBLISHED, OURS)
SMALL = {"num_layers": 3, "num_heads": 4, "hidden_size": 64, "mlp_dim": 128, "pre_logits_dim": 32}


def runs_of(method: str, plan: Plan) -> list[Run]:
    """The seeds of one row: the paper's 2D ViT (that of HAM10000), trained as the CNNs are."""
    data = Recipe("continual", plan.at_scale({"dataset": 3, "per_group": 1024}, {"per_group": 256}))
    network = Recipe("rmdn.models.ViT2d", plan.at_scale({}, SMALL))
    settings = plan.at_scale(continual.PAPER, continual.QUICK)
    return [make(data, network, method, settings, seed) for seed in plan.runs_of(paper=5)]


def runs(plan: Plan) -> list[Run]:
    """Every method."""
    return [run for method in plan.rows(METHODS) for run in runs_of(method, plan)]


def section(plan: Plan, find: Find) -> Section:
    """The table, and whether R-MDN helps a ViT too."""
    found = scores(METHODS, runs_of, plan, find)
    return Section(
        "table2",
        "Table 2. A vision transformer on continual synthetic data",
        "Data set 3, where both distributions change. The paper says of the setup that it is that of the CNNs: Adam, 100 "
        "epochs a stage, a fresh schedule at each stage, no weight decay. It does not say which transformer: this is its "
        "only 2D one, HAM10000's (patches of 8, 12 blocks), with R-MDN after the pre-logits layer alone (variant C, its "
        "best there); at the quick scale one of 3 small blocks.",
        [table("Mean and standard deviation over seeds; nearer 0 is better.", found, PUBLISHED)],
        [
            *(nearer(found, "R-MDN", ["Plain"], measure, " with a ViT") for measure in MEASURES),
            nearer(found, OURS, ["Plain", "R-MDN"], "ACCd", " with a ViT"),
        ],
        command=plan.command("table2"),
        warnings=missing(runs(plan), find),
    )


register(
    Experiment(
        "table2",
        "Table 2. A vision transformer on continual synthetic data",
        {"quick": 1, "paper": 5000},
        runs,
        section,
        needs="extra: imaging (MONAI)",
    )
)
