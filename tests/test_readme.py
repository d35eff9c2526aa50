"""The README tells the truth: its example runs, its files and commands exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

import attsvm

ROOT = Path(__file__).parent.parent
# Of the built documentation and of what the gallery writes nothing is ours.
MADE = ("_build", "examples", "generated")
PAGES = sorted(
    path.relative_to(ROOT / "docs").as_posix()
    for path in (ROOT / "docs").rglob("*.md")
    if not set(path.relative_to(ROOT / "docs").parts) & set(MADE)
)
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def run(code: str) -> None:
    exec(compile(code, "example", "exec", dont_inherit=True), {"__name__": "example"})


def files_entered(code: str) -> set[str]:
    """Files of the package, such as data/random.py, of which `code` calls a function."""
    source, entered = f"{Path(attsvm.__file__).parent}/", set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            entered.add(frame.f_code.co_filename)

    sys.setprofile(watch)
    try:
        run(code)
    finally:
        sys.setprofile(None)
    return {path.removeprefix(source) for path in entered if path.startswith(source)}


@pytest.mark.slow
def test_the_example_runs_and_the_journey_is_the_one_told(capsys):
    (example,), (told,) = blocks(README, "python"), blocks(README, "text")
    assert len(example.splitlines()) == 10
    entered = files_entered(example)
    said = capsys.readouterr().out
    gap, cosine, predicted = (re.compile(words) for words in (r"gap is (\S+)", r"solution: (\S+)", r"(\d+) as pred"))
    assert float(gap.search(said)[1]) < 10 * float(gap.search(told)[1])  # rounding differs between machines
    assert float(cosine.search(said)[1]) == pytest.approx(float(cosine.search(told)[1]), abs=2e-4)
    assert predicted.search(said)[1] == predicted.search(told)[1]
    assert re.sub(r"[\d.]+(e-\d+)?", "#", said) == re.sub(r"[\d.]+(e-\d+)?", "#", told)
    told = re.search(r"^### One journey$(.*?)^`python -m", CONTRIBUTING, flags=re.MULTILINE | re.DOTALL)[1]
    assert set(re.findall(r"`(\w+/[\w/]+\.py)`", told)) - entered == set()


@pytest.mark.slow
def test_the_commands_run_as_they_stand(tmp_path, monkeypatch):
    from cli.runner import invoke
    from heads.weights import CACHE

    monkeypatch.chdir(tmp_path)
    lines = [line.partition("#")[0].split() for block in blocks(README, "bash") for line in block.splitlines()]
    commands = [line[1:] for line in lines if line[0] == "attsvm"]
    if (CACHE / "minilm").exists():
        (tmp_path / ".weights").symlink_to(CACHE)
    else:
        commands = [command for command in commands if command[0] != "heads"]
    for command in commands:
        result = invoke(*command)
        assert result.exit_code == 0, f"attsvm {' '.join(command)}: {result.output}"
    assert (tmp_path / "out/playground.html").exists()


def test_a_broken_example_would_be_seen():
    with pytest.raises(AttributeError):
        run("import attsvm\nattsvm.data.no_such_generator()")


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in (ROOT / "docs" / page).read_text("utf-8")])
def test_examples_of_the_documentation_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = blocks((ROOT / "docs" / page).read_text(encoding="utf-8"), "python")
    assert code
    run("\n".join(code))


def test_every_experiment_has_a_page_with_its_picture_and_command():
    from attsvm.experiments import EXPERIMENTS

    for name in EXPERIMENTS:
        page = (ROOT / f"docs/experiments/{name}.md").read_text(encoding="utf-8")
        assert f"    attsvm figure run {name}\n" in page
        pictures = re.findall(r"\]\(\.\./(images/\S+?)\)", page)
        assert f"images/experiments/{name}.png" in pictures
        assert [each for each in pictures if not (ROOT / "docs" / each).exists()] == []


def test_links_lead_to_files():
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{page}" for page in PAGES)])
def test_pictures_are_shown_on_github_too(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "```{image}" not in text
    assert "```{figure}" not in text
    for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert ((ROOT / page).parent / target).is_file(), target


def test_every_experiment_has_a_card_and_every_scene_exists():
    from attsvm.experiments import EXPERIMENTS

    index = (ROOT / "docs/experiments/index.md").read_text(encoding="utf-8")
    assert re.findall(r"^- \[!\[\]\(\.\./images/thumbnails/(.+)\.png\)", index, flags=re.MULTILINE) == list(EXPERIMENTS)
    scripts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/attsvm/app/playground").rglob("*.js"))
    for scene in re.findall(r'data-(?:scene="|playground="scene=)([\w-]+)', index):
        assert any(each in scripts for each in (f'name: "{scene}"', f"{scene}: {{ preset:", f'scene: "{scene}"')), scene


def test_the_reference_by_task_has_every_name_at_the_top():
    tasks = (ROOT / "docs/reference/tasks.rst").read_text(encoding="utf-8")
    assert set(attsvm._HOMES) - set(re.findall(r"`~attsvm\.\w+\.(\w+)`", tasks)) == set()


def test_the_commands_of_make_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test"} <= set(re.findall(r"\bmake ([\w-]+)", README))
    for command in re.findall(r"(?:^|`)make\s([\w-]+)", README + CONTRIBUTING, flags=re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE)


def test_the_core_of_the_tests_is_there():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    paths = re.findall(r"tests/\S+", re.search(r"^CORE := (.*?)\n\n", makefile, flags=re.MULTILINE | re.DOTALL)[1])
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_command_is_listed():
    for command in ("demo", "train", "solve", "diagnose", "figure", "play", "heads"):
        assert re.search(rf"attsvm {command}\b", README), command


def test_both_papers_are_cited():
    assert "2306.13596" in README
    assert "2308.16898" in README


def test_the_norm_shown_to_contributors_is_the_real_one():
    (shown,) = blocks(CONTRIBUTING.replace("\n  ", "\n"), "python")
    real = (ROOT / "src/attsvm/norms/frobenius.py").read_text(encoding="utf-8").splitlines()
    assert [line for line in shown.splitlines() if line not in real] == []
    assert "class Frobenius(Norm):" in shown
