"""PyTorch's own features, each of which once broke a layer that keeps state: they must change no number here."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rmdn
from rmdn.errors import InputError, PlacementError, UsageError
from small_model import Network, assert_same, kept, layers, make_batch, make_model

GRADIENTS = ["constant", "projected"]


def step(model: nn.Module, seed: int, rows: int = 12) -> Tensor:
    """Forward and backward of one batch; gradients add up in the parameters."""
    x, c, y = make_batch(seed, rows)
    torch.manual_seed(seed)
    out = model(x.requires_grad_(), confounders=c, labels=y)
    nn.functional.cross_entropy(out, y).backward()
    return out.detach()


def train(model: nn.Module, seeds: range) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for seed in seeds:
        optimizer.zero_grad()
        step(model, seed)
        optimizer.step()


def run_backwards(losses: list[Tensor], order: str) -> None:
    for loss in {"joint": [sum(losses)], "first first": losses, "last first": reversed(losses)}[order]:
        loss.backward()


# Activation checkpointing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("options", [{"gradient": g, "inplace": i} for g in GRADIENTS for i in (False, True)], ids=str)
def test_checkpointing_changes_nothing(reentrant: bool, options: dict[str, Any]) -> None:
    plain, checkpointed = make_model(**options), make_model(reentrant, **options)
    for seed in range(4):
        torch.testing.assert_close(step(checkpointed, seed), step(plain, seed), rtol=0, atol=0)
    assert [layer.seen for layer in layers(checkpointed)] == [48, 48]
    assert_same(checkpointed, plain)


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_checkpointing_test_can_fail(reentrant: bool) -> None:
    """The published manner, an update wherever the layer is called, gives other gradients here."""
    plain, naive = make_model(), make_model(reentrant)
    for layer in layers(naive):
        learn = layer._learn
        layer.forward = lambda z, c, y, layer=layer, learn=learn: layer.subtract(z, *learn(z, c, y)[:2])  # type: ignore[method-assign]
    for seed in range(4):
        step(plain, seed), step(naive, seed)
    grads = [model.network.conv.weight.grad for model in (plain, naive)]
    assert (grads[0] - grads[1]).norm() > 1e-3 * grads[0].norm()


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("order", ["joint", "first first", "last first"])
def test_two_forwards_before_a_backward_raise_under_checkpointing(gradient: str, reentrant: bool, order: str) -> None:
    model = make_model(reentrant, gradient=gradient)
    step(model, 0)
    losses = []
    for seed in (1, 2):
        x, c, y = make_batch(seed)
        losses.append(nn.functional.cross_entropy(model(x.requires_grad_(), confounders=c, labels=y), y))
    with pytest.raises(UsageError, match="backward after each forward"):
        run_backwards(losses, order)


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_same_batch_twice_before_one_backward_raises_too(reentrant: bool) -> None:
    model = make_model(reentrant)
    model.network.drop.p = 0.0
    x, c, y = make_batch(0)
    loss = sum(nn.functional.cross_entropy(model(x.requires_grad_(), confounders=c, labels=y), y) for _ in range(2))
    with pytest.raises(UsageError, match="backward after each forward"):
        loss.backward()


def test_two_forwards_before_a_backward_are_fine_without_checkpointing() -> None:
    model, single = make_model(), make_model()
    loss = 0.0
    for seed in (1, 2):
        x, c, y = make_batch(seed)
        torch.manual_seed(seed)
        loss = loss + nn.functional.cross_entropy(model(x, confounders=c, labels=y), y)
        step(single, seed)
    loss.backward()
    assert_same(model, single, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_second_backward_through_a_checkpoint_computes_the_batch_again(reentrant: bool) -> None:
    models = make_model(), make_model(reentrant)
    for model in models:
        x, c, y = make_batch(0)
        torch.manual_seed(0)
        loss = nn.functional.cross_entropy(model(x.requires_grad_(), confounders=c, labels=y), y)
        loss.backward(retain_graph=True)
        loss.backward()
    assert_same(*models)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("mode", ["eval", "frozen"])
def test_checkpointed_passes_without_learning(reentrant: bool, mode: str) -> None:
    plain, checkpointed = make_model(), make_model(reentrant)
    for model in (plain, checkpointed):
        train(model, range(3))
        model.zero_grad()
        before = kept(model)
        if mode == "eval":
            step(model.eval(), 5)
        else:
            with model.frozen():
                step(model, 5)
        torch.testing.assert_close(kept(model), before, rtol=0, atol=0)
    assert_same(checkpointed, plain)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("order", ["joint", "first first", "last first"])
def test_checkpointed_passes_without_learning_keep_their_own_confounders(reentrant: bool, order: str) -> None:
    plain, checkpointed = make_model(), make_model(reentrant)
    for model in (plain, checkpointed):
        train(model, range(3))
        model.eval().zero_grad()
        x, c, y = make_batch(5)
        losses = [
            nn.functional.cross_entropy(model(x.requires_grad_(), confounders=confounders), y)
            for confounders in (c, c.flip(0), c + 3)
        ]
        run_backwards(losses, order)
    assert_same(checkpointed, plain, rtol=1e-5, atol=1e-7)


# Gradient accumulation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_gradient_accumulation_updates_once_a_micro_batch(gradient: str) -> None:
    model = make_model(gradient=gradient)
    reference = rmdn.RMDN(2, 2, gradient=gradient)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for seed in range(6):
        x, c, y = make_batch(seed)
        with torch.no_grad():
            reference(model.network.conv._conv_forward(x, model.network.conv.weight, model.network.conv.bias), c, y)
        step(model, seed)
        if seed % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
    ours, theirs = layers(model)[0].state_dict(), reference.state_dict()
    for backward in ("flow", "flow_weight"):  # what backward passes leave, of which the reference has none
        del ours[backward], theirs[backward]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


# Precision ------------------------------------------------------------------------------------------------------------


def least_squares(z: Tensor, c: Tensor, y: Tensor) -> Tensor:
    """Residuals in float64 of rows that are all known at once."""
    X = np.column_stack([y.double(), c.double(), np.ones(len(z))])
    Z = z.detach().double().flatten(1).numpy()
    beta = np.linalg.lstsq(X, Z, rcond=None)[0]
    return torch.from_numpy(Z - X[:, 1:] @ beta[1:]).view(z.shape)


@pytest.mark.parametrize("mode", ["train", "eval", "spatial"])
def test_autocast_leaves_the_arithmetic_alone(mode: str) -> None:
    """Against float64 least squares of the very bf16 features: only the output's rounding may differ."""
    layer = rmdn.RMDN(2, 2, epsilon=1e9, regularization=0, share="spatial" if mode == "spatial" else None)
    _, c, y = make_batch(0, 64)
    z = (torch.randn(64, 5, 3) + c[:, :1, None] / 5).to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(z, c, y)
        if mode != "train":
            out = layer.eval()(z, c)
    assert out.dtype == torch.bfloat16
    assert {layer.P.dtype, layer.moments.dtype, layer.recent.dtype} == {torch.float64}
    assert layer.beta.dtype == torch.float32
    X = torch.cat([y[:, None], c, torch.ones(64, 1)], dim=1).double()
    real = X.clone()
    real[:, 1:] = (X[:, 1:] - layer.center[1:]) / layer.scale[1:]
    positions = 5 if mode == "spatial" else 1
    torch.testing.assert_close(layer.moments, positions * real.T @ real, rtol=1e-12, atol=1e-9)
    if mode != "spatial":
        expected = least_squares(z, c, y)
        assert ((out.double() - expected).abs() <= 2**-8 * expected.abs() + 1e-4).all()


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_autocast_equals_the_layer_on_the_same_features_outside(gradient: str) -> None:
    inside, outside = (rmdn.RMDN(2, 2, gradient=gradient) for _ in range(2))
    results = []
    for layer, enabled in ((inside, True), (outside, False)):
        grads = []
        for seed in range(3):
            _, c, y = make_batch(seed)
            torch.manual_seed(seed)
            z = torch.randn(12, 7, requires_grad=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                out = layer(z, c, y)
                out.pow(2).sum().backward()  # as a backward inside autocast, which PyTorch advises against, would do it
            assert out.dtype == torch.float32
            grads.append(z.grad)
        results.append(grads)
    torch.testing.assert_close(inside.state_dict(), outside.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("reentrant", [None, True, False])
def test_training_under_autocast(reentrant: bool | None) -> None:
    plain, model = make_model(), make_model(reentrant)
    for one in (plain, model):
        with torch.autocast("cpu", torch.bfloat16):
            for seed in range(3):
                x, c, y = make_batch(seed)
                torch.manual_seed(seed)
                out = one(x.requires_grad_(), confounders=c, labels=y)
                with torch.autocast("cpu", enabled=False):
                    nn.functional.cross_entropy(out.float(), y).backward()
    assert_same(model, plain)


CASTS = {
    "half": lambda module: module.half(),
    "bfloat16": lambda module: module.bfloat16(),
    "to float16": lambda module: module.to(torch.float16),
    "to cpu and bfloat16": lambda module: module.to("cpu", torch.bfloat16),
    "double": lambda module: module.double(),
    "double and float": lambda module: module.double().float(),
}


@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS.keys())
@pytest.mark.parametrize("fresh", [True, False])
def test_casts_never_narrow_the_state(cast: Any, fresh: bool) -> None:
    model, before = make_model(), {}
    if not fresh:
        train(model, range(3))
        before = {name: value.double() for name, value in kept(model).items() if name.startswith("layers")}
    model = cast(model)
    dtype = next(model.network.parameters()).dtype
    x, c, y = make_batch(9)
    for layer in layers(model):
        for name, buffer in layer.named_buffers():
            assert buffer.dtype == torch.float64 or (name in ("beta", "flow") and buffer.dtype == torch.float32), name
    for name, value in before.items():
        torch.testing.assert_close(model.state_dict()[name].double(), value, rtol=0, atol=0)
    assert model(x.to(dtype), confounders=c, labels=y).dtype == dtype
    for layer in layers(model):
        assert layer.P.dtype == layer.moments.dtype == torch.float64
        assert layer.beta.dtype in (torch.float32, torch.float64)
        assert torch.linalg.eigvalsh(layer.P).min() > 0


def test_bfloat16_features_give_the_residual_of_least_squares() -> None:
    layer = rmdn.RMDN(2, 2, epsilon=1e9, regularization=0).bfloat16()
    _, c, y = make_batch(0, 64)
    z = (torch.randn(64, 5) + c[:, :1] / 5).to(torch.bfloat16)
    expected = least_squares(z, c, y)
    assert ((layer(z, c, y).double() - expected).abs() <= 2**-8 * expected.abs() + 1e-4).all()


# Copies and files -----------------------------------------------------------------------------------------------------


def through_state_dict(model: rmdn.Deconfounded) -> rmdn.Deconfounded:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = make_model(seed=99, gradient="projected")
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


def through_file(model: rmdn.Deconfounded) -> rmdn.Deconfounded:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def rolled_back(model: rmdn.Deconfounded) -> rmdn.Deconfounded:
    """Into a model that has gone on already."""
    used = make_model(seed=99, gradient="projected")
    train(used, range(50, 57))
    used.load_state_dict(copy.deepcopy(model.state_dict()))
    return used


def through_assigned_state_dict(model: rmdn.Deconfounded) -> rmdn.Deconfounded:
    fresh = make_model(seed=99, gradient="projected")
    fresh.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    return fresh


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "torch.save of the model": through_file,
    "torch.save of the state_dict": through_state_dict,
    "state_dict, assigned": through_assigned_state_dict,
    "state_dict into a used model": rolled_back,
}


@pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES.keys())
@pytest.mark.parametrize("batches", [0, 5])
def test_copies_train_on_to_the_bit_and_alone(duplicate: Any, batches: int) -> None:
    model = make_model(gradient="projected")
    train(model, range(batches))
    twin = duplicate(model)
    before = kept(model)
    train(twin, range(batches, batches + 8))
    torch.testing.assert_close(kept(model), before, rtol=0, atol=0)
    assert [layer.seen for layer in layers(twin)] == [12 * (batches + 8)] * 2
    after = kept(twin)
    train(model, range(batches, batches + 8))
    torch.testing.assert_close(kept(twin), after, rtol=0, atol=0)
    assert_same(model, twin)


@pytest.mark.parametrize("duplicate", list(COPIES.values())[:3], ids=list(COPIES)[:3])
def test_a_copy_comes_off_alone(duplicate: Any) -> None:
    model = make_model()
    train(model, range(2))
    twin = duplicate(model)
    network = twin.remove()
    x, c, _ = make_batch(0)
    plain = Network()
    plain.load_state_dict(network.state_dict())
    torch.testing.assert_close(network.eval()(x), plain.eval()(x), rtol=0, atol=0)
    torch.testing.assert_close(network.state_dict(), dict(model.network.state_dict()), rtol=0, atol=0)
    with pytest.raises(UsageError, match="past its wrapper"):
        model.network(x)
    assert not torch.equal(model.eval()(x, confounders=c), plain(x))


