import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BEFORE, AFTER = (ROOT / "examples" / name for name in ("own_loop_before.py", "own_loop.py"))


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
