"""A run of an experiment: its key, the code it rests on, what it records, and that a killed one ends as a whole one."""

import importlib
import json
import linecache
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from rmdn.errors import SettingError
from rmdn.experiments import measures, methods, plugins, problems
from rmdn.experiments.code import code_of, code_of_function
from rmdn.experiments.experiment import Plan, check_methods, chosen
from rmdn.experiments.run import Recipe, Run, execute, make
from rmdn.experiments.store import Store
from rmdn.metrics import dcor2
from rmdn.models import build
from rmdn.strategies import Gate, Hinges, Plain
from rmdn.training import Settings, train

RUN = Run(
    Recipe("static", {"per_group": 8, "seed": 1}),
    Recipe("rmdn.models.CNN2d", {"hidden_size": 4}),
    Recipe("R-MDN", {"at": "fc1"}),
    {"epochs": 2, "lr": 0.1},
    seed=3,
    also=("course",),
)
CHANGES = {
    "problem": {"data": Recipe("moving", RUN.data.arguments)},
    "data": {"data": Recipe("static", {"per_group": 8, "seed": 2})},
    "network": {"network": Recipe("rmdn.models.CNN3d", RUN.network.arguments)},
    "size": {"network": Recipe("rmdn.models.CNN2d", {"hidden_size": 5})},
    "method": {"method": Recipe("Plain", RUN.method.arguments)},
    "option": {"method": Recipe("R-MDN", {"at": "conv1"})},
    "setting": {"settings": {"epochs": 2, "lr": 0.2}},
    "new setting": {"settings": {"epochs": 2, "lr": 0.1, "decay": 0.8}},
    "seed": {"seed": 4},
    "measures": {"also": ()},
}


def without_clock(record):
    return {name: value for name, value in record.items() if name not in ("seconds", "machine")}


# Keys


def test_every_part_of_a_run_is_in_its_key_and_the_order_of_its_arguments_is_not():
    keys = {name: replace(RUN, **change).key for name, change in CHANGES.items()}
    assert len({RUN.key, *keys.values()}) == 1 + len(CHANGES)
    swapped = {"data": Recipe("static", {"seed": 1, "per_group": 8}), "settings": {"lr": 0.1, "epochs": 2}}
    assert replace(RUN, **swapped).key == RUN.key
    assert Run(**{**vars(RUN), "also": ["course"]}).key == RUN.key  # a list is a tuple in JSON
    assert RUN.plain() == json.loads(json.dumps(RUN.plain()))


def test_a_methods_own_settings_come_before_the_experiments():
    run = make(RUN.data, RUN.network, "Guarded R-MDN", {"epochs": 2, "holdout": 0.5}, 0)
    assert run.settings == {"epochs": 2, **methods.named("Guarded R-MDN").settings}
    assert run.method == Recipe("Guarded R-MDN")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module, and says what its code counts as."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text):
        (tmp_path / "some_method.py").write_text(text)
        importlib.invalidate_caches()
        code_of.cache_clear()
        return code_of("some_method")

    yield write
    code_of.cache_clear()
    sys.modules.pop("some_method", None)


def test_code_is_what_runs_not_what_explains_it(module):
    first = module(
        '"""A text."""\ndef f(x):\n    """Another."""\n    return x + 1  # one more\n\nclass A:\n    "B."\n    y = 2\n'
    )
    assert module("def f(x):\n\n    return (x +\n        1)\nclass A:\n    y = 2  # why\n") == first
    assert module("def f(x):\n    return x + 2\nclass A:\n    y = 2\n") != first
    assert module("def f(x):\n    return x + 1\nclass A:\n    y = 'B.'\n") != first
    with pytest.raises(SettingError, match="no module 'some_other_method'"):
        code_of("some_other_method")