@pytest.mark.parametrize("saved", ["layer", "state_dict"])
@pytest.mark.parametrize("options", [{}, {"share": "spatial", "standardize": False}], ids=str)
def test_a_layer_by_itself_goes_through_a_file(saved: str, options: dict[str, Any]) -> None:
    layer, twin = rmdn.RMDN(2, 2, **options), rmdn.RMDN(2, 2, **options)

    def learn(one: rmdn.RMDN, seeds: range) -> None:
        for seed in seeds:
            _, c, y = make_batch(seed)
            one(torch.randn(12, 3, 4, generator=torch.Generator().manual_seed(seed)), c, y)

    learn(layer, range(5))
    file = io.BytesIO()
    torch.save(layer if saved == "layer" else layer.state_dict(), file)
    file.seek(0)
    if saved == "layer":
        twin = torch.load(file, weights_only=False)
    else:
        twin.load_state_dict(torch.load(file, weights_only=True))
    learn(layer, range(5, 12))
    learn(twin, range(5, 12))
    torch.testing.assert_close(twin.state_dict(), layer.state_dict(), rtol=0, atol=0)


def test_a_checkpointed_copy_recomputes_with_its_own_memo() -> None:
    model = make_model(False)
    train(model, range(3))
    teacher = copy.deepcopy(model).eval()
    before = kept(teacher)
    plain = make_model()
    plain.load_state_dict(model.state_dict())
    x, c, y = make_batch(7)
    results = []
    for student in (model, plain):
        student.zero_grad()
        torch.manual_seed(0)
        out = student(x.requires_grad_(), confounders=c, labels=y)
        with torch.no_grad():
            target = teacher(x, confounders=c + 1)
        (out - target).pow(2).sum().backward()
        results.append(student.network.conv.weight.grad)
    torch.testing.assert_close(*results, rtol=0, atol=0)
    torch.testing.assert_close(kept(teacher), before, rtol=0, atol=0)


