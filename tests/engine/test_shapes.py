from engine import shapes


def test_every_axis_is_one_capital_letter_with_a_meaning():
    assert all(len(letter) == 1 and letter.isupper() for letter in shapes.AXES)
    assert len(set(shapes.AXES.values())) == len(shapes.AXES)


def test_the_legend_in_the_docstring_names_the_same_axes():
    legend = shapes.__doc__.split("\n\n")[1]
    words = legend.split()
    assert {word for word in words if len(word) == 1 and word.isupper()} == set(shapes.AXES)
