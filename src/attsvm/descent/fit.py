"""Training: `fit` checks its task, lets an engine take the steps, records on the way, and returns a `Run`."""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Callable, Collection, Sequence, Sized
from typing import Any

import torch
from torch import Tensor

from attsvm.attention import Head, Parameterization, Weights
from attsvm.attention.gradient import invisible_tokens
from attsvm.attention.losses import LossLike, as_loss
from attsvm.attention.prediction_heads import as_head
from attsvm.data import Seed, TokenDataset, stream_keys
from attsvm.data.checks import check_count, check_kind
from attsvm.data.machine import TINY, one_thread
from attsvm.descent.engines.base import Advance, Engine, Progress, choose_engine
from attsvm.descent.fingerprint import start_digest
from attsvm.descent.initial import Initial, check_size, starting_point
from attsvm.descent.optimizers.base import Optimizer
from attsvm.descent.optimizers.gradient import NormalizedGradientDescent
from attsvm.descent.run import Recorder, Run, record_steps, resumed
from attsvm.descent.schedules import StoppingRule
from attsvm.descent.task import InputBatches, Task, check_data


def fit(
    data: TokenDataset,
    head: object = None,
    *,
    parameterization: Parameterization | None = None,
    optimizer: Optimizer | None = None,
    loss: LossLike = None,
    steps: int = 2000,
    seed: Seed = 0,
    initial: Initial = None,
    starts: int | None = None,
    record: int | Sequence[int] = 50,
    keep: Collection[str] = ("risk", "norm", "attention", "weights"),
    train_head: bool = False,
    batch_size: int | None = None,
    ridge: float = 0.0,
    stop: StoppingRule | None = None,
    resume: Run | None = None,
    device: torch.device | str | None = None,
    engine: Engine | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """Train one attention layer on every data set of a batch, each with its own weights.

    Minimises ``(1/n) sum_i loss(Y_i h(X_i^T softmax(X_i W z_i)))`` over W, or over K and Q with W = K Q^T, and over the
    prediction head h if asked, with a gradient whose direction stays right however large the weights become.

    Arguments:
        data: ``[*batch]`` data sets.
        head: the prediction head: a `Head`, a vector v, a torch module, or None for the data's own vector.
        parameterization: `Weights()` (default) or `KeyQuery(rank)`.
        optimizer: `NormalizedGradientDescent(0.1)` by default.
        loss: `Logistic()` by default, another loss, or a function of the margin.
        steps: total number of steps (a resumed run goes on up to it).
        seed: of the starting point and of mini-batches; element b of the batch draws from stream (seed, b). A sequence
            holds one seed per element.
        initial: None draws PyTorch's default start (`initial_parameters`), "zeros" takes W = 0; otherwise W, or a
            mapping from names to parameters, shaped for one data set, for the batch, or with a leading axis of starts.
        starts: number of random starts for each data set, without copying the data.
        record: an int records every so many steps and the first and last iterate; a sequence means those steps.
        keep: what to record, of "risk", "norm", "attention", "weights", "parameters".
        train_head: train the prediction head's parameters too, a set of them for each element.
        batch_size: use mini-batches of this many inputs in each step.
        ridge: minimise the risk plus ``ridge/2 ||W||_F^2``, or ``ridge/2 (||K||_F^2 + ||Q||_F^2)``, which is a nuclear
            penalty on K Q^T. The optimizer gets ``gradient + ridge * parameter`` in true proportion: the gradient of
            the risk falls exponentially as weights grow, so any ridge, even 2.2e-16, ends their growth. Risks are
            recorded without it; a trained head has none.
        stop: `Saturated()` or `Settled()`, which end each element by itself; None takes all steps.
        resume: an earlier run of the same configuration to go on from.
        device: move the data there first.
        engine: `TorchEngine()`, `CompiledEngine()` or `CudaEngine()`; None takes the fastest that can run the task.
        progress: called with (steps done, steps in all).

    Returns:
        A `Run` with shapes ``[*starts, *batch, ...]``.

    >>> import attsvm
    >>> data = attsvm.data.random_sphere(n=2, T=3, d=4, seed=0)
    >>> run = attsvm.fit(data, steps=200)
    >>> run.weights.shape, run.history.step.tolist()
    (torch.Size([4, 4]), [0, 50, 100, 150, 200])
    """
    began = time.perf_counter()
    steps = check_count(steps, "steps", 0)
    check_data(data)
    check_kind(engine, Engine | None, "engine", "an engine such as TorchEngine()")
    check_kind(resume, Run | None, "resume", "a Run, for example Run.load(path)")
    check_kind(keep, Collection, "keep", "a collection of names such as ('risk', 'weights')")
    if device is not None:
        data, head = data.to(device), head.to(device) if isinstance(head, Tensor | Head) else head
    keys = tuple(stream_keys(seed, data.batch_shape))
    task = Task(
        data.flatten(), as_head(head, data).flatten(), as_loss(loss), parameterization or Weights(),
        optimizer or NormalizedGradientDescent(0.1), train_head=train_head, ridge=ridge, stop=stop, seeds=keys,
        batches=None if batch_size is None else InputBatches(data.n, batch_size, keys, data.device),
    )  # fmt: skip
    check_size(data, task.parameterization, starts, 1 if stop is not None else _records(record, steps), keep)
    configuration = task.describe(steps)
    if resume is None:
        trained = task.head if train_head else None
        parameters, lead = starting_point(data, task.parameterization, keys, initial, starts, trained)
        first, now = 0, Progress.beginning(parameters, task.optimizer)
        _apply_stop(task, now, 0)
        configuration["fingerprint"]["start"] = start_digest(now.parameters)
    else:
        if initial is not None:
            raise ValueError("resume goes on from the run's own weights; leave initial out")
        first, now, lead = resume.step, resumed(resume, task, configuration), tuple(resume.risk.shape)
        if starts is not None and lead != (starts, *data.batch_shape):
            raise ValueError(f"resume needs the same starts; the run has shape {list(lead)}, got {starts}")
        configuration["fingerprint"] |= resume.configuration.get("fingerprint", {})
    runs = now.active.shape[0]
    chosen, reason = choose_engine(engine, task, runs)
    configuration["engine"] = f"{chosen!r}, as {reason}" if reason else repr(chosen)
    recorder = Recorder(task, record_steps(record, first, steps), keep)
    with one_thread(chosen.torch_threads and runs * task.data.tokens.numel() <= TINY):
        done = _descend(task, now, chosen.prepare(task, runs), recorder, range(first, steps), progress)
    history, seconds = recorder.history(lead), time.perf_counter() - began
    if resume is not None:
        history, seconds = resume.history.followed_by(history), seconds + resume.seconds
    return _finished(task, now, lead, history=history, step=done, configuration=configuration, seconds=seconds)


def _records(record: object, steps: int) -> int:
    """How many iterates `record` asks for, without listing them."""
    if isinstance(record, numbers.Integral) and int(record) > 0:
        return steps // int(record) + 1
    return len(record) if isinstance(record, Sized) else 1


def _descend(
    task: Task,
    now: Progress,
    advance: Advance,
    recorder: Recorder,
    todo: range,
    progress: Callable[[int, int], None] | None,
) -> int:
    """Take the steps `todo`, or as many as until every run has stopped; returns the number reached.

    An engine is asked for one stretch at a time, which ends where something is recorded or the stopping rule looks.
    """
    done, steps = todo.start, todo.stop
    if recorder.wants(done):
        recorder.record(done, now)
    while done < steps and bool(now.active.any()):
        look = math.inf if task.stop is None else done - done % task.stop.every + task.stop.every
        ahead = int(min(recorder.next_mark(done), look, steps))
        advance(now, done, task.optimizer.schedule.sizes(done, ahead - done))
        now.taken += (ahead - done) * now.active
        done = ahead
        if recorder.wants(done):
            recorder.record(done, now)
        _apply_stop(task, now, done)
        if progress is not None:
            progress(done, steps)
    if done < steps:
        recorder.record(done, now)
    return done


def _apply_stop(task: Task, now: Progress, done: int) -> None:
    """Ask the rule where its turn has come, and remember whom it stopped: a rule may answer only once."""
    if task.stop is not None and done % task.stop.every == 0:
        found = task.stop.done(task.weights(now.parameters), task.forward(now.parameters), now.memory)
        now.memory["stopped"] = now.memory.get("stopped", torch.zeros_like(found)) | (found & now.active)
        now.active &= ~found


def _finished(task: Task, now: Progress, lead: tuple[int, ...], **told: Any) -> Run:
    """The end of the runs, in the shapes that the caller sees; `told` are the fields of `Run` that say how it came."""

    def shaped(value: Tensor) -> Tensor:
        return value.reshape((*lead, *value.shape[2:]))

    attended = task.forward(now.parameters)
    invisible = invisible_tokens(task.data, task.head_at(now.parameters), attended)
    if task.parameterization.kept is not None:  # what is outside has a scale of its own
        invisible &= task.parameterization.kept
    state = {**now.state, **{f"stop/{name}": value for name, value in now.memory.items()}}
    return Run(
        weights=shaped(task.weights(now.parameters)),
        parameters={name: shaped(value) for name, value in now.parameters.items()},
        attention=shaped(attended.attention),
        log_attention=shaped(attended.log_attention),
        risk=shaped(task.loss.value(attended.margin).mean(-1)),
        steps_taken=shaped(now.taken),
        stalled=shaped(now.stalled),
        overflowed=shaped(now.overflowed),
        invisible=shaped(invisible),
        state={name: shaped(value) for name, value in state.items()},
        **told,
    )
