"""Several ranks keep one state: that of a single process on their joined batches."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import rmdn
import rmdn.distributed
from rmdn.errors import InputError, UsageError
from rmdn.layers.rmdn import MEMORY_PER_COLUMN
from small_model import kept, make_batch, make_model

CLOSE = {"rtol": 1e-6, "atol": 1e-9}
Batch = tuple[Tensor, Tensor, Tensor]


class Ranks:
    """Processes of one group; each call runs a function in all of them and returns what each gives."""

    def __init__(self, world: int, folder: Path) -> None:
        self.world = world
        self.processes = [
            ProcessPoolExecutor(1, get_context("spawn"), initializer=enter, initargs=(rank, world, str(folder / "store")))
            for rank in range(world)
        ]

    def outcomes(self, function: Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
        """Results, or the exceptions in their place; a hang is an error."""
        calls = [pool.submit(function, rank, self.world, *args, **options) for rank, pool in enumerate(self.processes)]
        return [call.exception(timeout=90) or call.result() for call in calls]

    def __call__(self, function: Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
        outcomes = self.outcomes(function, *args, **options)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return outcomes

    def close(self) -> None:
        for pool in self.processes:
            for process in list(pool._processes.values()):
                process.kill()  # also where one hangs
            pool.shutdown(wait=True, cancel_futures=True)


def enter(rank: int, world: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def ranks(request: Any, tmp_path_factory: Any) -> Iterator[Ranks]:
    processes = Ranks(request.param, tmp_path_factory.mktemp("ranks"))
    yield processes
    processes.close()


def shares(batch: Batch, sizes: list[int]) -> list[Batch]:
    """The batch's rows, so many to each rank."""
    return list(zip(*(part.split(sizes) for part in batch), strict=True))


