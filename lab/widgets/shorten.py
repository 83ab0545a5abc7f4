"""Shorten: a squeezed module with a letter or two for the names that it declares itself.

A name is renamed everywhere or nowhere. It is left alone when it is a property or a key anywhere, when it stands in an
object without a value (then it is both), when a string spells it, and when nothing here declares it. So what reaches
the page's objects, the traits and the string table keeps its name; and every line stays, for a browser's message. A
semicolon at the end of a line goes where the line break says the same.

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

_WORD: Final = re.compile(r"[\w$]+")
_SPELLED: Final = re.compile(r"""["'](\w+)["']""")
_DECLARES: Final = frozenset({"const", "let", "function", "class"})
_NO_FUNCTION: Final = frozenset({"if", "for", "while", "switch"})
_CLOSING: Final = {")": "(", "]": "[", "}": "{"}
_LANGUAGE: Final = """async await break case catch class const continue default do else export extends finally for
function get if in instanceof let new of return set static switch this throw try typeof undefined while
null true false"""
_KEPT: Final = frozenset({*_WORD.findall(_LANGUAGE), "render"})  # what the module exports keeps its name, too


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A word, a literal or a sign. inside: the bracket around it; "$" in a template's ``${...}``."""

    text: str
    inside: str
    is_word: bool = False


def tokens(code: str) -> list[Token]:
    """Cut a module into tokens; together they are the module. The parts of a template are tokens, too."""
    return list(_tokens(code, [""]))


def _tokens(code: str, stack: list[str]) -> Iterator[Token]:
    at, before = 0, "\n"
    while at < len(code):
        word = _WORD.match(code, at)
        if word is not None:
            yield Token(word[0], stack[-1], is_word=True)
            at = word.end()
        elif code[at] == "`":
            end = literal_end(code, at, before)
            yield from _template(code[at:end], stack)
            at = end
        else:
            end = max(literal_end(code, at, before), at + 1)
            if code[at] in _CLOSING and end == at + 1:
                stack.pop()
            yield Token(code[at:end], stack[-1])
            if code[at] in "([{" and end == at + 1:
                stack.append(code[at])
            at = end
        before = code[at - 1]


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


def _signs(found: Sequence[Token]) -> list[tuple[int, str, str]]:
    """Return each word's place, what stands before it, and what behind; spaces and line breaks do not count."""
    solid = [(at, token) for at, token in enumerate(found) if token.text.strip()]
    texts = ["", *[token.text for _, token in solid], ""]
    return [(at, texts[i], texts[i + 2]) for i, (at, token) in enumerate(solid) if token.is_word]


def properties(found: Sequence[Token]) -> set[str]:
    """Return the words that are a property, a key, a value without one, or spelled by a string."""
    names: set[str] = set()
    for at, before, behind in _signs(found):
        word, inside = found[at].text, found[at].inside
        is_property = before == "." and found[max(0, at - 3) : at] != [found[at - 1]] * 3
        is_in_object = inside == "{" and before in ("{", ",") and behind in (":", ",", "}", "=")
        if is_property or is_in_object:
            names.add(word)
    for token in found:
        names |= set(_SPELLED.findall(token.text))
    return names


def declared(found: Sequence[Token]) -> set[str]:
    """Return the words that the module declares: constants, functions, classes, and what functions take."""
    names: set[str] = set()
    for at, before, behind in _signs(found):
        if before in _DECLARES or behind == "=":
            names.add(found[at].text)
    solid = [token for token in found if token.text.strip()]
    opened: list[int] = []
    for at, token in enumerate(solid):
        if token.text in ("(", "["):
            opened.append(at)
        elif token.text in (")", "]"):
            start = opened.pop()
            behind = "".join(one.text for one in solid[at + 1 : at + 3])
            before = solid[start - 1] if start else token
            takes = behind.startswith("=>") or (
                behind[:1] == "{" and before.is_word and before.text not in _NO_FUNCTION
            )
            if (takes and token.text == ")") or (token.text == "]" and before.text in _DECLARES):
                names |= {one.text for one in solid[start:at] if one.is_word}
        elif token.is_word and "".join(one.text for one in solid[at + 1 : at + 3]) == "=>":
            names.add(token.text)
    return names


def short_names(found: Sequence[Token]) -> dict[str, str]:
    """Give the names that may be renamed shorter ones that nothing here has; the commonest get the shortest."""
    words = [token.text for token in found if token.is_word]
    may = declared(found) - properties(found) - _KEPT
    counts = collections.Counter(word for word in words if word in may and not word[0].isdigit())
    taken = {*words, *_KEPT}
    fresh = (name for name in _letters() if name not in taken)
    order = sorted(counts, key=lambda word: (-counts[word] * len(word), word))
    short = {word: next(fresh) for word in order if len(word) > 1}
    return {word: name for word, name in short.items() if len(name) < len(word)}


def _letters() -> Iterator[str]:
    for length in (1, 2):
        yield from map("".join, itertools.product(string.ascii_letters, repeat=length))


def shorten(source: str) -> str:
    """Return a module squeezed, and with short names."""
    found = tokens(squeeze(source))
    return "".join(_written(found, short_names(found)))


def _written(found: Sequence[Token], names: Mapping[str, str]) -> Iterator[str]:
    for at, token in enumerate(found):
        rest = (one for one in found[at + 1 : at + 3])
        if token.text == ";" and next(rest, token).text == "\n" and _goes_on(next(rest, token)):
            continue
        yield names.get(token.text, token.text) if token.is_word else token.text


def _goes_on(token: Token) -> bool:
    return token.is_word or token.text == "}"
