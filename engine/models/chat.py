"""Chat templates: a conversation written as one prompt.

Templates come from model files, so they are foreign code: they run in jinja2's immutable sandbox, see only
messages and the special tokens, and loop only over what they are given. Does not: keep a conversation.
"""

import json
from collections.abc import Mapping, Sequence

from engine.errors import ModelError, RequestError


class _TemplateRefusalError(Exception):
    """The template itself called ``raise_exception``."""


def _refuse(message: str) -> str:
    raise _TemplateRefusalError(message)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def render_chat(template: str, messages: Sequence[Mapping[str, str]], special: Mapping[str, str]) -> str:
    """Render a template for an answer of the assistant.

    special: values for the template's bos_token and eos_token.
    Raises: RequestError when a message lacks role or content, or the template refuses the conversation; ModelError
    when the template is no valid jinja2 or tries to leave the sandbox.
    """
    from jinja2 import TemplateError
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    for i, message in enumerate(messages):
        if not {"role", "content"} <= set(message):
            text = f"a chat message needs 'role' and 'content', message {i} has {sorted(message)}"
            raise RequestError(text)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    known = {"tools": None, "raise_exception": _refuse} | dict(special)
    try:
        compiled = environment.from_string(template)
        return compiled.render(messages=list(messages), add_generation_prompt=True, **known)
    except _TemplateRefusalError as refusal:
        text = f"the model's chat template refuses this conversation: {refusal}"
        raise RequestError(text) from refusal
    except SecurityError as error:
        text = f"the model's chat template was stopped, it tried to leave its sandbox: {error}"
        raise ModelError(text) from error
    except (TemplateError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        text = f"the model's chat template cannot be rendered: {error}"
        raise ModelError(text) from error
