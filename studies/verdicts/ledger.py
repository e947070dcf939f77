"""When each rule was written: ``ledger.txt`` has a line a rule, and git knows the line's commit.

A line holds a claim's key and the fingerprint of its rule. Where a rule's code was moved or
rewritten and its meaning was not, a third word names the commit since which it means the same. A
rule is committed before the code that makes its records runs; ``moved.py`` has those that were not.

python -m studies.verdicts.ledger    enters rules that are new or changed
"""

import ast
import hashlib
import inspect
import re
import textwrap
from pathlib import Path
from types import FunctionType

from studies.verdicts.default import DEFAULT
from studies.verdicts.judge import CLAIMS, WORDS, Claim
from studies.verdicts.predictions import PREDICTIONS

LEDGER = Path(__file__).with_name("ledger.txt")


def fingerprint(claim: Claim) -> str:
    """Return eight hexadecimal digits of a rule: its words, its code and what of this folder's code
    and bounds it uses. What it tells of the numbers, comments and layout do not count.
    """
    parts: dict[str, str] = {}

    def read(function: FunctionType) -> None:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        tree.decorator_list = []
        if ast.get_docstring(tree):
            tree.body = tree.body[1:]
        for node in ast.walk(tree):
            called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if called in ("Verdict", "Outcome"):
                node.args = node.args[:1]
        parts[function.__name__] = ast.unparse(tree)
        for name in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {*parts}:
            value = function.__globals__.get(name)
            if inspect.isfunction(value) and value.__module__.startswith(__package__):
                read(value)
            elif isinstance(value, str | int | float | tuple | dict) and value not in [*WORDS]:
                parts[name] = repr(value)

    read(claim.decide)
    text = claim.rule + "".join(parts[name] for name in sorted(parts))
    return hashlib.sha256(re.sub(r"[\s\"'()]", "", text).encode()).hexdigest()[:8]


def entries() -> dict[str, list[str]]:
    """Return the fingerprint of each claim in the ledger and, where it has one, its commit."""
    return {key: rest for key, *rest in map(str.split, LEDGER.read_text("utf-8").splitlines())}


def main() -> None:
    """Enter rules that are new or changed; they date from the commit that is made next."""
    known, lines = entries(), []
    for claim in filter(lambda claim: claim.decide, [*CLAIMS, *PREDICTIONS, DEFAULT]):
        now, was = fingerprint(claim), known.get(claim.key, [""])
        lines.append(" ".join([claim.key, *(was if was[0] == now else [now])]))
    LEDGER.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
