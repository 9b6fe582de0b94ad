"""Tables 2, 3, 7, 8 and figures 2, 7, 8, 9, 15, 16, from made-up records: what they show, and what they conclude."""

import math

import numpy as np
import pytest
import torch

from rmdn.data import synthetic
from rmdn.experiments import (
    embedding,
    figure2,
    figure7,
    figure8,
    figure9,
    figure15,
    figure16,
    samples,
    static,
    table3,
    table7,
    table7_claims,
)
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


def record(run, accuracy=0.8, dcor2=(0.02, 0.01), arrays=None, course=(0.04, 0.02)):
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
        "course": [dict(zip("01", course, strict=True))] * 10,
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


# Every section, with and without records


def build(key, find, plan=QUICK):
    return EXPERIMENTS[key].section(plan, find)


@pytest.mark.parametrize("scale", ["quick", "paper"])
@pytest.mark.parametrize("key", KEYS)
def test_without_records_a_section_says_so_and_judges_nothing(key, scale):
    plan = Plan(scale)
    section = build(key, nothing, plan)
    assert section.key == key
    assert section.command == f"rmdn reproduce {key} --scale {scale}"
    if EXPERIMENTS[key].runs(plan):
        assert section.missing() == "There are no runs for this section yet."
        assert {claim.verdict for claim in section.claims} == {"cannot tell"}
    else:
        assert {claim.verdict for claim in section.claims} == {"holds"}
    assert key in render(Report("", "", {}, [section]))


@pytest.mark.parametrize("key", sorted(set(KEYS) - {"figure2", "figure7", "figure8", "figure9"}))
def test_with_records_all_numbers_are_there(key, find):
    section = build(key, find)
    assert section.missing() == ""
    assert not section.warnings
    assert "cannot tell" not in {claim.verdict for claim in section.claims if "in every measure" not in claim.text}
    assert key in render(Report("", "", {}, [section]))


def test_one_seed_judges_nothing(find):
    for key in ("table2", "table3", "table7", "table8", "figure15", "figure16"):
        claims = build(key, find, Plan("quick", seeds=1)).claims
        assert {claim.verdict for claim in claims} == {"cannot tell"}


# Settings and shared runs


def runs_of(key, plan):
    return {run.key: run for run in EXPERIMENTS[key].runs(plan)}


def test_paper_scale_is_the_supplement_to_the_letter():
    paper = Plan("paper")
    continual = {"epochs": 100, "lr": 5e-4, "decay": 0.8, "decay_every": 20, "batch_size": 128}
    for key, seeds in (("table2", 5), ("table3", 3), ("table8", 3)):
        runs = runs_of(key, paper).values()
        assert {run.seed for run in runs} == set(range(seeds))
        assert all(continual.items() <= run.settings.items() for run in runs)
        assert "weight_decay" not in {name for run in runs for name in run.settings}
    static = {"epochs": 100, "lr": 1e-4, "decay": 0.8, "decay_every": 20}
    for key in ("table7", "figure8", "figure15", "figure16"):
        runs = runs_of(key, paper).values()
        assert {run.seed for run in runs} == set(range(100))
        assert all(static.items() <= run.settings.items() for run in runs)
        assert all(run.data.arguments == {"per_group": 1024} for run in runs)
    assert {run.settings["batch_size"] for run in runs_of("table7", paper).values()} == {2, 16, 64, 256, 1024}
    assert {run.settings["batch_size"] for run in runs_of("figure8", paper).values()} == {2**n for n in range(1, 11)}


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_experiments_share_runs(scale):
    plan = Plan(scale, seeds=4)
    static_runs, tables = runs_of("table7", plan).keys(), runs_of("table1", plan).keys()
    assert static_runs <= runs_of("figure8", plan).keys()
    assert len(runs_of("figure15", plan).keys() & static_runs) == 4  # the default lambda
    assert len(runs_of("figure16", plan).keys() & static_runs) == 4  # the paper's placement
    assert len(runs_of("table3", plan).keys() & tables) == 8  # R-MDN and ours


