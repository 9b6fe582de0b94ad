"""The methods that the experiments compare, by name: a network goes in, a network and a strategy come out.

A method of your own is a function here, or in a file given to `rmdn reproduce --plugin FILE`:

    @method("Mine", code=("my.module",))
    def mine(network: nn.Module, problem: Problem, *, option: float = 1.0) -> Prepared: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

import rmdn
from rmdn.errors import SettingError, near
from rmdn.experiments import plugins
from rmdn.experiments.problems import Problem
from rmdn.models.vit import ViT2d, ViT3d
from rmdn.strategies import ACIL, EWC, FOAL, MDN, PMDN, BRNet, Gate, Hinges, LwF, PackNet, Pixel, Plain, Stagewise, Strategy

Prepared = tuple[nn.Module, Strategy]
At = str | Sequence[str] | None
_MDN = ("rmdn.layers.mdn", "rmdn.layers.training", "rmdn.layers.base", "rmdn.recursion", "rmdn.strategies.mdn")
_PMDN = ("rmdn.layers.pmdn", "rmdn.layers.training", "rmdn.layers.base", "rmdn.strategies.pmdn")
_RMDN = ("rmdn.layers.rmdn", "rmdn.layers.training", "rmdn.layers.base", "rmdn.recursion")


@dataclass(frozen=True)
class Method:
    """How a network is prepared and trained."""

    build: Callable[..., Prepared]
    code: tuple[str, ...]  # the modules that determine what it learns
    settings: Mapping[str, Any] = field(default_factory=dict)  # where it departs from an experiment's


METHODS: dict[str, Method] = {}


def method(
    name: str, code: Sequence[str] = (), settings: Mapping[str, Any] | None = None
) -> Callable[[Callable[..., Prepared]], Callable[..., Prepared]]:
    """Register a method; a change in the modules `code`, or in the plugin file it stands in, makes its runs run anew."""

    def register(build: Callable[..., Prepared]) -> Callable[..., Prepared]:
        METHODS[name] = Method(build, (*code, *plugins.own_code(build)), dict(settings or {}))
        return build

    return register


def named(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise SettingError(f"There is no method {name!r}; {near(name, METHODS)}")
    return METHODS[name]


def of_plugins() -> list[str]:
    """The methods that plugins have registered."""
    return [name for name, one in METHODS.items() if plugins.own_code(one.build)]


def places(network: nn.Module, at: At = None) -> Sequence[str]:
    """Where confounder layers go: by default after every convolution and the pre-logits layer, as in the paper.

    In a ViT "A", "B" and "C" are the paper's variants, "C" (the pre-logits layer alone) the default.
    """
    if isinstance(network, ViT2d | ViT3d):
        return rmdn.vit_places(network, at or "C") if at is None or isinstance(at, str) else at
    if at is not None:
        return [at] if isinstance(at, str) else at
    convolutions = [name for name, part in network.named_modules() if isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d)]
    return [*convolutions, str(network.pre_logits_name)]


def deconfounded(network: nn.Module, problem: Problem, at: At = None, columns: int = 0, **options: Any) -> nn.Module:
    """The network with confounder layers; `columns` of confounders where a strategy makes more of them."""
    return rmdn.deconfound(
        network,
        at=places(network, at),
        num_confounders=columns or problem.num_confounders,
        num_classes=problem.num_classes,
        sample=problem.sample(),
        **options,
    )


@method("Plain")
def plain(network: nn.Module, problem: Problem) -> Prepared:
    """The base network."""
    return network, Plain()


@method("Pixel-space MDN", ("rmdn.strategies.pixel", "rmdn.recursion"))
def pixel(network: nn.Module, problem: Problem) -> Prepared:
    """The confounder regressed out of the input."""
    return network, Pixel()


@method("BR-Net", ("rmdn.strategies.brnet",))
def brnet(network: nn.Module, problem: Problem, **options: Any) -> Prepared:
    """An adversary on the pre-logits features."""
    return network, BRNet(**options)


@method("MDN", _MDN)
def mdn(network: nn.Module, problem: Problem, *, at: At = None, **options: Any) -> Prepared:
    """Least squares by the Gram matrix of each stage's whole training set."""
    return deconfounded(network, problem, at, layer=rmdn.MDN, **options), MDN()


@method("Stage-specific MDN", (*_MDN, "rmdn.strategies.stagewise"))
def stagewise_mdn(network: nn.Module, problem: Problem, *, at: At = None, **options: Any) -> Prepared:
    """The same with a network of its own for each stage."""
    return deconfounded(network, problem, at, layer=rmdn.MDN, **options), Stagewise(MDN())


