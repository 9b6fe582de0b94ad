"""Table 1, as an example of a declaration: the paper's settings to the letter, cells from records, verdicts from cells."""

from pathlib import Path

import numpy as np
import pytest

from rmdn.experiments import continual, summary, table1
from rmdn.experiments.experiment import Plan
from rmdn.experiments.problems import make
from rmdn.experiments.store import Store
from rmdn.metrics import TransferDistances
from rmdn.report import Cell

BEST = [0.75, 0.5]


def record(error, seed):
    """Accuracies that lie above the best by `error`, a little more with each seed."""
    off = error + 0.001 * seed
    return {"R": [[b + off for b in BEST]] * 2, "best": BEST, "stand_in": "", "seconds": 1.0}


def scores(**errors):
    return {
        method: {d: [TransferDistances(error + 0.002 * seed, 0.0, 0.0) for seed in range(2)] for d in table1.DATASETS}
        for method, error in errors.items()
    }


def test_the_papers_settings_are_the_papers():
    runs = table1.runs(Plan("paper"))
    assert len({run.key for run in runs}) == len(runs) == len(table1.METHODS) * 3 * 5
    plain = [run for run in runs if run.method.name == "Plain"]
    assert {run.seed for run in plain} == set(range(5))
    for run in plain:
        assert run.settings == {"epochs": 100, "batch_size": 128, "lr": 5e-4, "decay": 0.8, "decay_every": 20}
        assert run.data.arguments["per_group"] == 1024
    assert sorted({run.data.arguments["dataset"] for run in runs}) == [1, 2, 3]


def test_quick_runs_are_other_runs_on_the_same_kind_of_data():
    quick, paper = (table1.runs(Plan(scale)) for scale in ("quick", "paper"))
    assert not {run.key for run in quick} & {run.key for run in paper}
    assert {run.method.name for run in quick} == {run.method.name for run in paper}
    problem = make("continual", {**continual.data(1, Plan()).arguments, "per_group": 4})
    assert len(problem.stages) == 5
    assert set(problem.stages[0].more_tests) == {"delta 0", "delta 0.25", "delta 0.5", "delta 0.75"}


def test_cells_are_means_over_seeds_beside_the_published():
    def find(run):
        return record({"Plain": 0.2, "R-MDN": 0.01}.get(run.method.name, 0.1), run.seed)

    plan = Plan(seeds=3, methods=("Plain", "R-MDN"))
    (table,) = table1.section(plan, find).parts
    assert [row[0] for row in table.rows] == ["Plain", "R-MDN"]
    cells = {(row[0], i): entry for row in table.rows for i, entry in enumerate(row) if isinstance(entry, Cell)}
    assert len(cells) == 2 * 9
    for dataset in range(3):
        ACCd, BWTd, FWTd = (cells["Plain", 1 + 3 * dataset + i] for i in range(3))
        assert (ACCd.ours, ACCd.spread) == (pytest.approx(0.201), pytest.approx(0.001))
        assert (BWTd.ours, BWTd.spread) == (pytest.approx(0, abs=1e-9), pytest.approx(0, abs=1e-9))
        assert FWTd.ours == pytest.approx(0.201)
    assert (cells["Plain", 1].published, cells["R-MDN", 8].published) == (0.18, -0.0004)
    assert len(table.notes) == 9


def test_a_table_without_runs_says_so():
    made = table1.section(Plan(), lambda run: None)
    assert made.warnings == [f"{len(table1.METHODS) * 3} of {len(table1.METHODS) * 3} runs are missing."]
    assert all(cell.ours is None for cell in made.parts[0].cells())
    assert {claim.verdict for claim in made.claims} == {"cannot tell"}


@pytest.mark.parametrize(("ours", "verdict"), [(0.01, "holds"), (0.05, "does not hold")])
def test_the_nearest_to_theory_is_a_claim_with_numbers(ours, verdict):
    claims = table1.claims(scores(Plain=0.2, **{"BR-Net": 0.03, "R-MDN": ours}))
    assert len(claims) == 6
    for claim in claims[:3]:
        assert claim.verdict == verdict
        assert f"R-MDN {ours + 0.001:.3f}" in claim.why
        assert "2 seeds" in claim.why


def test_the_order_of_methods_is_a_claim_with_the_pairs_that_are_turned():
    published = {"Plain": 0.3, "BR-Net": 0.07, "Stage-specific MDN": 0.2, "P-MDN": 0.06, "R-MDN": 0.02}
    as_published = table1.claims(scores(**published))[-1]
    assert as_published.verdict == "holds"
    turned = table1.claims(scores(**{**published, "R-MDN": 0.065}))[-1]
    assert turned.verdict == "does not hold"
    assert "P-MDN before R-MDN" in turned.why


def test_the_readme_has_the_committed_records_numbers():
    root = Path(__file__).parents[1]
    text, plan, store = (root / "README.md").read_text(), Plan("paper", seeds=3), Store(root / "results" / "paper")

    def row(method):
        runs = [table1.runs_of(method, dataset, plan) for dataset in table1.DATASETS]
        found = [[summary.distances(store.read(run)).ACCd for run in of] for of in runs]
        return " | ".join(f"{np.mean(values):.3f}" for values in found)

    published = " | ".join(f"{numbers[0]:.3f}" for numbers in table1.PUBLISHED["R-MDN"])
    assert f"| Plain | {row('Plain')} |" in text
    assert f"text has it | {row('R-MDN')} |" in text
    assert f"| R-MDN, as published | {published} |" in text
    assert f"ours | {row('Guarded R-MDN')} |" in text
