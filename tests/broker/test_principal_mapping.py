"""ssl.principal.mapping.rules, compared with SslPrincipalMapper of Kafka's Java client."""

from __future__ import annotations

import pytest

from minibroker.broker.security.principal_mapping import InvalidRules, NoMatchingRule, parse_rules, user_of

SERVICE = "CN=kafka1,OU=ServiceUsers,O=Unknown,C=Unknown"
ADMIN = "CN=adminUser,OU=Admin,O=Org,C=US"
SERVICES = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/"


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", SERVICE, SERVICE),
        ("DEFAULT", "", ""),
        (f"{SERVICES},DEFAULT", SERVICE, "kafka1"),
        (f"{SERVICES},DEFAULT", ADMIN, ADMIN),
        (f" {SERVICES} , DEFAULT ", SERVICE, "kafka1"),
        ("DEFAULT,", ADMIN, ADMIN),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L,DEFAULT", ADMIN, "adminuser@admin"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U", "cn=a,ou=b", "A"),
        ("RULE:^.*CN=([^,]*).*$/x-$1-$2-$10/", SERVICE, "x-kafka1-$2-kafka10"),
        ("RULE:(.*)/<$1>/", "CN=duke", "<CN=duke><>"),
        ("RULE:.*/constant/L,RULE:x/y/", "CN=duke", "constantconstant"),
        ("RULE:^CN=(.*?)(,.*)?$/$1\\/y/L", "CN=Duke", "duke/y"),
        ("RULE:^CN=(.*?)(,.*)?$/$1$2./", "CN=duke", "duke."),
        ("RULE:(CN)=.*/$11/", "CN=duke", "CN1"),
        ("RULE:^CN=([^,]*),.*$/\\$1/", ADMIN, "$1"),
        ("RULE:CN=(?<n>[^,]*).*/${n}/", ADMIN, "adminUser"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_gives_the_user(rules: str, name: str, user: str) -> None:
    assert user_of(name, parse_rules(rules)) == user


@pytest.mark.parametrize(("rules", "name"), [(SERVICES, ADMIN), ("RULE:CN=a/x/", "CN=ab"), ("", ADMIN)])
def test_a_name_that_no_rule_matches_is_refused(rules: str, name: str) -> None:
    with pytest.raises(NoMatchingRule):
        user_of(name, parse_rules(rules))


@pytest.mark.parametrize(
    ("rules", "invalid"),
    [
        ("RULE:", "unmatched substring: `RULE:`"),
        ("DEFAULT,x", "`x`, unmatched"),
        ("default", "unmatched"),
        ("RULE:^CN=(.*)/$1", "unmatched"),
        ("RULE:a/b/X", "unmatched substring: `X`"),
        ("RULE:^CN=(.*/$1/", "subpattern"),
        ("RULE:^CN=(.*)$/$1$/", "names no group"),
        ("RULE:^CN=(.*)$/${n}/", "names no group"),
    ],
)
def test_rules_that_cannot_be_read_are_refused(rules: str, invalid: str) -> None:
    with pytest.raises(InvalidRules, match=invalid.replace("`", ".")):
        parse_rules(rules)