def sizes_of(world: int, kind: str) -> list[int]:
    """How a batch of 12 falls to the ranks."""
    if kind == "even":
        return [12 // world] * world
    if kind == "uneven":
        return [12 - 2 * (world - 1)] + [2] * (world - 1)
    return [12 // (world - 1)] * (world - 1) + [0]  # "empty"


def features_batch(seed: int) -> Batch:
    _, c, y = make_batch(seed)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(12, 3, 5, generator=generator).double() + c[:, :1, None] / 10, c, y


KINDS = [["even"] * 6, ["even"] * 5 + ["uneven"], ["even"] * 5 + ["empty"], ["empty", "uneven"] * 3]


# The layer ------------------------------------------------------------------------------------------------------------


def learn(rank: int, world: int, kinds: list[str], options: dict[str, Any], reloaded: bool = False) -> Any:
    options = dict(options)
    make = partial(getattr(rmdn, options.pop("layer", "RMDN")), 2, 2, **options)
    layer, outputs = make(), []
    for seed, kind in enumerate(kinds):
        if reloaded and seed == 3:
            file = io.BytesIO()
            torch.save(layer.state_dict(), file)
            file.seek(0)
            layer = make()
            layer.load_state_dict(torch.load(file, weights_only=True))
        batch = features_batch(seed)
        outputs.append(layer(*(shares(batch, sizes_of(world, kind))[rank] if world > 1 else batch)))
    return layer.state_dict(), outputs


OPTIONS = [
    {},
    {"share": "spatial", "gradient": "projected"},
    {"standardize": False, "forgetting": 0.99, "regularization": 1e-2},
    {"layer": "PMDN"},
]


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("reloaded", [False, True])
def test_ranks_keep_the_state_of_the_joined_batch(
    ranks: Ranks, kinds: list[str], options: dict[str, Any], reloaded: bool
) -> None:
    expected, outputs = learn(0, 1, kinds, options)
    for rank, (state, ours) in enumerate(ranks(learn, kinds, options, reloaded)):
        torch.testing.assert_close(state, expected, **CLOSE)
        for kind, whole, part in zip(kinds, outputs, ours, strict=True):
            torch.testing.assert_close(part, whole.split(sizes_of(ranks.world, kind))[rank], **CLOSE)


def apart(rank: int, world: int, parallel: bool) -> dict[str, Tensor]:
    model = make_model(sync=False)
    call = DistributedDataParallel(model) if parallel else model
    for seed in range(3):
        x, c, y = make_batch(100 * rank + seed, 6)
        call(x, confounders=c, labels=y).sum().backward()
    return {name: value for name, value in model.state_dict().items() if name.startswith("layers")}


@pytest.mark.parametrize("parallel", [False, True])
def test_without_sync_states_stay_apart(ranks: Ranks, parallel: bool) -> None:
    for rank, state in enumerate(ranks(apart, parallel)):
        alone = apart(rank, 1, False)
        torch.testing.assert_close(state, alone, rtol=1e-6, atol=1e-6)


def project(rank: int, world: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The gradient of the last batch's features, the same written plainly, and the state."""
    layer = rmdn.RMDN(2, 2, gradient="projected", standardize=False, epsilon=1e12)
    flow, weight = torch.zeros(4, 15, dtype=torch.float64), 0.0
    for seed in range(5):
        z, c, y = shares(features_batch(seed), sizes_of(world, "uneven"))[rank]
        z.requires_grad_()
        upstream = torch.arange(1, z.numel() + 1).view(z.shape).double().sin()
        (layer(z, c, y) * upstream).sum().backward()
        X = torch.cat([y[:, None].double(), c.double(), torch.ones(len(y), 1)], dim=1)
        share = len(y) / (len(y) + MEMORY_PER_COLUMN * 4)
        flow = (1 - share) * flow + share * X.T @ upstream.flatten(1)  # of this rank's own rows
        weight = (1 - share) * weight + share
    assert z.grad is not None
    return z.grad, g_without(X, upstream, flow / weight, layer.recent), layer.state_dict()


def g_without(X: Tensor, g: Tensor, flow: Tensor, recent: Tensor) -> Tensor:
    """g - X M^-1 S E[X'g] / B, written plainly."""
    M = recent[:-1] / recent[-1, 0]
    S = torch.diag(torch.tensor([0.0, 1, 1, 1]).double())
    return g - (X @ torch.linalg.solve(M, S @ flow) / len(X)).view(g.shape)


def test_projected_gradients_use_the_joined_second_moment(ranks: Ranks) -> None:
    expected, _ = learn(0, 1, ["even"] * 5, {"gradient": "projected", "standardize": False, "epsilon": 1e12})
    for gradient, plainly, state in ranks(project):
        torch.testing.assert_close(state["recent"], expected["recent"], **CLOSE)
        torch.testing.assert_close(gradient, plainly, rtol=1e-5, atol=1e-8)


# A batch that does not fit --------------------------------------------------------------------------------------------


def spoiled(batch: Batch, fault: str) -> Batch:
    z, c, y = (part.clone() for part in batch)
    if fault == "NaN confounder":
        c[0, 1] = torch.nan
    elif fault == "stray label":
        y[-1] = 2
    elif fault == "NaN feature":
        z[1, 0, 0] = torch.nan
    elif fault == "other shape":
        z = z[:, :, :4]
    else:
        c = c[:1]
    return z, c, y


def stumble(rank: int, world: int, fault: str, batches: int, sampled: bool, options: dict[str, Any]) -> Any:
    layer = rmdn.RMDN(2, 2, **options)
    if sampled:
        layer.adopt(features_batch(0)[0])
    parts = [shares(features_batch(seed), sizes_of(world, "even"))[rank] for seed in range(batches + 2)]
    for part in parts[:batches]:
        layer(*part)
    before, message = kept(layer), ""
    try:
        layer(*(spoiled(parts[batches], fault) if rank == world - 1 else parts[batches]))
    except InputError as error:
        message = str(error)
    after = kept(layer)
    layer(*parts[batches + 1])
    return message, before, after, kept(layer)


FAULTS = ["NaN confounder", "stray label", "NaN feature", "too few confounders"]


@pytest.mark.parametrize(("fault", "batches"), [("other shape", 3), *product(FAULTS, [0, 3])])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("options", [{}, {"standardize": False}], ids=str)
def test_a_bad_batch_on_one_rank_raises_on_all_and_changes_nothing(
    ranks: Ranks, fault: str, batches: int, sampled: bool, options: dict[str, Any]
) -> None:
    outcomes = ranks(stumble, fault, batches, sampled, options)
    layer = rmdn.RMDN(2, 2, **options)
    for seed in [*range(batches), batches + 1]:
        layer(*features_batch(seed))
    for rank, (message, before, after, trained_on) in enumerate(outcomes):
        assert ("another rank" in message) == (rank < ranks.world - 1), message
        torch.testing.assert_close(after, before, rtol=0, atol=0)
        torch.testing.assert_close(trained_on, kept(layer), **CLOSE)


# DistributedDataParallel ----------------------------------------------------------------------------------------------


def train(rank: int, world: int, options: dict[str, Any], reentrant: bool | None = None, accumulate: int = 1) -> Any:
    """Plain SGD in float64, under DDP with its defaults where there are several ranks."""
    model = make_model(reentrant, **options).double()
    model.network.drop.p = 0.0
    call: Any = DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for seed in range(6):
        x, c, y = make_batch(seed)
        if world > 1:
            x, c, y = shares((x, c, y), sizes_of(world, "even"))[rank]
        last = seed % accumulate == accumulate - 1

        def passes(x: Tensor = x, c: Tensor = c, y: Tensor = y) -> None:
            out = call(x.double().requires_grad_(), confounders=c, labels=y)
            nn.functional.cross_entropy(out, y).backward()

        if last or world == 1:
            passes()
        else:
            with call.no_sync():
                passes()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    return model.state_dict()


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("reentrant", [None, False, True])
def test_ddp_equals_one_process(ranks: Ranks, accumulate: int, reentrant: bool | None) -> None:
    expected = train(0, 1, {}, accumulate=accumulate)
    for state in ranks(train, {}, reentrant, accumulate):
        torch.testing.assert_close(state, expected, **CLOSE)


@pytest.mark.parametrize("reentrant", [False, True])
def test_projected_gradients_under_ddp_and_checkpointing(ranks: Ranks, reentrant: bool) -> None:
    plain = ranks(train, {"gradient": "projected"})
    checkpointed = ranks(train, {"gradient": "projected"}, reentrant)
    for state, unchecked in zip(checkpointed, plain, strict=True):
        torch.testing.assert_close(state, unchecked, **CLOSE)
    shared = [{name: value for name, value in state.items() if not name.endswith(".flow")} for state in plain]
    for state in shared[1:]:  # the running mean of X'g is each rank's own between two forward passes
        torch.testing.assert_close(state, shared[0], **CLOSE)
    constant = train(0, 1, {})
    assert not torch.allclose(plain[0]["network.conv.weight"], constant["network.conv.weight"], rtol=1e-4)


def run_out(rank: int, world: int) -> dict[str, Tensor]:
    """The last rank has fewer batches than the others; it takes part with empty ones until they are through."""
    model = make_model().double()
    model.network.drop.p = 0.0
    parallel = DistributedDataParallel(model)
    for seed in range(4):
        x, c, y = shares(make_batch(seed), sizes_of(world, "even"))[rank]
        if rank == world - 1 and seed >= 2:
            x, c, y = x[:0], c[:0], y[:0]
        loss = nn.functional.cross_entropy(parallel(x.double(), confounders=c, labels=y), y, reduction="sum")
        loss.backward()
    return {**model.state_dict(), "grad": model.network.conv.weight.grad}


def test_a_rank_without_batches_takes_part_with_empty_ones(ranks: Ranks) -> None:
    model = make_model().double()
    model.network.drop.p = 0.0
    for seed in range(4):
        parts = shares(make_batch(seed), sizes_of(ranks.world, "even"))
        x, c, y = (torch.cat(part) for part in zip(*(parts[:-1] if seed >= 2 else parts), strict=True))
        out = model(x.double(), confounders=c, labels=y)
        (nn.functional.cross_entropy(out, y, reduction="sum") / ranks.world).backward()  # DDP takes the mean
    expected = {**model.state_dict(), "grad": model.network.conv.weight.grad}
    for state in ranks(run_out):
        torch.testing.assert_close(state, expected, **CLOSE)


def joined(rank: int, world: int, batches: list[int], sampled: bool, backwards: bool) -> dict[str, Tensor]:
    """Each rank has its own number of batches, in a float64 model under join."""
    model = make_model(backwards=backwards, sample=make_batch(0)[0] if sampled else None).double()
    model.network.drop.p = 0.0
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if not sampled:
        x, c, y = shares(make_batch(99), sizes_of(world, "even"))[rank]
        parallel(x.double(), confounders=c, labels=y).sum().backward()
    with rmdn.distributed.join(parallel):
        for seed in range(batches[rank]):
            optimizer.zero_grad()
            x, c, y = shares(make_batch(seed), sizes_of(world, "even"))[rank]
            out = parallel(x.double(), confounders=c, labels=y)
            nn.functional.cross_entropy(out, y, reduction="sum").backward()
            optimizer.step()
    x, c, y = shares(make_batch(50), sizes_of(world, "even"))[rank]  # and on, without the join
    parallel(x.double(), confounders=c, labels=y)
    return model.state_dict()


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("batches", [[4, 2], [0, 3], [3, 3]], ids=str)
@pytest.mark.parametrize("backwards", [True, False])
def test_a_rank_that_runs_out_of_batches_joins(ranks: Ranks, batches: list[int], sampled: bool, backwards: bool) -> None:
    world = ranks.world
    own = [batches[rank % 2] for rank in range(world)]
    states = ranks(joined, own, sampled, backwards)
    for state in states[1:]:
        torch.testing.assert_close(state, states[0], **CLOSE)
    model = make_model(sample=make_batch(0)[0] if sampled else None).double()
    model.network.drop.p = 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for seed in ([] if sampled else [99]) + [*range(max(own)), 50]:
        parts = shares(make_batch(seed), sizes_of(world, "even"))
        present = [part for part, count in zip(parts, own, strict=True) if seed >= 50 or count > seed]
        x, c, y = (torch.cat(part) for part in zip(*present, strict=True))
        out = model(x.double(), confounders=c, labels=y)
        if seed < 50:
            optimizer.zero_grad()
            (nn.functional.cross_entropy(out, y, reduction="sum") / world).backward()
            optimizer.step()
    torch.testing.assert_close(states[0], dict(model.state_dict()), **CLOSE)


def join_too_early(rank: int, world: int) -> None:
    parallel = DistributedDataParallel(make_model())
    with rmdn.distributed.join(parallel):
        pass


def test_join_asks_for_the_layers_shapes_first(ranks: Ranks) -> None:
    for outcome in ranks.outcomes(join_too_early):
        assert isinstance(outcome, UsageError)
        assert "sample=" in str(outcome)
    with pytest.raises(UsageError, match="expected a DistributedDataParallel"), rmdn.distributed.join(make_model()):
        pass


# Recalibration --------------------------------------------------------------------------------------------------------


def recalibrated(rank: int, world: int, trained: bool, fault: bool = False) -> Any:
    model = make_model().double()
    if trained:
        for seed in range(3):
            x, c, y = shares(make_batch(seed), sizes_of(world, "even"))[rank]
            model(x.double(), confounders=c, labels=y)
    before = kept(model)
    batches = [make_batch(seed, 7) for seed in range(10, 19)]
    own = [(x.double(), c, y) for x, c, y in batches][rank::world]  # more for the first rank than for the last
    if fault and rank == world - 1:
        own[1][1][3] = torch.nan
    try:
        rmdn.recalibrate(model, own)
    except InputError as error:
        return str(error), before, kept(model)
    return "", before, kept(model)


@pytest.mark.parametrize("trained", [True, False])
def test_recalibration_over_ranks_equals_one_process(ranks: Ranks, trained: bool) -> None:
    _, _, expected = recalibrated(0, 1, trained)
    x, c, _ = make_batch(30)
    outputs = []
    for state in [expected, *(after for _, _, after in ranks(recalibrated, trained))]:
        model = make_model().double().eval()
        model.load_state_dict(state)
        outputs.append(model(x.double(), confounders=c))
        assert model.layers["conv"].seen == 63
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0], **CLOSE)


@pytest.mark.parametrize("trained", [True, False])
def test_a_bad_batch_in_recalibration_raises_on_all_and_changes_nothing(ranks: Ranks, trained: bool) -> None:
    for rank, (message, before, after) in enumerate(ranks(recalibrated, trained, True)):
        assert ("another rank" in message) == (rank < ranks.world - 1), message
        torch.testing.assert_close(after, before, rtol=0, atol=0)
