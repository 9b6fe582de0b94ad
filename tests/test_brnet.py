"""BR-Net: the adversary reads, the encoder hides, and nothing else moves; in the end there is little left to read."""

import numpy as np
import pytest
import torch
from torch import nn

from rmdn.errors import InputError, SettingError
from rmdn.strategies import Batch, BRNet, Plain
from rmdn.strategies.brnet import squared_correlation, standardized
from rmdn.training import Settings, train
from rmdn.training.opening import one_device

SETTINGS = Settings(epochs=1, batch_size=32)


class Encoder(nn.Module):
    pre_logits_name = "fc1"

    def __init__(self, classes=2):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(12, 6), nn.Linear(6, classes)

    def forward(self, x):
        return self.fc2(self.fc1(x).tanh())


def make_batch(rows=48, confounders=1, seed=0):
    """Pixels that show the label and, apart from them, each confounder; confounders go along with the label."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % 2
    c = torch.randn(rows, confounders, generator=random) + labels[:, None]
    images = 0.5 * torch.randn(rows, 12, generator=random)
    images[:, :4] += labels[:, None]
    images[:, 4 : 4 + confounders] += 2 * c
    return Batch(images, c, labels)


def make_brnet(confounders=1, **options):
    torch.manual_seed(0)
    network, brnet = Encoder(), BRNet(**options)
    brnet.setup(network, one_device(SETTINGS), make_batch(confounders=confounders))
    return network, brnet


def weights(*modules):
    return [parameter.detach().clone() for module in modules for parameter in module.parameters()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_squared_correlation_is_pearsons_of_the_chosen_rows():
    told, c = torch.randn(20, 3), torch.randn(20, 3) * torch.tensor([1.0, 10.0, 0.1]) + 5
    rows = (torch.arange(20) % 3 == 0).float()[:, None]
    expected = [np.corrcoef(told[::3, i], c[::3, i])[0, 1] ** 2 for i in range(3)]
    np.testing.assert_allclose(squared_correlation(told, c, rows), expected, rtol=1e-4)
    chosen = standardized(c, rows)[::3]
    np.testing.assert_allclose(chosen.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(chosen.std(0, correction=0), 1, rtol=1e-4)


def test_rows_that_do_not_vary_have_no_correlation():
    constant, none = torch.ones(6, 1), torch.zeros(6, 1)
    for rows in (torch.ones(6, 1), none):
        value = squared_correlation(torch.randn(6, 1).requires_grad_(), constant, rows)
        value.sum().backward()
        assert value == 0


def test_the_predictor_learns_alone_and_so_does_the_encoder():
    network, brnet = make_brnet()
    batch = make_batch()
    encoder, head, predictor = weights(network.fc1), weights(network.fc2), weights(brnet.predictor)
    features = brnet.features(network, batch)
    brnet.read(features.detach(), batch, torch.Tensor.backward)
    assert same(weights(network.fc1), encoder)
    assert not same(weights(brnet.predictor), predictor)
    predictor = weights(brnet.predictor)
    brnet.hide(features, batch, torch.Tensor.backward)
    assert not same(weights(network.fc1), encoder)
    assert same(weights(network.fc2), head)
    assert same(weights(brnet.predictor), predictor)


@pytest.mark.parametrize("confounders", [1, 3])
def test_the_correlation_falls(confounders):
    """What the predictor tells of each confounder, once it can, within each class; the encoder then hides all of them."""
    network, brnet = make_brnet(confounders, predictor_lr=1e-2, encoder_lr=1e-2)
    batch = make_batch(256, confounders)

    def told():
        with torch.no_grad():
            answers = brnet.predictor(brnet.features(network, batch))
        return torch.stack([squared_correlation(answers, batch.confounders, rows) for rows in brnet.groups(batch, answers)])

    for _ in range(150):
        brnet.read(brnet.features(network, batch).detach(), batch, torch.Tensor.backward)
    assert told().min() > 0.5
    for _ in range(60):
        brnet.hide(brnet.features(network, batch), batch, torch.Tensor.backward)
    assert told().shape == (2, confounders)
    assert told().max() < 0.05


def test_one_group_alone_is_read_and_hidden():
    """Rows of other classes have no say: with their confounders changed, the same weights come out."""
    batch, ends = make_batch(), []
    for shift in (0.0, 7.0):
        network, brnet = make_brnet(group=1)
        changed = batch._replace(confounders=batch.confounders + shift * (batch.labels == 0)[:, None] * torch.randn(48, 1))
        features = brnet.features(network, changed)
        brnet.read(features.detach(), changed, torch.Tensor.backward)
        brnet.hide(features, changed, torch.Tensor.backward)
        ends.append(weights(network, brnet.predictor))
    assert same(*ends)


def explained(network, batch):
    """The share of the confounder that a line in the features explains, within a class."""
    with torch.no_grad():
        z = network.fc1(batch.images)
    shares = []
    for k in (0, 1):
        X = torch.cat([z, torch.ones(len(z), 1)], 1)[batch.labels == k].double().numpy()
        c = batch.confounders[batch.labels == k].double().numpy()
        left = c - X @ np.linalg.lstsq(X, c, rcond=None)[0]
        shares.append(1 - left.var() / c.var())
    return np.mean(shares)


class Stage:
    train, test = make_batch(512)[:3], make_batch(256, seed=1)[:3]


def test_a_trained_encoder_tells_less_of_the_confounder_and_no_less_of_the_label():
    ends = {}
    for name, strategy in {"plain": Plain(), "brnet": BRNet(predictor_lr=5e-3, encoder_lr=5e-3)}.items():
        torch.manual_seed(0)
        network = Encoder()
        result = train(network, [Stage()], strategy, Settings(epochs=30, batch_size=64, lr=1e-3), progress=False)
        ends[name] = (explained(network, make_batch(256, seed=1)), float(result.R[0, 0]))
    assert ends["brnet"][0] < 0.5 * ends["plain"][0]
    assert ends["brnet"][1] > 0.85


def test_what_cannot_be_read_is_refused():
    network, brnet = make_brnet()
    batch = make_batch()
    with pytest.raises(InputError, match="NaN"):
        brnet.step(network, batch._replace(confounders=batch.confounders * torch.nan), None, None)
    with pytest.raises(InputError, match="2 confounders; the predictor was built for 1"):
        brnet.step(network, make_batch(confounders=2), None, None)
    with pytest.raises(SettingError, match="group=5"):
        make_brnet(group=5)
    with pytest.raises(SettingError, match="more than 0"):
        BRNet(encoder_lr=0)