def test_only_the_methods_asked_for_are_run():
    plan = Plan("quick", methods=("Plain",))
    assert {run.method.name for key in KEYS for run in EXPERIMENTS[key].runs(plan)} == {"Plain"}
    for key in KEYS:
        build(key, nothing, plan)


# Published numbers, typed in from the paper once more


def cells(table, row):
    return [(cell.published, cell.published_spread) for cell in row if not isinstance(cell, str)]


@pytest.mark.parametrize(
    ("key", "method", "published"),
    [
        ("table2", "Plain", [(0.110, 0.027), (-0.173, 0.024), (0.306, 0.009)]),
        ("table2", "R-MDN", [(0.061, 0.013), (-0.111, 0.019), (0.188, 0.015)]),
        ("table3", "ACIL", [(0.29, 0), (0, 0), (0.30, 0)]),
        ("table3", "F-OAL", [(0.28, 0), (0.01, 0), (0.28, 0)]),
        ("table3", "R-MDN", [(0.02, 0.01), (0, 0.01), (0.02, 0)]),
        ("table8", "Plain", [(0.124, 0.002), (-0.001, 0.001), (0.250, 0)]),
        ("table8", "R-MDN", [(0.046, 0.031), (0.0006, 0.0009), (0.238, 0.014)]),
        ("table8", "Guarded R-MDN", [(None, None)] * 3),
    ],
)
def test_published_distances(key, method, published):
    table = build(key, nothing).parts[0]
    assert table.columns == ["Method", "ACCd", "BWTd", "FWTd"]
    (row,) = (row for row in table.rows if row[0] == method)
    assert cells(table, row) == published


@pytest.mark.parametrize(
    ("method", "measure", "size", "published"),
    [
        ("Plain", 0, 2, (10.49, 0.037)),
        ("Plain", 2, 1024, (0.281, 0.005)),
        ("MDN", 1, 2, (0.977, 0.010)),
        ("MDN", 0, 256, (0.52, 0.335)),
        ("P-MDN", 0, 1024, (1.58, 1.983)),
        ("P-MDN", 2, 16, (0.013, 0.005)),
        ("R-MDN", 0, 256, (1.19, 0.215)),
        ("R-MDN", 1, 1024, (0.015, 0.020)),
        ("R-MDN", 2, 2, (0.005, 0.001)),
        ("Guarded R-MDN", 1, 16, (None, None)),
    ],
)
def test_published_static_numbers(method, measure, size, published):
    table = build("table7", nothing).parts[0]
    rows = [row for row in table.rows if row[0] == method]
    cell = rows[measure][table.columns.index(str(size))]
    assert (cell.published, cell.published_spread) == published


def test_table7_has_the_runs_mean_deviation_and_interval():
    """Runs 1 point below and 3 above A: 1 point off together, and a Student interval of two runs."""
    best = 5 / 6
    found = static.Outcomes(np.array([best - 0.01, best + 0.03]), np.array([[0.1, 0.2], [0.3, np.nan]]), best)
    cell = table7.cell("R-MDN", 0, 0, found)
    assert cell.ours == pytest.approx(1.0)
    assert cell.spread == pytest.approx(12.7062 * 2.0, rel=1e-4)  # t of 1 degree of freedom, standard error 2
    assert table7.cell("R-MDN", 1, 0, found).ours == pytest.approx(0.2)
    assert table7.cell("R-MDN", 2, 0, found).ours == pytest.approx(0.2)  # the run that has one
    assert found.values(0) == pytest.approx([1.0, 3.0])


def test_outcomes_are_read_off_the_last_row():
    run = static.runs("Plain", 16, QUICK)[0]
    found = static.gathered([record(run, 0.7, (0.3, None))])
    assert found.accuracy == pytest.approx([0.7])
    assert found.dcor2[0, 0] == 0.3
    assert math.isnan(found.dcor2[0, 1])
    assert found.best == pytest.approx(5 / 6)


def test_the_number_nearest_to_zero_is_marked(find):
    table = build("table8", find).parts[0]
    for column in (1, 3):
        marked = [row[0] for row in table.rows if row[column].best]
        numbers = {row[0]: abs(row[column].ours) for row in table.rows}
        assert marked == [min(numbers, key=numbers.get)]


# Claims, both ways


