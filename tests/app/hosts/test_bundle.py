from __future__ import annotations

import re
from importlib.resources import files

import pytest

from app.hosts.joinable import check_joinable
from attsvm.app.page import STYLE, join_parts, module_text, read_parts

MAIN = """\
import { add } from "./maths/add.js";
import {
  colour,
  styleText,
} from "./style.js";

export const maths = { add };
export function mount(element, options) { return add(1, 2); }
export function render({ model, el }) { return mount(el, {}); }
"""


def parts(**changes: str | None) -> dict[str, str]:
    """A small playground; keyword x__y means the file x/y.js, None takes it away."""
    given = {"main": MAIN.replace("  colour,\n", ""), "maths__add": "export function add(a, b) {\n  return a + b;\n}\n"}
    given |= changes
    return {name.replace("__", "/") + ".js": text for name, text in given.items() if text is not None}


def test_parts_become_one_module_without_imports():
    text = join_parts(parts(), "p { color: red; }")
    assert "import" not in text
    assert text.index("function add") < text.index("function mount")
    assert 'const styleText = "p { color: red; }";' in text
    assert text.endswith("export { maths, mount };\nexport default { render };\n")
    assert text.count("export") == 2


def test_the_order_of_the_files_does_not_matter():
    sources = parts(maths__twice='import { add } from "./add.js";\nexport const twice = (a) => add(a, a);\n')
    sources["main.js"] = 'import { twice } from "./maths/twice.js";\n' + sources["main.js"]
    backwards = dict(reversed(sources.items()))
    assert join_parts(sources, "") == join_parts(backwards, "")


def test_comments_stay_in_the_files():
    kept = 'const address = "http://a"; // why\n  const rate = 6 /* of */ / 2;\n'
    source = f"/** What it does,\n * in two lines. */\nexport function add(a, b) {{\n  // a step\n  {kept}}}\n"
    text = join_parts(parts(maths__add=source), "/* all */ p { color: red; }")
    assert kept in text
    assert not any(gone in text for gone in ("What it does", "in two lines", "a step"))
    assert "/* all */ p" in text, "a text that stands inside the script is left alone"


def test_a_part_that_two_others_need_stands_once():
    sources = parts(other='import { add } from "./maths/add.js";\nexport const three = add(1, 2);\n')
    sources["main.js"] = 'import { three } from "./other.js";\n' + sources["main.js"]
    assert join_parts(sources, "").count("function add") == 1


@pytest.mark.parametrize(("changes", "words"), [
    ({"maths__add": "export function add() {}\nfunction mount() {}\n"}, ("mount", "maths/add.js", "main.js")),
    ({"maths__add": "export function add() {}\nconst styleText = 1;\n"}, ("styleText", "style.js")),
    ({"maths__add": "export function add() {}\nconst add = 1;\n"}, ("add", "both")),
    ({"maths__add": None}, ("maths/add.js", "does not exist")),
    ({"maths__add": "function add() {}\n"}, ("add", "does not export")),
    ({"maths__add": 'import { mount } from "../main.js";\nexport function add() {}\n'}, ("main.js -> maths/add.js",)),
    ({"maths__add": 'import { x } from "left-pad";\nexport function add() {}\n'}, ("left-pad", "only one another")),
    ({"maths__add": 'import { x as y } from "./x.js";\nexport function add() {}\n'}, ("x as y",)),
    ({"maths__add": 'import x from "./x.js";\nexport function add() {}\n'}, ("cannot be joined", "import x")),
    ({"maths__add": 'import * as x from "./x.js";\nexport function add() {}\n'}, ("cannot be joined", "import *")),
    ({"maths__add": 'import "./x.js";\nexport function add() {}\n'}, ("cannot be joined",)),
    ({"maths__add": "export default function add() {}\n"}, ("cannot be joined", "export default")),
    ({"maths__add": "function add() {}\nexport { add };\n"}, ("cannot be joined", "export { add }")),
    ({"maths__add": "export function add() {}\nexport let state = 1;\n"}, ("cannot be joined", "export let")),
    ({"maths__add": "export function add() {}\nconst { a, b } = add;\n"}, ("takes a value apart",)),
    ({"maths__add": 'export function add() {}\nconst html = "</script>";\n'}, ("</script",)),
    ({"main": None}, ("main.js",)),
    ({"main": 'import { add } from "./maths/add.js";\nexport const maths = { add };\n'}, ("mount, render is missing",)),
])  # fmt: skip
def test_what_cannot_be_joined_is_refused(changes, words):
    with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
        check_joinable(parts(**changes))
    for word in words:
        assert word in str(caught.value)


def test_a_file_that_is_missing_is_named():
    with pytest.raises(ValueError, match=r"main.js imports from maths/add.js, which does not exist"):
        join_parts(parts(maths__add=None), "")


def test_the_installed_playground_can_be_joined():
    check_joinable({name: text for name, text in read_parts().items() if name != STYLE})
    text = module_text()
    assert not any(forbidden in text.lower() for forbidden in ("</script", "<!--"))  # it also stands inside a page
    assert module_text() is text
    assert "import {" not in text
    folder = files("attsvm.app") / "playground"
    assert all(
        line in text for line in (folder / "main.js").read_text(encoding="utf-8").splitlines() if line.startswith("  ")
    )


def test_every_part_is_used():
    folder = files("attsvm.app") / "playground"
    names = {str(path.relative_to(folder)) for path in folder.rglob("*.js")}  # type: ignore[attr-defined]
    joined = {line.removeprefix("// ---- ") for line in module_text().splitlines() if line.startswith("// ---- ")}
    assert names == joined - {"style.js"}