# The compiler and export ----------------------------------------------------------------------------------------------


# Where a graph breaks, as at every training step of a layer, the compiler asks tensors on the way for their gradient.
DYNAMO_ASKS = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
INDUCTOR_IMPORTS = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


@pytest.fixture
def compiler() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled_pair(backend: str, reentrant: bool | None = None, **options: Any) -> tuple[nn.Module, nn.Module, Any]:
    eager, model = make_model(reentrant, **options), make_model(reentrant, **options)
    for one in (eager, model):
        one.network.drop.p = 0.0  # the compiler draws other random numbers
        train(one, range(3))
    return eager, model, torch.compile(model, backend=backend)


@DYNAMO_ASKS
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("aot_eager", {"gradient": "projected", "inplace": True}),
        pytest.param("aot_eager", {"share": "spatial"}, marks=pytest.mark.slow),
        pytest.param("inductor", {}, marks=[pytest.mark.slow, INDUCTOR_IMPORTS]),
    ],
    ids=str,
)
def test_compiled_training_and_inference_give_the_same_numbers(backend: str, options: dict[str, Any]) -> None:
    eager, model, compiled = compiled_pair(backend, **options)
    train(eager, range(3, 5))
    train(compiled, range(3, 5))
    assert [layer.seen for layer in layers(model)] == [layer.seen for layer in layers(eager)]
    assert_same(model, eager, rtol=1e-5, atol=1e-6)
    before = kept(model.eval())
    eager.eval()
    for rows in (12, 5):
        x, c, _ = make_batch(9, rows)
        torch.testing.assert_close(compiled(x, confounders=c), eager(x, confounders=c), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kept(model), before, rtol=0, atol=0)


