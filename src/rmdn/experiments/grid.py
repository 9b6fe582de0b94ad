"""Many independent runs on the cores of one machine or on a cluster; what is done is not done again."""

from __future__ import annotations

import os
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from rmdn.allocation import keep_freed_memory
from rmdn.errors import SettingError
from rmdn.experiments.plugins import load
from rmdn.experiments.run import Run, execute
from rmdn.experiments.store import Store
from rmdn.extras import need

_ALONE = threading.Lock()  # the random numbers are a process's: the threads of a dask worker take turns

Watch = Callable[[Run, str | None, float], None]  # a run that has ended, its error if it failed, its seconds


def pending(runs: Sequence[Run], store: Store, *, fresh: bool = False) -> list[Run]:
    """The runs still to make, each once."""
    once = {run.key: run for run in runs}
    return [run for run in once.values() if fresh or not store.done(run)]


def carry_out(
    runs: Sequence[Run],
    store: Store,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    plugins: Sequence[str] = (),
    fresh: bool = False,
    watch: Watch | None = None,
) -> None:
    """Make all runs that are not made yet. One that fails leaves its error in the store, and the others go on.

    Args:
        runs: what is wanted; a run that several experiments share is made once.
        store: where the results lie.
        jobs: how many at a time; the machine's cores are shared among them.
        cluster: the address of a dask scheduler (tcp://...), or "slurm" for jobs by dask-jobqueue's own configuration.
        plugins: files that register what the runs name.
        fresh: make runs anew that are made already, or begun.
        watch: told of every run that ends.
    """
    todo = pending(runs, store, fresh=fresh)
    if not todo:
        return
    joblib = need("joblib", "study")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with workers(cluster, jobs):
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        for number, error, seconds in parallel(
            joblib.delayed(attempt)(number, run, store, tuple(plugins), threads, fresh) for number, run in enumerate(todo)
        ):
            if watch:
                watch(todo[number], error, seconds)


def attempt(
    number: int, run: Run, store: Store, plugins: Sequence[str], threads: int, fresh: bool
) -> tuple[int, str | None, float]:
    """One run in a worker: its number, its error if it failed, its seconds."""
    with _ALONE:
        clock = time.perf_counter()
        torch.set_num_threads(threads)
        keep_freed_memory()
        try:
            load(plugins)
            if fresh:
                shutil.rmtree(store.unfinished(run), ignore_errors=True)
            execute(run, store)
        except Exception as error:  # whatever it is, it must not end the other runs
            store.write_failure(run, traceback.format_exc())
            return number, f"{type(error).__name__}: {error}", time.perf_counter() - clock
        return number, None, time.perf_counter() - clock


@contextmanager
def workers(cluster: str | None, jobs: int) -> Iterator[None]:
    """Where joblib sends the runs: to processes here, or to a dask cluster."""
    if cluster is None:
        yield
        return
    joblib, distributed = need("joblib", "study"), need("distributed", "cluster")
    with ExitStack() as stack:
        client = stack.enter_context(distributed.Client(_scheduler(cluster, jobs, stack)))
        stack.enter_context(joblib.parallel_config(backend="dask", client=client))
        yield


def _scheduler(cluster: str, jobs: int, stack: ExitStack) -> Any:
    if cluster == "slurm":
        slurm = stack.enter_context(need("dask_jobqueue", "cluster").SLURMCluster())
        slurm.scale(jobs=jobs)
        return slurm
    if "://" not in cluster:
        raise SettingError(f"cluster={cluster!r} is neither the address of a dask scheduler (tcp://host:8786) nor 'slurm'.")
    return cluster