def test_a_function_counts_with_those_beside_it_that_it_calls(module):
    def code(text):
        module(text)
        sys.modules.pop("some_method", None)
        linecache.checkcache()
        return code_of_function(importlib.import_module("some_method").f)

    first = code("def g():\n    return 1\ndef f():\n    return g()\n")
    assert code("def g():\n    return 1  # one\ndef f():\n    'F.'\n    return g()\ndef h(): ...\n") == first
    assert code("def g():\n    return 2\ndef f():\n    return g()\n") != first
    assert code("def g():\n    return 1\ndef f():\n    return -g()\n") != first
    inner = "def g():\n    return {}\ndef f():\n    return [g() for x in [1]]\n"  # its own code object, before Python 3.12
    assert code(inner.format(1)) != code(inner.format(2))


def test_a_run_rests_on_the_code_of_its_data_and_its_method(tiny, module, monkeypatch):
    def code(text, run):
        module(text)
        return run.code

    run = tiny.make_run()
    monkeypatch.setitem(methods.METHODS, "Tiny", methods.Method(tiny.tiny_method, ("some_method",)))
    assert code("x = 1", run) == code("x = 1  # one", run) != code("x = 2", run)
    monkeypatch.setitem(methods.METHODS, "Tiny", methods.Method(tiny.tiny_method, ()))
    assert code("x = 1", run) == code("x = 2", run)
    monkeypatch.setitem(problems.CODE, "tiny", ("some_method",))
    assert code("x = 1", run) != code("x = 2", run)


def test_every_method_names_modules_that_there_are():
    for name in methods.METHODS:
        for data in problems.PROBLEMS:
            assert len(replace(RUN, method=Recipe(name), data=Recipe(data)).code) == 8


# Names


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: methods.named("rmdn"), r"no method 'rmdn'; did you mean R-MDN"),
        (lambda: methods.named("xyz"), r"there are Plain, .*F-OAL"),
        (lambda: problems.make("statik", {}), "did you mean static?"),
        (lambda: chosen(["tabel1"]), r"no experiment 'tabel1'; did you mean table1"),
        (lambda: chosen(["xyz"]), "there are .*table1.*, all"),
        (lambda: check_methods(chosen(["tiny"]), Plan(methods=("Tiny", "borken"))), "no method 'borken' in tiny; did you"),
        (lambda: check_methods([], Plan(methods=("R-MDN",))), "there are none"),
        (lambda: plugins.load(["nowhere.py"]), "no plugin file nowhere.py"),
        (lambda: Plan(seeds=0).runs_of(paper=3), "seeds=0"),
    ],
)
def test_wrong_names_are_refused_with_the_right_ones(tiny, wrong, message):
    with pytest.raises(SettingError, match=message):
        wrong()


def test_known_methods_are_not_refused(tiny):
    check_methods(chosen(["tiny"]), Plan(methods=("Tiny", "Broken")))


def test_a_plan_chooses_seeds_settings_and_methods():
    assert [len(Plan(scale, seeds).runs_of(paper=5)) for scale in ("quick", "paper") for seeds in (None, 3)] == [1, 3, 5, 3]
    assert Plan("quick").at_scale({"epochs": 100, "lr": 1}, {"epochs": 2}) == {"epochs": 2, "lr": 1}
    assert Plan("paper").at_scale({"epochs": 100, "lr": 1}, {"epochs": 2}) == {"epochs": 100, "lr": 1}
    assert Plan(methods=("b", "a")).chosen(["a", "b", "c"]) == ["a", "b"]
    assert Plan().chosen(["c", "a"]) == ["c", "a"]


# What is recorded


