"""The folders of stand-ins, and the command that writes them."""

import json
import sys

import pytest

from rmdn.cli import main
from rmdn.data.simulate import simulate_ham10000
from rmdn.errors import InputError


def test_a_stand_in_is_reproducible_and_replaces_only_itself(tmp_path):
    simulate_ham10000(tmp_path / "a", 100, seed=3, size=(40, 30))
    simulate_ham10000(tmp_path / "b", 120, seed=4, size=(40, 30))
    simulate_ham10000(tmp_path / "b", 100, seed=3, size=(40, 30))

    def contents(folder):
        return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert json.loads((tmp_path / "a" / "STAND-IN.json").read_text())["what"] == "simulated by rmdn, not real data"
    changed = tmp_path / "b" / "HAM10000_metadata.csv"
    changed.write_text("the real table, unpacked over the stand-in's")
    with pytest.raises(InputError, match=r"1 files that no simulation wrote, such as HAM10000_metadata\.csv"):
        simulate_ham10000(tmp_path / "b", 100, seed=3, size=(40, 30))
    (tmp_path / "a" / "mine.txt").write_text("real")
    before = contents(tmp_path / "a")
    with pytest.raises(InputError, match=r"1 files that no simulation wrote, such as mine\.txt"):
        simulate_ham10000(tmp_path / "a", 100, seed=5, size=(40, 30))
    assert contents(tmp_path / "a") == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_a_simulation_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr("rmdn.data.simulate.ham10000.draw_lesion", fail)
    with pytest.raises(OSError, match="no space"):
        simulate_ham10000(tmp_path / "a", 100)
    assert list(tmp_path.iterdir()) == []


def run(monkeypatch, *arguments) -> int:
    monkeypatch.setattr(sys, "argv", ["rmdn", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_the_command_simulates_and_reports_errors_without_a_traceback(tmp_path, monkeypatch, capsys):
    assert run(monkeypatch, "simulate", "abcd", tmp_path / "a", "--n", 20, "--seed", 1, "--resolution", 6) == 0
    assert "20 simulated images" in capsys.readouterr().out
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "scan.nii").write_text("precious")
    assert run(monkeypatch, "simulate", "adni", tmp_path / "real") == 2
    error = capsys.readouterr().err
    assert "no simulation wrote" in error
    assert "Traceback" not in error
    for arguments in (["--help"], ["simulate", "--help"], ["simulate", "ham10000", "--help"]):
        assert run(monkeypatch, *arguments) == 0


def test_the_command_without_typer_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typer", None)
    assert run(monkeypatch, "simulate") == 2
    assert "rmdn[study]" in capsys.readouterr().err
