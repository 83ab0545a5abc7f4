"""A page of figures, each beside a table of its numbers; one HTML file that loads nothing from anywhere.

Does not: choose figures or compute numbers.
"""

import dataclasses
import html
from collections.abc import Mapping, Sequence
from typing import Any, Final

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; }
body { margin: 0 auto; max-width: 75rem; padding: 1.5rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
.beside { overflow: auto; max-height: 26rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; margin: 0.5rem 0; }
caption { text-align: left; color: #444; padding-bottom: 0.3rem; }
th, td { padding: 0.2rem 0.8rem; border-bottom: 1px solid #ccc; text-align: right; }
th:first-child, td:first-child, .words { text-align: left; }
.words { min-width: 9rem; }
@media print { .beside { max-height: none; } }
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """A heading, a figure or None, and the table that belongs to it. caption: what the table's numbers are."""

    heading: str
    figure: Any
    rows: Sequence[Mapping[str, Any]]
    caption: str


def html_table(rows: Sequence[Mapping[str, Any]], caption: str) -> str:
    """Lay rows with the same keys out; None is a dash. A column of words stands on the left, others on the right."""
    if not rows:
        return f"<p>{html.escape(caption)}: none.</p>"
    kind = {name: ' class="words"' if _is_words([row[name] for row in rows]) else "" for name in rows[0]}
    head = "".join(f'<th scope="col"{kind[name]}>{html.escape(str(name).replace("_", " "))}</th>' for name in rows[0])
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind[name]}>{'-' if v is None else html.escape(str(v))}</td>" for name, v in row.items())
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="beside" tabindex="0"><table><caption>{html.escape(caption)}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>"
    )


def _is_words(values: Sequence[object]) -> bool:
    """Whether a column holds texts of several words, and not figures or short marks."""
    return any(isinstance(value, str) and value[:1].isalpha() and " " in value for value in values)


def page(title: str, lead: Sequence[str], sections: Sequence[Section]) -> str:
    """Return the page. lead: sentences under the title, one a paragraph. Plotly's script is in the page, once."""
    parts: list[str] = []
    script: bool | str = True
    for section in sections:
        parts.append(f"<h2>{html.escape(section.heading)}</h2>")
        if section.figure is not None:
            label = html.escape(f"{section.heading}: a chart of the table below", quote=True)
            drawn = section.figure.to_html(full_html=False, include_plotlyjs=script)
            parts.append(f'<div role="img" aria-label="{label}">{drawn}</div>')
            script = False
        parts.append(html_table(section.rows, section.caption))
    paragraphs = "\n".join(f"<p>{html.escape(text)}</p>" for text in lead)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
        f"<body><main><h1>{html.escape(title)}</h1>\n{paragraphs}\n" + "\n".join(parts) + "\n</main></body></html>\n"
    )
