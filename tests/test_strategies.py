"""The properties that each method's paper states, against oracles written out here."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rmdn
from rmdn.errors import InputError, SettingError
from rmdn.strategies import EWC, Batch, LwF, PackNet, Plain, StageData, Strategy, Wrapper
from rmdn.strategies.base import forward, predicted, task_loss
from rmdn.strategies.ewc import diagonal_fisher
from rmdn.strategies.lwf import distillation
from rmdn.strategies.packnet import packed
from rmdn.training import Settings, train


def make_batch(rows=24, classes=3, stage=0, seed=0):
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=random)
    return Batch(torch.randn(rows, 1, 4, 4, generator=random), torch.randn(rows, 2, generator=random), labels, stage)


def make_data(batch, size=7, steps=10):
    def raw():
        for first in range(0, len(batch.labels), size):
            yield Batch(*(part[first : first + size] for part in batch[:3]), batch.stage)

    return StageData(batch.stage, len(batch.labels), steps, raw)


def make_network(outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 8),
        nn.ReLU(),
        nn.Linear(8, outputs),
    )


class Split:
    def __init__(self, seed):
        self.train, self.test = make_batch(48, seed=seed)[:3], make_batch(20, seed=seed + 100)[:3]


# The common pieces


def test_task_loss_of_one_score_is_that_of_two_classes():
    score, labels = torch.randn(9, 1), torch.randint(2, (9,))
    torch.testing.assert_close(task_loss(score, labels), F.binary_cross_entropy_with_logits(score[:, 0], labels.float()))
    assert torch.equal(predicted(score), (score[:, 0] > 0).long())


def test_labels_reach_a_deconfounded_network_in_training_alone():
    calls = []

    class Recording(rmdn.Deconfounded):
        def forward(self, *inputs, **options):
            calls.append(set(options))
            return self.network(*inputs)

    network, batch = Recording(make_network(), {}), make_batch()
    forward(network.train(), batch)
    forward(network.eval(), batch)
    forward(make_network(), batch)
    assert calls == [{"confounders", "labels"}, {"confounders"}]


def test_a_wrapper_hands_on_every_call():
    """A call added to Strategy and forgotten in Wrapper would be lost without a word."""
    assert {name for name in vars(Strategy) if not name.startswith("_")} <= set(vars(Wrapper))


class OwnSteps(Strategy):
    def step(self, network, batch, optimizer, backward):
        return self.loss(network, batch)


def test_a_loss_around_own_steps_is_refused():
    with pytest.raises(SettingError, match=r"PackNet\(EWC\(\.\.\.\)\)"):
        EWC(PackNet())
    with pytest.raises(SettingError, match="OwnSteps"):
        LwF(OwnSteps())
    PackNet(EWC(LwF()))
    PackNet(OwnSteps())


def test_penalties_of_wrapped_strategies_add_up():
    network, before = make_network(), make_batch()
    strategies = [Plain(), EWC(fisher="empirical"), LwF(), EWC(LwF(), fisher="empirical")]
    for strategy in strategies:
        strategy.setup(network, None, before)
        strategy.end_stage(network, make_data(before))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    network.eval()
    plain, ewc, lwf, both = (strategy.loss(network, make_batch(seed=1)).loss for strategy in strategies)
    assert ewc > plain
    assert lwf > plain
    torch.testing.assert_close(both, ewc + lwf - plain)


# EWC


@pytest.mark.parametrize("mode", ["stage", "online"])
def test_ewc_penalty_and_its_gradient_vanish_at_the_old_weights(mode):
    network, ewc = make_network(), EWC(mode=mode)
    ewc.end_stage(network, make_data(make_batch()))
    penalty = ewc.penalty(network)
    penalty.backward()
    assert penalty == 0
    assert all(not parameter.grad.any() for parameter in network.parameters())


def test_ewc_penalty_is_the_papers():
    network, ewc = make_network(), EWC(strength=6.0, fisher="empirical", samples=None)
    starts = []
    for stage in range(2):
        starts.append({name: p.detach().clone() for name, p in network.named_parameters()})
        ewc.end_stage(network, make_data(make_batch(stage=stage, seed=stage)))
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    expected = sum(
        (fisher[name].double() * (p.double() - start[name].double()) ** 2).sum()
        for (fisher, _), start in zip(ewc.anchors, starts, strict=True)
        for name, p in network.named_parameters()
    )
    torch.testing.assert_close(ewc.penalty(network).double(), 3.0 * expected, rtol=1e-5, atol=0)


def test_empirical_fisher_is_the_mean_of_squared_gradients_of_rows():
    network, batch = make_network().eval(), make_batch()
    values = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    values = {name: value.detach() for name, value in values.items()}
    trained = {name: values.pop(name) for name, _ in network.named_parameters()}

    def loss(parameters, image, label):
        logits = torch.func.functional_call(network, {**parameters, **values}, (image[None],))
        return -F.log_softmax(logits, dim=-1)[0].gather(0, label[None])[0]

    rows = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(trained, batch.images, batch.labels)
    network.train()
    fisher = diagonal_fisher(network, make_data(batch), "empirical")
    assert network.training
    for name, gradients in rows.items():
        torch.testing.assert_close(fisher[name], gradients.square().mean(0), rtol=1e-4, atol=1e-8)


def test_true_fisher_is_the_formula_for_a_linear_classifier():
    """For logits W x, the Fisher of W_kj is E[x_j^2 p_k (1 - p_k)], whatever the labels given."""
    torch.manual_seed(3)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False))
    batch = make_batch(3000)
    x = batch.images.flatten(1)
    p = F.softmax(network(batch.images), dim=-1).detach()
    expected = torch.einsum("bk,bj->kj", p * (1 - p), x.square()) / len(x)
    fisher = diagonal_fisher(network, make_data(batch._replace(labels=torch.zeros(3000, dtype=torch.long)), 500))
    torch.testing.assert_close(fisher["1.weight"], expected, rtol=0.2, atol=0.01)
    assert (fisher["1.weight"].mean() / expected.mean() - 1).abs() < 0.03


def test_online_fisher_decays_and_keeps_the_last_anchor():
    network, batches = make_network(), [make_batch(seed=seed) for seed in (0, 1)]
    ewc = EWC(mode="online", decay=0.5, fisher="empirical")
    for batch in batches:
        ewc.end_stage(network, make_data(batch))  # the weights stay: both Fishers can be worked out afterwards
    ((fisher, anchor),) = ewc.anchors
    first, second = (diagonal_fisher(network, make_data(batch), "empirical") for batch in batches)
    for name, value in fisher.items():
        torch.testing.assert_close(value, 0.5 * first[name] + second[name])
        assert torch.equal(anchor[name], dict(network.named_parameters())[name])


def test_fisher_of_some_rows_counts_them_alone():
    network, batch = make_network(), make_batch(40)
    seen = []
    network.register_forward_pre_hook(lambda _module, inputs: seen.append(len(inputs[0])))
    diagonal_fisher(network, make_data(batch), "empirical", samples=13)
    assert seen == [1] * 13


def test_fisher_leaves_a_deconfounded_network_as_it_is():
    network = rmdn.deconfound(make_network(), at=["4"], num_confounders=2, num_classes=3, sample=torch.randn(4, 1, 4, 4))
    forward(network.train(), make_batch())
    before = copy.deepcopy(network.state_dict())
    diagonal_fisher(network, make_data(make_batch(seed=5)))
    after = network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


# LwF


@pytest.mark.parametrize("outputs", [1, 3])
def test_lwf_adds_nothing_and_pulls_nowhere_while_student_is_teacher(outputs):
    network, lwf, batch = make_network(outputs).eval(), LwF(strength=5.0), make_batch(classes=2)
    lwf.setup(network, None, batch)
    lwf.end_stage(network, make_data(batch))
    loss, logits = lwf.loss(network, batch)
    pull = torch.autograd.grad(
        distillation(logits, network(batch.images).detach(), 2.0), list(network.parameters()), allow_unused=True
    )
    torch.testing.assert_close(loss, task_loss(logits, batch.labels))
    assert all(gradient is None or gradient.abs().max() < 1e-6 for gradient in pull)


def test_distillation_has_the_papers_gradient():
    """The paper's loss, -sum y' log yhat' with y' = y^(1/T) / sum y^(1/T), less the teacher's own entropy."""
    wanted, logits, T = torch.randn(6, 4), torch.randn(6, 4, requires_grad=True), 2.0

    def softened(y):
        root = y ** (1 / T)
        return root / root.sum(-1, keepdim=True)

    y, yhat = softened(F.softmax(wanted, -1)), softened(F.softmax(logits, -1))
    papers = -(y * yhat.log()).sum(-1).mean()
    entropy = -(y * y.log()).sum(-1).mean()
    ours = distillation(logits, wanted, T)
    torch.testing.assert_close(ours, papers - entropy)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (ours, papers)))