@DYNAMO_ASKS
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("reentrant", [True, False])
def test_compiled_training_under_checkpointing(reentrant: bool) -> None:
    eager, model, compiled = compiled_pair("aot_eager", reentrant, gradient="projected")
    train(eager, range(3, 6))
    with warnings.catch_warnings():
        # with the layer's step out of its sight the compiler leaves the checkpointed part to Python, and says so
        warnings.filterwarnings("ignore", "None of the inputs have requires_grad", UserWarning)
        train(compiled, range(3, 6))
    assert [layer.seen for layer in layers(model)] == [72, 72]
    assert_same(model, eager, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("options", [{}, {"missing": "mean"}, {"share": "spatial"}, {"standardize": False}], ids=str)
def test_inference_is_one_graph(options: dict[str, Any]) -> None:
    model = make_model(**options)
    train(model, range(3))
    x, c, _ = make_batch(9)
    explained = torch._dynamo.explain(model.eval())(x, confounders=c)
    assert (explained.graph_count, explained.graph_break_count) == (1, 0), explained.break_reasons


@pytest.mark.usefixtures("compiler")
def test_the_compiled_network_past_the_wrapper_is_refused() -> None:
    model = make_model().eval()
    x, c, _ = make_batch(0)
    torch.compile(model, backend="eager")(x, confounders=c)
    with pytest.raises(UsageError, match="past its wrapper"):
        torch.compile(model.network, backend="eager")(x)


@DYNAMO_ASKS
@pytest.mark.usefixtures("compiler")
def test_a_part_that_is_compiled_by_itself() -> None:
    eager, model, _ = compiled_pair("eager")
    model.network.fc.compile(backend="eager")
    train(eager, range(3, 6))
    train(model, range(3, 6))
    assert_same(model, eager, rtol=1e-5, atol=1e-6)


def exported(model: nn.Module) -> tuple[tuple[Tensor], dict[str, Tensor], dict[str, Any]]:
    x, c, _ = make_batch(9)
    batch = torch.export.Dim("batch", min=1)
    return (x,), {"confounders": c}, {"inputs": ({0: batch},), "confounders": {0: batch}}


@pytest.mark.parametrize("options", [{}, {"missing": "skip"}, {"share": "spatial"}], ids=str)
def test_export_takes_confounders_and_any_batch_size(options: dict[str, Any]) -> None:
    model = make_model(**options)
    train(model, range(3))
    inputs, more, shapes = exported(model.eval())
    program = torch.export.export(model, inputs, more, dynamic_shapes=shapes)
    for rows in (12, 1, 40):
        x, c, _ = make_batch(rows, rows)
        ours = program.module()(x, confounders=c)
        torch.testing.assert_close(ours, model(x, confounders=c), rtol=1e-5, atol=1e-5)
        assert not torch.allclose(ours, program.module()(x, confounders=c + 1))
    assert step(model.train(), 20).isfinite().all()  # the exported model itself trains on


def test_export_of_rows_that_collide_in_the_cache() -> None:
    """Eager code has a form of its own for these; the exported program must not be bound to its batch sizes."""
    layer = rmdn.RMDN(2, 2)
    _, c, y = make_batch(0, 40)
    layer(torch.randn(40, 1024), c, y)
    batch = torch.export.Dim("batch", min=1)
    shapes = {"features": {0: batch}, "confounders": {0: batch}}
    program = torch.export.export(layer.eval(), (torch.randn(40, 1024), c), dynamic_shapes=shapes)
    for rows in (3, 80):
        z, c = torch.randn(rows, 1024), torch.randn(rows, 2)
        torch.testing.assert_close(program.module()(z, c), layer(z, c), rtol=1e-5, atol=1e-5)


def test_onnx_takes_confounders_and_any_batch_size(tmp_path: Any) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = make_model()
    train(model, range(3))
    inputs, more, shapes = exported(model.eval())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)  # torch's own
        warnings.filterwarnings("ignore", "# The axis name", UserWarning)  # two inputs share the batch's axis
        program = torch.onnx.export(
            model, inputs, kwargs=more, dynamic_shapes=shapes, input_names=["x", "c"], dynamo=True, verbose=False
        )
    program.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for rows in (12, 1, 40):
        x, c, _ = make_batch(rows, rows)
        (out,) = session.run(None, {"x": x.numpy(), "c": c.numpy()})
        np.testing.assert_allclose(out, model(x, confounders=c).detach(), rtol=1e-4, atol=1e-5)


