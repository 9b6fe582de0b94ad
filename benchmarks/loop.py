"""The training loop's own cost over bare forward + backward + step, and two DDP ranks against one process.

Aims: at most 5 % at batch 128 and 15 % at batch 16; two ranks at least 0.9 of one process with two threads.
The comparison with a plain research loop (published B x B layer, a Dataset of single samples, metrics in numpy; aim:
5 times) belongs here too, once it can use the layer: `research_loop` below is its place.

    python benchmarks/loop.py [overhead | own | ddp]
"""

import statistics
import sys
import time
from itertools import pairwise

import torch
import torch.nn.functional as F

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


def research_loop():
    """The same epochs as research code usually writes them; side by side with `train`, same results within noise."""
    raise NotImplementedError("to be written when the published layer stands in layers/")


if __name__ == "__main__":
    known = {"overhead": overhead, "own": own, "ddp": ddp}
    for name in sys.argv[1:] or known:
        known[name]()