def test_the_teacher_of_a_deconfounded_network_stays_as_it_was():
    network = rmdn.deconfound(make_network(), at=["4"], num_confounders=2, num_classes=3, sample=torch.randn(4, 1, 4, 4))
    lwf, batch = LwF(), make_batch()
    lwf.setup(network, None, batch)
    forward(network.train(), batch)
    lwf.end_stage(network, make_data(batch))
    before = copy.deepcopy(lwf.teacher.state_dict())
    loss, _ = lwf.loss(network, make_batch(seed=2))
    loss.backward()
    assert all(torch.equal(before[name], value) for name, value in lwf.teacher.state_dict().items())
    assert all(parameter.grad is None for parameter in lwf.teacher.parameters())


# PackNet


def test_packnet_forgets_nothing():
    """After three stages with momentum and weight decay, each stage's logits are bit for bit those of its end."""
    settings = Settings(epochs=6, batch_size=16, lr=1e-2, optimizer="adamw", weight_decay=0.1, schedule_scope="run")
    result = train(
        make_network(),
        [Split(seed) for seed in range(3)],
        PackNet(prune=0.5),
        settings,
        keep_logits=True,
        progress=False,
    )
    for i in range(3):
        for later in range(i + 1, 3):
            assert torch.equal(result.logits[i, i], result.logits[later, i])
    assert not torch.equal(result.logits[0, 2], result.logits[2, 2])  # it does learn on