def distances(*accd, back=0.0, forth=None):
    return [TransferDistances(one, back, one if forth is None else forth) for one in accd]


def verdicts(claims):
    return {claim.text: claim.verdict for claim in claims}


def test_nearer_to_theory():
    from rmdn.experiments.transfer_table import nearer

    near, far = distances(0.02, 0.03), distances(-0.2, -0.3)
    assert nearer({"a": near, "b": far}, "a", ["b"], "ACCd").verdict == "holds"
    assert nearer({"a": far, "b": near}, "a", ["b"], "ACCd").verdict == "does not hold"
    assert nearer({"a": near, "b": far, "c": distances(0.01, 0.01)}, "a", ["b", "c"], "ACCd").verdict == "does not hold"
    assert nearer({"a": near, "b": []}, "a", ["b"], "ACCd").verdict == "cannot tell"
    assert nearer({"a": near[:1], "b": far[:1]}, "a", ["b"], "ACCd").verdict == "cannot tell"


def test_analytic_learning_remembers_and_is_farther_from_theory():
    few = {"ACIL": distances(0.29, 0.30, 0.31), "R-MDN": distances(0.02, 0.03, 0.025)}
    assert table3.worse(few, "ACIL", "ACCd").verdict == "holds"
    assert table3.worse({"ACIL": few["R-MDN"], "R-MDN": few["ACIL"]}, "ACIL", "ACCd").verdict == "does not hold"
    mixed = {"ACIL": distances(0.02, 0.30, 0.31), "R-MDN": distances(0.30, 0.03, 0.02)}
    assert table3.worse(mixed, "ACIL", "ACCd").verdict == "does not hold"  # larger in the mean, but not significantly
    assert table3.worse(few, "F-OAL", "ACCd").verdict == "cannot tell"
    assert table3.remembers(few, "ACIL").verdict == "holds"
    assert table3.remembers({"ACIL": distances(0.3, 0.3, back=0.12)}, "ACIL").verdict == "does not hold"
    assert table3.remembers({}, "ACIL").verdict == "cannot tell"


def scores(seeds=4, **cells):
    """Made-up outcomes: of each method (accuracy above theory in points, dcor2), for all batch sizes or by batch size."""
    methods = {"Plain": (10.0, 0.4), "MDN": {1024: (0.1, 0.002)}, "P_MDN": (1.0, 0.06), "R_MDN": (0.1, 0.01)}
    methods = {**methods, "Guarded_R_MDN": (0.1, 0.01), **cells}
    found = {}
    for i, (method, cell) in enumerate(methods.items()):
        random = np.random.default_rng(i)
        spread = 2.0 if method == "P_MDN" else 0.05
        by_size = {}
        for size in static.BATCH_SIZES:
            points, dcor2 = cell.get(size, (5.0, 0.2)) if isinstance(cell, dict) else cell
            noise = random.normal(size=seeds)
            noise = spread * (noise - noise.mean()) if seeds else noise
            scatter = 0.001 * random.normal(size=(seeds, 2))
            by_size[size] = static.Outcomes(5 / 6 + (points + noise) / 100, dcor2 + scatter, 5 / 6)
        found[method.replace("R_MDN", "R-MDN").replace("P_MDN", "P-MDN").replace("_", " ")] = by_size
    return found


NO_TESTS = {(measure, size): None for measure in range(3) for size in static.BATCH_SIZES}


def test_claims_of_table7_hold_for_numbers_like_the_published():
    made = scores()
    found = verdicts(table7_claims.claims(made, table7_claims.compared(made)))
    assert len(found) == 10
    assert set(found.values()) == {"holds"}


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ({"R_MDN": {**dict.fromkeys(static.BATCH_SIZES, (0.1, 0.01)), 256: (-2.0, 0.01)}}, "R-MDN reaches theory's"),
        ({"R_MDN": {**dict.fromkeys(static.BATCH_SIZES, (0.1, 0.01)), 16: (0.1, 0.03)}}, "R-MDN removes"),
        ({"Guarded_R_MDN": (0.6, 0.01)}, "Guarded R-MDN reaches theory's"),
        ({"Guarded_R_MDN": (0.1, 0.018)}, "Guarded R-MDN removes"),
        ({"Plain": (2.0, 0.4)}, "The plain network uses"),
        ({"Plain": (10.0, 0.1)}, "The plain network uses"),
        ({"MDN": (0.5, 0.01)}, "MDN works with large batches alone"),
    ],
)
def test_a_claim_of_table7_fails_where_its_numbers_do(cells, text):
    found = verdicts(table7_claims.claims(scores(**cells), NO_TESTS))
    (verdict,) = (verdict for claim, verdict in found.items() if claim.startswith(text))
    assert verdict == "does not hold"


