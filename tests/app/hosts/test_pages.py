"""The three kinds of page in a real browser: a file, the installed command, and without JavaScript."""

from __future__ import annotations

import pytest

from attsvm.app import standalone_page, write_page
from attsvm.app.problem import data_to_state
from attsvm.data import example, starting_points

from .drive import command, drag, loaded, requests, says, state

SHOWN = data_to_state(example("single-input-local"), starting_points("single-input-local"))


@pytest.mark.slow
def test_a_file_on_the_disk_is_the_whole_playground(page, tmp_path):
    path = write_page(tmp_path / "a page.html", SHOWN)
    asked = requests(page)
    page.goto(path.as_uri())
    loaded(page)
    assert page.title().startswith("attsvm playground")
    before = state(page)
    assert before["problem"]["inputs"][0]["tokens"] == SHOWN["problem"]["inputs"][0]["tokens"]
    assert [each["start"] for each in before["companions"]] == [each["start"] for each in SHOWN["companions"]]
    drag(page, "token-0-1", 40, 30)
    (old, new) = (each["problem"]["inputs"][0]["tokens"][1]["x"] for each in (before, state(page)))
    assert new[0] > old[0]
    assert new[1] < old[1]
    page.wait_for_url("**#s=*")
    assert set(asked) == {path.as_uri()}


@pytest.mark.slow
def test_an_example_from_python_is_the_preset_of_its_name(page, tmp_path):
    write_page(tmp_path / "page.html", data_to_state(example("single-input-local")))
    page.goto((tmp_path / "page.html").as_uri())
    loaded(page)
    shown = state(page)
    assert (shown["preset"], len(shown["companions"]), shown["settings"]["steps"]) == ("single-input-local", 5, 1000)
    assert "The two lowest starts end on token 1" in page.locator(".advice").inner_text()
    assert page.locator('select[aria-label="preset"]').input_value() == "single-input-local"


@pytest.mark.slow
def test_the_address_comes_before_the_state_of_the_file(page, tmp_path):
    path = write_page(tmp_path / "page.html", SHOWN)
    page.goto(path.as_uri())
    loaded(page)
    drag(page, "token-0-1", 40, 30)
    page.wait_for_url("**#s=*")
    moved = state(page)
    page.reload()
    loaded(page)
    assert state(page)["problem"] == moved["problem"]
    assert moved["problem"] != SHOWN["problem"]


@pytest.mark.slow
def test_the_command_serves_the_page_and_python_fills_the_certificate(page):
    asked = requests(page)
    with command("single-input-local") as address:
        page.goto(address)
        loaded(page)
        python = page.locator(".certificate table").first.locator("tbody tr td:nth-of-type(2)")
        says(page.locator(".agreement"), "agree to")
        status, value, gap, margin, weights, local, solver = python.all_text_contents()
        assert status == "solved"
        # The run that the preset tells about starts low and ends on token 1, (1, 0).
        assert float(value) == pytest.approx(1.0, abs=1e-5)
        assert weights == "(1, 0)"
        assert (margin, local, solver) == ("1", "yes", "Batched Frobenius")
        assert gap
        with page.expect_response("**/certify") as answer:
            drag(page, "token-0-2", 30, 0)
        content = answer.value.json()
        asked_for = answer.value.request.post_data_json
        assert asked_for["problem"]["inputs"] == state(page)["problem"]["inputs"]
        weights = f"({content['weights'][0]:.4g}, {content['weights'][1]:.4g})".replace("-", "\u2212")
        says(python.nth(4), weights)
        says(page.locator(".agreement"), "agree to")
    assert asked
    assert all(url.startswith(address) for url in asked)


@pytest.mark.slow
def test_the_policy_of_the_file_holds(browser, tmp_path):
    path = write_page(tmp_path / "page.html")
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(path.as_uri())
        loaded(page)
        page.evaluate("window.ran = false")
        page.evaluate(
            "() => { const s = document.createElement('script'); s.textContent = 'window.ran = true';"
            " document.body.append(s); }"
        )
        assert page.evaluate("window.ran") is False
        assert page.evaluate("fetch('https://example.com').then(() => 'fetched', () => 'refused')") == "refused"
    finally:
        context.close()


@pytest.mark.slow
def test_without_javascript_a_sentence_says_so(browser, tmp_path):
    path = write_page(tmp_path / "page.html")
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(path.as_uri())
        assert "JavaScript" in page.locator("body").inner_text()
    finally:
        context.close()


def test_the_same_state_gives_the_same_file():
    assert standalone_page(SHOWN) == standalone_page(SHOWN)
    assert standalone_page() != standalone_page(SHOWN)


def test_a_state_cannot_leave_its_place():
    text = standalone_page({"preset": "</script><img src=x onerror=alert(1)>"})
    assert "</script><img" not in text


@pytest.mark.parametrize(("name", "word"), [("page.txt", "must end in .html"), ("page", "no suffix")])
def test_a_file_needs_its_suffix(tmp_path, name, word):
    with pytest.raises(ValueError, match=word):
        write_page(tmp_path / name)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        write_page(tmp_path / "folder.html")


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("before", encoding="utf-8")

    def broken(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="no space"):
        write_page(path)
    assert path.read_text(encoding="utf-8") == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