def test_a_record_is_the_training_by_the_loop(tiny, tmp_path):
    run, store = tiny.make_run(also=("features", "course")), Store(tmp_path)
    execute(run, store)
    record = store.read(run)
    torch.manual_seed(run.seed)
    network = build(run.network.name, image_size=[12, 12], in_channels=1, num_classes=2, **run.network.arguments)
    problem = tiny.tiny()
    result = train(network, problem.stages, Plain(), Settings(**run.settings), keep_logits=True, features="fc1")
    assert record["run"] == run.plain()
    np.testing.assert_allclose(record["R"], result.R, atol=1e-5)
    np.testing.assert_allclose(record["loss"], [epoch.loss for epoch in result.history], atol=1e-4)
    assert record["names"] == ["stage 1", "stage 2"]
    assert (record["best"], record["stand_in"], record["taken"]) == ([0.9, 0.8], "Tiny images stand in.", None)
    for i in range(2):
        for j in range(2):
            _, confounders, labels = problem.stages[j].test
            logits, features = result.logits[i, j], result.features[i, j]
            for k in range(2):
                mine = labels == k
                assert record["recall"][i][j][k] == pytest.approx(
                    float((logits[mine].argmax(1) == k).double().mean()), abs=1e-4
                )
                expected = float(dcor2(features[mine], confounders[mine]))
                assert record["dcor2"][i][j][str(k)] == pytest.approx(expected, abs=1e-4)
    arrays = np.load(record["arrays"])
    np.testing.assert_allclose(arrays["features_1"], result.features[1, 1], rtol=1e-2, atol=1e-3)
    np.testing.assert_array_equal(arrays["labels_0"], problem.stages[0].test[2])
    assert len(record["course"]) == 4
    assert record["course"][-1] == pytest.approx(record["dcor2"][1][1], abs=1e-4)  # the last epoch's is the record's


def test_the_guarded_recipe_records_what_its_gate_has_kept(tiny, tmp_path):
    run, store = tiny.make_run("Guarded R-MDN", data={"rows": 64}), Store(tmp_path)
    execute(run, store)
    assert len(store.read(run)["taken"]) == 2


def test_further_tests_are_recorded_by_name(tmp_path):
    data = Recipe("continual", {"dataset": 1, "per_group": 4, "deltas": [0.0, 0.5]})
    run = make(data, Recipe("rmdn.models.CNN2d", {"channels": [2, 2], "hidden_size": 4}), "Plain", {"epochs": 1}, 0)
    store = Store(tmp_path)
    execute(run, store)
    record = store.read(run)
    assert set(record["more"]) == {"delta 0", "delta 0.5"}
    assert np.shape(record["more"]["delta 0.5"]) == np.shape(record["R"]) == (5, 5)
    assert len(record["best"]) == 5


def test_measures_of_small_and_missing_classes():
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 3.0, 0.0]])
    assert measures.recalls(logits, torch.tensor([0, 0, 1]), 3) == [0.5, 1.0, None]
    few = measures.dependence(torch.randn(5, 2), torch.randn(5, 1), torch.tensor([0, 0, 0, 0, 1]))
    assert isinstance(few["0"], float)
    assert few.get("1") is None
    gated = Gate(Hinges())
    assert measures.chain(gated) == [gated, gated.base, gated.base.base]
    images = [(torch.zeros(1), [1.0, 2.0], 1), (torch.zeros(1), [3.0, 4.0], 0)]
    confounders, labels = measures.test_rows(images)
    assert confounders.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert labels.tolist() == [1, 0]


# Killed


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_killed_run_goes_on_to_the_same_record(tiny, tmp_path, monkeypatch, after):
    run = tiny.make_run("R-MDN", also=("course",))
    whole, killed = Store(tmp_path / "whole"), Store(tmp_path / "killed")
    execute(run, whole)
    add, calls = measures.Course.add, []

    def dying(self, epoch, network):
        add(self, epoch, network)
        calls.append(epoch)
        if len(calls) == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(measures.Course, "add", dying)
    with pytest.raises(KeyboardInterrupt):
        execute(run, killed)
    assert not killed.done(run)
    assert killed.unfinished(run).exists()
    execute(run, killed)
    assert len(calls) == after + (4 if after < 3 else 2)  # the first stage, once it is learned, is not learned again
    assert without_clock(killed.read(run)) == without_clock(whole.read(run))
    assert not killed.unfinished(run).exists()
