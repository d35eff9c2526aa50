"""Running a sweep: each finished chunk is stored at once, and a later run goes on from there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from attsvm.sweep.backends import Backend, DaskCluster, Order, Processes
from attsvm.sweep.chunks import Chunk, DamagedChunkError
from attsvm.sweep.clock import KINDS
from attsvm.sweep.manifest import new_manifest, now, versions
from attsvm.sweep.result import ARRAYS, ResultFolder, SweepResult
from attsvm.sweep.task import C, Configuration, Done, Sweep, Task, differences

Progress = Callable[[int, int], None]

_LIBRARIES = ("scipy", "pyarrow", "scikit-learn", "clarabel")


def run(
    sweep: Sweep[C],
    configuration: C | None = None,
    *,
    folder: Path | str,
    backend: Backend | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> SweepResult:
    """Compute a sweep into `folder`.

    Every finished chunk is written whole before the next is waited for, so that a run that was killed, interrupted or
    ran out of disk goes on with ``resume=True`` and ends with the same tables and arrays, byte for byte. They do not
    depend on the backend or the number of jobs either.

    Arguments:
        sweep: such as one of `attsvm.experiments.EXPERIMENTS`, or one of your own.
        configuration: by default the sweep's own.
        folder: made if need be; it belongs to one configuration.
        backend: `Processes(jobs)` or `DaskCluster(address)`; this process by default.
        resume: go on from the chunks that are there; a folder that holds a run is refused without this or `overwrite`.
        overwrite: remove what the folder holds of this sweep, whatever its configuration, and start over.
        device: where chunks are computed.
        progress: called after every chunk with the number of chunks done and the number known so far.
        say: called with a sentence when a damaged chunk is computed again, other versions computed earlier chunks, or a
            cluster has lost its last worker.

    Raises:
        ValueError: if the folder holds something else, or the same and neither `resume` nor `overwrite` was asked for.
        OSError: if the folder cannot be written, or workers are lost; what was finished before stays.
    """
    configuration = sweep.default if configuration is None else configuration
    before = check_folder(sweep, configuration, folder=folder, resume=resume, overwrite=overwrite, device=device)
    store = ResultFolder(Path(folder), configuration.fingerprint(sweep.id, torch.device(device).type))
    tell = progress or (lambda done, total: None)
    state = {"started": now(), **(before or {})}
    session = _Session(sweep, configuration, store, str(device), backend or Processes(), tell, say, state)
    with store.open():
        if overwrite:
            store.clear()
        if before is None:
            store.write_manifest(session.manifest())
        return session.run()


def check_folder(
    sweep: Sweep[C],
    configuration: C,
    *,
    folder: Path | str,
    resume: bool = False,
    overwrite: bool = False,
    device: torch.device | str = "cpu",
    also: Sequence[str] = (),
) -> dict[str, Any] | None:
    """What `run` checks before it computes anything, with a ValueError; the manifest that is in `folder`, or None.

    `also` are files that the caller will write into the folder besides.
    """
    if type(configuration) is not type(sweep.default):
        expected = type(sweep.default).__name__
        raise ValueError(f"configuration of {sweep.id} must be {expected}; got {type(configuration).__name__}")
    store = ResultFolder(Path(folder), configuration.fingerprint(sweep.id, torch.device(device).type))
    files = [*(f"{table}.parquet" for table in sweep.columns), ARRAYS, *also]
    return store.check(sweep.id, configuration.to_json(), files, resume=resume, overwrite=overwrite)


@dataclass
class _Session:
    """One call of `run`."""

    sweep: Sweep[Any]
    configuration: Configuration
    store: ResultFolder
    device: str
    backend: Backend
    tell: Progress
    say: Callable[[str], None] | None
    before: Mapping[str, Any]  # the manifest that was there, or only when this began
    began: float = field(default_factory=time.perf_counter)
    chunks: dict[str, Chunk] = field(default_factory=dict)
    computed: int = 0

    def __post_init__(self) -> None:
        self.notes = list(self.before.get("notes", ()))
        earlier = self.before.get("versions")
        changed = differences(earlier, versions(*_LIBRARIES)) if earlier else ""
        if changed and not self.before.get("complete"):  # then equal bytes are not promised
            self._note(f"resumed with {changed}: earlier chunks were computed by other versions")

    def run(self) -> SweepResult:
        try:
            for tasks in self._rounds():
                self._finish(tasks)
        except BaseException:
            with contextlib.suppress(OSError):  # it records the time spent and the notes; the chunks are stored already
                self.store.write_manifest(self.manifest())
            raise
        tables, arrays, files = self.store.join(list(self.chunks.values()))
        manifest = self.manifest() | {
            "complete": True,
            "finished": now() if self.computed else self.before.get("finished") or now(),
            "tables": {name: table.num_rows for name, table in tables.items()},
            "arrays": {name: list(array.shape) for name, array in arrays.items()},
            "files": files,
        }
        self.store.write_manifest(manifest)
        return SweepResult(self.sweep.id, self.store.path, tables, arrays, manifest)

    def _rounds(self) -> Iterator[Sequence[Task]]:
        done: list[Done] = []
        tasks = list(self.sweep.tasks(self.configuration))
        while tasks:
            names = [task.name for task in tasks]
            if len(set(names)) < len(names) or any(name in self.chunks for name in names):
                raise ValueError(f"tasks of {self.sweep.id} must have names of their own; got {names}")
            yield tasks
            done += [Done(task, self.chunks[task.name].counts) for task in tasks]
            tasks = [] if self.sweep.more is None else list(self.sweep.more(self.configuration, done))

    def _finish(self, tasks: Sequence[Task]) -> None:
        """Compute what one round lacks, in whatever order it finishes, and keep it in the order of the tasks."""
        found = {task.name: self._stored(task) for task in tasks}
        missing = [task for task in tasks if found[task.name] is None]
        known = len(self.chunks) + len(tasks)
        ready = known - len(missing)
        self.tell(ready, known)
        if missing and self.sweep.prepare is not None:
            missing = list(self.sweep.prepare(self.configuration, missing))
        light = replace(self.sweep, tasks=list, more=None, prepare=None)  # what workers do not need is not sent there
        if orders := [Order(light, self.configuration, task, self.device, self.store.fingerprint) for task in missing]:
            told = (self._say,) if self.say is not None and isinstance(self.backend, DaskCluster) else ()
            with contextlib.closing(self.backend(orders, *told)) as results:
                for place, content in results:
                    found[missing[place].name] = self.store.write(missing[place], content)
                    self.computed += 1
                    ready += 1
                    self.tell(ready, known)
        there = {name: chunk for name, chunk in found.items() if chunk is not None}
        if len(there) < len(found):
            raise RuntimeError(f"the backend did not return the chunks {', '.join(sorted(set(found) - set(there)))}")
        self.chunks |= there

    def _stored(self, task: Task) -> Chunk | None:
        try:
            return self.store.read(task)
        except DamagedChunkError as error:
            self._note(f"chunk {task.name} was damaged ({error}) and is computed again")
            return None

    def _note(self, note: str) -> None:
        self.notes.append(note)
        self._say(note)

    def _say(self, sentence: str) -> None:
        if self.say is not None:
            self.say(f"{self.sweep.id}: {sentence}")

    def manifest(self) -> dict[str, Any]:
        reasons = dict.fromkeys(reason for chunk in self.chunks.values() for reason in chunk.counts)
        counts = {reason: sum(chunk.counts.get(reason, 0) for chunk in self.chunks.values()) for reason in reasons}
        spent = {name: chunk.spent for name, chunk in self.chunks.items()}
        tasks = {name: {kind: round(each[kind], 4) for kind in each} for name, each in spent.items()}
        # Of a GPU its own name, unless only a cluster's workers have it.
        on_gpu = torch.device(self.device).type == "cuda" and torch.cuda.is_available()
        device = torch.cuda.get_device_name(self.device) if on_gpu else self.device
        idle = bool(self.before.get("complete")) and not self.computed  # reading a finished result is no computing
        wall = float(self.before.get("wall_seconds", 0.0)) + (0.0 if idle else time.perf_counter() - self.began)
        return new_manifest(
            "sweep", id=self.sweep.id, complete=False, fingerprint=self.store.fingerprint,
            configuration=self.configuration.to_json(), seed=self.configuration.seed, device=device,
            tolerances=dict(self.sweep.tolerances), counts=counts,
            tasks=tasks, cpu_seconds={kind: round(sum(each[kind] for each in spent.values()), 4) for kind in KINDS},
            started=self.before["started"], finished=None, notes=self.notes, libraries=_LIBRARIES, seconds=wall,
            written=self.before.get("written") if idle else None,
        )  # fmt: skip