@pytest.mark.parametrize(("method", "cell", "size"), [("MDN", (0.1, 0.002), 16), ("P_MDN", (1.0, 0.01), 64)])
def test_a_smaller_dependence_must_be_significant(method, cell, size):
    for made, verdict in ((scores(), "holds"), (scores(**{method: cell}), "does not hold")):
        tests = {(measure, size): table7_claims.tukey(made, measure, size) for measure in (1, 2)}
        assert table7_claims.less_dependent(made, tests, method.replace("_", "-"), [size]).verdict == verdict


def test_methods_that_do_not_differ_are_not_said_to():
    alike = dict.fromkeys(("Plain", "MDN", "P_MDN", "R_MDN", "Guarded_R_MDN"), (0.0, 0.01))
    made = scores(**alike)
    assert table7_claims.differ(made, {(1, 2): table7_claims.tukey(made, 1, 2)}).verdict == "does not hold"
    assert table7_claims.varies(made).verdict == "holds"  # P-MDN's made-up runs scatter more
    steady = {**made, "P-MDN": made["MDN"]}
    assert table7_claims.varies({**steady, "R-MDN": made["P-MDN"]}).verdict == "does not hold"
    one = {
        method: {size: static.Outcomes(np.array([]), np.zeros((0, 2)), 0.8) for size in static.BATCH_SIZES}
        for method in scores()
    }
    assert set(verdicts(table7_claims.claims(one, table7_claims.compared(one))).values()) == {"cannot tell"}


def outcomes(points, dcor2, seeds=5):
    random = np.random.default_rng(round(1000 * dcor2))
    return static.Outcomes(5 / 6 + (points + 0.1 * random.normal(size=seeds)) / 100, np.full((seeds, 2), dcor2), 5 / 6)


def test_claims_on_lambda():
    good = {f"{value:g}": outcomes(0.0, 0.05 - 0.005 * i) for i, value in enumerate(figure15.LAMBDAS)}
    assert figure15.robust(good).verdict == figure15.helps(good).verdict == "holds"
    bad = {f"{value:g}": outcomes(2.0 * i, 0.02 + 0.01 * i) for i, value in enumerate(figure15.LAMBDAS)}
    assert figure15.robust(bad).verdict == figure15.helps(bad).verdict == "does not hold"


def test_claims_on_placement():
    places = [figure16.name(places) for places in figure16.PLACES]
    good = {place: outcomes(4.0 - 0.5 * i, 0.08 - 0.01 * i) for i, place in enumerate(places)}
    assert {claim(good).verdict for claim in (figure16.sensitive, figure16.consistent, figure16.best)} == {"holds"}
    bad = {place: outcomes(0.0, 0.09 + 0.01 * i) for i, place in enumerate(places)}
    assert figure16.consistent(bad).verdict == figure16.best(bad).verdict == "does not hold"
    same = dict.fromkeys(places, outcomes(0.0, 0.01))
    assert figure16.sensitive(same).verdict == "does not hold"


