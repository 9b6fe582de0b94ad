"""Stagewise: every stage from the same start, as if it were the only one; evaluated on all."""

import pytest
import torch

import rmdn
from rmdn.errors import UsageError
from rmdn.strategies import MDN, LwF, Plain, Stagewise, Strategy
from rmdn.testing.runs import Stage, make_batch, make_settings, same, train_on, two_linear_layers


def stages(count=3):
    return [Stage(*(make_batch(2, 1, rows, stage)[:3] for rows in (56, 42))) for stage in range(count)]


def network_with_mdn():
    return rmdn.deconfound(two_linear_layers(2, 1), ["1"], num_confounders=1, num_classes=2, layer=rmdn.MDN)


class Watching(Stagewise):
    """Keeps the network's state at the start and at the end of each stage."""

    def __init__(self, base=None):
        super().__init__(base)
        self.starts, self.ends = [], []

    def begin_stage(self, network, data):
        super().begin_stage(network, data)
        self.starts.append({name: value.clone() for name, value in network.state_dict().items()})

    def end_stage(self, network, data):
        super().end_stage(network, data)
        self.ends.append({name: value.clone() for name, value in network.state_dict().items()})


def test_each_stage_begins_at_the_same_weights_and_moves_away():
    strategy = Watching()
    train_on(stages(), strategy, two_linear_layers(2, 1), make_settings(epochs=2))
    assert all(same(strategy.starts[0], start) for start in strategy.starts)
    assert not any(same(strategy.starts[0], end) for end in strategy.ends)


def test_a_stages_network_is_that_of_a_run_on_it_alone():
    """One batch an epoch and no random layer: the order of rows, which the stage's number decides, does not matter.

    Not by Adam, which makes large steps of the rounding errors in gradients that are 0 (of biases that MDN takes out).
    """
    given, strategy = stages(), Watching(MDN())
    settings = make_settings(epochs=3, batch_size=56, optimizer="sgd", lr=0.1)
    result = train_on(given, strategy, network_with_mdn(), settings).result
    for i, stage in enumerate(given):
        alone = Watching(MDN())
        train_on([stage], alone, network_with_mdn(), settings)
        torch.testing.assert_close(strategy.ends[i], alone.ends[0], atol=1e-5, rtol=1e-4)
    assert torch.isfinite(result.R).all()
    assert result.R.shape == (3, 3)


def test_each_row_of_R_is_of_that_stages_network():
    """The second stage has the labels of the first turned around: nothing is left of the first, nor of the second."""
    first = stages(1)[0]
    turned = [(images, confounders, 1 - labels) for images, confounders, labels in (first.train, first.test)]
    R = train_on([first, Stage(*turned), first], Stagewise(), two_linear_layers(2, 1), make_settings()).result.R
    assert R.round().tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]


def test_the_base_begins_anew_too():
    strategy = Stagewise(LwF())
    seen = []

    class Looking(Plain):
        def loss(self, network, batch):
            seen.append(strategy.base.teacher)
            return super().loss(network, batch)

    strategy.base.base = Looking()
    train_on(stages(), strategy, two_linear_layers(2, 1), make_settings(epochs=1))
    assert seen == [None] * 6


def test_stages_and_layers_shapes_that_come_with_the_first_batch():
    """The start's layers have no shape yet, and get that of the features anew in each stage."""
    strategy = Watching(MDN())
    train_on(stages(2), strategy, network_with_mdn(), make_settings(epochs=1))
    assert [start["layers.1.beta"].shape for start in strategy.starts] == [(3, 0)] * 2
    assert [end["layers.1.beta"].shape for end in strategy.ends] == [(3, 32)] * 2


def test_begin_stage_before_setup_says_so():
    with pytest.raises(UsageError, match="setup"):
        Stagewise(Strategy()).begin_stage(two_linear_layers(2, 1), None)
