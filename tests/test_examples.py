import difflib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
BEFORE, AFTER = (ROOT / "examples" / name for name in ("own_loop_before.py", "own_loop.py"))
PLUGIN = ROOT / "examples" / "plugin.py"


def test_the_loop_with_rmdn_is_three_lines_away():
    lines = list(difflib.ndiff(BEFORE.read_text().splitlines(), AFTER.read_text().splitlines()))
    added = [line[2:].strip() for line in lines if line.startswith("+ ")]
    removed = [line[2:].strip() for line in lines if line.startswith("- ")]
    assert len(added) == 3
    assert added[0] == "import rmdn"
    assert "rmdn.deconfound(" in " ".join(added)
    assert removed == ["scores = model(x)"]


@pytest.mark.parametrize("script", [BEFORE, AFTER], ids=lambda script: script.stem)
def test_it_runs_and_prints_its_accuracy_beside_theory(script):
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "EPOCHS": "4", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    accuracy, best = map(float, re.findall(r"\d\.\d+", done.stdout))
    assert 0.6 < accuracy < 1
    assert best == 0.833


def test_a_plugin_adds_data_a_method_and_a_table(registries, tmp_path, capsys):
    from rmdn.commands import app

    threads = torch.get_num_threads()
    options = ["--plugin", str(PLUGIN), "--seeds", "1", "--methods", "Plain,Projected R-MDN", "--jobs", "1"]
    folders = ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "report.html")]
    try:
        app(["reproduce", "stripes", *options, *folders], standalone_mode=False)
    finally:
        torch.set_num_threads(threads)
    records = [json.loads(file.read_text()) for file in (tmp_path / "results" / "quick").glob("*-*.json")]
    assert {record["run"]["method"]["name"] for record in records} == {"Plain", "Projected R-MDN"}
    assert all(len(record["R"]) == 2 for record in records)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert '<th scope="row">Projected R-MDN</th>' in page
    assert "Drawn stripes." in page
    assert "Projected R-MDN" in capsys.readouterr().out
