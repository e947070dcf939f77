"""Verdicts: a rule a claim, no record means "not run yet", a rule turns when its numbers turn."""

import copy
import fnmatch
import itertools
import re
import subprocess
from dataclasses import replace

import pytest
from bs4 import BeautifulSoup

from cevit_lib.paths import project_root
from cevit_lib.records import load_records
from studies.verdicts import (
    CLAIMS,
    FALSE,
    IN_PART,
    MISPRINT,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    UNTESTABLE,
    WORDS,
    Evidence,
    MovedTable,
    Verdict,
    VerdictTable,
    count_words,
    counts_bar,
    judge,
    judge_all,
    readme,
)
from studies.verdicts.default import DEFAULT
from studies.verdicts.ledger import LEDGER, entries, fingerprint
from studies.verdicts.moved import MOVED, YOUNGER
from studies.verdicts.predictions import PREDICTIONS, judge_predictions

BY_KEY = {claim.key: claim for claim in CLAIMS}
RULES = {claim.key: claim for claim in [*CLAIMS, *PREDICTIONS, DEFAULT] if claim.decide}
STUDIES = sorted(
    {
        "formula-checks",
        "score-distortions",
        "posterior-samplers",
        "fmcem-singularity",
        "overfitting-network",
        "recalibration",
    }
)


def altered(change) -> Evidence:
    """The stored records with some of their numbers replaced."""
    known = {study: copy.deepcopy(load_records(study)) for study in STUDIES}
    for record in itertools.chain(*known.values()):
        change(record)
    return Evidence(_cache=known)


def change(study, place, value, **configuration):
    """A change of the numbers at a place of the records with this configuration; ``*`` is any
    name."""

    def put(inner, names):
        for name in fnmatch.filter(inner or (), names[0]):
            if names[1:]:
                put(inner[name], names[1:])
            else:
                inner[name] = value

    def changed(record):
        wanted = {"study": study, **configuration}.items()
        own = record | record["configuration"]
        if all(fnmatch.fnmatch(str(own.get(name)), pattern) for name, pattern in wanted):
            put(record, place.split("/"))

    return changed


def part(name, place, value):
    """A change of the formula checks."""
    return change("formula-checks", f"metrics/{place}", value, part=name)


def test_claims_are_complete_and_unique():
    """That the place of the evidence is there, the links of the book's page of verdicts say."""
    assert len(BY_KEY) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.place and claim.text and claim.rule, claim.key
        assert re.fullmatch(r"\w+\.html#[\w-]+", claim.evidence), claim.key


def test_without_records_nothing_is_judged(tmp_path):
    for claim, verdict in [*judge_all(CLAIMS, tmp_path), *judge_predictions(tmp_path)]:
        if claim.decide is None:
            assert verdict.word == UNTESTABLE
        elif claim.studies:
            assert verdict.word == NOT_RUN and claim.studies[0] in verdict.because


def test_an_incomplete_study_is_not_run_yet():
    checks = load_records("formula-checks")
    others = [r for r in checks if r["configuration"]["part"] != "truncation"]
    evidence = Evidence(_cache={"formula-checks": others})
    assert judge(BY_KEY["tallis"], evidence).word == NOT_RUN


def test_repairs_that_no_rule_reads_fail():
    """Of three statements the rule decides by the counter-example alone."""
    evidence, kept = Evidence(), {}
    m = evidence.part("truncation")
    assert max(v["within"] for v in m["limit"].values()) < 0.569 - 0.05
    assert m["share_discordant_below_rho"] == m["share_derivative_negative"] == 1
    for strength in (0.5, 2.0):
        kind = {"distortion": "label-tracking", "strength": strength}
        kept[strength] = evidence.mean("score-distortions", "maximum-likelihood:r34", **kind)
    (weak, _), (strong, error) = kept.values()
    assert strong + 2 * error < weak


