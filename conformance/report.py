"""The report on a broker: as text, as JSON, as one HTML page."""

from __future__ import annotations

import html
import json
from typing import Any, NamedTuple

from minibroker.conformance.answers import Differing
from minibroker.conformance.judge import Finding, Judge, Lack
from minibroker.conformance.steps import script_text
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.text import counted

LONGEST = 300  # characters of a value or a step
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
pre { background: #8881; padding: .8rem; overflow-x: auto; }
table { border-collapse: collapse; } td, th { border: 1px solid #8886; padding: .2rem .6rem; text-align: left; }
"""


class Report(NamedTuple):
    """The result of judging a broker."""

    address: str
    release: str
    judge: Judge
    seconds: float
    ended: str = ""  # why it ended before all was asked

    @property
    def is_alike(self) -> bool:
        return not (self.judge.findings or self.judge.lacks or self.ended)

    @property
    def summary(self) -> str:
        judge = self.judge
        parts = [
            f"{counted(judge.held, 'conversation')} in {self.seconds:.1f} s",
            counted(len(judge.findings), "difference"),
            counted(len(judge.lacks), "API") + " with versions that it lacks",
        ]
        if judge.held_whole < judge.held:
            parts.insert(1, f"{judge.held - judge.held_whole} of them without what the broker lacks")
        if judge.vanished:
            parts.append(f"{judge.vanished} more that went away when held again")
        return ", ".join([*parts, self.ended] if self.ended else parts)

    @property
    def title(self) -> str:
        return f"{self.address} beside Apache Kafka {self.release}"

    def text(self) -> str:
        lines = [self.title, *(f"  lacks {lacked(each)}" for each in self.judge.lacks)]
        for number, finding in enumerate(self.judge.findings.values(), 1):
            lines += ["", f"{number}. {heading(finding)}"]
            lines += [f"    {step}" for step in steps_of(finding)]
            lines += [f"  {asked(finding)}"]
            lines += [f"    {self.field(each)}" for each in finding.answered.fields]
        return "\n".join([*lines, "", self.summary])

    def field(self, field: Differing) -> str:
        path, kafkas, other = (field.path or "answer", *values_of(field))
        return f"{path}: Apache Kafka {self.release} {kafkas}, this broker {other}"

    def document(self) -> dict[str, Any]:
        judge = self.judge
        return {
            "broker": self.address,
            "release": self.release,
            "conversations": judge.held,
            "seconds": round(self.seconds, 1),
            "ended": self.ended,
            "lacks": [{"api": each.api, "offers": each.offers, "has": each.has} for each in judge.lacks],
            "differences": [
                {
                    "api": finding.answered.step.api,
                    "version": finding.answered.step.version,
                    "seed": finding.name,
                    "conversations": finding.count,
                    "script": script_text(finding.script),
                    "answer": finding.answered.number,
                    "fields": [each._asdict() for each in finding.answered.fields],
                }
                for finding in judge.findings.values()
            ],
        }

    def json(self) -> str:
        return json.dumps(self.document(), indent=2)

    def html(self) -> str:
        def cell(text: object) -> str:
            return html.escape(str(text))

        parts = [f"<h1>{cell(self.title)}</h1><p>{cell(self.summary)}</p>"]
        if self.judge.lacks:
            rows = "".join(f"<li>{cell(lacked(each))}</li>" for each in self.judge.lacks)
            parts.append(f"<h2>What it lacks</h2><ul>{rows}</ul>")
        for number, finding in enumerate(self.judge.findings.values(), 1):
            steps = "\n".join(steps_of(finding))
            rows = "".join(
                f"<tr><td>{cell(each.path or 'answer')}</td>"
                + "".join(f"<td>{cell(value)}</td>" for value in values_of(each))
                + "</tr>"
                for each in finding.answered.fields
            )
            parts.append(
                f"<h2>{number}. {cell(heading(finding))}</h2><pre>{cell(steps)}</pre><p>{cell(asked(finding))}</p>"
                f"<table><tr><th>field</th><th>Apache Kafka {cell(self.release)}</th><th>this broker</th></tr>"
                f"{rows}</table>"
            )
        head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{cell(self.title)}</title>'
        return f"{head}<style>{STYLE}</style>{''.join(parts)}</html>"


def lacked(lack: Lack) -> str:
    first, last = lack.offers
    if lack.has is None:
        return f"{lack.api} (v{first}-{last})"
    return f"versions of {lack.api}: Apache Kafka has v{first}-{last}, this broker v{lack.has[0]}-{lack.has[1]}"


def heading(finding: Finding) -> str:
    kind = finding.answered.kind
    where = f"{kind.api} {kind.path}".rstrip()
    name = f"seed {finding.name}" if isinstance(finding.name, int) else f'"{finding.name}"'
    return f"{where}, in {counted(finding.count, 'conversation')}; {name}"


def steps_of(finding: Finding) -> list[str]:
    return [shortened(each) for each in script_text(finding.script).splitlines()]


def asked(finding: Finding) -> str:
    step = finding.answered.step
    what = step.kind if step.kind in ("look", "take") else f"{step.api} v{step.version}"
    return f"answer {finding.answered.number + 1}, to {what}:"


def values_of(field: Differing) -> tuple[str, str]:
    is_error = field.path.endswith("error_code")
    return shown(field.kafkas, is_error=is_error), shown(field.other, is_error=is_error)


def shown(value: Any, *, is_error: bool) -> str:
    if is_error and value in set(ErrorCode):
        return ErrorCode(value).name
    return shortened(repr(value))


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"
