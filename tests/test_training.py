"""The loop: what it computes, that a killed run goes on as if nothing had happened, and what it refuses."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import rmdn
from rmdn.data import synthetic
from rmdn.errors import InputError, PlacementError, SettingError, TrainingError
from rmdn.models import CNN2d, features
from rmdn.strategies import EWC, LwF, PackNet, Plain
from rmdn.training import Result, Settings, train
from rmdn.training.data import epoch_batches

SMALL = Settings(epochs=3, batch_size=16, lr=1e-2, eval_batch_size=32)


def with_(settings, **changes):
    return Settings(**{**vars(settings), **changes})


def make_stages(count=2, rows=40):
    random = torch.Generator().manual_seed(0)

    def split(n):
        labels = torch.arange(n) % 2
        return torch.randn(n, 1, 8, 8, generator=random) + labels.view(-1, 1, 1, 1), torch.randn(n, 1), labels

    torch.manual_seed(0)
    return [SimpleNamespace(train=split(rows), test=split(22), name=f"year {i}") for i in range(count)]


def make_network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))


def make_deconfounded():
    return rmdn.deconfound(make_network(), at=["1"], num_confounders=1, num_classes=2, sample=torch.randn(4, 1, 8, 8))


def same_weights(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


# What it computes


def test_the_loop_is_the_bare_loop():
    """Forward, backward, step over the same batches, by hand, with torch's own scheduler, fresh at each stage."""
    network, stages = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), make_stages()
    by_hand = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    by_hand.load_state_dict(network.state_dict())
    settings = with_(SMALL, epochs=4, decay=0.5, decay_every=2)
    losses, R = [], torch.zeros(2, 2, dtype=torch.float64)
    for i, stage in enumerate(stages):
        optimizer = torch.optim.Adam(by_hand.parameters(), lr=settings.lr)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        images, _, labels = stage.train
        for epoch in range(4):
            total = 0.0
            for rows in epoch_batches(40, settings, i, epoch):
                optimizer.zero_grad()
                loss = F.cross_entropy(by_hand(images[rows]), labels[rows])
                loss.backward()
                optimizer.step()
                total += loss.item() * len(rows)
            schedule.step()
            losses.append(total / 40)
        for j, other in enumerate(stages):
            R[i, j] = (by_hand(other.test[0]).argmax(1) == other.test[2]).double().mean()
    result = train(network, stages, settings=settings)
    for ours, theirs in zip(network.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)  # the fused step rounds otherwise
    np.testing.assert_allclose([epoch.loss for epoch in result.history], losses, rtol=1e-4)
    torch.testing.assert_close(result.R, R)
    assert result.names == ["year 0", "year 1"]


def test_it_learns_the_synthetic_continuum():
    stages = synthetic.continual(1, 128)[:2]
    torch.manual_seed(0)
    settings = Settings(epochs=6, batch_size=32, lr=5e-3)
    result = train(CNN2d(channels=(4, 8), hidden_size=16), stages, settings=settings)
    assert result.R.min() > 0.6
    assert result.history[-1].loss < 0.6
    assert result.history[-1].accuracy > 0.7


def test_logits_and_features_on_request_are_those_of_the_network():
    network, stages = make_network(), make_stages()
    result = train(network, stages, settings=SMALL, keep_logits=True, features="1")
    network.eval()
    for j, stage in enumerate(stages):
        torch.testing.assert_close(result.logits[1, j], network(stage.test[0]).detach())
        torch.testing.assert_close(result.features[1, j], features(network, "1", stage.test[0]))
        accuracy = (result.logits[1, j].argmax(1) == stage.test[2]).double().mean()
        assert result.R[1, j] == accuracy
    assert not train(make_network(), stages, settings=SMALL).logits


def test_unknown_features_are_refused_with_the_names_there_are():
    with pytest.raises(PlacementError, match="did you mean"):
        train(make_network(), make_stages(1), settings=SMALL, features="fc9")


class Items(Dataset):
    def __init__(self, tensors):
        self.tensors_ = tensors

    def __len__(self):
        return len(self.tensors_[2])

    def __getitem__(self, i):
        image, confounder, label = (part[i] for part in self.tensors_)
        return image, confounder.tolist()[0], int(label)


