"""Pages of a graded class: one a student with every check, and one for the teacher with what goes wrong.

The figure of the class page counts the wrong ideas that were named; the table beside it has the same numbers.

Does not: grade, or send anything to anybody.
"""

import html
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lab.exercises.catalogue import load, problem_set
from lab.figures.charts import bars
from lab.figures.page import Section, html_table, page

CLASS_PAGE: Final = "class.html"
STUDENTS: Final = "students"
_MOST_BARS: Final = 16
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
li { margin: 0.2rem 0; } .no { font-weight: 600; }
pre { background: #f3f3f3; padding: 0.6rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.idea { border-left: 4px solid #0072b2; padding-left: 0.7rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.8rem; border-bottom: 1px solid #ccc; text-align: right; }
th:first-child, td:first-child { text-align: left; } caption { text-align: left; color: #444; }
"""


def write_pages(book: dict[str, Any], out: Path) -> list[Path]:
    """Write all pages and return their paths, the class page first."""
    (out / STUDENTS).mkdir(parents=True, exist_ok=True)
    entries: list[dict[str, Any]] = book["entries"]
    written = [out / CLASS_PAGE]
    written[0].write_text(class_page(book["course"], entries), encoding="utf-8")
    for student in sorted({one["student_id"] for one in entries}):
        path = out / STUDENTS / f"{student}.html"
        own = [one for one in entries if one["student_id"] == student]
        path.write_text(student_page(book["course"], own), encoding="utf-8")
        written.append(path)
    return written


def misconceptions(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count the named wrong ideas by exercise, the most frequent first. Returns rows of a table."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in entries:
        for graded in one["exercises"]:
            if graded["misconception"] is not None:
                counts[graded["exercise"], graded["misconception"]["id"], graded["misconception"]["text"]] += 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [
        {"exercise": exercise, "students": count, "wrong_idea": idea.replace("_", " "), "a_function_that": text}
        for (exercise, idea, text), count in ordered
    ]


def misconception_figure(rows: Sequence[dict[str, Any]]) -> Any:
    """Draw the rows of ``misconceptions`` as a Plotly figure, the first on top; None where there are none."""
    top = rows[:_MOST_BARS]
    if not top:
        return None
    names = [f"{row['exercise']} {row['wrong_idea']}" for row in top]
    counts = {"students": [row["students"] for row in top]}
    figure: Any = bars("Wrong ideas that were named", names, counts, axis="", unit="students")
    bar: Any = figure.data[0]  # lying, since the names are long
    bar.update(x=bar.y, y=bar.x, orientation="h")
    figure.update_layout(title=None, margin={"l": 10, "t": 10}, height=110 + 24 * len(top))  # a heading is above it
    figure.update_xaxes(type="linear", title="students", dtick=1 if top[0]["students"] < 10 else None)
    figure.update_yaxes(type="category", title="", autorange="reversed", automargin=True)
    return figure


def exercise_rows(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each exercise, who solved it and the check that most fail."""
    rows: list[dict[str, Any]] = []
    for exercise in sorted({graded["exercise"] for one in entries for graded in one["exercises"]}):
        graded = [g for one in entries for g in one["exercises"] if g["exercise"] == exercise]
        failed = Counter(check["name"] for g in graded for check in g["checks"] if not check["passed"])
        hardest = min(failed, key=lambda name: (-failed[name], name)) if failed else None
        rows.append(
            {
                "exercise": exercise,
                "title": load(exercise).meta.title,
                "solved": f"{sum(g['points'] == g['max_points'] for g in graded)} of {len(graded)}",
                "mean_points": f"{sum(g['points'] for g in graded) / len(graded):.1f} of {graded[0]['max_points']}",
                "most_failed_check": f"{hardest} ({failed[hardest]})" if hardest else None,
            }
        )
    return rows


def class_page(course: str, entries: Sequence[dict[str, Any]]) -> str:
    """Return the teacher's page."""
    ideas = misconceptions(entries)
    marks = [
        {
            "student": one["student_id"],
            "set": one["assignment"],
            "score": f"{one['score']:g} of {one['max_score']:g}",
            "share": f"{one['score'] / one['max_score']:.0%}" if one["max_score"] else None,
            "notes": sum(len(graded["notes"]) for graded in one["exercises"]),
        }
        for one in entries
    ]
    named = sum(row["students"] for row in ideas)
    num_students = len({one["student_id"] for one in entries})
    who = "1 student" if num_students == 1 else f"{num_students} students"
    answers = "No wrong answer" if not named else "1 wrong answer" if named == 1 else f"{named} wrong answers"
    lead = [f"{who}. {answers} showed a wrong idea that has a name."]
    caption = "How many students' functions behave so"
    if len(ideas) > _MOST_BARS:
        caption += f" (the chart has the first {_MOST_BARS} of {len(ideas)})"
    return page(
        f"{course}: how the class did",
        lead,
        [
            Section("Wrong ideas", misconception_figure(ideas), ideas, caption),
            Section("Exercises", None, exercise_rows(entries), "Who solved what"),
            Section("Marks", None, marks, "Points of automatic checks; open questions are marked by a person"),
        ],
    )


def student_page(course: str, entries: Sequence[dict[str, Any]]) -> str:
    """Return one student's page."""
    student = entries[0]
    name = " ".join(part for part in (student["first_name"], student["last_name"]) if part) or student["student_id"]
    parts = [f"<h1>{html.escape(course)}: {html.escape(name)}</h1>"]
    rows = [
        {"set": one["assignment"], "points": f"{one['score']:g} of {one['max_score']:g}", "due": one["duedate"] or None}
        for one in entries
    ]
    parts.append(html_table(rows, "Points of automatic checks"))
    for one in entries:
        title = problem_set(one["assignment"])["title"]
        parts.append(f"<h2>{html.escape(one['assignment'])}: {html.escape(title)}</h2>")
        parts += [_exercise(graded) for graded in one["exercises"]]
    body = "\n".join(parts)
    title = html.escape(f"{course}: {name}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
        f"<body><main>{body}</main></body></html>\n"
    )


def _exercise(graded: dict[str, Any]) -> str:
    title = f"{graded['exercise']} {load(graded['exercise']).meta.title}"
    out = [f"<h3>{html.escape(title)} ({graded['points']} of {graded['max_points']} points)</h3>"]
    out += [f"<p>Note: {html.escape(note)}.</p>" for note in graded["notes"]]
    if graded["misconception"] is not None:
        out.append(f'<p class="idea">Your function {html.escape(graded["misconception"]["text"])}.</p>')
    items: list[str] = []
    shown = False
    for check in graded["checks"]:
        word = "holds" if check["passed"] else '<span class="no">does not hold</span>'
        detail = ""
        if not check["passed"] and not shown:
            detail, shown = f"<pre>{html.escape(check['problem'])}</pre>", True
        hidden = " (hidden)" if check["kind"] == "hidden" else ""
        items.append(f"<li>{html.escape(check['name'])}{hidden}: {word}{detail}</li>")
    return "\n".join([*out, f"<ul>{''.join(items)}</ul>"])
