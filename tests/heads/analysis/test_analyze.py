from __future__ import annotations

import itertools
import math
import pickle
import sys

import pytest
import torch

from attsvm.heads import SINKS, HeadsReport, Progress, SelectionKind, analyze, from_arrays, load
from attsvm.heads.analysis.head import HeadTask
from attsvm.heads.analysis.selections import layers_of
from attsvm.heads.loading.folder import quiet
from attsvm.heads.report.records import HeadReport
from attsvm.norms import Frobenius, Nuclear
from attsvm.sweep import DaskCluster, Processes
from attsvm.sweep.manifest import from_plain, to_plain
from heads.loading import small
from heads.planted import planted, planted_report

MODEL = planted()


@pytest.fixture(scope="module")
def report() -> HeadsReport:
    return planted_report()


def test_the_heads_are_recognised(report):
    assert [head.name for head in report][-1] == "L0H2"  # sorted by selectivity
    before, first, nothing = (report[f"L0H{k}"] for k in range(3))
    assert before.rule.startswith("the token before, or else ")  # the first token has none before it
    assert before.rule_agreement == 1.0
    assert before.kinds[SelectionKind.FIRST] + before.kinds[SelectionKind.PREVIOUS] == pytest.approx(1.0)
    assert before.selectivity.confident == 1.0
    assert first.main_kind == SelectionKind.FIRST
    assert first.rule_agreement == 1.0
    assert nothing.selectivity.tied == nothing.selectivity.queries
    assert nothing.comparisons == ()
    assert "nothing to separate" in nothing.outcome


def test_a_planted_head_is_near_max_margin_and_its_controls_are_not(report):
    first = report["L0H1"]
    found = first.comparisons[0]
    assert found.head.solved
    assert found.head.gap <= 1e-3
    assert first.efficiency.smallest > 0.5
    for control in (found.random_weights, found.shuffled, found.untrained):
        assert len(control) == 5
        assert control[0].margins
        assert not any(draw.margins for draw in control[1:])
    assert all(0 < draw.efficiency_projected.smallest < 0.5 for draw in found.random_weights)
    assert all(draw.efficiency_projected.smallest < 0.5 for draw in found.untrained)
    assert all(len({draw.max_margin for draw in control}) == 5 for control in (found.random_weights, found.untrained))
    assert {draw.efficiency_projected.smallest for draw in found.shuffled} == {first.efficiency.smallest}  # no change
    assert found.head.agreement == 1.0
    assert first.attention_error < 1e-12
    assert all(twin.confident < 0.5 for twin in first.untrained_selectivity)


def test_support_tokens_are_shown_in_their_sentences(report):
    head = report["L0H0"]
    assert head.support_tokens
    total = 0.0
    for token in head.support_tokens:
        names = MODEL.sentences[token.sentence].tokens
        assert (names[token.query_position], names[token.selected_position], names[token.token_position]) == (
            token.query, token.selected, token.token,
        )  # fmt: skip
        assert token.selected_position == max(token.query_position - 1, 0)
        total += token.share
    assert 0 < total <= 1 + 1e-9
    shares = [token.share for token in head.support_tokens]
    assert shares == sorted(shares, reverse=True)
    for example in head.examples:
        assert len(example.attention) == len(example.tokens)
        assert all(sum(row) == pytest.approx(1000, abs=len(row)) for row in example.attention)
        for query, token, _ in example.support:
            assert example.drawn[query]
            assert token != example.selected[query]


def test_every_draw_depends_on_its_head_alone(report):
    alone = analyze(MODEL, heads=["L0H1"], queries=60, seed=1)
    assert to_plain(replace_times(alone["L0H1"])) == to_plain(replace_times(report["L0H1"]))


def replace_times(head: HeadReport) -> HeadReport:
    """Without wall times, which never repeat."""
    plain = to_plain(head)
    for comparison in plain["comparisons"]:
        head = comparison.pop("head")
        for found in (head, *itertools.chain(*comparison.values())):
            found["seconds"] = 0.0
        comparison["head"] = head
    return from_plain(HeadReport, plain)


def test_two_norms_stand_side_by_side():
    both = analyze(MODEL, heads=[1], norms=(Frobenius(), Nuclear()), queries=30, other_queries=8, draws=1)
    plain, nuclear = (found.head for found in both["L0H1"].comparisons)
    assert (plain.norm, plain.queries) == ("Frobenius", 30)
    assert (nuclear.norm, nuclear.queries) == ("nuclear", 8)
    assert 0 < nuclear.efficiency_projected.smallest <= 1 + 1e-3
    assert {verdict.norm for verdict in both.verdicts} == {"Frobenius", "nuclear"}


