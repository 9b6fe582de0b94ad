"""Freed memory is kept: asking for it again costs no page faults."""

import platform
import subprocess
import sys

import pytest

from rmdn.allocation import keep_freed_memory

COUNT = """
import resource, torch
from rmdn.allocation import keep_freed_memory
if {keep}:
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    torch.ones(16, 2**20)
before = faults()
for _ in range(10):
    torch.ones(16, 2**20)  # 64 MiB
print(faults() - before)
"""


def page_faults(keep):
    done = subprocess.run([sys.executable, "-c", COUNT.format(keep=keep)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_kept_memory_is_not_cleared_again():
    assert page_faults(keep=True) < page_faults(keep=False) / 10


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert not keep_freed_memory()