def test_a_dataset_gives_what_its_tensors_give():
    stages, networks = make_stages(), [make_network() for _ in range(3)]
    kinds = [lambda split: split, lambda split: Items(split), lambda split: TensorDataset(*split)]
    for network, kind in zip(networks, kinds, strict=True):
        train(network, [SimpleNamespace(train=kind(s.train), test=kind(s.test)) for s in stages], settings=SMALL)
    assert same_weights(networks[0], networks[1])
    assert same_weights(networks[0], networks[2])


def test_the_seed_decides():
    networks = [make_network() for _ in range(3)]
    for network, seed in zip(networks, (5, 5, 6), strict=True):
        train(network, make_stages(1), settings=with_(SMALL, seed=seed))
    assert same_weights(networks[0], networks[1])
    assert not same_weights(networks[0], networks[2])


def test_the_callers_random_numbers_stay():
    network, stages = make_network(), make_stages(1)
    state = torch.get_rng_state()
    train(network, stages, settings=SMALL)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("recalibration", ["never", "stage", 2])
def test_recalibration_comes_when_it_is_due(recalibration, monkeypatch):
    seen = []
    monkeypatch.setattr(rmdn, "recalibrate", lambda model, batches, exact: seen.append(sum(1 for _ in batches)))
    train(make_deconfounded(), make_stages(), settings=with_(SMALL, epochs=5, recalibration=recalibration))
    per_stage = {"never": 0, "stage": 1, 2: 3}[recalibration]  # every 2 of 5 epochs, and at the end
    assert seen == [2] * (2 * per_stage)  # 40 rows are two batches of at most 32


def test_recalibration_makes_the_features_orthogonal():
    """Right after it, over the training rows, the layer's output does not go along with the confounder."""
    stages, network = make_stages(1, rows=200), make_deconfounded()
    train(network, stages, settings=with_(SMALL, recalibration="stage"))
    images, confounders, labels = stages[0].train
    z = features(network.eval(), "network.1", images, confounders=confounders).double()
    X = torch.cat([labels[:, None].double(), confounders.double(), torch.ones(200, 1).double()], dim=1)
    beta = torch.linalg.lstsq(X, z).solution
    assert beta[1].abs().max() < 1e-4 * z.abs().max()


# Settings