def test_sinks_can_be_left_out():
    kept = analyze(MODEL, heads=[0], queries=30, leave_out=SINKS, draws=1)["L0H0"]
    assert kept.kinds[SelectionKind.FIRST] == 0
    assert kept.kinds[SelectionKind.PREVIOUS] > 0.5


def test_without_an_untrained_twin_the_report_says_so():
    alone = analyze(planted(twin=False), heads=[1], queries=20, draws=1)
    assert alone["L0H1"].comparisons[0].untrained == ()
    assert any("no untrained model" in note for note in alone.notes)
    assert not any(verdict.control == "the untrained model" for verdict in alone.verdicts)


def test_progress_and_memory():
    told: list[Progress] = []
    found = analyze(MODEL, heads=[1], draws=1, queries=20, progress=told.append)
    assert [now.done for now in told] == [0, 1]
    assert [now.message for now in told] == ["running the model", "solving"]
    tokens = sum(len(sentence) for sentence in MODEL.sentences)
    assert found.memory > 2 * 8 * tokens * (MODEL.width + 1)


def test_a_layer_at_a_time_gives_the_same(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(3, 2 + k, 4, generator=generator) for k in range(4)]
    deep = from_arrays(states, *(torch.randn(3, 2, 4, 2, generator=generator) for _ in range(2)), causal=True)
    at_once = list(layers_of(deep, deep.sentences, [0, 2], ()))
    monkeypatch.setattr("attsvm.heads.analysis.selections.BUDGET", 1)
    one_by_one = list(layers_of(deep, deep.sentences, [0, 2], ()))
    assert [layer.index for layer in at_once] == [layer.index for layer in one_by_one] == [0, 2]
    for first, second in zip(at_once, one_by_one, strict=True):
        assert max(first.attention_error) < 1e-12
        for one, other in zip(first.views, second.views, strict=True):
            assert torch.equal(one.keys, other.keys)
            assert torch.equal(one.allowed, other.allowed)
            assert not one.allowed.triu(1).any()
    assert torch.equal(at_once[1].views[0].keys, states[0][2].double())


class TestCache:
    def test_a_run_that_was_stopped_goes_on(self, report, tmp_path, monkeypatch):
        def stop(now: Progress) -> None:
            if now.done == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            analyze(MODEL, queries=60, seed=1, cache=tmp_path, progress=stop)
        assert sorted(file.stem for file in tmp_path.rglob("*.chunk")) == ["l0h0", "l0h1"]
        done: list[tuple[int, int]] = []
        module = sys.modules["attsvm.heads.analysis.analyze"]
        really = module.analyze_head

        def counted(task: HeadTask) -> HeadReport:
            done.append(task.place)
            return really(task)

        monkeypatch.setattr(module, "analyze_head", counted)
        resumed = analyze(MODEL, queries=60, seed=1, cache=tmp_path)
        assert done == [(0, 2)]
        for name in ("L0H0", "L0H1", "L0H2"):
            assert to_plain(replace_times(resumed[name])) == to_plain(replace_times(report[name]))
        monkeypatch.setattr(type(MODEL), "states", None)  # a finished analysis does not run the model
        assert analyze(MODEL, queries=60, seed=1, cache=tmp_path).heads == resumed.heads
        assert len(analyze(MODEL, heads=[1], queries=60, seed=1, cache=tmp_path)) == 1

    def test_other_settings_texts_or_weights_are_other_results(self, tmp_path):
        analyze(MODEL, heads=[1], draws=1, queries=20, cache=tmp_path)
        analyze(MODEL, heads=[1], draws=1, queries=21, cache=tmp_path)
        analyze(planted(seed=9), heads=[1], queries=20, cache=tmp_path)
        assert len(list(tmp_path.rglob("l0h1.chunk"))) == 3

    def test_a_damaged_file_is_made_anew(self, tmp_path):
        analyze(MODEL, heads=[1], draws=1, queries=20, cache=tmp_path)
        (file,) = tmp_path.rglob("*.chunk")
        file.write_bytes(file.read_bytes()[:-9])
        again = analyze(MODEL, heads=[1], draws=1, queries=20, cache=tmp_path)
        assert again["L0H1"].outcome == "solved"
        assert (
            "heads: chunk l0h1 was damaged (its bytes do not match its checksum) and is computed again" in again.notes
        )
        assert not any(
            "damaged" in note for note in analyze(MODEL, heads=[1], draws=1, queries=20, cache=tmp_path).notes
        )

    def test_a_folder_that_cannot_be_made(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(OSError, match=r"cannot be written: not a directory.* go on with the same command"):
            analyze(MODEL, heads=[1], cache=tmp_path / "file" / "inside")

    def test_rounds_of_layers_and_what_is_sent_to_workers(self, tmp_path, monkeypatch):
        """Layers that do not fit together are run one after the other; a task is the same after it was sent."""
        model = load(small.lately("Llama"))
        asked = {
            "texts": [[3, 4, 5, 6, 7, 8, 9], [5, 5, 9, 2, 4]],
            "heads": [0],
            "queries": 9,
            "confidence": 0.3,
            "draws": 1,
        }
        whole = analyze(model, **asked)
        module = sys.modules["attsvm.heads.analysis.analyze"]
        monkeypatch.setattr(module, "BUDGET", 1)
        really, rounds = module._tasks, []

        def sent(model, sentences, places, settings):
            rounds.append(places)
            return [pickle.loads(pickle.dumps(task)) for task in really(model, sentences, places, settings)]

        monkeypatch.setattr(module, "_tasks", sent)
        apart = analyze(model, **asked)
        assert rounds == [[(layer, 0)] for layer in range(3)]
        for head in whole:
            assert to_plain(replace_times(apart[head.name])) == to_plain(replace_times(head))

    @pytest.mark.slow
    def test_two_processes_find_the_same(self, report):
        found = analyze(MODEL, queries=60, seed=1, backend=Processes(2))
        for head in report:
            assert to_plain(replace_times(found[head.name])) == to_plain(replace_times(head))

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed", "ignore::ResourceWarning")
    def test_a_dask_cluster_finds_the_same(self, report):
        distributed = pytest.importorskip("distributed")
        with distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", protocol="tcp", silence_logs=50
        ) as cluster:  # fmt: skip
            found = analyze(MODEL, heads=[1], queries=60, seed=1, backend=DaskCluster(cluster.scheduler_address))
        assert to_plain(replace_times(found["L0H1"])) == to_plain(replace_times(report["L0H1"]))


