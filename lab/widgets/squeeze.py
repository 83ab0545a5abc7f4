"""Squeeze: JavaScript without the comments, indentation and spaces that are there for its reader.

Every line stays a line (an automatic semicolon stands where it stood) and every name stays a name, so that a browser's
error points at code that can be found in the source. Text, templates and regular expressions are copied as they are.

Does not: parse, rename (``shorten.py`` does) or reorder.
Source: the parts are small and of one style; this is no minifier for others' code.
"""

import re
from typing import Final

_GAP: Final = re.compile(r"(?:\s|//[^\n]*)+")
_WORD: Final = re.compile(r"[\w$]")
_REGEX_MAY_FOLLOW: Final = "(,=:[!&|?{};\n"  # after anything else a slash divides
_QUOTES: Final = "\"'"


def squeeze(code: str) -> str:
    """Return ``code`` with the same lines, each as short as its tokens allow; empty lines go.

    Raises: ValueError for a literal that is never closed.
    """
    kept: list[str] = ["\n"]
    at = 0
    while at < len(code):
        gap = _GAP.match(code, at)
        if gap is not None:
            at = gap.end()
            if "\n" in gap[0] or at == len(code):
                kept += [] if kept[-1] == "\n" else ["\n"]
            elif _is_needed(kept[-1][-1], code[at]):
                kept.append(" ")
            continue
        end = max(literal_end(code, at, kept[-1][-1]), at + 1)
        kept.append(code[at:end])
        at = end
    return "".join(kept[1:]).rstrip("\n") + "\n"


def _is_needed(left: str, right: str) -> bool:
    """Return whether two tokens would become one: two words, or two signs."""
    return bool(_WORD.match(left) and _WORD.match(right)) or (left == right and left in "+-")


def literal_end(text: str, at: int, before: str) -> int:
    """Return the end of the literal that begins here, or ``at`` when none does."""
    sign = text[at]
    if sign in _QUOTES:
        return _closing(text, at + 1, sign)
    if sign == "`":
        return _template_end(text, at + 1)
    if sign == "/" and before in _REGEX_MAY_FOLLOW:
        return _closing(text, at + 1, "/")
    return at


def _closing(text: str, at: int, sign: str) -> int:
    """Return the place after the next ``sign`` that no backslash hides; in brackets a slash ends nothing."""
    in_class = False
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if sign == "/" and text[at] in "[]":
            in_class = text[at] == "["
        elif text[at] == sign and not in_class:
            return at + 1
        at += 1
    message = f"a {sign} is never closed"
    raise ValueError(message)


def _template_end(text: str, at: int) -> int:
    """Return the place after a template's last backtick; ``${...}`` may hold text and templates of its own."""
    while at < len(text) and text[at] != "`":
        if text[at] == "\\":
            at += 2
        elif text.startswith("${", at):
            at = _braces_end(text, at + 2)
        else:
            at += 1
    if at >= len(text):
        message = "a template is never closed"
        raise ValueError(message)
    return at + 1


def _braces_end(text: str, at: int) -> int:
    """Return the place after the brace that closes a template's ``${``."""
    depth, before = 1, "{"
    while depth and at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        end = max(literal_end(text, at, before), at + 1)
        before = text[end - 1] if text[at].strip() else before
        at = end
    return at
