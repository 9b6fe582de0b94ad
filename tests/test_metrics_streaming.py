"""Streamed metrics equal the plain functions on all rows, in one process and summed over two ranks."""

import os
import tempfile

import numpy as np
import pytest
import torch

from rmdn.errors import InputError, RMDNError, SettingError, UsageError
from rmdn.metrics import (
    ClassRatesMetric,
    Collected,
    DistanceCorrelation,
    TransferMatrix,
    class_rates,
    dcor2,
    dcor2_per_class,
    partial_confounder_test,
    transfer,
    variance_shares,
)


def data(n=41):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (n,), generator=generator)
    y = torch.randn(n, generator=generator, dtype=torch.float64) + labels
    x = torch.randn(n, 3, 2, generator=generator, dtype=torch.float64) + y[:, None, None]
    predictions = torch.where(torch.rand(n, generator=generator) < 0.7, labels, 1 - labels)
    return x, y, labels, predictions


def metrics():
    return {
        "dcor2": DistanceCorrelation(),
        "classwise": DistanceCorrelation(),
        "test": Collected(partial_confounder_test, permutations=19),
        "rates": ClassRatesMetric(2, best=0.8),
        "matrix": TransferMatrix(2),
    }


def feed(found, rows):
    x, y, labels, predictions = (side[rows] for side in data())
    for part in torch.arange(len(y)).split(7) if len(y) else [torch.arange(0)]:
        found["dcor2"].update(x[part], y[part])
        found["classwise"].update(x[part], y[part], labels[part])
        found["test"].update(x[part], confounders=y[part], labels=labels[part])
        found["rates"].update(predictions[part], labels[part])
        found["matrix"].update(1, 0, predictions[part] == labels[part])


def results(found):
    return {
        "dcor2": float(found["dcor2"].compute()),
        "classwise": float(found["classwise"].compute()),
        "test": found["test"].compute().value,
        "rates": found["rates"].compute()["balanced_accuracy"],
        "distance": found["rates"].compute()["distance_to_best"],
        "matrix": float(found["matrix"].compute()[1, 0]),
    }


def expected():
    x, y, labels, predictions = data()
    rates = class_rates(predictions, labels, best=0.8, resamples=2)
    return {
        "dcor2": float(dcor2(x, y)),
        "classwise": float(dcor2_per_class(x, y, labels).mean),
        "test": partial_confounder_test(x, labels, y, permutations=1).value,
        "rates": rates.balanced_accuracy.value,
        "distance": rates.distance_to_best.value,
        "matrix": rates.accuracy.value,
    }


def test_batches_equal_all_rows():
    found = metrics()
    feed(found, slice(None))
    assert results(found) == pytest.approx(expected())
    for metric in found.values():
        metric.reset()
    feed(found, slice(None))
    assert results(found) == pytest.approx(expected())


def _rank(rank, folder):
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    try:
        for share, name in (
            ((slice(0, 30), slice(30, None)), "uneven"),
            ((slice(None), slice(0, 0)), "empty"),
        ):
            found = metrics()
            feed(found, share[rank])
            torch.save(results(found), f"{folder}/{name}{rank}")
    finally:
        torch.distributed.destroy_process_group()


def test_two_ranks_equal_all_rows():
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (folder,), nprocs=2)
        for name in ("uneven0", "uneven1", "empty0", "empty1"):
            assert torch.load(f"{folder}/{name}") == pytest.approx(expected())


def test_collected_gives_intervals_and_keeps_shapes():
    x, y, labels, _ = data()
    metric = Collected(variance_shares, resamples=10)
    for part in torch.arange(41).split(10):
        metric.update(x[part].flatten(1), labels[part], y[part])
    assert metric.compute() == variance_shares(x.flatten(1), labels, y, resamples=10)


def test_matrix_feeds_transfer():
    metric = TransferMatrix(2)
    for after, on, scores in ((0, 0, [1, 1]), (0, 1, [0, 1]), (1, 0, [1, 0, 0, 0]), (1, 1, [1.0])):
        metric.update(after, on, scores)
    assert transfer(metric.compute()) == pytest.approx((0.625, -0.75, 0.5))


def test_bad_batches_change_nothing():
    x, y, labels, _ = data()
    metric = DistanceCorrelation()
    metric.update(x, y)
    value = metric.compute()
    for batch in ((x[:3], y[:2]), (x[:3, :2], y[:3]), (x, y, labels), (3.0, 2.0), ("a", y)):
        with pytest.raises(InputError):
            metric.update(*batch)
    assert metric.compute() == value
    rates = ClassRatesMetric(2)
    rates.update([0, 1], [0, 1])
    for batch in (
        ([0, 2], [0, 1]),
        ([0], [0, 1]),
        ([0.5, 1], [0, 1]),
        (torch.zeros(2, 2), [0, 1]),
        ([0, 1], [-1, 0]),
    ):
        with pytest.raises(InputError):
            rates.update(*batch)
    assert rates.confusion.tolist() == [[1, 0], [0, 1]]
    matrix = TransferMatrix(2)
    for arguments in ((2, 0, [1.0]), (0, -1, [1.0]), (0, 0, [np.nan])):
        with pytest.raises(InputError):
            matrix.update(*arguments)
    assert matrix.counts.sum() == 0


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric:UserWarning")
def test_wrong_use_is_named():
    metric = DistanceCorrelation()
    with pytest.raises(UsageError, match="call update first"):
        metric.compute()
    metric.update(*data()[:2])
    metric.reset()
    with pytest.raises(UsageError, match="call update first"):
        metric.compute()
    assert torch.isnan(TransferMatrix(1).compute()).all()
    with pytest.raises(SettingError, match="positive"):
        ClassRatesMetric(2, positive=2)
    for make in (lambda: ClassRatesMetric(1), lambda: TransferMatrix(0)):
        with pytest.raises(RMDNError):
            make()
