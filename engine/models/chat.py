"""Chat templates: a conversation written as one prompt.

Templates come from model files, so they are foreign code: they run in jinja2's immutable sandbox, see only
messages and the special tokens, and loop only over what they are given. Does not: keep a conversation.
"""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from engine.errors import ModelError, RequestError
from engine.fields import cut, shown

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment


class _TemplateRefusalError(Exception):
    """The template itself called ``raise_exception``."""


def _refuse(message: str) -> str:
    raise _TemplateRefusalError(message)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _environment() -> "ImmutableSandboxedEnvironment":
    """Make the sandbox: loop controls, and the tag with which trainers mark the assistant's words (it shows them)."""
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        tags: set[str] = {"generation"}  # noqa: RUF012 (the library's own annotation)

        def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = _to_json
    return environment


def require_template(name: str, template: str) -> None:
    """Refuse a text that is no jinja2 template. Raises: ModelError, with the line where it breaks off."""
    from jinja2 import TemplateSyntaxError

    try:
        _environment().parse(template)
    except (TemplateSyntaxError, RecursionError) as error:
        where = f", line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
        message = f"{name} must be a jinja2 template, got {shown(template)} ({cut(error)}{where})"
        raise ModelError(message) from error


def render_chat(template: str, messages: Iterable[Mapping[str, str]], special: Mapping[str, str]) -> str:
    """Render a template for an answer of the assistant.

    special: values for the template's bos_token and eos_token.
    Raises: RequestError when a message lacks role or content, or the template refuses the conversation; ModelError
    when the template is no valid jinja2 or tries to leave the sandbox.
    """
    from jinja2 import TemplateError
    from jinja2.exceptions import SecurityError

    listed = _checked(messages)
    known = {"tools": None, "raise_exception": _refuse} | dict(special)
    try:
        compiled = _environment().from_string(template)
        return compiled.render(messages=listed, add_generation_prompt=True, **known)
    except _TemplateRefusalError as refusal:
        text = f"the model's chat template refuses this conversation: {cut(refusal)}"
        raise RequestError(text) from refusal
    except SecurityError as error:
        text = f"the model's chat template was stopped, it tried to leave its sandbox: {cut(error)}"
        raise ModelError(text) from error
    except (
        TemplateError,
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        text = f"the model's chat template cannot be rendered: {cut(error)}"
        raise ModelError(text) from error


def _checked(messages: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Take a conversation, or name the first message that is none."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        text = f"a conversation must be a list of messages with 'role' and 'content', got {shown(messages)}"
        raise RequestError(text)
    listed = list(messages)
    for i, message in enumerate(listed):
        if not isinstance(message, Mapping):
            text = f"a chat message must be a dict with 'role' and 'content', message {i} is {shown(message)}"
            raise RequestError(text)
        if not {"role", "content"} <= set(message):
            text = f"a chat message needs 'role' and 'content', message {i} has {shown(list(message))}"
            raise RequestError(text)
    return listed
