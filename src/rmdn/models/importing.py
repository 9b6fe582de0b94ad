"""Any network by its import path: the paper's, MONAI's, transformers', the user's own."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from torch import nn

from rmdn.errors import MissingExtraError, SettingError


def build(path: str, **arguments: Any) -> nn.Module:
    """The network that the class (or function) at an import path makes from the arguments.

    `build("rmdn.models.CNN2d", image_size=64)`, `build("my.module:MyNet", width=8)`,
    `build("monai.networks.nets.DenseNet121", spatial_dims=3, in_channels=1, out_channels=2)`.
    A model of Hugging Face transformers is made from a config and takes the config's entries:
    `build("transformers.ViTForImageClassification", num_labels=2)`.
    """
    target = _target(path)
    config = getattr(target, "config_class", None)
    try:
        if config is not None:
            _check_config(path, config, arguments)
            network = target(config(**arguments))
        else:
            _check_arguments(path, target, arguments)
            network = target(**arguments)
    except (TypeError, ValueError) as error:
        if isinstance(error, SettingError):
            raise
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items()) or "no arguments"
        raise SettingError(f"{path} could not be built from {given}: {error}") from error
    if not isinstance(network, nn.Module):
        raise SettingError(
            f"{path} makes a {type(network).__name__}, not a torch.nn.Module; give the path of a network's "
            "class, or of a function that returns a network."
        )
    return network


def _target(path: str) -> Callable[..., Any]:
    module_name, _, attribute = path.rpartition(":" if ":" in path else ".")
    if not module_name or not attribute:
        raise SettingError(f"{path!r} is not an import path; give package.module.Name or package.module:Name.")
    module = _import(module_name, path)
    if not hasattr(module, attribute):
        names = [name for name in dir(module) if not name.startswith("_")]
        raise SettingError(f"The module {module_name} has no {attribute!r}; {_near(attribute, names)}")
    target = getattr(module, attribute)
    if not callable(target):
        raise SettingError(f"{path} is a {type(target).__name__}, not the class of a network.")
    return target


def _import(name: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == "monai":
            raise MissingExtraError(f"{path} needs MONAI: pip install 'rmdn[imaging]'.") from error
        if name == missing or name.startswith(f"{missing}."):
            raise SettingError(
                f"There is no module {missing!r} to import {path} from; check the spelling, install its "
                "package, or put the folder that holds it on PYTHONPATH."
            ) from error
        raise SettingError(f"{path} cannot be imported: it needs {missing!r}, which is not installed.") from error


def _check_arguments(path: str, target: Callable[..., Any], arguments: dict[str, Any]) -> None:
    try:
        parameters = inspect.signature(target).parameters.values()
    except ValueError:  # no signature to read: the call itself will tell
        return
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    missing = [name for name, p in named.items() if p.default is p.empty and name not in arguments]
    if missing or not any(p.kind == p.VAR_KEYWORD for p in parameters):
        _refuse_unknown(path, arguments, named)
    if missing:
        raise SettingError(f"{path} also needs {', '.join(missing)}; it takes {', '.join(named)}.")


def _check_config(path: str, config: type, arguments: dict[str, Any]) -> None:
    """A config keeps whatever it is given: what none of its defaults has is a slip."""
    default = config()
    properties = [name for name, _ in inspect.getmembers(config, lambda member: isinstance(member, property))]
    unknown = (name for name in arguments if not hasattr(default, name))
    _refuse_unknown(path, unknown, [*vars(default), *properties])


def _refuse_unknown(path: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise SettingError(f"{path} has no argument {name!r}; {_near(name, list(known))}")


def _near(name: str, known: list[str]) -> str:
    """The names that the user may have meant; all of them where none is near."""
    near = difflib.get_close_matches(name, known, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(known[:30])}."
