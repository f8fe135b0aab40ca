"""Maps the distinguished name of a client's certificate to its user: `ssl.principal.mapping.rules` (KIP-371).

As kafka 2.4 SslPrincipalMapper: the first rule whose pattern matches the whole name gives the user, `DEFAULT` takes the
name as it is, and a name that no rule matches is refused.
"""

from __future__ import annotations

import re
from typing import NamedTuple

RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)\/((\\.|[^\\/])*)\/([LU]?).*?|(.*?)"
RULE_PARSER = re.compile(RULE)
JAVA_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")
GROUP_NAME = re.compile(r"\{([A-Za-z]\w*)\}")
NO_GROUP = re.compile(r"\$(?![0-9]|\{[A-Za-z]\w*\})")
ESCAPED = re.compile(r"\\.")
RULE_SPLITTER = re.compile(rf"\s*({RULE})\s*(,\s*|$)")


class InvalidRules(ValueError):
    """The rules cannot be read."""


class NoMatchingRule(ValueError):
    """A name that no rule matches."""


class Rule(NamedTuple):
    """`pattern` is None for DEFAULT; `case` is L for lower case, U for upper case, or empty."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def applied(self, name: str) -> str | None:
        """The user of a distinguished name; None if the pattern does not match it."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        user = self.pattern.sub(lambda match: expanded(self.replacement, match), name)
        if self.case == "L":
            return user.lower()
        return user.upper() if self.case == "U" else user


def parse_rules(text: str) -> list[Rule]:
    """Parse the setting. Raises InvalidRules."""
    texts = [match[1] for match in RULE_SPLITTER.finditer(text.strip())]
    return [rule for each in texts if (rule := _parse(each)) is not None]


def user_of(name: str, rules: list[Rule]) -> str:
    """The user of a distinguished name. Raises NoMatchingRule."""
    for rule in rules:
        user = rule.applied(name)
        if user is not None:
            return user
    raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules matches {name}")


def expanded(replacement: str, match: re.Match[str]) -> str:
    """Fill a replacement as java.util.regex does: `$1` or `${name}` is a group, a backslash takes the next character.

    As Kafka's mapper, it keeps the number of a group that the pattern does not have.
    """
    parts = []
    position = 0
    while position < len(replacement):
        char = replacement[position]
        position += 1
        if char == "\\" and position < len(replacement):
            parts.append(replacement[position])
            position += 1
        elif char == "$" and (name := GROUP_NAME.match(replacement, position)):
            parts.append(match[name[1]] or "")
            position = name.end()
        elif char == "$" and (number := _group_number(replacement, position, match)):
            parts.append(match[int(number)] or "")
            position += len(number)
        else:
            parts.append(char)
    return "".join(parts)


def _group_number(text: str, position: int, match: re.Match[str]) -> str:
    """The digits of a group that the pattern has, as many as are one; empty for none."""
    number = ""
    groups = len(match.groups())
    for char in text[position:]:
        if not (char.isascii() and char.isdigit() and int(number + char) <= groups):
            break
        number += char
    return number


def _parse(text: str) -> Rule | None:
    """One rule; None for empty text."""
    match = RULE_PARSER.match(text)
    if match is None or match.end() != len(text):
        raise InvalidRules(f"Invalid rule: `{text}`, unmatched substring: `{text[match.end() if match else 0 :]}`")
    if match[1] is not None:
        return Rule(None)
    if match[2] is None:
        return None
    try:
        pattern = re.compile(JAVA_GROUP.sub("(?P<", match[2]))
    except re.error as error:
        raise InvalidRules(f"Invalid rule: `{text}`: {error}") from error
    unescaped = ESCAPED.sub("", match[4])
    if NO_GROUP.search(unescaped) or not {name[1] for name in GROUP_NAME.finditer(unescaped)} <= {*pattern.groupindex}:
        raise InvalidRules(
            f"Invalid rule: `{text}`: a $ of the replacement names no group; write \\$ for the character"
        )
    return Rule(pattern, match[4], match[6])
