"""What several test files share."""

import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parent / "tiny_plugin.py"


@pytest.fixture
def registries():
    """What a test registers, by plugins too, is gone after it."""
    from rmdn.experiments import methods, plugins, problems, registry

    known = (methods.METHODS, problems.PROBLEMS, problems.CODE, registry.EXPERIMENTS)
    before = [dict(one) for one in known]
    yield
    for one, entries in zip(known, before, strict=True):
        one.clear()
        one.update(entries)
    for name in [name for name in sys.modules if name.startswith(plugins.PREFIX)]:
        del sys.modules[name]


@pytest.fixture
def tiny(registries):
    """The tiny plugin, loaded as `--plugin` does it, for one test alone."""
    from rmdn.experiments import plugins

    plugins.load([str(PLUGIN)])
    return sys.modules["rmdn_plugin_tiny_plugin"]