def test_claims_on_clouds_and_courses():
    methods = dict.fromkeys(static.METHODS, 0.52) | {"Plain": 0.8}
    shares = {(method, size): [share] * 3 for method, share in methods.items() for size in static.PICTURED}
    speed = {"R-MDN": 0.01, "Guarded R-MDN": 0.01}
    courses = {
        (method, size): np.full((3, 20), speed.get(method, 0.1)) for method in static.METHODS for size in static.BATCH_SIZES
    }
    assert set(verdicts(figure8.claims(shares, courses)).values()) == {"holds"}
    shares = {**shares, ("R-MDN", 16): [0.75] * 3, ("Plain", 2): [0.6] * 3, ("Guarded R-MDN", 2): [0.7] * 3}
    # MDN is as quick with batches of 64; with 1,024 it may be.
    slow = {**courses, ("MDN", 64): np.full((3, 20), 0.005)}
    assert set(verdicts(figure8.claims(shares, slow)).values()) == {"does not hold"}
    quick_when_large = {**courses, ("MDN", 1024): np.full((3, 20), 0.005)}
    assert figure8.claims(shares, quick_when_large)[-1].verdict == "holds"


def test_claims_on_estimates():
    near = torch.tensor([[1.0, 0.1, 1e-3, 1e-5]] * 6, dtype=torch.float64)
    sizes = torch.tensor([10, 100, 1000, 10_000])
    epsilons = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    (claim,) = figure2.claims([Estimates(epsilons, sizes, near)] * 3)
    assert claim.verdict == "holds"
    slow = near.clone()
    slow[4, 2] = 0.1  # epsilon 100
    (claim,) = figure2.claims([Estimates(epsilons, sizes, near), Estimates(epsilons, sizes, slow)])
    assert claim.verdict == "does not hold"
    slow = near.clone()
    slow[0] = 1.0  # epsilon 0.01, of which nothing is said
    (claim,) = figure2.claims([Estimates(epsilons, sizes, slow)] * 2)
    assert claim.verdict == "holds"


def test_the_best_cut():
    stage = synthetic.static(64, seed=3)
    cuts = [
        ((stage.test.main_effect > cut).long() == stage.test.labels).double().mean() for cut in torch.linspace(0, 7, 7001)
    ]
    assert samples.best_cut(stage.test) == pytest.approx(float(max(cuts)), abs=1e-6)
    assert samples.limit([[synthetic.static(8, seed=3)], [synthetic.static(8, seed=4)]]).verdict == "does not hold"


# Clouds and pictures


def test_kept_features_of_all_stages(tmp_path):
    arrays = {}
    for j in range(3):
        arrays[f"features_{j}"] = np.full((10, 4), j, np.float16)
        arrays[f"confounders_{j}"] = np.full((10, 1), 10 * j)
        arrays[f"labels_{j}"] = np.arange(10) % 2
    arrays["features_2"][0] = np.inf
    np.savez(tmp_path / "a.npz", **arrays)
    found = embedding.kept({"arrays": tmp_path / "a.npz"}, rows=12)
    assert found.stages.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert found.features.shape == (12, 4)
    assert np.isfinite(found.features).all()
    assert found.features[4:8].tolist() == [[1.0] * 4] * 4
    assert found.confounders[:, 0].tolist() == [0] * 4 + [10] * 4 + [20] * 4
    assert found.labels.tolist() == [0, 1, 0, 1] * 3
    assert embedding.kept({}) is None


def test_tsne_keeps_clusters_apart():
    random = np.random.default_rng(0)
    labels = np.arange(60) % 2
    features = random.normal(size=(60, 20)) + 20.0 * labels[:, None]
    plane = embedding.embed(features)
    assert plane.shape == (60, 2)
    centres = np.stack([plane[labels == k].mean(0) for k in (0, 1)])
    nearest = np.linalg.norm(plane[:, None] - centres, axis=2).argmin(1)
    assert (nearest == labels).all()
    assert np.array_equal(plane, embedding.embed(features))
    assert np.isfinite(embedding.embed(np.ones((20, 3)))).all()
    with pytest.raises(Exception, match=r"t-SNE takes \(rows, features\)"):
        embedding.embed(np.ones(5))


def test_the_overlap_is_told_apart_by_the_confounder_alone(tmp_path):
    run = static.runs("Plain", 16, QUICK)[0]
    for confounded, low, high in ((0.0, 0.35, 0.6), (3.0, 0.75, 0.95)):
        path = keep_features(tmp_path / f"{confounded}.npz", run, confounded)
        (cloud,) = figure8.clouds_of([record(run, arrays=path), record(run)])
        assert low < figure8.told_apart(cloud) < high
    inside = (cloud.main_effect > 3) & (cloud.main_effect < 4)
    assert np.array_equal(cloud.places == 1, inside & (cloud.labels == 0))
    assert np.array_equal(cloud.places == 2, inside & (cloud.labels == 1))
    assert (cloud.main_effect[cloud.places == 0] <= 3).all()
    assert (cloud.main_effect[cloud.places == 3] >= 4).all()


