"""The demonstration: what it measures, what it says of it, and what it leaves behind."""

import pytest
import torch

from rmdn.commands import app
from rmdn.experiments import temptation
from rmdn.experiments.temptation import STRENGTHS, Behaviour, Findings
from rmdn.report.parts import PNG

TINY = ["--epochs", "1", "--per-group", "32"]


def behaviour(there, away=None):
    """A network that is right so often where the confounder is, and so often without it."""
    by_strength = [there if away is None else away] * (len(STRENGTHS) - 1) + [there]
    return Behaviour(torch.full((5, 5), there, dtype=torch.float64), by_strength, 0.01, 1.0)


def findings(**networks):
    return Findings([0.75] * 5, {"epochs": 8, "batch_size": 64, "seed": 0}, 2048, networks)


def verdicts(**networks):
    return [claim.verdict for claim in temptation.claims(findings(**networks))]


def test_the_command_shows_a_table_and_leaves_a_report_and_a_picture(tmp_path, capsys):
    app(["demo", *TINY, "--folder", str(tmp_path / "demo")], standalone_mode=False)
    printed = capsys.readouterr()
    assert sorted(file.name for file in (tmp_path / "demo").iterdir()) == ["demo.png", "report.html"]
    page = (tmp_path / "demo" / "report.html").read_text("utf-8")
    assert (tmp_path / "demo" / "demo.png").read_bytes().startswith(PNG)
    for name in temptation.METHODS:
        assert f"Training by {name} ..." in printed.err
        assert name in printed.out
        assert f'<th scope="row">{name}</th>' in page
    assert "0.750 is possible" in printed.out
    assert str(tmp_path / "demo" / "report.html") in printed.out.replace("\n", "")
    assert "rmdn demo --epochs 1 --per-group 32 --seed 0" in page


def test_it_measures_on_five_stages_and_without_the_confounder():
    found = temptation.run(["Plain"], epochs=1, per_group=16)
    assert found.best == [0.75] * 5
    assert found.images == 32
    one = found.networks["Plain"]
    assert one.R.shape == (5, 5)
    assert one.R.isfinite().all()
    assert len(one.by_strength) == len(STRENGTHS)
    assert one.by_strength[-1] == one.R[-1, -1]
    again = temptation.run(["Plain"], epochs=1, per_group=16).networks["Plain"]
    assert torch.equal(one.R, again.R)
    assert one.by_strength == again.by_strength


def test_who_cheats_is_told_from_who_does_not():
    assert verdicts(Plain=behaviour(0.98, 0.5), Ours=behaviour(0.76, 0.74)) == ["holds"] * 4
    assert verdicts(Plain=behaviour(0.76, 0.75)) == ["does not hold"] * 2
    assert verdicts(Ours=behaviour(0.93, 0.6)) == ["does not hold"] * 2
    assert verdicts(Ours=behaviour(0.60, 0.60)) == ["holds", "holds"]  # little was learned, but nothing of the confounder
    assert verdicts(Ours=behaviour(0.75, 0.60)) == ["holds", "does not hold"]


def test_the_criterion_is_what_chance_explains():
    generator = torch.Generator().manual_seed(0)
    shares = (torch.rand(20_000, 2048, generator=generator) < 0.75).double().mean(1)
    margin = findings().margin
    assert margin == pytest.approx(3 * shares.std().item(), rel=0.03)
    assert verdicts(Ours=behaviour(0.75 + 0.9 * margin)) == ["holds"] * 2
    assert verdicts(Ours=behaviour(0.75 + 1.1 * margin)) == ["does not hold", "holds"]


def test_the_picture_shows_the_stages_and_the_strengths():
    networks = {"Plain": behaviour(0.9, 0.5), "Guarded R-MDN": behaviour(0.75, 0.75)}
    stages, strengths = temptation.picture(findings(**networks)).axes
    for axes, x, y in ((stages, [1, 2, 3, 4, 5], [0.9] * 5), (strengths, list(STRENGTHS), [0.5] * 4 + [0.9])):
        line = next(line for line in axes.lines if line.get_label() == "Plain")
        assert list(line.get_xdata()) == x
        assert list(line.get_ydata()) == pytest.approx(y)
        assert any(set(line.get_ydata()) == {0.75} for line in axes.lines if line.get_label() not in networks)


def test_the_table_has_the_distances_of_the_paper():
    table = temptation.table(findings(Plain=behaviour(0.85, 0.5)))
    accuracy, away, accd, bwtd, fwtd, _ = (cell.ours for cell in table.cells())
    assert (accuracy, away) == (0.85, 0.5)
    assert accd == pytest.approx(0.1)  # |.85 - .75| on each stage
    assert bwtd == pytest.approx(0.0)
    assert fwtd == pytest.approx(0.1)
