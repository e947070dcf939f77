"""One line below each figure that says where its numbers come from."""

import hashlib
import html
import os
import re

from cevit_lib.records.provenance import commit_and_dirty, device_facts, versions


class Badge(str):
    """A line of text that Jupyter shows as a small paragraph."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f'<p class="cevit-badge">{html.escape(self)}</p>'


def badge(records: list[dict] | dict) -> Badge:
    """Return ``record 7f3c1a… · 50 records · H100 · torch 2.14.1 · seeds 0-4 · commit 1a2b3c4``.

    Several records share one short name, the hash of their ids; what differs between them is
    listed.
    """
    records = [records] if isinstance(records, dict) else list(records)
    identity = records[0]["id"]
    if len(records) > 1:
        identity = hashlib.sha256(
            " ".join(sorted(record["id"] for record in records)).encode()
        ).hexdigest()
    parts = [
        f"record {identity[:6]}…",
        f"{len(records)} record{'s' if len(records) > 1 else ''}",
        _several(short_device(record["device"]) for record in records),
        "torch " + _several(record["versions"].get("torch") or "none" for record in records),
        "seeds " + spans({seed for record in records for seed in record["seeds"]}),
        "commit " + _several((record["commit"] or "unknown")[:7] for record in records),
    ]
    marks = [
        word
        for word, field in (
            ("SMOKE RUN", any(r["scale"] == "smoke" for r in records)),
            ("DIRTY", any(r["dirty"] for r in records)),
        )
        if field
    ]
    return Badge(" · ".join(marks + parts))


def live_badge(seconds: float | None = None, seeds=None) -> Badge:
    """Return the line for numbers that were computed on the page itself.

    Parameters
    ----------
    seconds : float, optional
        How long it took.
    seeds : iterable of int, optional
    """
    commit, dirty = commit_and_dirty()
    took = f" in {seconds:.1f} s" if seconds is not None else ""
    parts = [
        f"computed on this page{took}",
        short_device(device_facts()),
        f"torch {versions()['torch'] or 'none'}",
    ]
    if seeds is not None:
        parts.append("seeds " + spans(set(seeds)))
    parts.append(
        f"commit {(commit or 'unknown')[:7]}"
        + (" + uncommitted changes" if dirty and commit else "")
    )
    return Badge(" · ".join(parts))


def short_device(device: dict) -> str:
    """Return ``2 x H100`` or ``CPU (8 cores)``: what a reader wants to know of a device."""
    if device["type"] == "cpu":
        return f"CPU ({device.get('cores') or os.cpu_count()} cores)"
    words = [
        word
        for word in device["name"].replace("-", " ").split()
        if word not in ("NVIDIA", "Tesla", "GeForce")
    ]
    # data centre cards are known by one word (H100); others need the family too (RTX 4090)
    name = (
        words[0]
        if words and re.fullmatch(r"[ABHLTV]\d+\w*", words[0])
        else " ".join(words) or device["type"]
    )
    return f"{device['count']} x {name}" if device.get("count", 1) > 1 else name


def spans(numbers) -> str:
    """Return ``0-4, 7`` for {0, 1, 2, 3, 4, 7}."""
    pieces: list[list[int]] = []
    for number in sorted(numbers):
        if pieces and number == pieces[-1][1] + 1:
            pieces[-1][1] = number
        else:
            pieces.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in pieces) or "none"


def _several(values) -> str:
    found = sorted(set(values))
    return (
        ", ".join(found) if len(found) <= 3 else f"{', '.join(found[:2])} and {len(found) - 2} more"
    )
