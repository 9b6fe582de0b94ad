"""What a newcomer meets first: the README, the imports, the command line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer

import rmdn
from rmdn.commands import app, bench
from rmdn.errors import UsageError

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_the_readmes_python_runs(code):
    torch.manual_seed(0)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["logits"].shape == (64, 2)


def test_the_readmes_two_commands_do_all_set_up():
    assert re.findall(r"^make (\w+)", README, re.MULTILINE) == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}: install" in makefile for target in ("demo", "test"))
    assert len(makefile.splitlines()) <= 30


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
    with pytest.raises(AttributeError, match="nothing_here"):
        rmdn.nothing_here  # noqa: B018
    assert "metrics" in dir(rmdn)


def commands(group, names=()):
    """Every command of the command line, by the words that call it."""
    yield names, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*names, name))


ALL = dict(commands(typer.main.get_command(app)))


def test_the_commands_are_those_that_are_promised():
    assert {("demo",), ("reproduce",), ("simulate",), ("bench",)} <= set(ALL)
    assert {("simulate", name) for name in ("ham10000", "adni", "abcd")} <= set(ALL)


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "rmdn")
def test_help_of_every_command_is_complete(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as end:
        app([*words, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "Usage" in text
    for option in ALL[words].params:
        assert getattr(option, "help", None) or option.name == "help", f"{option.name} has no help"
        assert option.opts[0] in text
    for name in getattr(ALL[words], "commands", {}):
        assert name in text


def run_rmdn(*words):
    return subprocess.run(
        [sys.executable, "-c", "from rmdn.cli import main; main()", *words],
        capture_output=True,
        text=True,
        cwd=ROOT / "src",
        timeout=120,
    )


def test_a_users_mistake_is_one_message_and_no_traceback():
    done = run_rmdn("reproduce", "table1", "--methods", "Plain,Nothing")
    assert done.returncode == 2
    assert done.stderr.startswith("There is no method 'Nothing' in table1; there are Plain,")
    assert "Traceback" not in done.stderr


def test_the_version_is_the_packages(capsys):
    app(["--version"], standalone_mode=False)
    assert capsys.readouterr().out == f"rmdn {rmdn.__version__}\n"


def test_bench_runs_the_script_with_its_options(tmp_path, capfd, monkeypatch):
    (tmp_path / "loop.py").write_text("import sys; print('measured', *sys.argv[1:]); sys.exit(3)")
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    assert app(["bench", "loop", "own", "--rounds", "2"], standalone_mode=False) == 3
    assert capfd.readouterr().out == "measured own --rounds 2\n"
    with pytest.raises(UsageError, match=r"layer\.py: the benchmarks come with rmdn's source"):
        app(["bench"], standalone_mode=False)


def test_every_benchmark_of_the_source_has_its_name():
    assert {script.stem for script in (ROOT / "benchmarks").glob("*.py")} == {one.value for one in bench.Benchmark}