HIGHER_R34 = change("*", "metrics/*maximum-likelihood:r34/mean", 0.95)
#: The premises of the propositions do not hold: the true scores are negatively correlated.
OPPOSITE = change("*", "metrics/*true_cov34", {"mean": -0.5, "se": 0.01})
STABLE_FMCEM = change("*", "columns/*:smallest_eigenvalue", [0.2] * 10)
FMCEM_AT_ONE = change("fmcem-singularity", "metrics/fmcem:r34/mean", 1.0)
LASTING_ZERO = change("*", "metrics/1500:in-sample:maximum-likelihood:r12/mean", 0.01)
RESTLESS = change("*", "metrics/posterior:smallest_eigenvalue/mean", 0.01, distortion="[!n]*")


@pytest.mark.parametrize(
    "key,stored,turn,then",
    [
        (
            "theorem-2-1",
            MISPRINT,
            part("theorem", "by_logit_sd/*/share_not_positive", 0.0),
            REPRODUCED,
        ),
        (
            "prediction",
            MISPRINT,
            part("prediction", "uniform/printed_has_negative", 0.0),
            REPRODUCED,
        ),
        ("song", MISPRINT, part("theorem", "right_against_integral", 0.1), NOT_REPRODUCED),
        ("trace", IN_PART, part("objective", "trace_by_rho34", {"0.3": 2.0}), REPRODUCED),
        ("cov2cor", IN_PART, part("objective", "cov2cor_below_maximum", 0.0), REPRODUCED),
        ("tallis", MISPRINT, part("truncation", "gap_with_plus", 0.1), NOT_REPRODUCED),
        (
            "tallis-correlation",
            FALSE,
            part("truncation", "share_corr_above_rho", 1.0),
            REPRODUCED,
        ),
        (
            "monotonicity",
            IN_PART,
            part("concordance", "counter_example/its_smaller_concordance", 0.7),
            REPRODUCED,
        ),
        (
            "dominance",
            IN_PART,
            part("concordance", "counter_example/its_smaller_concordance", 0.55),
            REPRODUCED,
        ),
        (
            "remark-4",
            IN_PART,
            part("total-covariance", "increases", {"centred": True}),
            REPRODUCED,
        ),
        ("proposition-1", FALSE, HIGHER_R34, REPRODUCED),
        ("proposition-1", FALSE, OPPOSITE, REPRODUCED),
        ("proposition-1-limit", FALSE, HIGHER_R34, REPRODUCED),
        ("proposition-2", REPRODUCED, FMCEM_AT_ONE, NOT_REPRODUCED),
        ("proposition-2-singular", FALSE, STABLE_FMCEM, REPRODUCED),
        ("proposition-3", IN_PART, part("residuals", "paths/*/limit", [0.5]), REPRODUCED),
        ("mcmc-singular", IN_PART, RESTLESS, REPRODUCED),
        ("vanishing", IN_PART, LASTING_ZERO, REPRODUCED),
        (
            "joint-rule",
            IN_PART,
            part("prediction", "uniform/joint/per_eye", 0.9),
            REPRODUCED,
        ),
    ],
)
def test_a_rule_turns_when_its_numbers_turn(key, stored, turn, then):
    assert judge(BY_KEY[key], Evidence()).word == stored
    assert judge(BY_KEY[key], altered(turn)).word == then


@pytest.mark.parametrize(
    "thresholds,bias,word",
    [
        ("logit", 0.08, REPRODUCED),
        ("double sigmoid", 0.08, IN_PART),
        ("logit", 0.3, NOT_REPRODUCED),
    ],
)
def test_the_toy_example_needs_the_right_thresholds(thresholds, bias, word):
    metrics = {"fmcem": {"bias": dict.fromkeys(("rho13", "rho14", "rho23", "rho24"), bias)}}
    record = {
        "study": "toy-example",
        "configuration": {"thresholds": thresholds},
        "metrics": metrics,
    }
    evidence = Evidence(_cache=dict.fromkeys(("toy-example", "toy-readings"), [record]))
    assert judge(BY_KEY["toy-mixed"], evidence).word == word


