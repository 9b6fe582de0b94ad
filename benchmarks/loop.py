"""The training loop's own cost over bare forward + backward + step, and two DDP ranks against one process.

Aims: at most 5 % at batch 128 and 15 % at batch 16; two ranks at least 0.9 of one process with two threads.
And data set 3 with R-MDN, all evaluations included, against the same epochs in a loop as research code usually is (the
published B x B layer, a Dataset of single samples, predictions to numpy after every epoch); aim: 5 times.

    python benchmarks/loop.py [overhead | own | ddp | research]
"""

import statistics
import sys
import time
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import rmdn
from rmdn.data import synthetic
from rmdn.models import CNN2d
from rmdn.strategies import Outcome, Strategy
from rmdn.training import Settings, train

ROUNDS = 7


def bare_epochs(stage, batch_size, epochs):
    """Processor seconds of each epoch of nothing but forward, backward and step, on batches that lie ready."""
    torch.manual_seed(0)
    network = CNN2d().train()
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-4, fused=True)
    images, _, labels = stage.train.tensors()
    batches = list(zip(images.split(batch_size), labels.split(batch_size), strict=True))
    clock = [time.process_time()]
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(network(x), y).backward()
            optimizer.step()
        clock.append(time.process_time())
    return [after - before for before, after in pairwise(clock)]


def loop_epochs(stage, batch_size, epochs, strategy=None):
    torch.manual_seed(0)
    clock = []
    settings = Settings(epochs=epochs, batch_size=batch_size)
    train(CNN2d(), [stage], strategy, settings, on_epoch=lambda *_: clock.append(time.process_time()))
    return [after - before for before, after in pairwise(clock)]


def overhead():
    """One thread, and processor time, so that what else the machine does counts little; the two take turns."""
    torch.set_num_threads(1)
    stage = synthetic.static(256)
    print(f"one thread, processor time; median of the least milliseconds a step in each of {ROUNDS} turns")
    print(f"{'batch':>6}{'bare':>9}{'loop':>9}{'overhead':>10}{'aim':>7}")
    for batch_size, aim in ((128, 0.05), (16, 0.15)):
        turns = [
            (min(bare_epochs(stage, batch_size, 5)[1:]), min(loop_epochs(stage, batch_size, 5))) for _ in range(ROUNDS)
        ]
        bare, loop = (1e3 * statistics.median(column) * batch_size / 512 for column in zip(*turns, strict=True))
        more = statistics.median(b / a for a, b in turns) - 1
        print(f"{batch_size:6}{bare:9.2f}{loop:9.2f}{more:10.1%}{aim:7.0%}", flush=True)


class Idle(Strategy):
    """A step that does nothing but give an outcome: what is left is the loop's own."""

    def step(self, network, batch, optimizer, backward):
        return Outcome(torch.zeros(()), batch.confounders.expand(-1, 2))


def own():
    """The loop's own processor time a batch, the taking of its rows from the whole included."""
    torch.set_num_threads(1)
    for batch_size in (128, 16):
        spent = statistics.median(loop_epochs(synthetic.static(256), batch_size, 20, Idle())) * batch_size / 512
        print(f"batch {batch_size}: the loop itself takes {1e6 * spent:.0f} microseconds a step")


