"""What browser tests do with a page that holds the stepper: press keys, read the step, ask the page's own checks."""

import json

STEP = "() => document.querySelector('.stepscope').dataset.step"


def press(page, key, times=1):
    """Press a key and wait for the paint after it."""
    for _ in range(times):
        page.keyboard.press(key)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def step_of(page):
    return int(page.evaluate(STEP))


def check(page, name):
    return page.locator(".stepscope").evaluate(f"(root) => checks.{name}(root)")


def focus(page):
    page.locator(".stepscope").first.focus()


def notebook_of(cells):
    """Return the text of a notebook with these code cells."""
    made = [
        {"cell_type": "code", "id": f"c{at}", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        for at, source in enumerate(cells)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
