"""Source as a tree: fingerprints, hidden checks, one version of the rule."""

import ast

import pytest

from lab.classroom.syntax import fingerprint, for_rule, functions, hidden_functions, num_nodes, without_hidden
from lab.exercises.catalogue import exercise_names, load
from lab.exercises.child import load_answer
from tests.exercises.answers import answers


def _print(source):
    return fingerprint(next(functions(source)))


BASE = "def f(a, b):\n    c = a + 1\n    return g(c, b)\n"


@pytest.mark.parametrize(
    "same",
    [
        "def other(x, y):\n    z = x + 1\n    return g(z, y)\n",
        'def f(a: int, b: int = 3) -> int:\n    """Say something."""\n    c = a + 1\n    return g(c, b)\n',
        "@cache\ndef f(a, b):\n    # a remark\n    c = (a + 1)\n    return g(c,\n        b)\n",
    ],
)
def test_names_annotations_and_remarks_do_not_hide_a_function(same):
    assert _print(same) == _print(BASE)


@pytest.mark.parametrize(
    "other",
    [
        "def f(a, b):\n    c = a + 2\n    return g(c, b)\n",
        "def f(a, b):\n    c = a + 1\n    return g(b, c)\n",
        "def f(a, b):\n    c = a + 1\n    return h(c, b)\n",
        "def f(a, b):\n    c = a - 1\n    return g(c, b)\n",
    ],
)
def test_another_function_has_another_fingerprint(other):
    assert _print(other) != _print(BASE)


def test_what_is_no_python_has_no_functions():
    assert list(functions("def f(:")) == []
    assert num_nodes(next(functions('def f():\n    """Only this."""\n'))) == 0


@pytest.mark.parametrize("name", list(exercise_names()))
def test_hidden_checks_and_their_helpers_are_cut_out_and_the_rest_runs(name):
    exercise = load(name)
    source = (exercise.folder / "properties.py").read_text(encoding="utf-8")
    shown = without_hidden(source)
    namespace = {}
    exec(compile(shown, "properties.py", "exec"), namespace)
    visible = [one.name for one in exercise.checks.properties if not one.is_hidden]
    assert [one.name for one in namespace["checks"].properties] == visible
    assert not [one for one in exercise.meta.hidden if f'@checks.hidden("{one}"' in shown]
    assert len(hidden_functions(source)) >= len(exercise.meta.hidden)


def test_the_optimum_of_the_size_list_is_hidden_with_the_checks_that_use_it():
    source = (load("ex17").folder / "properties.py").read_text(encoding="utf-8")
    assert {"_best", "_is_best"} <= {node.name for node in hidden_functions(source)}
    assert "_best" not in {node.name for node in functions(without_hidden(source))}


@pytest.mark.parametrize("name", list(exercise_names()))
def test_a_solution_for_one_rule_answers_as_the_whole_one_does(name):
    exercise = load(name)
    [solution] = answers(exercise, "solution")
    for rule in exercise.meta.rules:
        source = for_rule(solution.source, rule.id)
        assert "RULE" not in {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        load_answer(source, exercise.meta.entry)
    texts = {for_rule(solution.source, rule.id) for rule in exercise.meta.rules}
    assert len(texts) == len(exercise.meta.rules)


def test_branches_of_the_other_rule_are_dropped():
    source = "x = 1 if RULE == 'a' else 2\nif RULE != 'a' and y:\n    z = 3\nelif RULE == 'b' or y:\n    z = 4\n"
    assert for_rule(source, "a") == "x = 1\nif y:\n    z = 4"
    assert for_rule(source, "b") == "x = 2\nif y:\n    z = 3\nelse:\n    z = 4"