def test_clouds_are_drawn_once_each():
    random = np.random.default_rng(0)
    cloud = figure8.Cloud(random.normal(size=(40, 3)), np.arange(40) % 2, random.uniform(1, 6, 40))
    figure = figure8.cloud_picture({("Plain", 16): cloud, ("R-MDN", 16): cloud})
    drawn = [ax for ax in figure.axes if ax.collections]
    assert len(drawn) == 2
    for ax in drawn:
        sizes = [len(points.get_offsets()) for points in ax.collections]
        assert sizes == np.bincount(cloud.places, minlength=4).tolist()


def test_curves_are_the_means_over_seeds():
    random = np.random.default_rng(0)
    courses = {(method, size): random.uniform(size=(3, 8)) for method in ("Plain", "R-MDN") for size in (2, 16)}
    figure = figure8.curve_picture({**courses, ("Plain", 64): np.array([])})
    for method, ax in zip(("Plain", "R-MDN"), figure.axes, strict=True):
        assert ax.get_title() == method
        assert len({(line.get_linestyle(), line.get_marker()) for line in ax.lines}) == len(ax.lines) == 2
        for size, line in zip((2, 16), ax.lines, strict=True):
            assert line.get_xdata().tolist() == list(range(1, 9))
            assert line.get_ydata() == pytest.approx(courses[method, size].mean(0))


def test_points_are_the_means_over_seeds():
    from rmdn.experiments import static_picture

    found = {"a": outcomes(1.0, 0.02), "b": outcomes(-2.0, 0.03), "none": outcomes(0.0, 0.0, seeds=0)}
    accuracy, dependence = static_picture.picture(found, "x").axes
    means = [float(found["a"].accuracy.mean()), float(found["b"].accuracy.mean()), np.nan]
    assert accuracy.containers[0].lines[0].get_ydata() == pytest.approx(means, nan_ok=True)
    for container in dependence.containers:
        assert container.lines[0].get_ydata() == pytest.approx([0.02, 0.03, np.nan], nan_ok=True)
    assert [tick.get_text() for tick in accuracy.get_xticklabels()] == ["a", "b", "none"]


def test_figure8_of_whole_records(find):
    """All parts, at the cost of two real clouds."""
    plan = Plan("quick", seeds=2, methods=("Plain", "R-MDN"))
    section = build("figure8", lambda run: find(run) if run.settings["batch_size"] == 16 else None, plan)
    pictures = [part for part in section.parts if isinstance(part, Picture)]
    (table,) = (part for part in section.parts if isinstance(part, Table))
    assert len(pictures) == 2
    shares = {row[0]: row[2].ours for row in table.rows}
    assert shares["Plain"] > 0.75 > 0.6 > shares["R-MDN"]
    assert all(row[1].ours is None for row in table.rows)  # no runs with batches of 2


def test_sample_pictures_show_training_images():
    for module, draws in ((figure7, [synthetic.static(seed=i) for i in range(4)]), (figure9, synthetic.moving())):
        (picture,) = module.section(QUICK, nothing).parts
        shown = [image.get_array() for ax in picture.figure.axes for image in ax.images]
        expected = [stage.train.images[group, 0].numpy() for group in (0, 1) for stage in draws]
        assert len(shown) == 8
        assert all(any(np.allclose(one, image) for image in shown) for one in expected)


@pytest.mark.parametrize("key", ["table7", "figure8", "figure15", "figure16"])
def test_a_run_whose_features_are_all_alike_has_no_dependence(key):
    """A dead network: no dcor2, and no warning."""
    section = build(key, lambda run: record(run, 0.5, (None, None), course=(None, None)))
    assert key in render(Report("", "", {}, [section]))
    assert "holds" not in {claim.verdict for claim in section.claims if "dcor2" in claim.text or "removes" in claim.text}