# What is refused, and threads -----------------------------------------------------------------------------------------


def test_data_parallel_is_refused() -> None:
    """As torch.nn.parallel.replicate does it, which itself asks for GPUs: every module is told in turn."""
    for model in (make_model(), nn.Sequential(nn.Linear(2, 2), rmdn.RMDN(1, 2))):
        with pytest.raises(UsageError, match="DistributedDataParallel"):
            [module._replicate_for_data_parallel() for module in model.modules()]


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.fc(x).relu())


@DYNAMO_ASKS
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("compiled", [False, True])
def test_a_layer_called_twice_in_one_forward_is_refused(compiled: bool) -> None:
    model = rmdn.deconfound(Twice(), at=["fc"], num_confounders=1, num_classes=2)
    call = torch.compile(model, backend="eager") if compiled else model
    for _ in range(2):  # the refusal leaves nothing behind that would let the next call through
        with pytest.raises(UsageError, match="called twice"):
            call(torch.randn(8, 3), confounders=torch.randn(8), labels=torch.arange(8) % 2)
    assert model.eval()(torch.randn(8, 3), confounders=torch.randn(8)).shape == (8, 3)


def test_calls_past_the_wrapper_are_refused_before_and_after_a_batch() -> None:
    model = make_model()
    x, c, y = make_batch(0)
    for mode in (True, False):
        with pytest.raises(UsageError, match="past its wrapper"):
            model.train(mode).network(x)
        model(x, confounders=c, labels=y)
        with pytest.raises(InputError):
            model.train()(x, confounders=c[:3], labels=y)
        with pytest.raises(UsageError, match="past its wrapper"):
            model.network(x)


def test_threads_each_read_their_own_confounders() -> None:
    model = make_model()
    train(model, range(3))
    before = kept(model.eval())
    batches = [make_batch(seed, 40) for seed in range(8)]
    x = batches[0][0]  # the same images: only the confounders tell the results apart

    def infer(batch: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
        with torch.no_grad():
            return [model(x, confounders=batch[1]) for _ in range(25)]

    serial = [infer(batch)[0] for batch in batches]
    with ThreadPoolExecutor(8) as pool:
        for expected, results in zip(serial, pool.map(infer, batches), strict=True):
            assert all(torch.equal(result, expected) for result in results)
    assert not torch.equal(serial[0], serial[1])
    torch.testing.assert_close(kept(model), before, rtol=0, atol=0)
    assert not model.slot.by_thread


# Networks -------------------------------------------------------------------------------------------------------------


def monai_vit(dims: int) -> nn.Module:
    nets = pytest.importorskip("monai.networks.nets")
    size = (16,) * dims
    return nets.ViT(1, size, (8,) * dims, hidden_size=24, mlp_dim=32, num_layers=2, num_heads=2, classification=True,
                    num_classes=2, spatial_dims=dims)  # fmt: skip


def densenet(dims: int) -> nn.Module:
    nets = pytest.importorskip("monai.networks.nets")
    return nets.DenseNet121(dims, 1, 2, init_features=4, growth_rate=2, block_config=(2, 2, 2, 2))


def resnet(dims: int) -> nn.Module:
    nets = pytest.importorskip("monai.networks.nets")
    return nets.ResNet("basic", [1, 1, 1, 1], [4, 4, 8, 8], spatial_dims=dims, n_input_channels=1, num_classes=2)


def hugging_face_vit(dims: int) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8,
        num_channels=1, num_labels=2,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def sequential(dims: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 8), nn.Linear(8, 2))


