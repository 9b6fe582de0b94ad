"""What several test files share."""

import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parent / "tiny_plugin.py"


@pytest.fixture
def tiny():
    """The tiny plugin, loaded as `--plugin` does it, for one test alone."""
    from rmdn.experiments import methods, plugins, problems, registry

    registries = (methods.METHODS, problems.PROBLEMS, problems.CODE, registry.EXPERIMENTS)
    before = [dict(one) for one in registries]
    plugins.load([str(PLUGIN)])
    yield sys.modules["rmdn_plugin_tiny_plugin"]
    for one, entries in zip(registries, before, strict=True):
        one.clear()
        one.update(entries)
    for name in [name for name in sys.modules if name.startswith(plugins.PREFIX)]:
        del sys.modules[name]
