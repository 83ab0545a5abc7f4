import pytest

from engine.errors import ModelError, RequestError
from engine.models.chat import render_chat, require_template

MESSAGES = [{"role": "user", "content": "hi"}]


def test_a_template_sees_messages_special_tokens_and_json():
    template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content | tojson }}{% endfor %}"
    assert render_chat(template, MESSAGES, {"bos_token": "<s>"}) == '<s>[user] "hi"'


def test_blocks_leave_no_blank_lines():
    template = "{% for m in messages %}\n  {% if m.role == 'user' %}\nU\n  {% endif %}\n{% endfor %}\n"
    assert render_chat(template, MESSAGES, {}) == "U\n"


def test_a_message_without_content_is_refused_by_number():
    with pytest.raises(RequestError, match=r"message 1 has \['role'\]"):
        render_chat("", [*MESSAGES, {"role": "user"}], {})


def test_what_the_template_refuses_is_a_request_error_with_its_words():
    with pytest.raises(RequestError, match="refuses this conversation: roles must alternate"):
        render_chat("{{ raise_exception('roles must alternate') }}", MESSAGES, {})


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(template: str):
    with pytest.raises(ModelError, match="was stopped, it tried to leave its sandbox"):
        render_chat(template, MESSAGES, {})


def test_the_tag_around_the_assistants_words_shows_them():
    template = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    require_template("chat_template", template)
    assert render_chat(template, MESSAGES, {}) == "hi"


@pytest.mark.parametrize(
    ("template", "reason"),
    [("{% if", "unexpected 'end of template'"), ("{{ a }\n", "line 1"), ("{% nonsense %}", "unknown tag 'nonsense'")],
)
def test_a_text_that_is_no_template_is_refused_by_name(template: str, reason: str):
    with pytest.raises(ModelError, match=rf"^chat_template must be a jinja2 template, got .*({reason})"):
        require_template("chat_template", template)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("hi", "a conversation must be a list of messages with 'role' and 'content', got 'hi'"),
        (None, "a conversation must be a list of messages with 'role' and 'content', got None"),
        (MESSAGES[0], "a conversation must be a list of messages .*, got {'content': 'hi', 'role': 'user'}"),
        (["hi"], "a chat message must be a dict with 'role' and 'content', message 0 is 'hi'"),
        ([*MESSAGES, {1: 2, "a": 3}], r"a chat message needs 'role' and 'content', message 1 has \[1, 'a'\]"),
    ],
)
def test_what_is_no_conversation_is_refused(messages, message: str):
    with pytest.raises(RequestError, match=message):
        render_chat("", messages, {})


def test_messages_may_come_one_by_one():
    assert render_chat("{{ messages | length }}", (m for m in MESSAGES), {}) == "1"


def test_a_broken_template_is_a_model_error():
    with pytest.raises(ModelError, match="chat template cannot be rendered"):
        render_chat("{% for %}", MESSAGES, {})
