"""What a newcomer meets first: the README, the imports, the command line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_the_readmes_python_runs(code):
    torch.manual_seed(0)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["logits"].shape == (64, 2)


def test_the_readmes_commands_and_links_exist():
    targets = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}: install" in makefile for target in targets)
    assert len(makefile.splitlines()) <= 30
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("http") or (ROOT / link).exists(), link
    for path in re.findall(r"`((?:examples|docs|src)/[\w/.]+)`", README):
        assert (ROOT / path).exists(), path


def test_the_core_needs_torch_and_numpy_alone():
    """A fresh interpreter in which every other package is refused."""
    code = """
import sys, importlib.abc
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in 'lightning monai pandas scipy sklearn matplotlib rich typer torchmetrics'.split():
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
import torch, rmdn
x, c, y = torch.randn(8, 1, 32, 32), torch.randn(8, 1), torch.arange(8) % 2
model = rmdn.deconfound(rmdn.models.CNN2d(), at=["fc1"], num_confounders=1, num_classes=2, sample=x)
model(x, confounders=c, labels=y)
rmdn.recalibrate(model, [(x, c, y)])
rmdn.data.synthetic.static(8)
rmdn.metrics.dcor2(x.flatten(1), c), rmdn.metrics.transfer([[1.0, 0.5], [0.5, 1.0]])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "src", timeout=120)
    assert done.returncode == 0, done.stderr


def test_unknown_names_are_attribute_errors():
    import rmdn

    with pytest.raises(AttributeError, match="nothing_here"):
        rmdn.nothing_here  # noqa: B018
    assert "metrics" in dir(rmdn)


def test_help_of_every_command_is_complete(capsys):
    from rmdn.commands import app

    for command in ([], ["demo"], ["simulate"], ["simulate", "adni"]):
        with pytest.raises(SystemExit):
            app([*command, "--help"])
        assert "Usage" in capsys.readouterr().out
