"""Run the notebooks of docs/notebooks and keep what they show: `make notebooks`."""

from __future__ import annotations

import ast
import base64
import io
import json
import os
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "notebooks"
DPI = 80


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook with the outputs of its cells, run one after another in this folder."""
    names: dict[str, Any] = {}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        *before, last = ast.parse("".join(cell["source"])).body
        said, value = io.StringIO(), None
        with redirect_stdout(said):
            exec(compile(ast.Module(before, []), "cell", "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            else:
                exec(compile(ast.Module([last], []), "cell", "exec"), names)
        cell["outputs"], cell["execution_count"] = outputs(said.getvalue(), value, number), number
    return notebook


def outputs(said: str, value: object, number: int) -> list[dict[str, Any]]:
    """Return what a cell shows, as notebooks keep it: text that it printed, and its value."""
    shown: list[dict[str, Any]] = []
    if said:
        shown.append({"output_type": "stream", "name": "stdout", "text": said.splitlines(True)})
    if value is not None:
        data: dict[str, Any] = {"text/plain": repr(value).splitlines(True)}
        if isinstance(value, Figure):
            picture = io.BytesIO()
            value.savefig(picture, format="png", dpi=DPI, metadata={"Software": None})
            text = base64.b64encode(picture.getvalue()).decode()
            data = {"image/png": text, "text/plain": ["<Figure>"]}
        result = {"output_type": "execute_result", "execution_count": number}
        shown.append({**result, "data": data, "metadata": {}})
    return shown


def main() -> None:
    """Run all notebooks, each in a folder of its own, and write them back."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook, here = json.loads(path.read_text(encoding="utf-8")), Path.cwd()
        with TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                done = run(notebook)
            finally:
                os.chdir(here)
        path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
