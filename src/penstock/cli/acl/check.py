"""`penstock acl check`: whether a principal may do something, and which ACL decides.

It evaluates the ACLs as the brokers do; it does not try. What the brokers' settings say beside the
ACLs is read where the brokers tell it, and named where they do not.
"""

from __future__ import annotations

from penstock.auth.acls import DEFAULT_ALLOW, DEFAULT_DENY, SUPER_USER, Decision
from penstock.auth.authorizer import parse_super_users
from penstock.cli.access import Access
from penstock.cli.acl.acls import NoAuthorizer, read
from penstock.cli.acl.question import BrokerSettings, Question, Verdict, judge
from penstock.cli.acl.show import acl_json, acl_text, resource_text
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.configs import BROKER, describe_request
from penstock.cli.cluster.state import read_nodes
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import plural, print_json, remark
from penstock.wire.messages.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

EXIT_DENIED = 1
NO_AUTHORIZER = "NoAuthorizer"
_AUTHORIZER = "authorizer.class.name"
_SUPER_USERS = "super.users"
_ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"


def check(question: Question, access: Access, output_format: OutputFormat = Format.TEXT) -> int:
    """Say whether a principal may do something, and which ACL decides; exit code 1 if it is denied.

    The roles of a principal are known only from --role, the host only from --host.
    """
    brokers = Brokers(access)
    try:
        acls = read(brokers, [question.filter])
        verdict = judge(question, acls, _read_settings(brokers))
    except NoAuthorizer:
        verdict = Verdict(Decision(True, None, NO_AUTHORIZER))
    if output_format is Format.JSON:
        _print_json(question, verdict)
    else:
        _print_text(question, verdict)
    return 0 if verdict.decision.allowed else EXIT_DENIED


def _read_settings(brokers: Brokers) -> BrokerSettings:
    """Those of the first broker that tells them; nothing is known if none does."""
    doing = "read the brokers' settings"
    keys = [_AUTHORIZER, _SUPER_USERS, _ALLOW_EVERYONE]
    nodes = [node for node in read_nodes(brokers).nodes.values() if not node.fenced]
    for node in nodes:
        request = describe_request(BROKER, [str(node.id)], keys)
        try:
            answer = brokers.ask_at(node.address, request, DescribeConfigsResponse, doing)
        except OSError:
            continue
        for result in answer.results:
            if not result.error_code:
                return settings_of(result)
    return BrokerSettings()


def settings_of(result: DescribeConfigsResult) -> BrokerSettings:
    """Apache Kafka hides the values of settings that only its authorizer knows, but shows that
    they are set; one that is not there has its default.
    """
    hidden = {c.name for c in result.configs if c.is_sensitive and c.value is None}
    values = {c.name: c.value or "" for c in result.configs if c.name not in hidden}
    everyone = values.get(_ALLOW_EVERYONE, "").strip().lower() == "true"
    return BrokerSettings(
        values.get(_AUTHORIZER),
        None if _SUPER_USERS in hidden else _super_users(values.get(_SUPER_USERS, "")),
        None if _ALLOW_EVERYONE in hidden else everyone,
    )


def _super_users(text: str) -> frozenset[str] | None:
    try:
        return parse_super_users(text)
    except ValueError:
        return None


def _print_json(question: Question, verdict: Verdict) -> None:
    decision = verdict.decision
    print_json(
        {
            "principal": question.principal,
            "roles": list(question.roles),
            "operation": question.operation.name,
            "resource_type": question.resource.type.name,
            "resource_name": question.resource.name,
            "host": question.host,
            "allowed": decision.allowed,
            "reason": decision.reason,
            "acl": None if decision.rule is None else acl_json(decision.rule),
            "acls_about_it": verdict.about,
            "doubts": list(verdict.doubts),
        }
    )


def _print_text(question: Question, verdict: Verdict) -> None:
    may, word = ("may", "allowed") if verdict.decision.allowed else ("may not", "denied")
    what = f"{question.operation.name} on {resource_text(*question.resource)}"
    print(f"{word}: {question.principal} {may} {what}")
    print(f"because {_why(question, verdict)}")
    for doubt in verdict.doubts:
        remark(f"note: {doubt}")


def _why(question: Question, verdict: Verdict) -> str:
    decision, resource = verdict.decision, resource_text(*question.resource)
    if decision.rule is not None:
        return f"of the ACL: {acl_text(decision.rule)}"
    if decision.reason == DEFAULT_DENY and verdict.about:
        return f"of the {plural(verdict.about, 'ACL')} about {resource}, none allows it"
    return {
        SUPER_USER: f"{question.principal} is one of the brokers' super.users",
        DEFAULT_ALLOW: f"no ACL is about {resource}, and the brokers have {_ALLOW_EVERYONE}=true",
        DEFAULT_DENY: f"no ACL is about {resource}",
        NO_AUTHORIZER: "the cluster has no authorizer: everybody may do everything",
    }[decision.reason]
