"""Figures of the continual data, the protocol and beyond: from made-up records, without any training."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scikit_posthocs
from matplotlib.figure import Figure
from scipy import stats

from made_records import BEST, record
from rmdn.data import synthetic
from rmdn.experiments import (
    beyond,
    figure3,
    figure12,
    figure18,
    figure19,
    figure20,
    panels,
    problems,
    protocol,
    significance,
    staged,
    summary,
    table1,
)
from rmdn.experiments.experiment import Plan
from rmdn.experiments.registry import EXPERIMENTS
from rmdn.metrics import mean_interval
from rmdn.report import Cell, Table

KEYS = ("protocol", "beyond", "figure3", "figure12", "figure18", "figure19", "figure20")
QUICK, PAPER = Plan("quick", seeds=2), Plan("paper", seeds=3)
OFF = {"Plain": 0.2, "BR-Net": 0.08, "P-MDN": 0.06, "Stage-specific MDN": -0.1, "R-MDN": 0.03, "Guarded R-MDN": 0.01}


def find(run):
    return record(run, off=OFF.get(run.method.name, 0.05), lean=max(OFF.get(run.method.name, 0.05) - 0.02, 0))


def found_as(**of_methods):
    """Records whose numbers are those of their method."""
    return lambda run: record(run, **of_methods[run.method.name.replace("-", "").replace(" ", "")])


@pytest.fixture
def undrawn(monkeypatch):
    """Sections without the time that their pictures take."""
    for name in ("stage_by_stage", "by_strength", "at_the_end", "bars"):
        monkeypatch.setattr(panels, name, lambda *_: Figure())
    monkeypatch.setattr(figure12, "draw_samples", lambda _: Figure())


def verdicts(section):
    return {claim.text: claim.verdict for claim in section.claims}


@pytest.mark.parametrize("key", KEYS)
def test_a_section_is_made_of_records(key):
    section = EXPERIMENTS[key].section(QUICK, find)
    assert section.key == key
    assert section.parts
    assert not section.missing()
    assert not section.warnings
    assert {claim.verdict for claim in section.claims} & {"holds", "does not hold"}


@pytest.mark.parametrize("scale", ["quick", "paper"])
@pytest.mark.parametrize("key", KEYS)
def test_a_section_without_runs_says_so_and_judges_nothing(key, scale, undrawn):
    section = EXPERIMENTS[key].section(Plan(scale), lambda run: None)
    wanted = len(EXPERIMENTS[key].runs(Plan(scale)))
    assert section.warnings == [f"{wanted} of {wanted} runs are missing."]
    assert all(claim.verdict == "cannot tell" for claim in section.claims)
    assert section.missing() or key == "figure12"  # its samples need no runs


@pytest.mark.parametrize("key", KEYS)
def test_one_seed_tells_nothing(key, undrawn):
    section = EXPERIMENTS[key].section(Plan("quick", seeds=1), find)
    assert section.claims
    assert all(claim.verdict == "cannot tell" for claim in section.claims)


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_what_table_1_has_made_is_not_made_again(scale):
    plan = Plan(scale)
    shared = {run.key for run in table1.runs(plan)}
    assert {run.key for run in figure3.runs(plan)} <= shared
    assert {run.key for run in EXPERIMENTS["figure12"].runs(plan)} == shared
    assert {run.key for run in EXPERIMENTS["figure18"].runs(plan)} <= shared
    longest = EXPERIMENTS["figure19"].runs(plan)[-len(table1.METHODS) * len(plan.runs_of(paper=5)) :]
    assert {run.key for run in longest} <= shared
    assert {
        run.key for one in protocol.METHODS for run in protocol.variation(protocol.TEXT, one).runs(3, plan, seeds=3)
    } <= shared
    for piece in beyond.PIECES:
        for dataset in beyond.DATASETS:
            made = {run.key for run in beyond.runs_of(piece, dataset, plan)} <= shared
            assert made == (piece.name in (beyond.PUBLISHED, beyond.OURS))


def test_the_protocol_is_the_papers_text():
    (run, *_) = protocol.variation(protocol.TEXT, "R-MDN").runs(3, Plan("paper"), seeds=3)
    assert run.settings == {"epochs": 100, "batch_size": 128, "lr": 5e-4, "decay": 0.8, "decay_every": 20}
    assert run.method.arguments == {}
    assert "shared_draws" not in run.data.arguments


@pytest.mark.parametrize("name", [name for name in protocol.PROTOCOLS if name != protocol.TEXT])
def test_another_protocol_departs_from_it_in_what_it_names_alone(name):
    text, other = (protocol.variation(one, "R-MDN").runs(3, Plan("paper"), seeds=1)[0] for one in (protocol.TEXT, name))
    parts = protocol.PROTOCOLS[name]
    assert other.settings == {**text.settings, **parts.get("settings", {})}
    assert other.data.arguments == {**text.data.arguments, **parts.get("data", {})}
    assert other.method.arguments == parts.get("options", {})
    assert other.key != text.key


def test_methods_that_were_not_asked_for_make_no_runs():
    for key in KEYS:
        assert {run.method.name for run in EXPERIMENTS[key].runs(Plan("paper", methods=("R-MDN",)))} == {"R-MDN"}


def test_draws_are_shared_where_that_is_asked_for():
    problem = problems.make("continual", {"dataset": 1, "per_group": 4, "shared_draws": True, "deltas": [0.5]})
    wanted = synthetic.continual(1, 4, shared_draws=True, delta=0.5)
    for stage, one in zip(problem.stages, wanted, strict=True):
        assert stage.train[0].equal(one.train.images)
        assert stage.more_tests["delta 0.5"][0].equal(one.test.images)
    assert not problems.make("continual", {"dataset": 1, "per_group": 4}).stages[1].train[0].equal(wanted[1].train.images)


@pytest.mark.parametrize(("off", "verdict"), [(0.02, "holds"), (0.08, "does not hold")])
def test_protocol_compares_with_the_published_number(off, verdict, undrawn):
    section = protocol.section(PAPER, found_as(RMDN={"off": off}, Plain={"off": 0.28 if verdict == "holds" else 0.2}))
    assert set(verdicts(section).values()) == {verdict}


def test_protocol_finds_the_one_that_gives_the_published_number(undrawn):
    def by_decay(run):
        return record(run, off=0.02 if run.settings.get("weight_decay") else 0.2)

    said = verdicts(protocol.section(PAPER, by_decay))
    assert said["The paper's text gives R-MDN's published ACCd"] == "does not hold"
    assert said["Another protocol gives R-MDN's published ACCd"] == "holds"


@pytest.mark.parametrize(("lean", "verdict"), [(0.0, "holds"), (0.1, "does not hold")])
def test_lines_are_straight_or_not(lean, verdict):
    changes = {"now": [figure3.change(record(run, lean=lean)) for run in figure3.runs_of("R-MDN", PAPER)]}
    assert changes["now"] == pytest.approx([lean] * 3)
    assert figure3.straight("R-MDN", changes, "", 3).verdict == verdict


def test_knowing_nothing_is_straight_but_far_from_theory(undrawn):
    def finds(run):
        one = record(run, off=0.01, lean=0.03)
        chance = np.full((5, 5), 0.5).tolist()
        if run.method.name != "Plain":
            return one
        return {**one, "R": chance, "more": dict.fromkeys(one["more"], chance)}

    section = figure3.section(PAPER, finds)
    (table,) = (part for part in section.parts if isinstance(part, Table))
    plain = next(row for row in table.rows if row[0] == "Plain")
    assert (plain[1].ours, plain[2].ours) == pytest.approx((0, np.mean(np.array(BEST[3]) - 0.5)))
    assert verdicts(figure3.section(PAPER, found_by_theory))["R-MDN is nearest to theory over all strengths"] == "holds"


def found_by_theory(run):
    return record(run, off={"R-MDN": 0.0, "Guarded R-MDN": 0.001}.get(run.method.name, 0.05))


def test_figure_18_looks_at_every_stage(undrawn):
    def leaning_at_first(run):
        one = record(run)
        for R in one["more"].values():
            R[1] = (np.array(R[1]) - 0.3).tolist()
        return one

    assert (
        verdicts(figure3.section(PAPER, leaning_at_first))[
            "R-MDN keeps its accuracy whatever the confounder's strength in the test images"
        ]
        == "holds"
    )
    said = figure18.section(PAPER, leaning_at_first).claims[0]
    assert said.verdict == "does not hold"
    assert "after stage 2" in said.why


@pytest.mark.parametrize(("ours", "verdict"), [(0.02, "holds"), (0.09, "does not hold")])
def test_nearest_to_theory_by_transfer_accuracy_and_dependence(ours, verdict, undrawn):
    def finds(run):
        away = {"R-MDN": ours, "Guarded R-MDN": ours / 2 if verdict == "holds" else ours}.get(run.method.name, 0.06)
        return record(run, off=away, dcor2=away)

    for module in (figure12, figure19, figure20):
        said = verdicts(module.section(PAPER, finds))
        assert len(said) >= 3
        assert set(said.values()) == {verdict}


def test_all_data_sets_are_not_judged_by_one(undrawn):
    section = figure12.section(PAPER, lambda run: find(run) if run.data.arguments["dataset"] == 3 else None)
    assert set(verdicts(section).values()) == {"cannot tell"}
    section = figure20.section(PAPER, lambda run: find(run) if run.settings["epochs"] != 10 else None)
    assert all(text.endswith("with 100 epochs a stage") for text in verdicts(section))
    assert len(verdicts(section)) == 2


def test_alone_without_the_confounder(undrawn):
    def finds(others):
        return lambda run: record(run, dcor2=0.01 if "R-MDN" in run.method.name else others)

    text = "With 10 epochs a stage R-MDN alone removes the confounder's influence from the features"
    assert verdicts(figure19.section(PAPER, finds(0.1)))[text] == "holds"
    assert verdicts(figure19.section(PAPER, finds(0.02)))[text] == "does not hold"


@pytest.mark.parametrize(("off", "verdict"), [(0.01, "holds"), (0.04, "does not hold")])
def test_the_aim_beyond_the_paper(off, verdict, undrawn):
    section = beyond.section(PAPER, lambda run: record(run, off=off))
    aims = [said for text, said in verdicts(section).items() if "at most 0.02" in text]
    assert aims == [verdict] * 3


def test_weaknesses_are_mended_by_their_piece_or_not(undrawn):
    names = {run.key: piece.name for piece in beyond.PIECES for run in piece.runs(3, PAPER, seeds=3)}
    off = {beyond.PUBLISHED: 0.1, beyond.RECALIBRATION: -0.05, beyond.OURS: 0.02}
    section = beyond.section(PAPER, lambda run: record(run, off=off.get(names.get(run.key), 0.03)))
    said = [verdict for text, verdict in verdicts(section).items() if "weakness" in text]
    assert said == ["holds", "does not hold", "holds", "does not hold"]


def test_above_and_below_theory_add_up_to_the_distance():
    one = record(table1.runs_of("Plain", 3, PAPER)[0], off=0.0, scatter=0.1)
    assert sum(beyond.off(one)) == pytest.approx(summary.distances(one).ACCd)
    assert min(beyond.off(one)) > 0


def test_the_nearest_to_zero_is_marked_in_each_column_that_has_a_choice():
    rows = [["a", Cell(-0.1), Cell(None), ""], ["b", Cell(0.2), Cell(0.3), "words"]]
    marked = summary.best_in_columns(rows)
    assert [[entry.best for entry in row if isinstance(entry, Cell)] for row in marked] == [[True, False], [False, False]]
    assert [[replace(e, best=False) if isinstance(e, Cell) else e for e in row] for row in marked] == rows


def test_tables_hold_the_means(undrawn):
    section = protocol.section(PAPER, find)
    (table,) = (part for part in section.parts if isinstance(part, Table))
    text = table.rows[0]
    wanted = [
        summary.distances(find(run)).ACCd for run in protocol.variation(protocol.TEXT, "R-MDN").runs(3, PAPER, seeds=3)
    ]
    assert text[1].ours == pytest.approx(np.mean(wanted))
    assert text[1].spread == pytest.approx(np.std(wanted, ddof=1))
    assert (text[1].published, text[4].published) == (0.02, 0.28)


def test_dependence_passes_over_a_class_without_a_value():
    one = record(table1.runs_of("Plain", 3, PAPER)[0])
    one["dcor2"][0][0] = {"0": None, "1": 0.4}
    one["dcor2"][0][1] = {"0": None, "1": None}
    found = staged.dependence(one)
    assert found[0, 0] == 0.4
    assert math.isnan(found[0, 1])
    assert staged.mean_dependence(one) == pytest.approx(np.nanmean(found))


@pytest.mark.parametrize(
    ("p", "mark"), [(0.0009, "***"), (0.001, "**"), (0.0099, "**"), (0.01, "*"), (0.05, ""), (math.nan, "")]
)
def test_stars(p, mark):
    assert significance.stars(p) == mark


def test_stars_are_those_of_conovers_test():
    random = np.random.default_rng(0)
    scores = {
        name: random.normal(place, 0.6, 6) for name, place in {"R-MDN": 5, "a": 6.1, "b": 5, "c": -7, "d": 5.8}.items()
    }
    table = scikit_posthocs.posthoc_conover([np.abs(values) for values in scores.values()], p_adjust="bonferroni")
    found = significance.against(scores, "R-MDN")
    assert found == {name: significance.stars(table.iloc[0, i]) for i, name in enumerate(scores) if i}
    assert found["c"] == "***"
    assert found["b"] == ""


def test_no_stars_where_the_test_of_all_finds_nothing():
    scores = {"R-MDN": [1.0, 2.0, 3.0], "a": [1.1, 2.1, 2.9], "b": [1.2, 1.9, 3.1], "single": [9.0]}
    assert stats.kruskal(*list(scores.values())[:3]).pvalue > 0.05
    assert significance.against(scores, "R-MDN") == {"a": "", "b": "", "single": ""}
    assert significance.against({"a": [1.0, 2.0]}, "R-MDN") == {"a": ""}


def test_bars_have_the_means_heights_and_the_stars():
    scores = {"R-MDN": [0.1, 0.2], "Plain": [-0.3, -0.5]}
    figure = panels.bars({"BWTd": {"data set 1": scores}}, {"BWTd": {"data set 1": {"Plain": "**"}}})
    (ax,) = figure.axes
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([0.15, -0.4])
    assert [text.get_text() for text in ax.texts] == ["", "**"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["data set 1"]


def test_lines_over_the_strength_are_the_means():
    values = np.random.default_rng(1).random((3, 5, 4))
    (ax,) = panels.by_strength({"": {"R-MDN": values}}, [0, 0.5, 0.75, 1]).axes
    drawn = np.array([line.get_ydata() for line in ax.lines])
    np.testing.assert_allclose(drawn, values.mean(0))


def test_lines_stage_by_stage_and_at_the_end_are_the_means():
    values = np.random.default_rng(2).random((2, 5, 5))
    (ax,) = panels.stage_by_stage({"data set 1": {"R-MDN": values}}, "accuracy", {"data set 1": BEST[3]}).axes
    curves = [line.get_ydata() for line in ax.lines if len(line.get_ydata()) == 5]
    np.testing.assert_allclose(curves[0::2], [BEST[3]] * 5)
    np.testing.assert_allclose(curves[1::2], values.mean(0))
    (ax,) = panels.at_the_end({"R-MDN": {"text": values[:, -1]}}).axes
    np.testing.assert_allclose(ax.lines[1].get_ydata(), values[:, -1].mean(0))


def test_interval_is_students():
    values = np.random.default_rng(3).random((4, 2))
    mean, reach = panels.interval(values)
    for k in range(2):
        expected = mean_interval(values[:, k])
        assert (mean[k], mean[k] + reach[k]) == pytest.approx((expected.value, expected.high))
    assert panels.interval(values[:1])[1].tolist() == [0, 0]


def test_interval_leaves_out_runs_without_a_value():
    values = np.random.default_rng(4).random((4, 3))
    wanted = panels.interval(values[1:, :1])
    values[0, 0] = values[:, 2] = np.nan
    mean, reach = panels.interval(values)
    assert (mean[0], reach[0]) == pytest.approx((wanted[0][0], wanted[1][0]))
    assert math.isnan(mean[2])
    figure = panels.stage_by_stage({"": {"BR-Net": np.full((2, 2, 2), np.nan)}}, "dcor2")
    assert np.isfinite(figure.axes[0].get_ylim()).all()


def test_samples_are_typical_of_their_group():
    images = synthetic.continual(3, 64)[4].train
    for group in (0, 1):
        i = figure12.typical(images, group)
        assert images.labels[i] == group
        assert images.confounders[i, 0] == pytest.approx(sum(images.confounder_ranges[group]) / 2, abs=0.4)
        assert images.main_effect[i] == pytest.approx(sum(images.main_ranges[group]) / 2, abs=0.4)
