"""A module with short names is the same module: what leaves it keeps its name, and so does what could be either."""

import shutil
import subprocess

import pytest

from lab.widgets import stepper
from lab.widgets.shorten import declared, properties, shorten, tokens
from lab.widgets.squeeze import squeeze
from lab.widgets.stepper import join_esm, read_part

SOURCE = "\n".join(read_part(part) for part in stepper._ESM_PARTS)


@pytest.mark.parametrize(
    ("code", "short"),
    [
        ("const total = 1;\nshow(total);", "const a=1\nshow(a);"),
        ("function paint(value) {\n  return value;\n}", "function b(a){\nreturn a\n}"),
        ("const walk = (left, [right]) => left + right;", "const c=(b,[a])=>b+a;"),
        ("const node = 1;\ncall(`${node} of ${`${node}`}`);", "const a=1\ncall(`${a} of ${`${a}`}`);"),
        ("const all = [1];\ncall(...all);", "const a=[1]\ncall(...a);"),
        ("for (const one of all) call(one);", "for(const a of all)call(a);"),
        ("const some = all.map((each) => each * 2);", "const b=all.map((a)=>a*2);"),
    ],
)
def test_a_declared_name_is_renamed_wherever_it_stands(code, short):
    assert shorten(code) == short + "\n"


@pytest.mark.parametrize(
    "code",
    [
        "const rows=1;\nframe.rows=rows;",
        "const rows=1;\ncall({rows:2});",
        "const waste=1;\ncall({n:1,waste,more:2});",
        'const cached=1;\ncall(["cached"]);',
        "const{step}=frame;\ncall(step);",
        "call(document);",
        "export default{render};",
    ],
)
def test_a_name_that_is_a_property_or_a_key_or_not_ours_stays(code):
    assert shorten(code).replace("\n", "") == code.replace(";\n", "").replace("\n", "")


def test_a_semicolon_stays_where_a_line_break_would_say_something_else():
    assert shorten("call();\n[1].map(call);") == "call();\n[1].map(call);\n"
    assert shorten("call();\n(1);") == "call();\n(1);\n"
    assert shorten("for (;;) {\n  call();\n}") == "for(;;){\ncall()\n}\n"


def test_tokens_are_the_whole_module():
    code = squeeze(SOURCE)
    assert "".join(token.text for token in tokens(code)) == code


def test_what_python_and_the_page_read_keeps_its_name():
    found = tokens(squeeze(SOURCE))
    free = declared(found) - properties(found)
    assert not free & {"model", "el", "n", "who", "step", "bucket", "waste", "type", "view", "seq", "have", "document"}
    assert {"setText", "makeTable", "item"} <= free


def test_every_line_stays_a_line_and_the_module_is_a_tenth_shorter():
    short, long = join_esm(), squeeze(SOURCE)
    assert len(short.splitlines()) == len(long.splitlines())
    assert len(short) < 0.92 * len(long)
    assert "async function render({model,el}){" in short


def test_node_can_read_it(tmp_path):
    node = shutil.which("node")
    file = tmp_path / "short.mjs"
    file.write_text(join_esm(), encoding="utf-8")
    if node is not None:  # where it is missing, the browser tests run the module
        subprocess.run([node, "--check", str(file)], check=True, timeout=60)
