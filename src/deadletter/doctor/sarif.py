"""Findings as SARIF 2.1.0, which code hosts and editors show beside a change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from deadletter.doctor.finding import Finding
from deadletter.doctor.rules.case import Rule

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(
    findings: Iterable[tuple[str, Finding]], rules: Sequence[Rule], *, version: str, file: str | None
) -> dict[str, object]:
    """A SARIF log; findings come with the vhost they are in. `file`: the definitions file, if any."""
    index = {rule.id: number for number, rule in enumerate(rules)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "dlq doctor",
                        "version": version,
                        "rules": [_rule(rule) for rule in rules],
                    }
                },
                "results": [_result(vhost, finding, index, file) for vhost, finding in findings],
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.id.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.why},
        "properties": {"harm": rule.harm.value, "live": rule.live},
    }


def _result(vhost: str, finding: Finding, index: dict[str, int], file: str | None) -> dict[str, object]:
    place: dict[str, object] = {
        "logicalLocations": [
            {"name": finding.subject, "fullyQualifiedName": f"{vhost}/{finding.subject}", "kind": "resource"}
        ]
    }
    if file is not None:
        place["physicalLocation"] = {"artifactLocation": {"uri": file}}
    return {
        "ruleId": finding.rule,
        "ruleIndex": index[finding.rule],
        "level": finding.severity.value,
        "message": {"text": f"{finding.why}\nPath: {' → '.join(finding.path)}\nFix: {finding.fix}"},
        "locations": [place],
        # The same finding tomorrow is the same finding: a code host shows it once.
        "partialFingerprints": {
            "finding/v1": "|".join((vhost, finding.rule, finding.subject, *finding.path))
        },
        "properties": {"harm": finding.harm.value, "vhost": vhost},
    }