def ranked(fabric, threads):
    """Samples a second of this process, or of all ranks together."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    history = train(CNN2d(), [synthetic.static(256)], settings=Settings(epochs=6), fabric=fabric).history
    return 512 / statistics.median(epoch.seconds for epoch in history[1:])


def ddp():
    from lightning.fabric import Fabric

    print("samples a second, batch 128 (in all); one process with two threads, two ranks of one thread; aim 0.9")
    ratios = []
    for _ in range(3):
        one = ranked(Fabric(accelerator="cpu", devices=1), 2)
        two = Fabric(accelerator="cpu", devices=2, strategy="ddp_fork").launch(ranked, 1)
        ratios.append(two / one)
        print(f"{one:9.0f}{two:9.0f}{two / one:8.2f}")
    print(f"median {statistics.median(ratios):.2f}")


class Published(nn.Module):
    """The layer as its authors published it: raw columns, a B x B inverse in float32, P a plain attribute."""

    def __init__(self, features):
        super().__init__()
        self.P, self.beta = torch.eye(3), torch.zeros(3, features)

    def forward(self, z, X):
        shape, z = z.shape, z.flatten(1)
        if self.training:
            with torch.no_grad():
                V = self.P @ X.mT
                K = V @ torch.linalg.inv(torch.eye(len(X)) + X @ V)  # (p, B)
                self.beta = self.beta + K @ (z - X @ self.beta)
                self.P = self.P - K @ V.mT + 1e-4 * torch.eye(3)
        return (z - X[:, 1:] @ self.beta[1:]).view(shape)


class PublishedCNN(CNN2d):
    """The paper's network with the published layer behind both convolutions and the pre-logits layer."""

    def __init__(self):
        super().__init__()
        self.after = nn.ModuleList([Published(16 * 28 * 28), Published(32 * 24 * 24), Published(84)])

    def forward(self, x, X):
        x = F.relu(self.after[0](self.conv1(x), X))
        x = F.relu(self.after[1](self.conv2(x), X))
        return self.fc2(F.relu(self.after[2](self.fc1(x.flatten(1)), X)))


class Single(Dataset):
    """One sample at a time."""

    def __init__(self, images, confounders, labels):
        self.images, self.confounders, self.labels = images.numpy(), confounders.numpy(), labels.numpy()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]), torch.tensor(self.confounders[i]), torch.tensor(self.labels[i])


def research_loop(stages, epochs):
    """R (stages, stages) as research code finds it."""
    torch.manual_seed(0)
    network = PublishedCNN()
    trains = [DataLoader(Single(*stage.train.tensors()), 128, shuffle=True) for stage in stages]
    tests = [DataLoader(Single(*stage.test.tensors()), 128) for stage in stages]
    R = np.zeros((len(stages), len(stages)))
    for i, loader in enumerate(trains):
        optimizer = torch.optim.Adam(network.parameters(), lr=5e-4)
        for _ in range(epochs):
            network.train()
            predictions, labels = [], []
            for x, c, y in loader:
                X = torch.cat([y[:, None].float(), c, torch.ones(len(y), 1)], dim=1)
                logits = network(x, X)
                loss = F.cross_entropy(logits, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                predictions.append(logits.argmax(1).detach().cpu().numpy())
                labels.append(y.cpu().numpy())
            (np.concatenate(predictions) == np.concatenate(labels)).mean()
            R[i] = [accuracy_in_numpy(network, test) for test in tests]
    return R


@torch.no_grad()
def accuracy_in_numpy(network, loader):
    network.eval()
    right = [
        (network(x, torch.cat([torch.zeros(len(y), 1), c, torch.ones(len(y), 1)], dim=1)).argmax(1).numpy() == y.numpy())
        for x, c, y in loader
    ]
    return np.concatenate(right).mean()


def ours(stages, epochs):
    torch.manual_seed(0)
    places = {"at": ["conv1", "conv2", "fc1"], "num_confounders": 1, "num_classes": 2}
    model = rmdn.deconfound(CNN2d(), sample=stages[0].train.images[:2], inplace=True, **places)
    return train(model, stages, settings=Settings(epochs=epochs)).R.numpy()


def research(epochs=2):
    torch.set_num_threads(2)
    stages = synthetic.continual(3)
    print(f"data set 3, 5 stages of {epochs} epochs, all evaluations; seconds on two threads; aim 5 times")
    for _ in range(2):
        times, results = [], []
        for contestant in (ours, research_loop):
            clock = time.perf_counter()
            results.append(contestant(stages, epochs))
            times.append(time.perf_counter() - clock)
        difference = np.abs(results[0] - results[1]).mean()
        ratio = times[1] / times[0]
        print(f"ours {times[0]:.1f}, research code {times[1]:.1f}: {ratio:.1f} times; R differs by {difference:.3f}")


if __name__ == "__main__":
    known = {"overhead": overhead, "own": own, "ddp": ddp, "research": research}
    for name in sys.argv[1:] or known:
        known[name]()