class TestBadInput:
    @pytest.mark.parametrize(("asked", "words"), [
        ({"layers": [1]}, "layers must lie in 0..0"),
        ({"layers": []}, "at least one layer"),
        ({"device": "tpu"}, "device must be cpu, cuda or cuda:N; got 'tpu'"),
        ({"layers": [True]}, "layers must lie"),
        ({"heads": [3]}, "heads must lie in 0..2"),
        ({"heads": ["L0H9"]}, "head L0H9 does not exist; planted has layers 0..0 with heads 0..2"),
        ({"heads": ["L4H0"]}, "L4H0 does not exist"),
        ({"heads": ["first"]}, "a name such as 'L3H7'"),
        ({"heads": "L0H1"}, "must be a list"),
        ({"heads": []}, "must be a list"),
        ({"norms": ()}, "norms must be norms"),
        ({"norms": ("frobenius",)}, "norms must be norms"),
        ({"norms": (Frobenius(), Frobenius())}, "norms must differ"),
        ({"queries": 0}, "queries must be a positive integer"),
        ({"confidence": 1.0}, r"confidence must lie in \[0, 1\)"),
        ({"held_out": -0.1}, "held_out must lie"),
        ({"accuracy": 0.0}, "accuracy must be positive"),
        ({"seed": -1}, "seed must be a non-negative integer"),
        ({"leave_out": (SelectionKind.SELF,)}, "leave_out may hold first and delimiter"),
        ({"texts": "one text"}, "texts must be a list"),
        ({"texts": []}, "at least one text"),
        ({"texts": ["a text"]}, "cannot read texts"),
    ])  # fmt: skip
    def test_one_sentence(self, asked, words):
        with pytest.raises(ValueError, match=words):
            analyze(MODEL, **asked)

    def test_no_model(self):
        with pytest.raises(ValueError, match="model must come from load"):
            analyze("bert-base-uncased")

    def test_a_name_outside_the_layers_asked_for(self):
        two = from_arrays([torch.randn(2, 4, 3)], torch.randn(2, 1, 3, 2), torch.randn(2, 1, 3, 2))
        with pytest.raises(ValueError, match="not in the layers asked for"):
            analyze(two, layers=[0], heads=["L1H0"])

    def test_texts_that_repeat_others_are_left_out_before_the_split(self):
        model = load(small.bert())
        texts = [[5, 6, 7, 8], [5, 6, 8, 7], [5, 6, 7, 8], [9, 6, 7], [5, 6, 7, 8], [9, 6, 7]]
        options = {"heads": ["L0H0"], "confidence": 0.0, "held_out": 0.4, "queries": 4}
        found = analyze(model, texts, **options)
        once = analyze(model, [texts[0], texts[1], texts[3]], **options)
        assert found.sentences == once.sentences == 3
        assert "texts that repeat others: 3, left out" in found.notes
        assert found["L0H0"].comparisons[0].head.agreement == once["L0H0"].comparisons[0].head.agreement
        assert "texts that repeat others: 1, left out" in analyze(model, [*texts[:2], texts[0]], **options).notes

    def test_a_tokenizer_that_does_not_know_the_texts_is_told_first(self):
        states, one = [torch.eye(4)[None]], torch.eye(4)[None, None]
        known, unknown = (
            analyze(from_arrays(states, one, one, tokens=[["a", "b", "c", name]]), heads=["L0H0"], confidence=0.9)
            for name in ("d", "[UNK]")
        )
        assert unknown.notes[0].startswith("WARNING: 25% of the tokens are unknown ones")
        assert not any("unknown" in note for note in known.notes)
        assert str(unknown).startswith("WARNING")
        html = unknown._repr_html_()
        assert html.index('role="alert">WARNING: 25%') < html.index("<table")
        assert "alert" not in known._repr_html_()

    def test_no_confident_query_says_what_to_try(self):
        nothing = analyze(MODEL, heads=["L0H2"], confidence=0.9)["L0H2"]
        assert "no query has more than 0.9 of its attention" in nothing.outcome
        assert "a smaller confidence, --confidence, lets more queries count" in nothing.outcome

    def test_one_token_sentences(self):
        key = torch.randn(1, 1, 3, 2)
        with pytest.raises(ValueError, match="at least two tokens"):
            analyze(from_arrays([torch.randn(1, 1, 3), torch.randn(1, 1, 3)], key, key))
        generator = torch.Generator().manual_seed(0)
        states = [torch.randn(1, 1 + 3 * (k > 0), 3, generator=generator) for k in range(8)]
        mixed = analyze(from_arrays(states, 3 * key, key), queries=10, confidence=0.0)
        assert any("texts of one token, which offers no choice: 1" in note for note in mixed.notes)
        assert mixed["L0H0"].selectivity.no_choice == 1

    def test_nothing_is_left_when_all_is_left_out(self):
        key = torch.randn(1, 1, 3, 2)
        marks = from_arrays([torch.randn(1, 3, 3)] * 1, key, key, tokens=[["a", ".", ","]])
        with pytest.raises(ValueError, match="two candidates or more"):
            analyze(marks, leave_out=SINKS)

    def test_all_queries_unconfident(self):
        flat = planted()
        found = analyze(flat, heads=[2], queries=10)
        assert len(found.unsolved) == 1
        assert found.verdicts == ()
        assert math.isnan(found["L0H2"].cosine)
        assert "L0H2" in str(found)

    def test_all_sentences_but_none_held_out(self):
        whole = analyze(MODEL, heads=[1], draws=1, queries=20, held_out=0.0)["L0H1"]
        assert math.isnan(whole.comparisons[0].head.agreement)
        assert whole.held_out_queries == 0


