"""Shorten: a squeezed module with a letter or two for the variables that it declares itself.

A variable is renamed everywhere or nowhere: where nothing here declares it, it is the page's. Properties, keys and
methods keep their names, and so do traits and words; an object's ``{name}`` becomes ``{name:a}``. Every line stays, for
a browser's message. A semicolon at the end of a line goes where the line break says the same, a ``const`` goes where
the line before is one, and so do the brackets around the one thing that a function takes.

Does not: parse; brackets and the signs beside a name tell enough of code in one style.
Source: own; a minifier would be a dependency for a few hundred lines.
"""

import collections
import dataclasses
import itertools
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from lab.widgets.squeeze import literal_end, squeeze

BLOCK: Final = "{"  # what the words of a statement stand in
OBJECT: Final = "o"  # an object, or a pattern that takes one apart
CLASS: Final = "c"
_WORD: Final = re.compile(r"[\w$]+")
_DECLARES: Final = frozenset({"const", "let", "function", "class"})
_NO_FUNCTION: Final = frozenset({"if", "for", "while", "switch"})
_CLOSING: Final = {")": "(", "]": "[", "}": "{"}
_LANGUAGE: Final = """async await break case catch class const continue default do else export extends finally for
function get if in instanceof let new of return set static switch this throw try typeof undefined while
null true false"""
_KEPT: Final = frozenset({*_WORD.findall(_LANGUAGE), "render"})  # what the module exports keeps its name, too
_BEFORE_BLOCK: Final = frozenset({")", ">", ";", "{", "}", "else", "try", "finally", ""})
_ENDS_WITH_BLOCK: Final = frozenset({"function", "async", "class", "if", "else", "for", "while", "try", "export"})


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A word, a literal or a sign. inside: the bracket around it, BLOCK, OBJECT or CLASS; "$" in a template."""

    text: str
    inside: str
    is_word: bool = False


def tokens(code: str) -> list[Token]:
    """Cut a module into tokens; together they are the module. The parts of a template are tokens, too."""
    return list(_tokens(code, [BLOCK]))


def _tokens(code: str, stack: list[str]) -> Iterator[Token]:
    at, before = 0, "\n"
    last = ["", "", ""]  # the solid tokens before this one
    while at < len(code):
        word = _WORD.match(code, at)
        if word is not None:
            found = [Token(word[0], stack[-1], is_word=True)]
            at = word.end()
        elif code[at] == "`":
            end = literal_end(code, at, before)
            found = list(_template(code[at:end], stack))
            at = end
        else:
            end = max(literal_end(code, at, before), at + 1)
            if code[at] in _CLOSING and end == at + 1:
                stack.pop()
            found = [Token(code[at:end], stack[-1])]
            if code[at] in "([{" and end == at + 1:
                stack.append(_opened(code[at], last))
            at = end
        yield from found
        before = code[at - 1]
        if found[-1].text.strip():
            last = [*last[1:], found[-1].text]


def _opened(sign: str, last: Sequence[str]) -> str:
    """Return what a bracket opens, by the tokens before it."""
    if sign != "{":
        return sign
    if "class" in last[:2] or last[1] == "extends":
        return CLASS
    return BLOCK if last[2] in _BEFORE_BLOCK else OBJECT


def _template(text: str, stack: list[str]) -> Iterator[Token]:
    at = start = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text.startswith("${", at):
            end = _inner_end(text, at + 2)
            yield Token(text[start : at + 2], stack[-1])
            yield from _tokens(text[at + 2 : end], [*stack, "$"])
            at = start = end
        else:
            at += 1
    yield Token(text[start:], stack[-1])


def _inner_end(text: str, at: int) -> int:
    depth, before = 1, "{"
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at = max(literal_end(text, at, before), at + 1)
        before = text[at - 1]
    return at - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """A word that is a variable. at: among the tokens. both: it is the key of its object, too, as in ``{name}``."""

    at: int
    name: str
    both: bool


def uses(found: Sequence[Token]) -> list[Use]:
    """Return every word that is a variable, and neither a property nor a key, a method or of the language."""
    solid = [(at, token) for at, token in enumerate(found) if token.text.strip()]
    texts = ["", "", "", *[token.text for _, token in solid], ""]
    variables: list[Use] = []
    for i, (at, token) in enumerate(solid):
        before, behind = texts[i + 2], texts[i + 4]
        is_property = before == "." and texts[i : i + 3] != [".", ".", "."]
        if not token.is_word or token.text[0].isdigit() or is_property or token.inside == CLASS:
            continue
        is_first = token.inside == OBJECT and before in ("{", ",")
        if token.text in _KEPT or (is_first and behind in (":", "(")):
            continue
        variables.append(Use(at, token.text, both=is_first))
    return variables


def declared(found: Sequence[Token]) -> set[str]:
    """Return the words that the module declares: constants, functions, classes, and what functions take."""
    solid = [token for token in found if token.text.strip()]
    texts = ["", *[token.text for token in solid], "", ""]
    names: set[str] = set()
    opened: list[int] = []
    for at, token in enumerate(solid):
        before, behind = texts[at], texts[at + 2 : at + 4]
        if token.text in _CLOSING.values():
            opened.append(at)
        elif token.text in _CLOSING and opened:
            start = opened.pop()
            opener = solid[start - 1] if start else token
            takes = behind == ["=", ">"] or (behind[0] == "{" and opener.is_word and opener.text not in _NO_FUNCTION)
            if (takes and token.text == ")") or (token.text in "]}" and opener.text in ("const", "let")):
                names |= {one.text for one in solid[start:at] if one.is_word}
        elif token.is_word and (before in _DECLARES or behind == ["=", ">"] or _is_set(before, behind)):
            names.add(token.text)
    return {name for name in names if not name[0].isdigit()}


def _is_set(before: str, behind: Sequence[str]) -> bool:
    """Return whether a word is one more of a list of constants."""
    return before == "," and behind[0] == "=" and behind[1] not in ("=", ">")


def short_names(found: Sequence[Token]) -> dict[str, str]:
    """Give the variables of the module shorter names that no variable here has; the commonest get the shortest."""
    variables = uses(found)
    ours = declared(found) - _KEPT
    counts = collections.Counter(use.name for use in variables if use.name in ours)
    kept = {use.name for use in variables if use.name not in ours or len(use.name) <= 2}  # two letters may stay
    fresh = (name for name in _letters() if name not in kept | _KEPT)
    order = sorted(counts, key=lambda word: (-counts[word], word))
    short = {word: next(fresh) for word in order if len(word) > 1}
    return {word: name for word, name in short.items() if len(name) < len(word)}


def _letters() -> Iterator[str]:
    for length in (1, 2):
        yield from map("".join, itertools.product(string.ascii_letters, repeat=length))


def shorten(source: str) -> str:
    """Return a module squeezed, and with short names."""
    found = tokens(squeeze(source))
    names = short_names(found)
    written = [token.text for token in found]
    for use in uses(found):
        if use.name in names:
            written[use.at] = f"{use.name}:{names[use.name]}" if use.both else names[use.name]
    _drop_brackets(found, written)
    _drop_ends(found, written)
    return "".join(written)


def _drop_brackets(found: Sequence[Token], written: list[str]) -> None:
    """Write a function of one thing without the brackets around it."""
    for at in range(1, len(found) - 5):
        signs = [found[at].text, *(token.text for token in found[at + 2 : at + 5])]
        if signs == ["(", ")", "=", ">"] and found[at + 1].is_word and not found[at - 1].is_word:
            written[at] = written[at + 2] = ""


def _drop_ends(found: Sequence[Token], written: list[str]) -> None:
    """Leave out what a line's end says: a semicolon; between two lines of constants, all but a comma."""
    for at, is_constant in _ends(found):
        rest: Mapping[int, Token] = dict(enumerate(found[at + 1 : at + 4]))
        if 1 not in rest or rest[0].text != "\n" or not (rest[1].is_word or rest[1].text == "}"):
            continue
        written[at] = ""
        if is_constant and rest[1].text == "const":
            written[at] = ","
            written[at + 2] = ""
            if rest[2].text == " ":
                written[at + 3] = ""


def _ends(found: Sequence[Token]) -> Iterator[tuple[int, bool]]:
    """Yield each semicolon that ends a statement, and whether it was one of constants."""
    starts = [""]  # the first word of the statement that is open, of each bracket
    for at, token in enumerate(found):
        if token.text in _CLOSING:
            starts.pop()
            if token.text == "}" and starts[-1] in _ENDS_WITH_BLOCK:
                starts[-1] = ""
        if token.text in _CLOSING.values():
            starts.append("")
        elif token.text == ";":
            yield at, starts[-1] == "const"
            starts[-1] = ""
        elif token.is_word and not starts[-1] and token.inside == BLOCK:
            starts[-1] = token.text
