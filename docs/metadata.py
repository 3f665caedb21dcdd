"""Write `codemeta.json` and `.zenodo.json` from `CITATION.cff`: `make metadata`.

`CITATION.cff` is the one place that states title, version, date, authors, keywords and addresses.
The addresses are placeholders until the project has a public home; `pyproject.toml` repeats them,
and tests/test_packaging.py compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]


def metadata(citation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the contents of both files, by their names."""
    paper = citation["preferred-citation"]
    authors = [author["name"] for author in citation["authors"]]
    codemeta = {
        "@context": "https://w3id.org/codemeta/3.0",
        "@type": "SoftwareSourceCode",
        "name": "uqsonet",
        "description": citation["abstract"],
        "version": citation["version"],
        "dateModified": str(citation["date-released"]),
        "license": "https://spdx.org/licenses/MIT",
        "codeRepository": citation["repository-code"],
        "url": citation["url"],
        "programmingLanguage": "Python",
        "runtimePlatform": "Python 3.11 or later",
        "author": [{"@type": "Organization", "name": name} for name in authors],
        "keywords": citation["keywords"],
        "referencePublication": {
            "@type": "ScholarlyArticle", "name": paper["title"], "url": paper["url"],
        },
    }  # fmt: skip
    zenodo = {
        "title": citation["title"],
        "description": citation["abstract"],
        "version": citation["version"],
        "publication_date": str(citation["date-released"]),
        "upload_type": "software",
        "license": citation["license"],
        "creators": [{"name": name} for name in authors],
        "keywords": citation["keywords"],
        "related_identifiers": [
            {"identifier": paper["url"], "relation": "isSupplementTo", "scheme": "url"},
            {
                "identifier": citation["repository-code"],
                "relation": "isDerivedFrom", "scheme": "url",
            },
        ],
    }  # fmt: skip
    return {"codemeta.json": codemeta, ".zenodo.json": zenodo}


if __name__ == "__main__":
    source = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    for name, content in metadata(source).items():
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        (ROOT / name).write_text(text, encoding="utf-8")
