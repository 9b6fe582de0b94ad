"""Table 4 and figures 4, 10 and 14: their runs, their numbers, and verdicts both ways, from records made up here."""

import numpy as np
import pandas as pd
import pytest
import torch

from rmdn.data.stages import HAM10000_SHARES
from rmdn.experiments import figure4, figure10, figure14, ham10000, registry, table4
from rmdn.experiments.embedding import Kept
from rmdn.experiments.experiment import Plan
from rmdn.metrics import transfer
from rmdn.report import Picture, Report, Table
from rmdn.report.html import render
from rmdn.training import Settings

SECTIONS = {"table4": table4, "figure4": figure4, "figure14": figure14}


@pytest.fixture(autouse=True)
def no_real_data(monkeypatch):
    monkeypatch.delenv("RMDN_HAM10000", raising=False)


def record(accuracy=0.7, dcor2=0.05, BWT=0.1, FWT=0.5, stand_in="a stand-in", **more):
    """A record of five stages with these measures, two diagnoses and one that is too rare for dcor2."""
    R = np.full((5, 5), accuracy)
    R[np.arange(4), np.arange(4)] = accuracy - BWT
    R[np.arange(4), np.arange(1, 5)] = FWT
    R[-1] = accuracy
    of_set = {"0": dcor2 - 0.01, "1": dcor2 + 0.01, "2": None}
    return {"R": R.tolist(), "dcor2": [[of_set] * 5] * 5, "stand_in": stand_in, **more}


def finder(**of_method):
    """Finds `of_method[name]` for the row of that name (with _ for what a keyword cannot hold), else an ordinary record."""
    rows = {name.replace(" ", "_").replace("(", "").replace(")", "").replace("-", "_"): name for name in ham10000.METHODS}
    own = {rows[key]: value for key, value in of_method.items()}

    def find(run):
        return next((own.get(n, record()) for n in rows.values() if run.method == ham10000.recipe_of(n, Plan())), None)

    return find


def verdict(module, find, words):
    claims = module.claims(ham10000.found_scores(Plan(), find))
    (found,) = (one.verdict for one in claims if words in one.text)
    return found


def test_experiments_are_registered():
    assert {"table4", "figure4", "figure10", "figure14"} <= registry.EXPERIMENTS.keys()


def test_paper_scale_is_the_papers():
    run = ham10000.runs_of("R-MDN (C)", Plan("paper"))[0]
    settings = Settings(**run.settings)
    assert (settings.epochs, settings.batch_size, settings.optimizer, settings.lr) == (30, 128, "adamw", 5e-4)
    assert (settings.decay, settings.decay_every, settings.weight_decay) == (0.8, 5, 1e-3)
    assert (settings.schedule, settings.schedule_scope) == ("step", "stage")
    assert run.method.arguments == {"at": "C", "regularization": 1e-5}
    assert run.data.arguments["size"] == [64, 64]
    assert run.data.arguments["stand_in"]["n"] == 10015
    assert run.network.arguments == {}  # ViT2d's own sizes, which its tests hold against the paper


def test_twelve_rows_and_two_with_the_papers_split():
    runs = table4.runs(Plan("paper", seeds=1))
    assert len({run.key for run in runs}) == len(runs) == 12 + 2
    assert [run.data.arguments["split"] for run in runs].count("random") == 2
    assert {run.key for run in figure14.runs(Plan())} < {run.key for run in table4.runs(Plan())}
    assert {run.key for run in figure4.runs(Plan())} < {run.key for run in table4.runs(Plan())}
    assert all("features" in run.also for run in figure4.runs(Plan()))


@pytest.mark.parametrize(
    ("asked", "rows"), [("R-MDN (B)", ["R-MDN (B)"]), ("R-MDN", [f"R-MDN ({k})" for k in "ABC"]), ("LwF", ["LwF"])]
)
def test_methods_can_be_chosen(asked, rows):
    assert ham10000.chosen(Plan(methods=[asked])) == rows


def test_published_numbers_have_the_papers_order():
    """Bold (best) and underlined (second) in the paper's table, among the methods without continual learning."""
    first = list(table4.PUBLISHED)[:6]
    for column, sign, best, second in (
        (2, 1, "R-MDN (C)", "BR-Net"),
        (4, -1, "R-MDN (C)", "P-MDN"),
        (6, -1, "BR-Net", "Plain"),
    ):
        assert sorted(first, key=lambda name: sign * table4.PUBLISHED[name][column])[:2] == [best, second]
    assert table4.PUBLISHED["LwF + R-MDN"] == (0.7186, 0.0736, 0.0354, 0.0210, 0.1348, 0.1994, 0.4434, 0.1403)
    assert set(ham10000.METHODS) - set(table4.PUBLISHED) == {"Guarded R-MDN"}