def nested(dims: int) -> nn.Module:
    stem = nn.ModuleDict({"a.b".replace(".", "_"): nn.Conv2d(1, 4, 3)})
    return nn.Sequential(nn.Sequential(*stem.values(), nn.ReLU()), nn.Sequential(nn.Flatten(), nn.Linear(784, 2)))


def logits(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    return output.logits if hasattr(output, "logits") else output[0]


VITS = [(build, dims, v) for build, dims in ((monai_vit, 2), (monai_vit, 3), (hugging_face_vit, 2)) for v in "ABC"]
OTHERS = [
    (sequential, 2, "0|3"),
    (nested, 2, r"0\.0|1\.1"),
    (densenet, 2, r"features\.(denseblock1|norm5)"),
    (densenet, 3, r"features\.(denseblock1|norm5)"),
    (resnet, 2, r"layer[14]|avgpool"),
    (resnet, 3, r"layer[14]|avgpool"),
]


@pytest.mark.parametrize(("build", "dims", "at"), VITS + OTHERS)
@pytest.mark.parametrize("sampled", [True, False])
def test_networks_of_every_kind(build: Any, dims: int, at: str, sampled: bool) -> None:
    torch.manual_seed(0)
    network = build(dims)
    keys = list(network.state_dict())
    x = torch.randn(6, 1, *(16 if build not in (densenet, resnet) else 32,) * dims)
    c, y = torch.randn(6), torch.arange(6) % 2
    places = rmdn.vit_places(network, at) if at in "ABC" else at
    if at in "ABC":
        assert len(places) == {"A": 3, "B": 3, "C": 1}[at]
    model = rmdn.deconfound(network, places, num_confounders=1, num_classes=2, sample=x[:2] if sampled else None)
    if sampled:
        assert all(layer.beta.shape[1] for layer in layers(model))
    loss = nn.functional.cross_entropy(logits(model(x, confounders=c, labels=y)), y)
    loss.backward()
    assert all(layer.seen == 6 for layer in layers(model))
    first, *_ = grads = [p.grad for p in network.parameters() if p.grad is not None]
    assert first.norm() > 0
    assert all(grad.isfinite().all() for grad in grads)
    model.eval()
    out = logits(model(x, confounders=c))
    assert torch.equal(out, logits(model(x, confounders=c)))
    assert not torch.allclose(out, logits(model(x, confounders=c + 2)))
    assert list(model.remove().state_dict()) == keys
    assert logits(network(x)).shape == out.shape


def test_a_place_whose_module_is_never_called_is_refused_by_the_dry_run() -> None:
    network = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.raises(PlacementError, match="nothing comes out there"):
        rmdn.deconfound(network, ["self_attn.out_proj"], num_confounders=1, num_classes=2, sample=torch.randn(2, 3, 8))
    assert not any(module._forward_hooks for module in network.modules())
    model = rmdn.deconfound(network, ["self_attn"], num_confounders=1, num_classes=2, sample=torch.randn(2, 3, 8))
    model(torch.randn(6, 3, 8), confounders=torch.randn(6), labels=torch.arange(6) % 2)
    assert layers(model)[0].seen == 6


def test_what_was_learned_in_inference_mode_goes_on_learning():
    z, c, labels = torch.randn(64, 4), torch.randn(64, 1), torch.arange(64) % 2
    layer, expected = rmdn.RMDN(1, 2), rmdn.RMDN(1, 2)
    with torch.inference_mode():
        layer(z[:32], c[:32], labels[:32])
    expected(z[:32], c[:32], labels[:32])
    assert torch.equal(layer(z[32:], c[32:], labels[32:]), expected(z[32:], c[32:], labels[32:]))
