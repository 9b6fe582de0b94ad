"""Bars appear where a person looks, and nowhere else."""

import io
import sys

import pytest
import torch
from torch import nn

import rmdn
from rmdn.progress import track


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_terminal(monkeypatch):
    """In a test's own body: between a fixture and the test pytest puts its own stream there."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    return sys.stderr


@pytest.mark.parametrize("items", [[1, 2, 3], iter([1, 2, 3])], ids=["sized", "unsized"])
def test_a_bar_on_a_terminal(monkeypatch, items):
    terminal = on_terminal(monkeypatch)
    assert list(track(items, "Counting")) == [1, 2, 3]
    assert "Counting" in terminal.getvalue()


def test_silence_for_short_work_and_without_rich(monkeypatch):
    terminal = on_terminal(monkeypatch)
    assert list(track([1, 2], "Counting", long=False)) == [1, 2]
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert list(track([1, 2], "Counting")) == [1, 2]
    assert terminal.getvalue() == ""


def test_silence_where_no_person_looks(capsys):
    assert list(track([1, 2], "Counting")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_recalibration_shows_each_layer(monkeypatch):
    terminal = on_terminal(monkeypatch)
    network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model = rmdn.deconfound(network, ["0", "1"], num_confounders=1, num_classes=2)
    batches = [(torch.randn(8, 3), torch.randn(8), torch.arange(8) % 2)] * 2
    rmdn.recalibrate(model, batches)
    for name in "01":
        assert f"Recalibrating {name}" in terminal.getvalue()