def test_scores_are_the_transfer_of_each_run():
    R = torch.rand(3, 5, 5, dtype=torch.float64)
    found = ham10000.scores([{**record(), "R": one.tolist()} for one in R])
    for seed, one in enumerate(R):
        ACC, BWT, FWT = transfer(one)
        assert found.by_seed("accuracy")[seed] == pytest.approx(ACC)
        assert found.by_seed("BWT")[seed] == pytest.approx(BWT)
        assert found.by_seed("FWT")[seed] == pytest.approx(FWT)
    assert found.mean("accuracy") == pytest.approx(float(R[:, -1].mean()))
    assert found.by_set("accuracy") == pytest.approx(R[:, -1].mean(0).numpy())


def test_dcor2_leaves_out_what_is_unknown():
    dcor2 = [[{"0": 0.1, "1": 0.3}, {"0": None, "1": 0.5}, {"1": None}, {"0": 0.1}, {}]] * 5
    found = ham10000.scores([{**record(), "dcor2": dcor2}])
    np.testing.assert_allclose(found.by_set("dcor2"), [0.2, 0.5, np.nan, 0.1, np.nan])
    assert found.mean("dcor2") == pytest.approx(0.8 / 3)


def test_cells_hold_ours_beside_the_published():
    R = np.full((5, 5), 0.5)
    R[-1] = [0.5, 0.6, 0.7, 0.8, 0.9]
    section = table4.section(Plan(), finder(R_MDN_C=record(R=R.tolist())))
    (row,) = (row for row in section.parts[0].rows if row[0] == "R-MDN (C)")
    assert (row[1].ours, row[1].spread) == pytest.approx((0.7, np.std([0.5, 0.6, 0.7, 0.8, 0.9], ddof=1)))
    assert (row[1].published, row[1].published_spread) == (0.6919, 0.0723)
    assert (row[2].published, row[3].published, row[4].published) == (0.0475, 0.1246, 0.3997)
    assert row[3].ours == pytest.approx(0.15)
    assert row[3].best  # all others have 0.1
    assert section.warnings == ["a stand-in"]


@pytest.mark.parametrize("name", SECTIONS)
def test_sections_without_runs(name):
    section = SECTIONS[name].section(Plan(), lambda run: None)
    assert {one.verdict for one in section.claims} == {"cannot tell"}
    assert "runs are missing" in section.warnings[0]
    assert section.missing()
    render(Report("report", "", {}, [section]))


@pytest.mark.parametrize("name", ["table4", "figure14"])
def test_sections_with_some_runs(name):
    find = finder()
    section = SECTIONS[name].section(Plan(), lambda run: find(run) if run.method.name in ("Plain", "P-MDN") else None)
    assert "cannot tell" in {one.verdict for one in section.claims}
    assert any(isinstance(part, Table | Picture) for part in section.parts)
    render(Report("report", "", {}, [section]))


@pytest.mark.parametrize(
    ("words", "holds", "fails"),
    [
        (
            "the lowest dcor²",
            {"R_MDN_C": record(dcor2=0.01)},
            {"R_MDN_C": record(dcor2=0.04), "BR_Net": record(dcor2=0.02)},
        ),
        ("BR-Net forgets", {"BR_Net": record(BWT=-0.1)}, {"BR_Net": record(BWT=0.1)}),
        ("P-MDN fails", {"P_MDN": record(dcor2=0.3)}, {"P_MDN": record(dcor2=0.01)}),
        (
            "Of the three places",
            {"R_MDN_C": record(0.8, 0.01, 0.2)},
            {"R_MDN_C": record(0.8, 0.01, 0.2), "R_MDN_A": record(0.9)},
        ),
        ("With EWC", {"EWC_+_R_MDN": record(dcor2=0.01)}, {"EWC_+_R_MDN": record(dcor2=0.2)}),
        ("With LwF", {"LwF_+_R_MDN": record(dcor2=0.01)}, {"LwF_+_R_MDN": record(dcor2=0.2)}),
        ("Guarded R-MDN has", {"Guarded_R_MDN": record(dcor2=0.01)}, {"Guarded_R_MDN": record(dcor2=0.2)}),
    ],
)
def test_verdicts_of_the_table(words, holds, fails):
    assert verdict(table4, finder(**holds), words) == "holds"
    assert verdict(table4, finder(**fails), words) == "does not hold"


@pytest.mark.parametrize(
    ("words", "holds", "fails"),
    [
        ("first two stages", {"Plain": record(BWT=0.0)}, {"Plain": record(BWT=0.2)}),
        ("than the base model", {"R_MDN_C": record(dcor2=0.01, BWT=0.2)}, {"R_MDN_C": record(dcor2=0.01, BWT=0.0)}),
        ("than P-MDN", {"R_MDN_C": record(dcor2=0.01, BWT=0.2)}, {"R_MDN_C": record(dcor2=0.09, BWT=0.2)}),
    ],
)
def test_verdicts_of_the_bars(words, holds, fails):
    assert verdict(figure14, finder(**holds), words) == "holds"
    assert verdict(figure14, finder(**fails), words) == "does not hold"


