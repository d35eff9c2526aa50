from __future__ import annotations

import json

from cli.runner import invoke, refused

TEXT = "the cat saw a dog and ran ."


def test_an_edit_is_made_written_and_seen_by_why(folder, texts, tmp_path):
    demands = tmp_path / "demands.jsonl"
    demands.write_text(json.dumps([TEXT, "saw", "dog"]) + "\n", encoding="utf-8")
    out = tmp_path / "edited"
    result = invoke("edit", folder, "--head", "L1H0", "--demands", demands, "--keep", texts, "--out", out)
    assert result.exit_code == 0, result.output
    assert "1 demand on L1H0 met by a change of Frobenius norm" in result.output
    found = json.loads(invoke("why", out, TEXT, "--head", "L1H0", "--query", "saw", "--json").stdout)
    assert found["tokens"][found["chosen"]] == "dog"
    both = [json.dumps([TEXT, "saw", word]) for word in ("dog", "ran")]
    demands.write_text("\n".join(both), encoding="utf-8")
    told = json.loads(invoke("edit", folder, "--head", "L1H0", "--demands", demands, "--json").stdout)
    assert not told["possible"]
    assert len(told["clash"]) == 2


def test_bad_demands_are_one_sentence(folder, tmp_path):
    demands = tmp_path / "demands.jsonl"
    demands.write_text('["the cat", "cat"]\n', encoding="utf-8")
    asked = ("edit", folder, "--head", "L1H0", "--demands", demands)
    assert "line 1 of" in refused(invoke(*asked))
    demands.write_text('["the cat", "cat", "dog"]\n', encoding="utf-8")
    assert "demands[0]: token 'dog' is not in the text" in refused(invoke(*asked))
    assert "cannot be read" in refused(invoke("edit", folder, "--head", "L1H0", "--demands", tmp_path / "none"))
    demands.write_text("\n", encoding="utf-8")
    assert "demands must hold at least one" in refused(invoke(*asked))
    demands.write_text(json.dumps([TEXT, "saw", "dog"]), encoding="utf-8")
    assert "head L9H0 does not exist" in refused(invoke("edit", folder, "--head", "L9H0", "--demands", demands))
    assert "no norm is called 'round'" in refused(invoke(*asked, "--norm", "round"))
    assert "margin must be a positive finite number" in refused(invoke(*asked, "--margin", "-1"))
    assert "--keep must be a file, or one of" in refused(invoke(*asked, "--keep", "nowhere.txt"))
    # The folder is looked at before anything that takes time.
    nowhere = ("edit", tmp_path / "nowhere", "--head", "L1H0", "--demands", demands)
    assert "--out must be new or empty" in refused(invoke(*nowhere, "--out", tmp_path))
