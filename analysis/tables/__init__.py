"""One module a table; `Table` is the value, the renderers turn it into Markdown, CSV, HTML and plain text."""

from analysis.tables.html import to_html
from analysis.tables.latex import to_latex
from analysis.tables.render import to_csv, to_markdown, to_text
from analysis.tables.table import Column, Hole, Table

__all__ = ["Column", "Hole", "Table", "to_csv", "to_html", "to_latex", "to_markdown", "to_text"]