def test_schedules():
    run = Settings(epochs=4, lr=1.0, decay=0.5, decay_every=3, schedule_scope="run")
    stage = with_(run, schedule_scope="stage")
    assert [run.learning_rate(s, e, 4, 2) for s in range(2) for e in range(4)] == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]
    assert [stage.learning_rate(s, e, 4, 2) for s in range(2) for e in range(4)] == [1, 1, 1, 0.5] * 2
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    for epoch in range(8):
        ours = with_(run, schedule="cosine").learning_rate(epoch // 4, epoch % 4, 4, 2)
        assert ours == pytest.approx(cosine.get_last_lr()[0], abs=1e-9)
        optimizer.step()
        cosine.step()
    assert with_(run, schedule="constant").learning_rate(1, 3, 4, 2) == 1.0


def test_one_schedule_keeps_the_optimizer_too():
    networks = [make_network() for _ in range(2)]
    for network, scope in zip(networks, ("stage", "run"), strict=True):
        train(network, make_stages(), settings=with_(SMALL, schedule="constant", schedule_scope=scope))
    assert not same_weights(*networks)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_optimizers_are_torchs_with_the_settings(optimizer):
    built = Settings(optimizer=optimizer, lr=0.1, weight_decay=0.2, momentum=0.7).build_optimizer(make_network())
    assert type(built).__name__.lower() == optimizer
    assert built.defaults["lr"] == 0.1
    assert built.defaults["weight_decay"] == 0.2
    assert built.defaults.get("momentum", 0.7) == 0.7
    assert built.defaults["fused"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"optimizer": "lion"},
        {"schedule": "linear"},
        {"recalibration": "often"},
        {"recalibration": 0},
        {"precision": "16"},
        {"seed": -1},
    ],
)
def test_wrong_settings_are_named(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        Settings(**wrong)


@given(rows=st.integers(1, 70), batch_size=st.integers(1, 20), world=st.integers(1, 4), drop=st.booleans())
def test_ranks_share_an_epoch(rows, batch_size, world, drop):
    settings = Settings(batch_size=max(batch_size, world), drop_last=drop)
    whole = epoch_batches(rows, settings, 1, 2)
    shares = [epoch_batches(rows, settings, 1, 2, rank, world) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    used = set()
    for step, parts in enumerate(zip(*shares, strict=True)):
        assert len({len(part) for part in parts}) == 1
        together = torch.cat(parts).tolist()
        assert set(together) <= set(whole[step].tolist())
        assert len(whole[step]) - len(together) < world
        assert not used & set(together)
        used |= set(together)
    assert sum(map(len, whole)) == (rows // settings.batch_size * settings.batch_size if drop else rows)


# Killed and resumed


class Killed(Exception):
    pass


def kill_at(stage, epoch):
    def on_epoch(record, network):
        if (record.stage, record.epoch) == (stage, epoch):
            raise Killed

    return on_epoch


@pytest.mark.parametrize("make_strategy", [Plain, lambda: EWC(LwF(), samples=10), PackNet])
@pytest.mark.parametrize("scope", ["stage", "run"])
def test_a_killed_run_ends_as_a_whole_one(tmp_path, make_strategy, scope):
    settings = with_(SMALL, schedule_scope=scope, decay_every=2, recalibration="stage")
    keep = {"settings": settings, "keep_logits": True, "features": "network.1"}
    whole, resumed = make_deconfounded(), make_deconfounded()
    expected = train(whole, make_stages(), make_strategy(), **keep)
    dying = {**keep, "folder": tmp_path, "checkpoint_minutes": 0, "on_epoch": kill_at(1, 1)}
    with pytest.raises(Killed):
        train(make_deconfounded(), make_stages(), make_strategy(), **dying)
    got = train(resumed, make_stages(), make_strategy(), folder=tmp_path, **keep)
    assert same_weights(whole, resumed)
    assert torch.equal(expected.R, got.R)
    assert [(e.loss, e.accuracy, e.lr) for e in expected.history] == [(e.loss, e.accuracy, e.lr) for e in got.history]
    assert all(torch.equal(expected.logits[key], got.logits[key]) for key in expected.logits)
    assert all(torch.equal(expected.features[key], got.features[key]) for key in expected.features)


def test_a_killed_run_on_a_dataset_ends_as_a_whole_one(tmp_path):
    stages = [SimpleNamespace(train=Items(stage.train), test=stage.test) for stage in make_stages()]
    whole, resumed = make_network(), make_network()
    train(whole, stages, settings=SMALL)
    with pytest.raises(Killed):
        train(make_network(), stages, settings=SMALL, folder=tmp_path, checkpoint_minutes=0, on_epoch=kill_at(1, 1))
    train(resumed, stages, settings=SMALL, folder=tmp_path)
    assert same_weights(whole, resumed)


def test_a_finished_run_is_not_run_again(tmp_path):
    first = train(make_network(), make_stages(), settings=SMALL, folder=tmp_path)
    network = make_network()
    again = train(network, make_stages(), settings=SMALL, folder=tmp_path, on_epoch=kill_at(0, 0))
    assert torch.equal(first.R, again.R)
    assert not list(tmp_path.glob(".*"))


def test_the_checkpoint_of_another_run_is_refused(tmp_path):
    train(make_network(), make_stages(), settings=SMALL, folder=tmp_path)
    with pytest.raises(SettingError, match=r"lr was 0\.01 and is 0\.02"):
        train(make_network(), make_stages(), settings=with_(SMALL, lr=0.02), folder=tmp_path)
    with pytest.raises(SettingError, match=r"strategy was 'Plain' and is 'EWC\(Strategy\)'"):
        train(make_network(), make_stages(), EWC(), SMALL, folder=tmp_path)
    with pytest.raises(SettingError, match="rows"):
        train(make_network(), make_stages(3), settings=SMALL, folder=tmp_path)


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    def torn(_fabric, path, _state):
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(Killed):
        train(make_network(), make_stages(), settings=SMALL, folder=tmp_path, on_epoch=kill_at(1, 1))
    before = (tmp_path / "checkpoint.pt").read_bytes()
    monkeypatch.setattr("lightning.fabric.Fabric.save", torn)
    with pytest.raises(OSError, match="disk full"):
        train(make_network(), make_stages(), settings=SMALL, folder=tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    resumed = train(make_network(), make_stages(), settings=SMALL, folder=tmp_path)
    assert torch.equal(resumed.R, train(make_network(), make_stages(), settings=SMALL).R)


SCRIPT = """
import os, signal, sys
from test_training import *
def kill(record, network):
    if sys.argv[2] == "kill" and (record.stage, record.epoch) == (1, 1):
        os.kill(os.getpid(), signal.SIGKILL)
network = make_deconfounded()
result = train(network, make_stages(), PackNet(EWC(samples=10)), SMALL, folder=sys.argv[1], checkpoint_minutes=0,
               on_epoch=kill)
torch.save([result.R, network.state_dict()], sys.argv[3])
"""


@pytest.mark.slow
def test_a_run_ended_by_sigkill_goes_on(tmp_path):
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parent / "src")])

    def run(folder, kill):
        out = tmp_path / f"{folder}.pt"
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / folder), kill, str(out)]
        code = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, timeout=100, check=False).returncode
        return code, out

    assert run("killed", "kill")[0] == -signal.SIGKILL
    resumed, whole = run("killed", "go on"), run("whole", "go on")
    assert resumed[0] == whole[0] == 0
    (R, state), (expected_R, expected) = (torch.load(path) for _, path in (resumed, whole))
    assert torch.equal(R, expected_R)
    assert all(torch.equal(state[name], expected[name]) for name in expected)