@method("P-MDN", _PMDN)
def pmdn(network: nn.Module, problem: Problem, *, at: At = None, **options: Any) -> Prepared:
    """Coefficients by gradient descent, in turn with the network's steps."""
    return deconfounded(network, problem, at, layer=rmdn.PMDN, **options), PMDN()


@method("R-MDN", _RMDN)
def rmdn_as_published(
    network: nn.Module, problem: Problem, *, at: At = None, regularization: float = 1e-4, **options: Any
) -> Prepared:
    """R-MDN as the paper's text has it: raw confounder columns, constant coefficients in the backward pass."""
    options = {"standardize": False, "inplace": True, **options}
    return deconfounded(network, problem, at, regularization=regularization, **options), Plain()


_STRATEGIES = tuple(f"rmdn.strategies.{name}" for name in ("ewc", "gate", "hinges", "lwf"))


@method("R-MDN variant", (*_RMDN, *_STRATEGIES))
def variant(
    network: nn.Module,
    problem: Problem,
    *,
    at: At = None,
    knots: int = 0,
    ewc: float = 0.0,
    lwf: float = 0.0,
    looks: int = 0,
    z: float = 3.0,
    **options: Any,
) -> Prepared:
    """R-MDN with what can be put around it: bent confounders, EWC, LwF, a gate; nothing of it where the number is 0."""
    strategy: Strategy = Plain()
    columns = problem.num_confounders
    if ewc:
        strategy = EWC(strategy, strength=ewc)
    if lwf:
        strategy = LwF(strategy, strength=lwf)
    if knots:
        strategy = hinges = Hinges(strategy, knots=knots)
        columns = hinges.columns(problem.num_confounders)
    if looks:
        strategy = Gate(strategy, z=z, looks=looks)
    options = {"regularization": 1e-4, "inplace": True, **options}
    return deconfounded(network, problem, at, columns, **options), strategy


@method("Guarded R-MDN", (*_RMDN, "rmdn.strategies.gate"), {"holdout": 0.2})
def guarded(network: nn.Module, problem: Problem, *, looks: int = 10, z: float = 3.0, **options: Any) -> Prepared:
    """Ours: every stage ends with the network that a gate has kept, its layers recalibrated (docs/methods/guarded.md)."""
    return variant(network, problem, looks=looks, z=z, **options)


@method("EWC", ("rmdn.strategies.ewc",))
def ewc(network: nn.Module, problem: Problem, **options: Any) -> Prepared:
    """Elastic weight consolidation."""
    return network, EWC(**options)


@method("LwF", ("rmdn.strategies.lwf",))
def lwf(network: nn.Module, problem: Problem, **options: Any) -> Prepared:
    """Learning without forgetting."""
    return network, LwF(**options)


@method("PackNet", ("rmdn.strategies.packnet",))
def packnet(network: nn.Module, problem: Problem, **options: Any) -> Prepared:
    """Iterative pruning, a mask for each stage."""
    return network, PackNet(**options)


@method("EWC + R-MDN", (*_RMDN, "rmdn.strategies.ewc"))
def ewc_rmdn(network: nn.Module, problem: Problem, *, strength: float = 400.0, **options: Any) -> Prepared:
    """R-MDN in the network, elastic weight consolidation around its training."""
    return rmdn_as_published(network, problem, **options)[0], EWC(strength=strength)


@method("LwF + R-MDN", (*_RMDN, "rmdn.strategies.lwf"))
def lwf_rmdn(network: nn.Module, problem: Problem, *, strength: float = 1.0, **options: Any) -> Prepared:
    """R-MDN in the network, learning without forgetting around its training."""
    return rmdn_as_published(network, problem, **options)[0], LwF(strength=strength)


@method("ACIL", ("rmdn.strategies.acil", "rmdn.strategies.analytic", "rmdn.recursion"))
def acil(network: nn.Module, problem: Problem, **options: Any) -> Prepared:
    """A recursive classifier on the first stage's features, expanded."""
    return network, ACIL(**options)


@method("F-OAL", ("rmdn.strategies.foal", "rmdn.strategies.analytic", "rmdn.recursion"))
def foal(network: nn.Module, problem: Problem, **options: Any) -> Prepared:
    """A recursive classifier on the features of several layers, each sample seen once."""
    return network, FOAL(places(network), **options)