def test_packnet_forgets_nothing_with_rmdn():
    network = rmdn.deconfound(make_network(), at=["4"], num_confounders=2, num_classes=3, sample=torch.randn(4, 1, 4, 4))
    settings = Settings(epochs=3, batch_size=16, lr=1e-2, recalibration="stage")
    stages = [Split(seed) for seed in range(2)]
    result = train(network, stages, PackNet(LwF()), settings, keep_logits=True, progress=False)
    assert torch.equal(result.logits[0, 0], result.logits[1, 0])


def test_packnet_gives_each_stage_its_share():
    network, pack = make_network(), PackNet(prune=0.5)
    train(network, [Split(seed) for seed in range(2)], pack, Settings(epochs=3, batch_size=16), progress=False)
    for name, weight in packed(network).items():
        owner, n = pack.owner[name], weight.numel()
        first = n - n // 2
        second = (n - first) - (n - first) // 2
        assert (owner == 1).sum() == first
        assert (owner == 2).sum() == second
        assert not weight[owner == 0].any()
        assert set(owner.unique().tolist()) == {0, 1, 2}


def test_packnet_prunes_the_smallest():
    network, pack = make_network(), PackNet(prune=0.5)
    pack.setup(network, None, make_batch())
    pack.begin_stage(network, make_data(make_batch(), steps=4))
    before = network[4].weight.detach().abs().flatten()
    pack._prune(network)
    after = network[4].weight.detach().flatten()
    assert before[after != 0].min() >= before[after == 0].max()


# What cannot be


@pytest.mark.parametrize(
    "make",
    [
        lambda: EWC(strength=-1),
        lambda: EWC(fisher="both"),
        lambda: EWC(samples=0),
        lambda: EWC(decay=1.5),
        lambda: LwF(temperature=0),
        lambda: PackNet(prune=1.0),
        lambda: PackNet(retrain=-0.1),
    ],
)
def test_settings_out_of_range(make):
    with pytest.raises(SettingError, match="give"):
        make()


def test_packnet_needs_weights_to_share_out():
    with pytest.raises(SettingError, match="linear layers"):
        PackNet().setup(nn.BatchNorm1d(3), None, make_batch())


def test_wrong_labels_say_what_fits():
    with pytest.raises(InputError, match="from 0 to 2"):
        task_loss(torch.randn(4, 3), torch.tensor([0, 1, 2, 3]))