def test_one_seed_tells_nothing():
    section = table4.section(Plan(seeds=1), finder())
    assert {one.verdict for one in section.claims} == {"cannot tell"}


def test_bars_have_every_method_and_measure():
    find = finder()
    (part,) = figure14.section(Plan(), find).parts
    panels = part.figure.axes
    assert [axes.get_title() for axes in panels] == list(table4.MEASURES.values())
    assert [label.get_text() for label in panels[0].get_yticklabels()] == list(ham10000.METHODS)
    assert [bar.get_width() for bar in panels[2].patches] == pytest.approx([0.1] * 12)


def cloud(apart=0.0, aged=0.0, n=300, seed=0):
    """Features in which diagnoses stand `apart`, and which follow age by `aged`."""
    rng = np.random.default_rng(seed)
    labels, ages = rng.integers(0, 3, n), rng.normal(size=n)
    features = rng.normal(size=(n, 4)) + apart * np.eye(4)[labels] + aged * ages[:, None]
    return Kept(features.astype(np.float32), ages[:, None].astype(np.float32), labels, np.sort(rng.integers(0, 5, n)))


def test_measures_of_clouds():
    assert figure4.separation(cloud(apart=10)) > 0.5 > 0.2 > figure4.separation(cloud())
    assert figure4.age_of_neighbours(cloud(aged=3)) > 0.8
    assert abs(figure4.age_of_neighbours(cloud())) < 0.25
    # Diagnoses that differ in age are not a fault of the features.
    one = cloud(apart=10)
    aged = one._replace(confounders=one.confounders + 5 * one.labels[:, None])
    assert abs(figure4.age_of_neighbours(aged)) < 0.25


def test_clouds_too_small_to_measure():
    one = cloud(n=8)
    assert np.isnan(figure4.age_of_neighbours(one))
    assert np.isnan(figure4.separation(one._replace(labels=np.zeros(8, dtype=int))))


def test_verdicts_of_the_clouds():
    near, far = [cloud(), cloud(seed=1)], [cloud(5, 3), cloud(5, 3, seed=1)]
    assert {one.verdict for one in figure4.claims({"Plain": far, "R-MDN (C)": near})} == {"holds"}
    assert {one.verdict for one in figure4.claims({"Plain": near, "R-MDN (C)": far})} == {"does not hold"}
    assert {one.verdict for one in figure4.claims({"Plain": far[:1], "R-MDN (C)": near})} == {"cannot tell"}


def test_clouds_are_drawn_from_what_runs_keep(tmp_path, monkeypatch):
    monkeypatch.setattr(figure4, "embed", lambda features: features[:, :2])  # t-SNE takes its time
    arrays = {}
    for j in range(5):
        one = cloud(3, n=30, seed=j)
        arrays |= {f"features_{j}": one.features, f"confounders_{j}": one.confounders, f"labels_{j}": one.labels}
    np.savez(tmp_path / "kept.npz", **arrays)
    section = figure4.section(Plan(seeds=1), lambda run: record(arrays=tmp_path / "kept.npz"))
    picture, table = section.parts
    assert len(picture.figure.axes) == 2 * (3 + 1)  # three clouds and a scale of ages a method
    assert [row[0] for row in table.rows] == ["Plain", "R-MDN (C)"]
    assert section.warnings == ["a stand-in"]


def rows(ages, dx):
    return pd.DataFrame({"age": ages, "dx": dx})


def test_ages_are_dealt_as_the_paper_says():
    found = figure10.ages(rows(np.repeat([10.0, 30.0, 45.0, 55.0, 70.0], 100), ["nv"] * 500))
    for group, age in enumerate([10, 30, 45, 55, 70]):
        here = np.bincount(found.stages[found.ages == age], minlength=5)
        assert here.tolist() == [round(100 * share) for share in HAM10000_SHARES[group]]


def test_verdicts_of_ages():
    rng = np.random.default_rng(0)
    dx = np.repeat(["nv", "mel"], 200)
    ages = np.concatenate([rng.normal(40, 10, 200), rng.normal(65, 10, 200)])
    stages = np.clip(ages // 15, 0, 5).astype(int)
    stages -= stages.min()
    older = figure10.claims(figure10.Ages(ages, dx, stages))
    alike = figure10.claims(figure10.Ages(rng.normal(40, 5, 400), dx, (rng.permutation(400) + 400) % 5))
    assert {one.verdict for one in older} == {"holds"}
    assert [one.verdict for one in alike[:2]] == ["does not hold"] * 2
    turned = figure10.claims(figure10.Ages(ages, dx, stages.max() - stages))
    assert turned[2].verdict == "does not hold"


def test_ages_need_no_runs():
    assert figure10.runs(Plan()) == []
    section = figure10.section(Plan(), lambda run: None)
    assert "stand-in" in section.warnings[0]
    assert not section.missing()
    left, right = section.parts[0].figure.axes
    assert [len(axes.patches) for axes in (left, right)] == [7 * 5, 5 * 5]
    render(Report("report", "", {}, [section]))
