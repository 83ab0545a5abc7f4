"""A module with short names is the same module: what leaves it keeps its name, and so does what could be either."""

import re
import shutil
import subprocess

import pytest

from lab.widgets import stepper
from lab.widgets.shorten import short_names, shorten, tokens, uses
from lab.widgets.squeeze import squeeze
from lab.widgets.stepper import join_esm, read_part

SOURCE = "\n".join(read_part(part) for part in stepper._ESM_PARTS)


@pytest.mark.parametrize(
    ("code", "short"),
    [
        ("const total = 1;\nshow(total);", "const a=1\nshow(a);"),
        ("function paint(value) {\n  return value;\n}", "function b(a){\nreturn a\n}"),
        ("const walk = (left, [right]) => left + right;", "const c=(a,[b])=>a+b;"),
        ("const node = 1;\ncall(`${node} of ${`${node}`}`);", "const a=1\ncall(`${a} of ${`${a}`}`);"),
        ("const all = [1];\ncall(...all);", "const a=[1]\ncall(...a);"),
        ("for (const one of all) call(one);", "for(const a of all)call(a);"),
        ("const some = all.map((each) => each * 2);", "const b=all.map(a=>a*2);"),
        ("const { step, seen = 0 } = frame;\ncall(step, seen);", "const{step:b,seen:a=0}=frame\ncall(b,a);"),
    ],
)
def test_a_declared_name_is_renamed_wherever_it_stands(code, short):
    assert shorten(code) == short + "\n"


@pytest.mark.parametrize(
    ("code", "short"),
    [
        ("const rows=1;\nframe.rows=rows;", "const a=1\nframe.rows=a;"),
        ("const rows=1;\ncall({rows:rows});", "const a=1\ncall({rows:a});"),
        ("const waste=1;\ncall({n:1,waste,more:2});", "const a=1\ncall({n:1,waste:a,more:2});"),
        ('const cached=1;\ncall(["cached"]);', 'const a=1\ncall(["cached"]);'),
        ("const paint=1;\ncall({paint(row){call(row)}});", "const b=1\ncall({paint(a){call(a)}});"),
        ("class Box{size(one){return one}}\nconst size=1;", "class b{size(a){return a}}\nconst c=1;"),
        ("const one=is?{}:two;", "const a=is?{}:two;"),
    ],
)
def test_a_property_a_key_and_a_method_keep_the_name_that_a_variable_has_too(code, short):
    assert shorten(code) == short + "\n"


@pytest.mark.parametrize("code", ["call(document);", "export default{render};", "const n=1;\ncall(n);"])
def test_a_name_that_is_not_ours_or_short_enough_stays(code):
    assert shorten(code).replace("\n", "") == code.replace(";\n", "").replace("\n", "")


def test_lines_of_constants_are_one_statement_on_as_many_lines():
    assert shorten("const one = 1;\nconst two = () => {\n  call();\n};\nconst [three] = two;\ncall();") == (
        "const b=1,\na=()=>{\ncall()\n},\n[c]=a\ncall();\n"
    )
    assert shorten("const one = 1;\nlet two = 2;\nif (two) {\n  const one = 3;\n}\nconst four = 4;") == (
        "const a=1\nlet b=2\nif(b){\nconst a=3\n}\nconst c=4;\n"
    )


def test_a_semicolon_stays_where_a_line_break_would_say_something_else():
    assert shorten("call();\n[1].map(call);") == "call();\n[1].map(call);\n"
    assert shorten("call();\n(1);") == "call();\n(1);\n"
    assert shorten("for (;;) {\n  call();\n}") == "for(;;){\ncall()\n}\n"


def test_tokens_are_the_whole_module():
    code = squeeze(SOURCE)
    assert "".join(token.text for token in tokens(code)) == code


def test_what_python_and_the_page_read_keeps_its_name():
    short = join_esm()
    wire = ("predict_from", "answers", "is_live", "can_prove", "findings", "limits", "spans", "waste", "seq", "have")
    assert [name for name in wire if not re.search(rf"\b{name}\b", short)] == []
    page = {"document", "Math", "Map", "Set", "String", "Number", "Object", "JSON", "setTimeout", "ResizeObserver"}
    assert not set(short_names(tokens(squeeze(SOURCE)))) & page


def test_no_two_variables_get_the_same_name_nor_one_that_is_kept():
    found = tokens(squeeze(SOURCE))
    short = short_names(found)
    kept = {use.name for use in uses(found)} - set(short)
    assert len(set(short.values())) == len(short) > 300
    assert not set(short.values()) & kept
    assert {"setText", "makeTable", "item", "frame"} <= set(short)


def test_every_line_stays_a_line_and_the_module_is_a_fifth_shorter():
    short, long = join_esm(), squeeze(SOURCE)
    assert len(short.splitlines()) == len(long.splitlines())
    assert len(short) < 0.8 * len(long)
    assert "async function render({model:" in short


def test_node_can_read_it(tmp_path):
    node = shutil.which("node")
    file = tmp_path / "short.mjs"
    file.write_text(join_esm(), encoding="utf-8")
    if node is not None:  # where it is missing, the browser tests run the module
        subprocess.run([node, "--check", str(file)], check=True, timeout=60)
