"""Settings of the documentation site: `make docs`, which runs Sphinx with warnings as errors."""

import json
import re
import subprocess
import sys
from pathlib import Path

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx
from sphinx.util.osutil import relative_uri

from uqsonet import __version__

project = "uqsonet"
copyright = "2026 uqsonet developers"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
nitpicky = True
default_role = "py:obj"  # single backticks in docstrings link where they name something public
# They may name arguments and inner functions, too, and types are stated in words, with shapes.
nitpick_ignore_regex = [("py:(obj|class)", ".*")]
highlight_language = "none"
pygments_dark_style = "github-dark"
smartquotes = False  # u' is a derivative, and --input an option

myst_heading_anchors = 4  # links to #sections are those of GitHub

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings state types, with shapes and units
autodoc_inherit_docstrings = False
napoleon_use_ivar = True
napoleon_use_param = False
napoleon_use_rtype = False

html_theme = "furo"  # its colours follow the system, light or dark, and it fetches nothing
html_title = "uqsonet"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # it is fetched, and a page of the file system fetches nothing
html_show_sphinx = False


class Notebook(MystParser):
    """A notebook as the page that it is: its text, its code, and what that shows."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Read a notebook as Markdown."""
        parts = []
        for cell in json.loads(inputstring)["cells"]:
            text = "".join(cell["source"])
            parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
            for one in cell.get("outputs", []):
                data = one.get("data", {"text/plain": one.get("text", [])})
                shown = f"```text\n{''.join(data['text/plain']).rstrip()}\n```"
                if "image/png" in data:
                    alt = cell["metadata"].get("alt", "")
                    shown = f"![{alt}](data:image/png;base64,{data['image/png']})"
                parts.append(shown)
        super().parse("\n\n".join(parts), document)


COMMANDS = {
    "cli": ("uqsonet.cli", "The command uqsonet"),
    "cli-study": ("uqsonet_study.cli", "Commands of the study"),
}
"""Page -> the module of its commands, and its title."""


def _commands(app: Sphinx) -> None:
    """Write the pages of the command line, which are not in git."""
    for page, (module, title) in COMMANDS.items():
        words = ["utils", "docs", "--name", "uqsonet", "--title", title]
        out = Path(app.srcdir) / f"{page}.md"
        command = [sys.executable, "-m", "typer", module, *words, "--output", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _pages(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Let names of pages that `make docs` builds beside the site open them."""
    for node in list(tree.findall(nodes.literal)):
        name = node.astext()
        if name.startswith("build/site/explore/"):
            target = app.builder.get_target_uri(page)
            link = relative_uri(target, name.removeprefix("build/site/"))
            node.replace_self(nodes.reference("", "", node.deepcopy(), refuri=link))


MAX_WHOLE = 24
"""Letters that stay on one line, of a word between backticks or a cell of a table."""
MIN_TEXT = 80
"""Letters from which on a cell is a text, whose column must not be narrow."""
MIN_MANY = 8
"""Columns from which on a table has small letters."""


def _lines(_app: Sphinx, tree: nodes.document, _page: str) -> None:
    """Mark what docs/site.css breaks, and what it keeps on one line.

    Text between backticks breaks where it has a word too long for a phone. Cells of numbers, and
    short ones with an arrow, stay on a line; long ones are not narrow. Tables of many columns have
    small letters.
    """
    for node in tree.findall(nodes.literal):
        if max(map(len, node.astext().split()), default=0) > MAX_WHOLE:
            node["classes"].append("long")
    for cell in tree.findall(nodes.entry):
        text = cell.astext()
        if not re.search(r"[^\W\d]", text) or ("->" in text and len(text) <= MAX_WHOLE):
            cell["classes"].append("whole")
        elif len(text) >= MIN_TEXT:
            cell["classes"].append("text")
    for columns in tree.findall(nodes.tgroup):
        if columns["cols"] >= MIN_MANY:
            columns.parent["classes"].append("many")


def _together(_app: Sphinx, what: str, *rest: list[str]) -> None:
    """Keep attributes that share a line together: Sphinx would take the first for a type."""
    if what == "class":
        rest[-1][:] = [
            re.sub(r"^\w+(, \w+)+(?= : )", lambda names: names[0].replace(", ", ","), line)
            for line in rest[-1]
        ]


def setup(app: Sphinx) -> None:
    """Add all of this to the build."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(Notebook)
    app.connect("builder-inited", _commands)
    app.connect("doctree-resolved", _pages)
    app.connect("doctree-resolved", _lines)
    app.connect("autodoc-process-docstring", _together, priority=400)  # before napoleon
