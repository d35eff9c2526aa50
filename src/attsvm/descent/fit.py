"""Training: one leading batch of data sets, each with its own weights, followed as far as asked."""

from __future__ import annotations

import math
import numbers
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence, Sized
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor

from attsvm.attention import Logistic, Loss, Parameterization, Weights
from attsvm.attention.gradient import invisible_tokens
from attsvm.attention.losses import as_loss
from attsvm.attention.prediction_heads import as_head
from attsvm.data import TokenDataset
from attsvm.data.streams import Seed, stream_keys
from attsvm.descent import optimizers
from attsvm.descent.batches import InputBatches
from attsvm.descent.engines.choice import choose_engine
from attsvm.descent.engines.torch import Engine, Progress, Task, check_optimizer_fits
from attsvm.descent.fingerprint import start_digest
from attsvm.descent.initial import Initial, check_size, starting_point
from attsvm.descent.optimizers import NormalizedGradientDescent, Optimizer
from attsvm.descent.resuming import describe, resumed
from attsvm.descent.run import Recorder, Run, record_steps
from attsvm.descent.stopping import StoppingRule


def fit(
    data: TokenDataset,
    head: object = None,
    *,
    parameterization: Parameterization | None = None,
    optimizer: Optimizer | None = None,
    loss: Loss | Callable[[Tensor], Tensor] | None = None,
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

    Minimises ``(1/n) sum_i loss(Y_i h(X_i^T softmax(X_i W z_i)))`` over W, or K and Q with W = K Q^T, and the head if
    asked, with a gradient whose direction stays right however large the weights become.

    Arguments:
        data: ``[*batch]`` data sets.
        head: a `Head`, a vector v, a torch module, or None for the data's own vector.
        parameterization: `Weights()` (default) or `KeyQuery(rank)`.
        optimizer: `NormalizedGradientDescent(0.1)` by default.
        loss: `Logistic()` by default, another loss, or a function of the margin.
        steps: total number of steps (a resumed run goes on up to it).
        seed: of the starting point and of mini-batches; element b draws from stream (seed, b), or one seed an element.
        initial: None draws PyTorch's default start; "zeros"; W or a mapping of parameters, shaped for one data set, for
            the batch, or with a leading axis of starts.
        starts: number of random starts for each data set, without copying the data.
        record: an int records every so many steps and the first and last iterate; a sequence means those steps.
        keep: what to record, of "risk", "norm", "attention", "weights", "parameters".
        train_head: train the head's parameters too, one set for each element.
        batch_size: use mini-batches of this many inputs a step.
        ridge: minimise the risk plus ``ridge/2 ||W||_F^2``, or ``ridge/2 (||K||_F^2 + ||Q||_F^2)``, which is a nuclear
            penalty on K Q^T. The optimizer gets ``gradient + ridge * parameter`` in true proportion: the gradient of
            the risk falls exponentially as weights grow, so any ridge, even 2.2e-16, ends their growth. Risks are
            recorded without it; a trained head has none.
        stop: `Saturated()` or `Settled()`; each element stops for itself.
        resume: an earlier run of the same configuration to go on from.
        device: move the data there first.
        engine: `TorchEngine()` or `CompiledEngine()`; chosen by itself if None.
        progress: called with (steps done, steps in all).

    Returns:
        A `Run` with shapes ``[*starts, *batch, ...]``.

    Raises:
        ValueError: in one sentence, for anything that does not fit.

    >>> import attsvm
    >>> data = attsvm.data.random_sphere(n=2, T=3, d=4, seed=0)
    >>> run = attsvm.fit(data, steps=200)
    >>> run.weights.shape, run.history.step.tolist()
    (torch.Size([4, 4]), [0, 50, 100, 150, 200])
    """
    if not isinstance(steps, numbers.Integral) or isinstance(steps, bool) or steps < 0:
        raise ValueError(f"steps must be a non-negative integer; got {steps!r}")
    steps = int(steps)
    if not isinstance(data, TokenDataset):
        raise ValueError(f"data must be a TokenDataset; got {type(data).__name__}")
    if 0 in data.batch_shape:
        raise ValueError(f"data must hold at least one data set; its batch is {list(data.batch_shape)}")
    began = time.perf_counter()
    parameterization = parameterization or Weights()
    optimizer = optimizer or NormalizedGradientDescent(0.1)
    if not isinstance(parameterization, Parameterization):
        raise ValueError(f"parameterization must be Weights() or KeyQuery(rank); got {parameterization!r}")
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"optimizer must be an optimizer such as GradientDescent(0.1); got {_named(optimizer)}")
    if isinstance(ridge, bool) or not isinstance(ridge, numbers.Real) or not 0 <= ridge < math.inf:
        raise ValueError(f"ridge must be a finite number, 0 or positive; got {ridge!r}")
    if stop is not None and not isinstance(stop, StoppingRule):
        raise ValueError(f"stop must be a rule such as Saturated() or Settled(); got {stop!r}")
    if engine is not None and not isinstance(engine, Engine):
        raise ValueError(f"engine must be an engine such as TorchEngine(); got {engine!r}")
    if resume is not None and not isinstance(resume, Run):
        raise ValueError(f"resume must be a Run, for example Run.load(path); got {resume!r}")
    if device is not None:
        data = data.to(device)
    own_head = as_head(head, data) if device is None or head is None else as_head(_moved(head, data.device), data)
    own_loss = as_loss(loss or Logistic())
    check_optimizer_fits(optimizer, own_head, parameterization, train_head, ridge)
    keys = stream_keys(seed, data.batch_shape)
    flat, flat_head = data.flatten(), own_head.flatten()
    task = Task(
        flat,
        flat_head,
        own_loss,
        parameterization,
        optimizer,
        train_head,
        factors=optimizer.schedule.factors(flat, flat_head, own_loss),
        batches=None if batch_size is None else InputBatches(data.n, batch_size, tuple(keys), data.device),
        ridge=float(ridge),
    )
    configuration = describe(task, own_head, steps, keys, batch_size, stop)
    if starts is None or (isinstance(starts, int) and starts > 0):
        check_size(data, parameterization, starts, 1 if stop is not None else _records(record, steps), keep)
    if resume is None:
        parameters, several = starting_point(data, own_head, parameterization, initial, starts, keys, train_head)
        first = 0
        configuration["fingerprint"]["start"] = start_digest(parameters)
        now = _fresh(parameters, optimizer)
    else:
        if initial is not None:
            raise ValueError("resume goes on from the run's own weights; leave initial out")
        now, several, first = resumed(resume, data, task, configuration, steps)
        configuration["fingerprint"] |= resume.configuration.get("fingerprint", {})
        if starts is not None and (starts,) != tuple(resume.risk.shape[: int(several)]):
            raise ValueError(f"resume needs the same starts; the run has shape {list(resume.risk.shape)}, got {starts}")
    lead = next(iter(now.parameters.values())).shape[:2]
    advance = choose_engine(engine, task, lead[0]).prepare(task, lead[0])
    marks = sorted(record_steps(record, first, steps))
    recorder = Recorder(task, keep)
    taken = torch.full(lead, first, dtype=torch.int64, device=data.device)
    if resume is not None:
        taken = resume.steps_taken.reshape(lead).clone().to(data.device)

    done = first
    if marks and marks[0] == done:
        recorder.record(done, now)
    if resume is None:
        _apply_stop(task, stop, now, done)
    while done < steps and bool(now.active.any()):
        ahead = marks[bisect_right(marks, done)] if marks and done < marks[-1] else steps
        if stop is not None:
            ahead = min(ahead, done - done % stop.every + stop.every)
        ahead = min(ahead, steps)
        advance(now, done, optimizer.schedule.sizes(done, ahead - done))
        taken += (ahead - done) * now.active
        done = ahead
        if _among(marks, done):
            recorder.record(done, now)
        _apply_stop(task, stop, now, done)
        if progress is not None:
            progress(done, steps)
    if done < steps and recorder.last_step != done:
        recorder.record(done, now)
    return _finished(
        task, now, recorder, done, taken, data, several, configuration, resume, time.perf_counter() - began
    )


def _named(given: object) -> str:
    """What was given in the place of an optimizer, and the optimizer that its name resembles."""
    shown = given.__name__ if isinstance(given, type) else repr(given)
    names = {name.lower(): name for name in optimizers.__all__ if name != "Optimizer"}
    near = get_close_matches(shown.strip("'").lower(), names, n=1)
    return f"{shown}; did you mean {names[near[0]]}(...)?" if near else shown


def _records(record: object, steps: int) -> int:
    """How many iterates `record` asks for, without listing them."""
    if isinstance(record, numbers.Integral) and int(record) > 0:
        return steps // int(record) + 1
    return len(record) if isinstance(record, Sized) else 1


def _moved(head: object, device: torch.device) -> object:
    from attsvm.attention import Head

    if isinstance(head, Tensor):
        return head.to(device)
    if isinstance(head, Head):
        return head.to(device)
    return head


def _fresh(parameters: dict[str, Tensor], optimizer: Optimizer) -> Progress:
    like = next(iter(parameters.values()))
    none = torch.zeros(like.shape[:2], dtype=torch.bool, device=like.device)
    return Progress(parameters, optimizer.start(parameters), ~none, none.clone(), none.clone())


def _among(marks: list[int], step: int) -> bool:
    place = bisect_left(marks, step)
    return place < len(marks) and marks[place] == step


def _apply_stop(task: Task, stop: StoppingRule | None, now: Progress, done: int) -> None:
    """Ask the rule where its turn has come, and remember whom it stopped: a rule may answer only once."""
    if stop is not None and done % stop.every == 0:
        found = stop.done(task.weights(now.parameters), task.forward(now.parameters), now.memory)
        now.memory["stopped"] = now.memory.get("stopped", torch.zeros_like(found)) | (found & now.active)
        now.active &= ~found


def _finished(
    task: Task,
    now: Progress,
    recorder: Recorder,
    done: int,
    taken: Tensor,
    data: TokenDataset,
    several: bool,
    configuration: dict[str, Any],
    resume: Run | None,
    seconds: float,
) -> Run:
    starts = next(iter(now.parameters.values())).shape[0]
    lead = (*((starts,) if several else ()), *data.batch_shape)

    def shaped(value: Tensor) -> Tensor:
        return value.reshape((*lead, *value.shape[2:]))

    attended = task.forward(now.parameters)
    history = recorder.history(lead)
    if resume is not None:
        history = resume.history.followed_by(history)
        seconds += resume.seconds
    state = {**now.state, **{f"stop/{name}": value for name, value in now.memory.items()}}
    return Run(
        weights=shaped(task.weights(now.parameters)),
        parameters={name: shaped(value) for name, value in now.parameters.items()},
        attention=shaped(attended.attention),
        log_attention=shaped(attended.log_attention),
        risk=shaped(task.loss.value(attended.margin).mean(-1)),
        history=history,
        step=done,
        steps_taken=shaped(taken),
        stalled=shaped(now.stalled),
        overflowed=shaped(now.overflowed),
        invisible=shaped(invisible_tokens(task.data, task.head_at(now.parameters), attended)),
        state={name: shaped(value) for name, value in state.items()},
        configuration=configuration,
        seconds=seconds,
    )
