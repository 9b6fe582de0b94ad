"""Pixel-space MDN: least squares on the training rows, in a stream, applied to whatever comes later."""

import weakref

import numpy as np
import pytest
import torch
from torch import nn

from rmdn.errors import InputError, UsageError
from rmdn.strategies import Batch, Pixel, StageData


def make_batch(rows=60, seed=0, effect=2.0):
    """Images of a label and two confounders; the confounders go along with the label."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % 3
    c = torch.randn(rows, 2, generator=random) + labels[:, None]
    images = torch.randn(rows, 1, 4, 4, generator=random)
    images[:, 0, 0] += 3.0 * labels[:, None]
    images += effect * (c[:, :1] - 0.5 * c[:, 1:]).view(-1, 1, 1, 1) + 10
    return Batch(images, c, labels)


def stream(batch, size=7, stage=0):
    def raw():
        for first in range(0, len(batch.labels), size):
            yield Batch(*(part[first : first + size] for part in batch[:3]), stage)

    return StageData(stage, len(batch.labels), 10, raw)


def fitted(*stages):
    network, pixel = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), Pixel()
    pixel.setup(network, None, make_batch(3))
    for data in stages:
        pixel.begin_stage(network, data)
    return pixel


def ordinary(*batches):
    """numpy's least squares on two label columns, the confounders and ones: the coefficients of the last three."""
    labels, c, images = (torch.cat([getattr(b, name) for b in batches]) for name in ("labels", "confounders", "images"))
    X = np.column_stack([labels == 1, labels == 2, c, np.ones(len(labels))]).astype(float)
    return np.linalg.lstsq(X, images.flatten(1).double().numpy(), rcond=None)[0][2:]


def removed(batch, beta):
    X = np.column_stack([batch.confounders, np.ones(len(batch.labels))])
    return batch.images.flatten(1).numpy() - X @ beta


def test_training_coefficients_are_applied_to_test_rows():
    train, test = make_batch(), make_batch(30, seed=1, effect=-5.0)
    pixel = fitted(stream(train))
    for batch in (train, test):
        left = pixel.prepare(batch).images
        assert left.shape == batch.images.shape
        np.testing.assert_allclose(left.flatten(1), removed(batch, ordinary(train)), atol=1e-4)
    assert torch.equal(pixel.prepare(test._replace(labels=test.labels * 0)).images, pixel.prepare(test).images)


def test_confounders_go_and_the_label_stays():
    train = make_batch(3000)
    pixel = fitted(stream(train, 500))
    np.testing.assert_allclose(ordinary(pixel.prepare(train)), 0, atol=1e-4)
    left = pixel.prepare(train).images[:, 0]
    apart = (left[train.labels == 2] - left[train.labels == 0]).mean(0)
    np.testing.assert_allclose(apart, [[6] * 4, [0] * 4, [0] * 4, [0] * 4], atol=0.3)


@pytest.mark.parametrize("size", [1, 13, 33, 60])
def test_a_stream_of_chunks_is_the_whole(size):
    whole, chunks = (fitted(stream(make_batch(), n)) for n in (60, size))
    torch.testing.assert_close(chunks.A, whole.A)
    torch.testing.assert_close(chunks.beta, whole.beta, rtol=1e-4, atol=1e-4)


def test_sums_go_on_over_stages():
    batches = [make_batch(seed=seed, effect=1.0 + seed) for seed in range(3)]
    pixel = fitted(*(stream(batch, stage=stage) for stage, batch in enumerate(batches)))
    np.testing.assert_allclose(pixel.beta, ordinary(*batches), atol=1e-4)


def test_memory_does_not_grow_with_the_rows():
    """Of a stream of any length two chunks are alive at the same time, no more; what is kept has p rows."""
    alive, most = weakref.WeakSet(), []

    def raw():
        for seed in range(20):
            batch = make_batch(9, seed)
            alive.add(batch.images)
            most.append(len(alive))
            yield batch
            del batch

    pixel = fitted(StageData(0, 180, 10, raw))
    assert max(most) <= 2
    assert pixel.G.shape == (5, 16)
    assert sum(value.numel() for value in pixel.state_dict().values() if isinstance(value, torch.Tensor)) == 25 + 80 + 48


def test_wrong_moments_and_wrong_rows_are_refused():
    network, pixel = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), Pixel()
    pixel.setup(network, None, make_batch(3))
    with pytest.raises(UsageError, match="no coefficients yet"):
        pixel.prepare(make_batch())
    bad = make_batch()
    bad.confounders[3, 1] = torch.nan
    with pytest.raises(InputError):
        pixel.begin_stage(network, stream(bad))
    assert pixel.A is None
    pixel.begin_stage(network, stream(make_batch()))
    with pytest.raises(InputError):
        pixel.prepare(bad)