def test_the_table_escapes_and_shows_rules_and_repairs():
    judged = judge_all(CLAIMS)
    tree = BeautifulSoup(VerdictTable(judged)._repr_html_(), "html.parser")
    for claim, verdict in judged:
        row = tree.find("tr", id=f"claim-{claim.key}")
        assert row["data-word"] == verdict.word and claim.place.startswith(row["data-section"])
        assert claim.decide is None or claim.rule in row.details.get_text()
        shown = {repair in row.get_text() for repair in verdict.repairs}
        assert shown <= {verdict.word == FALSE}
    marked = replace(CLAIMS[0], text="<b>", rule="<i>"), Verdict(NOT_RUN, "<u>")
    assert not re.search("<[biu]>", VerdictTable([marked])._repr_html_())
    moved = re.findall('href="#claim-([^"]+)"', MovedTable(judged)._repr_html_())
    assert moved == list(MOVED)
    bar = BeautifulSoup(counts_bar(judged), "html.parser")
    counted = [f"{n} {word}" for word, n in count_words(judged).items() if n]
    assert [li.get_text().strip() for li in bar("li")[1:]] == counted


def test_the_first_pages_say_what_the_records_say():
    """Counts of what was reproduced and what was not are never typed."""
    for name, told in (("README.md", readme.counts()), ("book/preface.md", readme.first_page())):
        text = (project_root() / name).read_text(encoding="utf-8")
        assert told in text, "run python -m studies.verdicts.readme"


# ---- rules before records  ----


class Reading(Evidence):
    """Evidence that remembers which records were looked at."""

    def records(self, study, **configuration):
        found = super().records(study, **configuration)
        self.seen += found
        return found


def git(*words):
    command = ["git", "-C", project_root(), *words]
    return subprocess.run(command, capture_output=True, text=True).stdout


#: Records that were there when a rule was made: where photographs leave the default open, it falls
#: back on them; estimating later is decided by an arm that is added to them.
WERE_KNOWN = {DEFAULT.key: ["simulation"], "later": ["simulation-gain"]}


def test_the_ledger_has_each_rule_as_it_is():
    known = entries()
    assert list(known) == list(RULES)
    changed = [key for key, entry in known.items() if entry[0] != fingerprint(RULES[key])]
    assert not changed, (
        f"rules of {changed} changed: run python -m studies.verdicts.ledger, commit, then make "
        "their records anew; where only the code moved, put the old commit back into the line"
    )


def test_rules_are_older_than_the_code_that_made_their_records():
    order = git("rev-list", "--reverse", "--topo-order", "HEAD").split()
    if not order or git("rev-parse", "--is-shallow-repository").strip() != "false":
        pytest.skip("this is a shallow clone or no clone: the commits of the rules are not here")
    commit, younger, evidence = "", set(), Reading()
    place = {name[:n]: i for i, name in enumerate(order) for n in (7, 40)}
    for line in git("blame", "--porcelain", "--", str(LEDGER)).splitlines():
        if re.match(r"[0-9a-f]{40} ", line):
            commit = line[:40]
        elif line.startswith("\t"):
            key, _, *since = line.split()
            evidence.seen = []
            judge(RULES[key], evidence)
            made = {r["commit"] for r in evidence.seen if r["study"] not in WERE_KNOWN.get(key, ())}
            rule = place.get(since[0] if since else commit, len(order))  # else: in no commit yet
            if made and rule > min(place[name] for name in made):
                younger.add(key)
    new = {key for key in younger if YOUNGER.get(key) != entries()[key][0]}
    assert not new, f"rules of {new} are younger than their records: make these anew"


def test_the_list_of_moved_rules_is_closed():
    assert list(MOVED) == [claim.key for claim in CLAIMS if claim.key in MOVED]
    assert YOUNGER.keys() <= MOVED.keys() and len(YOUNGER) == 9
    assert len(MOVED) == 31
    for key, moved in MOVED.items():
        assert moved.word in WORDS and moved.rule != BY_KEY[key].rule and moved.why
