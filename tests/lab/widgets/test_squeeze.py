"""The module without its spaces means the same: literals whole, lines kept, words apart."""

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.widgets import stepper
from lab.widgets.squeeze import squeeze
from lab.widgets.stepper import join_esm, read_part


@pytest.mark.parametrize(
    ("code", "short"),
    [
        ("const a = (b + 1) * 2;", "const a=(b+1)*2;"),
        ("  return x ? y : z;  // why", "return x?y:z;"),
        ("// only words\n\nlet  a", "let a"),
        ("a + +b - -c", "a+ +b- -c"),
        ("i += 1;\ni ++ ;", "i+=1;\ni++;"),
        ("say(\"a  :  b\", 'c // d')", "say(\"a  :  b\",'c // d')"),
        (r'say("\"  x", 1)', r'say("\"  x",1)'),
        ("t`a  ${ b  +  `c  ${ d } ` }  e` + 1", "t`a  ${ b  +  `c  ${ d } ` }  e`+1"),
        ("`${f({ a: 1 })}  }`  +  2", "`${f({ a: 1 })}  }`+2"),
        ("`${a / b}  ${c}` + `${d / e}`  + 1", "`${a / b}  ${c}`+`${d / e}`+1"),
        (r'text.replace(/ [/"] /g, "x")', r'text.replace(/ [/"] /g,"x")'),
        ("a / b / c", "a/b/c"),
        ("if (x) {\n  y();\n}", "if(x){\ny();\n}"),
    ],
)
def test_spaces_go_and_nothing_else(code, short):
    assert squeeze(code) == short + "\n"


@pytest.mark.parametrize("code", ['say("never', "say(`never", "x = (/never"])
def test_a_literal_that_never_ends_is_an_error_of_ours(code):
    with pytest.raises(ValueError, match="is never closed"):
        squeeze(code)


words = st.sampled_from(
    ["let", "a1", "$b", "_c", "42", "=", "+", "-", "(", ")", "{", "}", ",", ";", '"x  y"', "`z  z`"]
)


@given(
    st.lists(st.tuples(words, st.sampled_from([" ", "  ", "\n"])), min_size=1).map(lambda ps: ["".join(p) for p in ps])
)
def test_what_is_short_stays_and_tokens_never_merge(pieces):
    code = "".join(pieces)
    short = squeeze(code)
    assert squeeze(short) == short
    assert short.split() == " ".join(short.split()).split()
    assert "".join(short.split()) == "".join(code.split())
    assert len(short.splitlines()) == len([line for line in code.splitlines() if line.strip()])


def test_every_line_of_the_parts_that_holds_code_is_a_line_of_the_module():
    module = join_esm().splitlines()
    assert len(module) == sum(len(squeeze(read_part(part)).splitlines()) for part in stepper._ESM_PARTS)
    assert [line for line in module if line.startswith("async function render({model:")]
    assert max(map(len, module)) < 700


def test_node_reads_it_as_it_reads_the_source(tmp_path):
    node = shutil.which("node")
    parts = "\n".join(read_part(part) for part in stepper._ESM_PARTS)
    assert parts.count("\n") > 2000
    for name, text in (("short", join_esm()), ("long", parts)):
        file = tmp_path / f"{name}.mjs"
        file.write_text(text, encoding="utf-8")
        if node is not None:  # where it is missing, the browser tests run the module
            subprocess.run([node, "--check", str(file)], check=True, timeout=60)
