"""Heads while a model is trained: what is written is what an analysis of that moment says; training is not touched."""

from __future__ import annotations

import copy

import pyarrow.parquet
import pytest
import torch
import transformers

from attsvm.heads import analyze, load, watch
from heads.loading.small import VOCABULARY, gpt2, vit

TEXTS = torch.randint(0, VOCABULARY, (6, 9), generator=torch.Generator().manual_seed(0)).tolist()


def steps(model, count, each=lambda step: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    batch = torch.tensor(TEXTS)
    for step in range(1, count + 1):
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        each(step)


def test_rows_are_those_of_an_analysis_and_training_is_not_touched(tmp_path):
    model, other = gpt2(), gpt2()
    seen = watch(model, TEXTS, every=2, heads=["L1H2", "L0H0"], out=tmp_path / "heads.parquet", queries=500)
    steps(model, 5, seen)
    steps(other, 5)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    rows = pyarrow.parquet.read_table(tmp_path / "heads.parquet").to_pylist()
    assert [(row["step"], row["head"]) for row in rows] == [(s, h) for s in (2, 4) for h in ("L0H0", "L1H2")]
    assert rows[0] != {**rows[2], "step": 2}
    again = gpt2()
    steps(again, 4)
    found = analyze(load(again), TEXTS, heads=["L1H2"], held_out=0.0, queries=500, accuracy=1e-2, draws=1)["L1H2"]
    assert rows[3]["confident"] == pytest.approx(found.selectivity.confident)
    own = found.comparisons[0].head.efficiency.smallest
    assert rows[3]["efficiency"] == pytest.approx(own, rel=0.03)
    assert rows[3]["smallest_margin"] <= rows[3]["median_margin"] <= 2 * rows[3]["largest_logit"]


def test_a_run_that_goes_on_adds_to_the_file(tmp_path):
    model = gpt2()
    watch(model, TEXTS, every=3, heads=["L0H0"], out=tmp_path / "a.parquet").measure(3)
    more = watch(model, TEXTS, every=3, heads=["L0H0"], out=tmp_path / "a.parquet")
    more(5)
    more(6)
    assert [row["step"] for row in more.rows] == [3, 6]
    figure = more.plot(tmp_path / "a.png")
    assert len(figure.axes) == 4
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_the_callback_of_a_trainer(tmp_path):
    model = gpt2()
    seen = watch(model, TEXTS, every=2, heads=["L0H1"])
    data = [{"input_ids": ids, "labels": ids} for ids in TEXTS]
    asked = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, per_device_train_batch_size=2, report_to=[], save_strategy="no",
        disable_tqdm=True, logging_strategy="no", use_cpu=True, dataloader_pin_memory=False,
    )  # fmt: skip
    transformers.Trainer(copy.deepcopy(model), asked, train_dataset=data, callbacks=[seen.callback()]).train()
    assert [row["step"] for row in seen.rows] == [2, 4]


def test_bad_input(tmp_path):
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(ValueError, match="is no Parquet file that can be added to"):
        watch(gpt2(), TEXTS, out=tmp_path / "text.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"step": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="holds something else than the rows of a watch"):
        watch(gpt2(), TEXTS, out=tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="head L9H0 does not exist"):
        watch(gpt2(), TEXTS, heads=["L9H0"])
    with pytest.raises(ValueError, match="a live model of the transformers library; got Linear"):
        watch(torch.nn.Linear(2, 2), TEXTS)
    with pytest.raises(ValueError, match="every must be a positive integer"):
        watch(gpt2(), TEXTS, every=0)
    with pytest.raises(ValueError, match="looks at images"):
        watch(vit(), TEXTS)
    with pytest.raises(ValueError, match="nothing to plot"):
        watch(gpt2(), TEXTS).plot()
