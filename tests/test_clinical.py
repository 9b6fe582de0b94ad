"""Studies as problems: real data before stand-ins, a stand-in made once, and stages as the study has them."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from rmdn.data import ham10000
from rmdn.data.images import ImageDataset, Images
from rmdn.data.simulate import simulate_ham10000
from rmdn.data.simulate.ham10000 import patients
from rmdn.errors import SettingError
from rmdn.experiments import clinical, problems
from rmdn.experiments.run import make

STAND_IN = {"n": 200, "seed": 0, "size": [24, 18]}
ARGUMENTS = {"size": [16, 16]}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache of this file's own, and no real data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("RMDN_HAM10000", raising=False)
        yield


@pytest.fixture(scope="module")
def stand_in(cache):
    recipe = clinical.recipe("ham10000", ARGUMENTS, STAND_IN)
    return problems.make(recipe.name, recipe.arguments)


@pytest.fixture(scope="module")
def download(cache, tmp_path_factory):
    """Files as a download has them: nothing in them says that they are simulated."""
    folder = tmp_path_factory.mktemp("data") / "real"
    simulate_ham10000(folder, **{**STAND_IN, "seed": 1})
    (folder / "STAND-IN.json").unlink()
    patients(200, 1).drop(columns="true_age").to_csv(folder / "HAM10000_metadata.csv", index=False)
    return folder


@pytest.fixture
def tiny(cache, tmp_path, monkeypatch):
    """An empty cache for a single test, and a way to simulate that counts its calls."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    def simulate(folder, **numbers):
        calls.append(numbers)
        folder.mkdir()
        (folder / "data").write_text(json.dumps(numbers))

    return calls, simulate


def key(recipe):
    return make(recipe, recipe, "Plain", {}, 0).key


def test_problem_has_the_studys_stages_and_classes(stand_in):
    rows = [len(labels) for stage in stand_in.stages for _, _, labels in (stage.train, stage.test)]
    assert [stage.name for stage in stand_in.stages] == [f"stage {k}" for k in range(1, 6)]
    assert sum(rows) == 200  # each image once
    assert (stand_in.num_classes, stand_in.num_confounders, stand_in.in_channels) == (7, 1, 3)
    assert stand_in.image_size == (16, 16)
    for stage in stand_in.stages:
        for images, confounders, labels in (stage.train, stage.test):
            assert images.shape == (len(labels), 3, 16, 16)
            assert confounders.shape == (len(labels), 1)
            assert labels.min() >= 0
            assert labels.max() < 7


def test_later_stages_are_older(stand_in):
    means = [float(stage.train[1].mean()) for stage in stand_in.stages]
    assert means == sorted(means)


def test_problem_is_the_adapters_study(stand_in):
    study = ham10000.load(clinical.folder("ham10000", STAND_IN, simulate_ham10000), images=Images(size=(16, 16)))
    for i, stage in enumerate(stand_in.stages):
        for ours, dataset in zip((stage.train, stage.test), study.datasets(i), strict=True):
            for row in (0, len(dataset) - 1):
                for part, expected in zip(ours, dataset[row], strict=True):
                    torch.testing.assert_close(part[row], expected)


def test_split_can_be_the_papers(stand_in):
    recipe = clinical.recipe("ham10000", {**ARGUMENTS, "split": "random"}, STAND_IN)
    other = problems.make(recipe.name, recipe.arguments)
    assert not torch.equal(other.stages[0].test[0], stand_in.stages[0].test[0])


def test_stand_in_is_said(stand_in):
    assert "stand-in" in stand_in.stand_in
    assert "HAM10000" in stand_in.stand_in


def test_real_data_win(download, monkeypatch):
    before = key(clinical.recipe("ham10000", ARGUMENTS, STAND_IN))
    monkeypatch.setenv("RMDN_HAM10000", str(download))
    recipe = clinical.recipe("ham10000", ARGUMENTS, STAND_IN)
    problem = problems.make(recipe.name, recipe.arguments)
    assert problem.stand_in == ""
    assert key(recipe) != before
    assert clinical.folder("ham10000", None, simulate_ham10000) == download


def test_the_path_is_no_part_of_the_key(monkeypatch):
    monkeypatch.setenv("RMDN_HAM10000", "one/place")
    one = clinical.recipe("ham10000", ARGUMENTS, STAND_IN)
    monkeypatch.setenv("RMDN_HAM10000", "another")
    assert key(one) == key(clinical.recipe("ham10000", ARGUMENTS, {"n": 1}))


@pytest.mark.parametrize("given", ["", "nowhere"])
def test_run_of_real_data_needs_the_folder(monkeypatch, given):
    monkeypatch.setenv("RMDN_HAM10000", given)
    with pytest.raises(SettingError, match="is no folder"):
        problems.make("ham10000", {"stand_in": None})


def test_a_stand_in_cannot_pass_for_real_data(stand_in, monkeypatch):
    folder = clinical.folder("ham10000", STAND_IN, simulate_ham10000)
    monkeypatch.setenv("RMDN_HAM10000", str(folder))
    with pytest.raises(SettingError, match="is a stand-in"):
        problems.make("ham10000", {"stand_in": None})


def test_stand_in_is_simulated_once(tiny):
    calls, simulate = tiny
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(lambda _: clinical.folder("ham10000", {"n": 3}, simulate), range(4)))
    assert len(set(folders)) == 1
    assert calls == [{"n": 3}]
    assert clinical.folder("ham10000", {"n": 4}, simulate) not in folders


def test_other_code_makes_another_stand_in(tiny, monkeypatch):
    calls, simulate = tiny
    first = clinical.folder("ham10000", {"n": 3}, simulate)
    monkeypatch.setattr(clinical, "code_of", lambda module: f"new {module}")
    assert clinical.folder("ham10000", {"n": 3}, simulate) != first
    assert len(calls) == 2


def test_failed_simulation_leaves_nothing(tiny):
    _, simulate = tiny

    def fails(folder, **numbers):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        clinical.folder("ham10000", {"n": 3}, fails)
    assert (clinical.folder("ham10000", {"n": 3}, simulate) / "data").exists()


def test_large_or_moving_images_are_read_one_by_one(stand_in, monkeypatch):
    folder = clinical.folder("ham10000", STAND_IN, simulate_ham10000)
    study = ham10000.load(folder, images=Images(size=(16, 16)))
    moving = clinical.problem_of(replace(study, images=replace(study.images, augment=lambda image: image + 1)))
    assert isinstance(moving.stages[0].train, ImageDataset)
    assert isinstance(moving.stages[0].test, tuple)
    monkeypatch.setattr(clinical, "IN_MEMORY", 1000)
    large = clinical.problem_of(study)
    assert isinstance(large.stages[0].test, ImageDataset)
    assert (large.image_size, large.in_channels, large.num_confounders) == ((16, 16), 3, 1)


def test_patients_are_those_of_the_stand_in(stand_in):
    folder = clinical.folder("ham10000", STAND_IN, simulate_ham10000)
    written = ham10000.read_rows(folder)
    table = patients(200, 0)
    for name in ("image_id", "lesion_id", "dx"):
        assert list(written[name]) == list(table[name])
    assert written["age"].isna().sum() == table["age"].isna().sum()
