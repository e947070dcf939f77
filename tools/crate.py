"""The records of the book as an RO-Crate: a zip whose JSON-LD describes every file, so that an
archive can list what is in it without this project's code."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from rocrate.model import ContextEntity
from rocrate.rocrate import ROCrate

from cevit_lib.paths import project_root

LICENCE = "https://creativecommons.org/licenses/by/4.0/"
KINDS = {".json": "application/json", ".npz": "application/zip"}


def records_crate(root: Path | None = None) -> ROCrate:
    """Describe each file of ``results`` by its study and date, or as quoted from the paper.

    All are under the licence of the whole, which the files of a crate inherit.
    """
    root = root or project_root()
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    crate, printed = ROCrate(), citation["references"][0]

    def named(key: str, kind: str, **told: str) -> ContextEntity:
        return crate.add(ContextEntity(crate, key, {"@type": kind, **told}))

    paper = named(f"https://doi.org/{printed['doi']}", "ScholarlyArticle", name=printed["title"])
    licence = named(LICENCE, "CreativeWork", name="CC BY 4.0", description="See LICENSE-text.")
    people = named("#contributors", "Organization", name=citation["authors"][0]["name"])
    crate.name, crate.description = f"Records of {citation['title']}", citation["abstract"]
    crate.license, crate.creator, crate.publisher = licence, people, people
    crate.datePublished = citation["date-released"].isoformat()
    about = {"name": "LICENSE-text", "encodingFormat": "text/plain"}
    crate.add_file(root / "LICENSE-text", properties=about, record_size=True)
    for path in sorted((root / "results").glob("*/*.*")):
        study, dated = path.parent.name, path.with_suffix(".json")
        if study != "paper" and not crate.get(f"#{study}"):
            named(f"#{study}", "CreativeWork", name=f"Study {study}")
        about = {
            "name": f"{study} {path.name}",
            "encodingFormat": KINDS[path.suffix],
            "about": crate.get(f"#{study}") or paper,
            "dateCreated": json.loads(dated.read_text(encoding="utf-8")).get("created"),
        }
        told = {key: value for key, value in about.items() if value}
        crate.add_file(path, path.relative_to(root), properties=told, record_size=True)
    return crate