def test_weights_that_learned_nothing_are_not_called_closer():
    """Heads of random weights beside controls of random weights: nothing to find."""
    generator = torch.Generator().manual_seed(3)
    states = [torch.randn(1, 5 + k % 3, 10, generator=generator) for k in range(30)]
    key, query = (torch.randn(1, 10, 10, 4, generator=generator) for _ in range(2))
    report = analyze(from_arrays(states, key, query), queries=30)
    for verdict in report.verdicts:
        if verdict.control == "random weights with the same spectrum":
            print(verdict)
            assert verdict.heads == 10
            assert verdict.tone == "unclear"


@pytest.mark.slow
def test_causal_models_and_images_are_analysed_too():
    from heads.loading import small

    generator = torch.Generator().manual_seed(0)
    numbers = torch.randint(0, small.VOCABULARY, (16, 8), generator=generator).tolist()
    with quiet():
        causal = analyze(load(small.gpt2()), numbers, layers=[1], heads=[0], queries=30)
    head = causal["L1H0"]
    assert head.selectivity.no_choice == 16  # the first position of every sequence
    assert all(token.token_position <= token.query_position for token in head.support_tokens)
    images = analyze(
        load(small.vit(), images=torch.randn(8, 1, 12, 12, generator=generator)), layers=[0], heads=[0], confidence=0.3
    )
    assert images.sentences == 8
    assert images["L0H0"].comparisons[0].untrained is not None
