"""Many runs: made once, by several processes or a cluster, from the command line, and failing one by one."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from conftest import PLUGIN
from made_records import record as made_record
from rmdn.cli import main
from rmdn.errors import SettingError
from rmdn.experiments import grid, plugins
from rmdn.experiments.experiment import Plan, check_methods, chosen
from rmdn.experiments.grid import carry_out, pending
from rmdn.experiments.reporting import report
from rmdn.experiments.run import code_of
from rmdn.experiments.store import Store
from rmdn.experiments.watch import Standing, shown
from rmdn.report import Table

MACHINE = {"gpu": None, "cores": 2, "torch": "2"}
RECORD = {"R": [[1.0]], "seconds": 1.0, "stand_in": "Tiny images.", "machine": MACHINE}


@pytest.fixture
def made(monkeypatch):
    """The runs that are carried out; nothing is trained."""
    runs = []

    def execute(run, store):
        runs.append(run)
        if run.method.name == "Broken":
            raise ValueError(f"seed {run.seed} is broken")
        store.write(run, RECORD, None)

    monkeypatch.setattr(grid, "execute", execute)
    return runs


# What is made, and what is not


def test_finished_runs_are_not_made_again_and_changed_ones_are(tiny, tmp_path, made):
    store, runs = Store(tmp_path), [tiny.make_run(seed=seed) for seed in range(3)]
    carry_out(runs[:2], store)
    assert made == runs[:2]
    carry_out(runs, store)
    assert made == runs
    changed = tiny.make_run(seed=0, lr=0.5)
    carry_out([*runs, changed], store)
    assert made == [*runs, changed]
    carry_out(runs, store, fresh=True)
    assert made == [*runs, changed, *runs]


def test_a_run_that_two_experiments_share_is_made_once(tiny, tmp_path, made):
    carry_out([tiny.make_run(), tiny.make_run(seed=1), tiny.make_run()], Store(tmp_path))
    assert made == [tiny.make_run(), tiny.make_run(seed=1)]


def test_fresh_runs_forget_what_was_begun(tiny, tmp_path, monkeypatch):
    store, run = Store(tmp_path), tiny.make_run()
    begun = store.unfinished(run) / "begun"
    begun.mkdir(parents=True)
    there = []
    monkeypatch.setattr(grid, "execute", lambda run, store: there.append(begun.exists()))
    carry_out([run], store)
    carry_out([run], store, fresh=True)
    assert there == [True, False]


def test_a_failed_run_leaves_its_error_and_the_rest_goes_on(tiny, tmp_path, made):
    store = Store(tmp_path)
    runs = [tiny.make_run("Broken"), tiny.make_run(), tiny.make_run("Broken", seed=1)]
    ended = []
    carry_out(runs, store, watch=lambda run, error, seconds: ended.append((run, error)))
    errors = {run.key: error for run, error in ended}
    assert [errors[run.key] for run in runs] == ["ValueError: seed 0 is broken", None, "ValueError: seed 1 is broken"]
    assert store.error(runs[0]) == "ValueError: seed 0 is broken"
    assert "Traceback" in store.failure(runs[0]).read_text()
    assert pending(runs, store) == [runs[0], runs[2]]  # tried again next time


def test_the_report_shows_failures_and_stale_records(tiny, tmp_path, made):
    store, plan, experiments = Store(tmp_path), Plan(seeds=2), chosen(["tiny"])
    for seed in range(2):
        store.write(tiny.make_run(seed=seed), RECORD, None)
        store.write_failure(tiny.make_run("Broken", seed=seed), "ValueError: broken")
    store.path(tiny.make_run(seed=1)).rename(store.folder / f"{tiny.make_run(seed=1).key}-00000000.json")
    found = report(experiments, plan, store)
    assert found.sections[0].warnings == [
        "2 of 4 runs are missing.",
        "1 of 4 runs were made by an earlier version of the code.",
        "Tiny images.",
        "2 runs failed: ValueError: broken",
    ]
    assert found.facts["Runs"] == "2 of 4"
    assert found.facts["Stand-in data"] == "Tiny images."
    assert found.facts["Made on"] == "2 CPU cores"


# Plugins


def test_a_changed_plugin_is_changed_code(tmp_path, tiny):
    before = tiny.make_run().code
    text = PLUGIN.read_text()
    codes = {}
    for name, changed in {"same": text + "# a word\n", "other": text + "X = 1\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / PLUGIN.name).write_text(changed)
        sys.modules.pop("rmdn_plugin_tiny_plugin")
        code_of.cache_clear()
        plugins.load([str(tmp_path / name / PLUGIN.name)])
        codes[name] = tiny.make_run().code
    code_of.cache_clear()
    assert codes["same"] == before != codes["other"]


@pytest.mark.parametrize("name", ["table1", "table3", "figure3", "figure12", "figure18"])
def test_a_plugins_method_gets_its_row_where_it_is_asked_for(tiny, name):
    (experiment,) = chosen([name])
    for methods, asked in (((), False), (("R-MDN",), False), (("R-MDN", "Tiny"), True)):
        plan = Plan(seeds=2, methods=methods)
        check_methods([experiment], plan)
        runs = experiment.runs(plan)
        assert any(run.method.name == "Tiny" for run in runs) == asked
        assert not any(run.method.name == "Broken" for run in runs)
    section = experiment.section(plan, made_record)
    tables = [part for part in section.parts if isinstance(part, Table)]
    assert all("Tiny" in [row[0] for row in table.rows] for table in tables if table.rows)
    assert not section.missing()


def test_plugins_load_once_and_whole(tmp_path, tiny):
    counting = tmp_path / "counting.py"
    counting.write_text("import sys\nsys.times_loaded = getattr(sys, 'times_loaded', 0) + 1\n")
    plugins.load([str(counting), str(counting)])
    assert sys.times_loaded == 1
    del sys.times_loaded
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "counting.py").write_text("")
    with pytest.raises(SettingError, match="one name"):
        plugins.load([str(tmp_path / "other" / "counting.py")])
    bad = tmp_path / "bad.py"
    bad.write_text("1 / 0\n")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            plugins.load([str(bad)])
    (tmp_path / "plugin.txt").write_text("")
    with pytest.raises(SettingError, match="no Python file"):
        plugins.load([str(tmp_path / "plugin.txt")])


# The standing


def test_the_standing_counts_each_experiment_and_all_together(tiny):
    runs = [tiny.make_run(seed=seed) for seed in range(6)]
    standing = Standing({"a": runs[:4], "b": runs[2:]}, runs[1:], jobs=2)
    assert standing.counts({run.key for run in runs[:4]}) == (1, 2, 0, 1)
    assert standing.all() == (1, 2, 0, 3)
    assert standing.time_left() == "time left not known yet"
    standing.ended(runs[2], None)
    standing.ended(runs[1], "ValueError: no")
    assert standing.all() == (2, 2, 1, 1)
    standing.start = time.monotonic() - 7200
    assert standing.time_left() == "about 3 hours left"
    standing.start = time.monotonic() - 40
    assert standing.time_left() == "about 60 seconds left"
    line = standing.line(runs[1], "ValueError: [no]", 1.0)
    assert line.startswith("2 done, 2 running, 1 failed, 1 to do, about 60 seconds left | tiny, Tiny, seed 1: FAILED: Val")
    file = io.StringIO()
    Console(width=60, file=file).print(standing.table())
    assert re.search(r"a\s*│\s*2 │\s*1 │\s*1 │\s*0", file.getvalue())


def test_a_terminal_sees_a_table_and_an_error_as_it_is(tiny):
    runs, file = [tiny.make_run(), tiny.make_run(seed=1)], io.StringIO()
    console = Console(force_terminal=True, width=80, file=file)
    with shown(Standing({"tiny": runs}, runs, 1), console) as watch:
        watch(runs[0], None, 1.0)
        watch(runs[1], "ValueError: [red] no [/blue]", 1.0)
    text = file.getvalue()
    assert "running" in text
    assert "\x1b[" in text
    assert "ValueError: [red] no [/blue]" in text


# The command


def run_command(monkeypatch, *arguments) -> int:
    monkeypatch.setattr(sys, "argv", ["rmdn", "reproduce", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_the_command_makes_a_plugins_experiment_in_two_processes(tmp_path, monkeypatch, capfd, tiny):
    """The workers know the plugin; a failure is shown; the rest is in the report; nothing done is done again."""
    monkeypatch.chdir(tmp_path)
    asked = ["tiny", "--seeds", 2, "--jobs", 2, "--plugin", PLUGIN]
    assert run_command(monkeypatch, *asked) == 1
    out, err = capfd.readouterr()
    assert "\x1b" not in out + err
    assert "\r" not in out
    assert "2 done, 0 running, 2 failed, 0 to do" in out
    assert "Broken, seed 1: FAILED: RuntimeError: no weights [/today]" in out
    assert "2 runs failed: RuntimeError: no weights [/today]" in out
    assert "2 runs failed. The same command tries them again." in err
    page = (tmp_path / "report.html").read_text()
    assert "2 runs failed: RuntimeError: no weights [/today]" in page
    store = Store(tmp_path / "results" / "quick")
    before = [path.stat().st_mtime_ns for path in sorted(store.folder.glob("*-*.json"))]
    assert len(before) == len(store.table()) == 2
    assert run_command(monkeypatch, *asked, "--methods", "Tiny") == 0
    assert "FAILED" not in capfd.readouterr().out
    assert [path.stat().st_mtime_ns for path in sorted(store.folder.glob("*-*.json"))] == before


def test_the_command_lists_what_there_is(tmp_path, monkeypatch, capsys, tiny, made):
    monkeypatch.chdir(tmp_path)
    carry_out([tiny.make_run()], Store(tmp_path / "results" / "quick"))
    monkeypatch.setenv("COLUMNS", "120")
    assert run_command(monkeypatch, "tiny", "--list", "--plugin", PLUGIN) == 0
    out = capsys.readouterr().out
    assert re.search(r"tiny\s*│ A tiny experiment\s*│ 2\s*│ 1\s*│", out)
    assert "minutes" in out
    assert not (tmp_path / "report.html").exists()


def test_only_report_makes_no_runs(tmp_path, monkeypatch, capsys, tiny, made):
    monkeypatch.chdir(tmp_path)
    assert run_command(monkeypatch, "tiny", "--only-report", "--plugin", PLUGIN, "--out", "page.html") == 0
    assert made == []
    assert "There are no runs for this section yet." in capsys.readouterr().out
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tinny"], "no experiment 'tinny'; did you mean tiny?"),
        (["tiny", "--methods", "Tiny,broke"], "no method 'broke' in tiny; did you mean Broken?"),
        (["tiny", "--plugin", "nowhere.py"], "There is no plugin file"),
        (["tiny", "--cluster", "somewhere"], "cluster='somewhere' is neither"),
    ],
)
def test_mistakes_end_with_a_sentence(tmp_path, monkeypatch, capsys, tiny, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert run_command(monkeypatch, *arguments, "--plugin", PLUGIN) == 2
    assert message in capsys.readouterr().err


def test_an_interrupted_grid_keeps_what_is_done_and_says_how_to_go_on(tmp_path, monkeypatch, capsys, tiny, made):
    monkeypatch.chdir(tmp_path)
    execute = grid.execute

    def interrupted(run, store):
        if made:
            raise KeyboardInterrupt
        execute(run, store)

    with monkeypatch.context() as patched:
        patched.setattr(grid, "execute", interrupted)
        code = run_command(patched, "tiny", "--seeds", 3, "--jobs", 1, "--methods", "Tiny", "--plugin", PLUGIN)
    assert code == 130
    error = " ".join(capsys.readouterr().err.split())
    assert "Stopped with 1 of 3 runs done; they are kept in" in error
    assert "The same command goes on from here" in error
    assert len(made) == 1
    run_command(monkeypatch, "tiny", "--seeds", 3, "--jobs", 1, "--methods", "Tiny", "--plugin", PLUGIN)
    assert [run.seed for run in made] == [0, 1, 2]


# Whole processes


def start(folder, *arguments):
    """The command as a user starts it, in a process group of its own, as in a terminal."""
    code, source = "from rmdn.cli import main; main()", Path(grid.__file__).parents[2]
    command = [sys.executable, "-c", code, "reproduce", "tiny", "--plugin", str(PLUGIN), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    with open(folder / "err", "w") as errors:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )


@pytest.mark.slow
@pytest.mark.parametrize(("kill", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_stopped_grid_goes_on(tmp_path, kill, code):
    asked = ["--methods", "Tiny", "--seeds", 20, "--jobs", 2]
    process = start(tmp_path, *asked)
    assert process.stdout.readline().startswith("1 done, 2 running")
    os.killpg(process.pid, kill)
    process.stdout.close()
    assert process.wait(60) == code
    done = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "results/quick").glob("*-*.json")}
    assert 1 <= len(done) < 20
    if kill == signal.SIGINT:
        assert "Traceback" not in (tmp_path / "err").read_text()
    process = start(tmp_path, *asked)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert output.startswith(f"{len(done) + 1} done")
    now = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "results/quick").glob("*-*.json")}
    assert len(now) == 20
    assert all(now[name] == at for name, at in done.items())


@pytest.mark.slow
def test_a_dask_cluster_makes_the_same_records(tmp_path, monkeypatch, capfd, tiny):
    """Two threads of one worker, which share torch's random numbers; another folder than the command's."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    run_command(monkeypatch, "tiny", "--seeds", 4, "--jobs", 1, "--plugin", PLUGIN, "--results", "here")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster:
        asked = ["--cluster", cluster.scheduler_address, "--results", "there", "--out", "there.html"]
        assert run_command(monkeypatch, "tiny", "--seeds", 4, "--plugin", PLUGIN, *asked) == 1
    assert "4 done, 0 running, 4 failed" in capfd.readouterr().out
    for run in tiny.runs(Plan(seeds=4)):
        here, there = (Store(tmp_path / name / "quick").read(run) for name in ("here", "there"))
        assert (here is None) == (there is None) == (run.method.name == "Broken")
        if here:
            assert here["R"] == there["R"]
            assert here["loss"] == pytest.approx(there["loss"], abs=2e-4)  # sums by two threads or by one
