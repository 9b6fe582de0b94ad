"""Two ranks learn what one process learns."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import rmdn
from rmdn.strategies import EWC, LwF, PackNet
from rmdn.training import Settings, train

SETTINGS = Settings(epochs=2, batch_size=16, lr=1e-2, optimizer="sgd", recalibration="stage", fused=False)


def make_stages():
    random = torch.Generator().manual_seed(0)

    def split(n):
        labels = torch.randint(2, (n,), generator=random)
        images = torch.randn(n, 1, 6, 6, generator=random) + labels.view(-1, 1, 1, 1)
        return images, torch.randn(n, 1, generator=random), labels

    return [SimpleNamespace(train=split(48), test=split(21)) for _ in range(2)]


def make_network(kind):
    torch.manual_seed(1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 2))
    if kind == "rmdn":
        return rmdn.deconfound(network, at=["1"], num_confounders=1, num_classes=2, sample=torch.randn(4, 1, 6, 6))
    return network


def run(fabric, kind, folder, make_strategy):
    """Train and, on the first rank, leave what came out in a file (a tensor does not outlive its process)."""
    torch.set_num_threads(1)
    network, name = make_network(kind), {"plain": "1", "rmdn": "network.1"}[kind]
    result = train(
        network, make_stages(), make_strategy(), SETTINGS, fabric=fabric, folder=folder, keep_logits=True, features=name
    )
    losses = torch.tensor([(epoch.loss, epoch.accuracy) for epoch in result.history])
    if fabric.is_global_zero:
        outcome = {"R": result.R, "losses": losses, "logits": result.logits[1, 1], "features": result.features[1, 1]}
        torch.save({**network.state_dict(), **outcome}, folder / "outcome.pt")


def ewc_lwf():
    return EWC(LwF(), samples=10, strength=10.0)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "make_strategy"), [("plain", ewc_lwf), ("plain", PackNet), ("rmdn", LwF)])
def test_two_ranks_learn_what_one_does(kind, make_strategy, tmp_path):
    from lightning.fabric import Fabric

    run(Fabric(accelerator="cpu", devices=1), kind, tmp_path / "one", make_strategy)
    one = torch.load(tmp_path / "one" / "outcome.pt")
    for _ in range(2):  # the second time, all comes from the checkpoint
        fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp_fork")
        fabric.launch(run, kind, tmp_path / "two", make_strategy)
        two = torch.load(tmp_path / "two" / "outcome.pt")
        for name, value in one.items():
            torch.testing.assert_close(
                two[name], value, atol=1e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}"
            )
