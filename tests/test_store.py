"""Records of runs on disk: whole or not there, marked where the code has changed, and all in one table."""

import json
import os

import numpy as np
import pandas as pd
import pytest

from rmdn.experiments import methods
from rmdn.experiments.store import Store

RECORD = {"R": [[0.5, 0.75], [0.625, 1.0]], "seconds": 1.5}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def files(store):
    return sorted(path.name for path in store.folder.iterdir())


def change_code(monkeypatch, *code):
    build = methods.METHODS["Tiny"].build
    monkeypatch.setitem(methods.METHODS, "Tiny", methods.Method(build, code))


def test_a_record_comes_back_with_what_made_it(tiny, store):
    run = tiny.make_run()
    assert not store.done(run)
    assert store.read(run) is None
    store.write(run, RECORD, None)
    assert store.done(run)
    assert store.read(run) == {"run": run.plain(), **RECORD}
    assert store.read(tiny.make_run(seed=1)) is None
    assert files(store) == [f"{run.key}-{run.code}.json"]


def test_arrays_lie_beside_the_record(tiny, store):
    run = tiny.make_run()
    store.write(run, RECORD, {"features_0": np.arange(6.0).reshape(2, 3)})
    np.testing.assert_array_equal(np.load(store.read(run)["arrays"])["features_0"], [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_a_write_that_is_cut_off_leaves_the_old_record(tiny, store, monkeypatch, fails):
    run = tiny.make_run()
    store.write(run, RECORD, None)

    def no_space(*_):
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        if fails == "write":
            broken.setattr(json, "dumps", lambda *_, **__: 1 / 0)
        else:
            broken.setattr(os, fails, no_space)
        with pytest.raises((OSError, ZeroDivisionError)):
            store.write(run, {**RECORD, "seconds": 9}, None)
    assert store.read(run)["seconds"] == 1.5
    assert files(store) == [f"{run.key}-{run.code}.json"]


def test_a_record_by_earlier_code_is_stale(tiny, store, monkeypatch):
    run = tiny.make_run()
    store.write(run, RECORD, None)
    os.utime(store.path(run), (1, 1))
    change_code(monkeypatch, "rmdn.recursion")
    assert not store.done(run)
    assert store.read(run) == {"run": run.plain(), **RECORD, "stale": True}
    store.write(run, {**RECORD, "seconds": 2.5}, None)
    assert store.read(run) == {"run": run.plain(), **RECORD, "seconds": 2.5}
    change_code(monkeypatch, "rmdn.design")
    assert store.read(run)["seconds"] == 2.5  # the latest of the earlier
    assert store.read(run)["stale"]


def test_a_failure_is_kept_until_the_run_is_made(tiny, store):
    run = tiny.make_run()
    assert store.error(run) is None
    store.write_failure(run, "Traceback\n  line\nValueError: no\n")
    store.unfinished(run).mkdir(parents=True)
    assert store.error(run) == "ValueError: no"
    assert store.read(run) is None
    assert json.loads(store.failure(run).read_text())["run"] == run.plain()
    assert store.table().empty
    store.write(run, RECORD, None)
    assert store.error(run) is None
    assert not store.unfinished(run).exists()


def test_all_records_in_one_table(tiny, store):
    first = tiny.make_run(data={"rows": 8})
    for run in (first, tiny.make_run("LwF", seed=4, lr=0.5)):
        store.write(run, RECORD, None)
    table = store.table().set_index("method")
    assert isinstance(table, pd.DataFrame)
    assert table.loc["Tiny", ["data", "data.rows", "network", "lr", "seed"]].tolist() == ["tiny", 8, "CNN2d", 1e-2, 0]
    assert table.loc["Tiny", "key"] == f"{first.key}-{first.code}"
    assert table.loc["LwF", ["lr", "seed", "accuracy", "seconds"]].tolist() == [0.5, 4, 0.8125, 1.5]
    assert len(table) == 2
