from __future__ import annotations

import json
import re
import shutil

import pytest
import torch

from attsvm.heads import load, why
from attsvm.heads.loading.folder import quiet
from cli.runner import invoke, refused
from heads.loading.small import vit

TEXT = "the cat saw a dog and ran ."


def test_a_choice_in_words_and_numbers(folder, texts, tmp_path):
    page = tmp_path / "why.html"
    result = invoke("why", folder, TEXT, "--head", "L1H0", "--query", "saw", "--examples", texts, "--html", page)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    expected = ("'saw' (3) attends to", "By part of the model, in the two keys", "L0 MLP", "Under W_mm", " in text ",
                "wins when the query changes by", "Parts add up to the gap to", "scale of every norm")  # fmt: skip
    for words in expected:
        assert words in said
    assert "Click a token" in page.read_text()
    asked = invoke("why", folder, TEXT, "--head", "L1H0", "--query", "3", "--json")
    found = json.loads(asked.stdout)
    assert found["sentence"] in result.output
    assert sum(part["value"] for part in found["keys"]) == pytest.approx(found["gap"], rel=1e-6)
    assert found["error"] < 1e-6


def test_the_page_compares_with_the_token_asked_for(folder, tmp_path):
    page = tmp_path / "why.html"
    invoke("why", folder, TEXT, "--head", "L1H0", "--query", "saw", "--html", page)
    data = r'<script id="data" type="application/json">(.*?)</script>'
    usual = json.loads(re.search(data, page.read_text(), re.DOTALL)[1])["queries"]
    other = next(place for place in (1, 2, 4) if place not in (usual["3"]["chosen"], usual["3"]["other"]))
    invoke("why", folder, TEXT, "--head", "L1H0", "--query", "saw", "--over", other, "--html", page)
    found = json.loads(re.search(data, page.read_text(), re.DOTALL)[1])["queries"]
    assert found["3"]["other"] == other
    assert f"({other})" in found["3"]["sentence"]
    assert {place: own for place, own in found.items() if place != "3"} == {
        place: own for place, own in usual.items() if place != "3"
    }


@pytest.mark.parametrize(("given", "message"), [
    (["--head", "L2H0"], "head L2H0 does not exist; "),
    (["--head", "L0H0", "--query", "house"], "query 'house' is not in the text"),
    (["--head", "3.7"], "head must be a name such as 'L3H7'"),
    (["--head", "L0H0", "--query", "99"], "query must be a position in 0..9 or a word of the text; got 99"),
    (["--head", "L0H0", "--over", "house"], "over 'house' is not in the text"),
    (["--head", "L0H0", "--examples", "nowhere.txt"], "--examples must be a file, or one of"),
    (["--head", "L0H0", "--parts", "0"], "--parts must be at least 1"),
    (["--head", "L0H0", "--html", "nowhere/a.html"], "does not exist"),
])  # fmt: skip
def test_bad_input_is_one_sentence(folder, given, message):
    assert message in refused(invoke("why", folder, TEXT, *given))


def test_a_word_twice_nothing_to_choose_and_no_model(folder, tmp_path):
    asked = ("--head", "L0H0", "--query")
    assert "query 'cat' occurs 2 times, at tokens 2, 5; give one" in refused(
        invoke("why", folder, "the cat saw a cat", *asked, "cat")
    )
    assert "is blank" in refused(invoke("why", folder, " ", *asked, "0"))
    assert "does not exist; give a model folder" in refused(invoke("why", tmp_path / "nowhere", TEXT, *asked, "0"))
    (tmp_path / "config.json").write_text('{"model_type": "xlnet"}', encoding="utf-8")
    assert "adds products of contents and relative positions" in refused(invoke("why", tmp_path, TEXT, *asked, "0"))


def test_a_tokenizer_beside_the_model(folder, tmp_path):
    """What the message about a missing tokenizer names is an option of this command."""
    shutil.copytree(folder, tmp_path / "bare")
    (tmp_path / "words").mkdir()
    (tmp_path / "bare" / "vocab.txt").rename(tmp_path / "words" / "vocab.txt")
    asked = ("why", tmp_path / "bare", TEXT, "--head", "L1H0", "--query", "saw")
    assert "has no tokenizer" in refused(invoke(*asked))
    result = invoke(*asked, "--tokenizer", tmp_path / "words")
    assert result.exit_code == 0, result.output
    assert "'saw' (3) attends to" in result.output


def test_a_vision_model_is_refused_with_what_can_be_done_instead(tmp_path):
    with quiet():
        vit().save_pretrained(tmp_path / "vit")
    asked = ("why", tmp_path / "vit", TEXT, "--head", "L0H0")
    refused(invoke(*asked), "looks at images", "--images of `attsvm heads`", "other commands read texts", "in Python")
    model = load(tmp_path / "vit", images=torch.rand(2, 1, 12, 12))
    assert why(model, model.sentences[0], "L0H0").tokens[0] == "[CLS]"