# Results on disk


def test_a_result_reads_back(tmp_path):
    result = train(make_network(), make_stages(), settings=SMALL, keep_logits=True, features="1")
    result.R[0, 1] = torch.nan
    result.save(tmp_path / "new")
    back = Result.load(tmp_path / "new")
    torch.testing.assert_close(back.R, result.R, equal_nan=True, rtol=0, atol=0)
    assert back.history == result.history
    assert back.names == result.names
    assert back.seconds == result.seconds
    for kind in ("logits", "features"):
        ours, theirs = getattr(back, kind), getattr(result, kind)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["result.json", "result.npz"]


def test_an_absent_result_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"result\.json"):
        Result.load(tmp_path)


# What it refuses, before anything is trained


def spoil(part, change):
    stage = make_stages(1)[0]
    tensors = list(stage.train)
    tensors[part] = change(tensors[part].clone())
    return [SimpleNamespace(train=tuple(tensors), test=stage.test)]


def nan_image(images):
    images[3, 0, 2, 2] = torch.nan
    return images


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([], "no stages"),
        (spoil(2, lambda y: y[:-1]), "39 labels"),
        (spoil(2, lambda y: y - 1), "negative"),
        (spoil(1, lambda c: c[..., None]), "number of confounders"),
        (spoil(0, nan_image), "image 3 holds NaN"),
        ([SimpleNamespace(train=(torch.ones(3),), test=None)], "three tensors"),
        ([SimpleNamespace(train=7, test=None)], "Dataset"),
    ],
)
def test_wrong_data_are_refused_before_training(stages, message):
    network, before = make_network(), make_network()
    with pytest.raises(InputError, match=message):
        train(network, stages, settings=SMALL)
    assert same_weights(network, before)


def test_a_batch_that_is_never_full_is_refused():
    with pytest.raises(SettingError, match="drop_last"):
        train(make_network(), make_stages(1), settings=with_(SMALL, batch_size=64, drop_last=True))


def test_a_fabric_that_contradicts_the_settings_is_refused():
    from lightning.fabric import Fabric

    with pytest.raises(SettingError, match="bf16-mixed"):
        train(make_network(), make_stages(1), settings=SMALL, fabric=Fabric(devices=1, precision="bf16-mixed"))


def test_bf16_trains():
    result = train(make_network(), make_stages(1), settings=with_(SMALL, epochs=6, precision="bf16-mixed"))
    assert result.R[0, 0] > 0.7


def test_a_loss_that_explodes_ends_the_run():
    stages = make_stages(1)
    stages[0].train[0].mul_(1e30)
    with pytest.raises(TrainingError, match="epoch 1"):
        train(make_network(), stages, settings=with_(SMALL, lr=1e20))


def test_bars_show_stage_epoch_loss_accuracy_where_asked_for(capsys):
    train(make_network(), make_stages(), settings=SMALL, progress=True)
    shown = capsys.readouterr().err
    assert "stage 2/2" in shown
    assert "epoch 3/3" in shown
    assert "loss" in shown
    assert "accuracy" in shown
    train(make_network(), make_stages(), settings=SMALL)
    assert capsys.readouterr().err == ""
