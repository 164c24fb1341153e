"""The commands of the scenario language about security, and their records as lines.

ACLs are `TYPE PATTERN NAME PRINCIPAL OPERATION PERMISSION [HOST]`, in filters `-` for what may be
anything; their ids are `t1`, `t2`, ... Tokens are numbered by their ids. What a command says about
several, `and` divides. Secrets are shown by the first letters of their digest.
"""

from __future__ import annotations

import hashlib
from typing import Any

from penstock.auth.types import Operation, PatternType, PermissionType, ResourceType
from penstock.base.errors import ErrorCode
from penstock.base.ids import uuid_text
from penstock.base.steps import at_once
from penstock.metadata.acl_control import describe_acls
from penstock.metadata.quota_control import describe_quotas
from penstock.metadata.records import MetadataRecord, encode_record
from penstock.metadata.scram_control import describe_credentials
from penstock.metadata.security_image import DelegationToken
from penstock.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveRoleMemberRecord,
    RemoveRoleRecord,
    RemoveUserScramCredentialRecord,
    RoleMemberRecord,
    RoleRecord,
    UserScramCredentialRecord,
)
from penstock.metadata.token_control import TokenRules, describe_tokens
from penstock.wire.messages import alter_client_quotas as quotas
from penstock.wire.messages import alter_user_scram_credentials as scram
from penstock.wire.messages import create_acls, delete_acls
from penstock.wire.messages import create_delegation_token as tokens
from penstock.wire.messages import describe_client_quotas as described
from penstock.wire.messages import describe_delegation_token as describing
from penstock.wire.messages.describe_acls import DescribeAclsRequest
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from scenario.metadata.scenario import (
    Scenario,
    groups,
    id_text,
    number_id,
    outcome,
    pairs,
)

MATCHES = {"default": 1, "any": 2}


class SecurityScenario(Scenario):
    def __init__(self) -> None:
        super().__init__()
        self.hmacs: dict[str, bytes] = {}

    def describe(self, request: Any) -> Any:
        match request:
            case DescribeAclsRequest():
                return at_once(describe_acls(self.image.security, request))
            case DescribeUserScramCredentialsRequest():
                return at_once(describe_credentials(self.image.security, request))
        return at_once(describe_quotas(self.image.security, request))

    # -- ACLs ----------------------------------------------------------------------------------

    def do_acls(self, *words: str) -> Any:
        creations = [
            create_acls.AclCreation(
                resource_type=code(ResourceType, kind),
                resource_name=name,
                resource_pattern_type=code(PatternType, pattern),
                principal=principal,
                host=host[0] if host else "*",
                operation=code(Operation, operation),
                permission_type=code(PermissionType, permission),
            )
            for kind, pattern, name, principal, operation, permission, *host in groups(words)
        ]
        request = create_acls.CreateAclsRequest(creations=creations)
        records, response = at_once(self.controller.create_acls(request))
        return records, [outcome("acl", result, "ok") for result in response.results]

    def do_acls_many(self, count: str, prefix: str) -> Any:
        """So many at once, of User:a and topics PREFIX0, PREFIX1, ...; shown by their number."""
        acls = [f"topic literal {prefix}{i} User:a read allow" for i in range(int(count))]
        records, answers = self.do_acls(*" and ".join(acls).split())
        self.log += [encode_record(record, self.image.metadata_version) for record in records]
        at_once(self.controller.replay(records))
        return [], [f"{len(records)} records, {len(answers)} answers"]

    def do_delete_acls(self, *words: str) -> Any:
        filters = [delete_acls.DeleteAclsFilter(**acl_filter(*group)) for group in groups(words)]
        request = delete_acls.DeleteAclsRequest(filters=filters)
        records, response = at_once(self.controller.delete_acls(request))
        return records, [
            outcome("filter", result, listed(sorted(map(acl_text, result.matching_acls))))
            for result in response.filter_results
        ]

    def do_describe_acls(self, *words: str) -> Any:
        request = DescribeAclsRequest(**acl_filter(*words))
        response = self.describe(request)
        if response.error_code:
            return [], [outcome("filter", response, "")]
        return [], [
            f"{acl_text(resource)}: "
            + ", ".join(
                f"{PermissionType(acl.permission_type).name} {acl.principal} from {acl.host} "
                f"{Operation(acl.operation).name}"
                for acl in resource.acls
            )
            for resource in response.resources
        ]

    # -- SCRAM ---------------------------------------------------------------------------------

    def do_scram(self, *words: str) -> Any:
        """set USER MECHANISM ITERATIONS SALTED | delete USER MECHANISM"""
        request = scram.AlterUserScramCredentialsRequest()
        for verb, user, mechanism, *rest in groups(words):
            if verb == "delete":
                request.deletions.append(
                    scram.ScramCredentialDeletion(name=user, mechanism=int(mechanism))
                )
                continue
            request.upsertions.append(
                scram.ScramCredentialUpsertion(
                    name=user,
                    mechanism=int(mechanism),
                    iterations=int(rest[0]),
                    salt=b"salt",
                    salted_password=rest[1].encode(),
                )
            )
        records, response = at_once(self.controller.alter_user_scram_credentials(request))
        return records, [outcome(repr(result.user), result, "ok") for result in response.results]

    def do_describe_scram(self, *users: str) -> Any:
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=u) for u in users])
        response = self.describe(request)
        return [], [
            outcome(
                result.user,
                result,
                listed(sorted(f"{i.mechanism} x {i.iterations}" for i in result.credential_infos)),
            )
            for result in response.results
        ]

    # -- tokens --------------------------------------------------------------------------------

    def do_token_key(self, key: str) -> Any:
        self.token_rules = TokenRules(None if key == "none" else key.encode(), 10_000, 4_000, 1_000)
        return [], []

    def do_token(self, requester: str, *options: str) -> Any:
        """REQUESTER [owner=Type:name] [renewers=Type:name,...] [max=MS]"""
        named = pairs(options)
        kind, _, owner = named.get("owner", "").partition(":")
        request = tokens.CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=owner,
            renewers=[
                tokens.CreatableRenewers(principal_type=k, principal_name=n)
                for k, _, n in (r.partition(":") for r in named.get("renewers", "").split(",") if r)
            ],
            max_lifetime_ms=int(named.get("max", -1)),
        )
        records, made = self.controller.create_delegation_token(request, requester, self.now_ms)
        if made.error_code:
            return records, [ErrorCode(made.error_code).name]
        self.hmacs[token_text(made.token_id)] = made.hmac
        return records, [
            f"{token_text(made.token_id)} of {made.principal_type}:{made.principal_name} asked for "
            f"by {made.token_requester_principal_type}:{made.token_requester_principal_name} "
            f"issued={made.issue_timestamp_ms} expires={made.expiry_timestamp_ms} "
            f"ends={made.max_timestamp_ms} hmac={digest(made.hmac)}"
        ]

    def do_renew_token(self, token: str, principal: str, period_ms: str = "-1") -> Any:
        hmac = self.hmacs.get(token, b"unknown")
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=int(period_ms))
        records, done = self.controller.renew_delegation_token(request, principal, self.now_ms)
        return records, [token_outcome(done)]

    def do_expire_token(self, token: str, principal: str, period_ms: str = "-1") -> Any:
        hmac = self.hmacs.get(token, b"unknown")
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=int(period_ms))
        records, done = self.controller.expire_delegation_token(request, principal, self.now_ms)
        return records, [token_outcome(done)]

    def do_describe_tokens(self, principal: str, *options: str) -> Any:
        """PRINCIPAL [owners=Type:name,...|owners=] [may=Type:name]: of whom it may see them"""
        named = pairs(options)
        owners = None
        if "owners" in named:
            owners = [
                describing.DescribeDelegationTokenOwner(principal_type=k, principal_name=n)
                for k, _, n in (o.partition(":") for o in named["owners"].split(",") if o)
            ]

        def may_describe(token: DelegationToken) -> bool:
            return token.owner == named.get("may")

        response = at_once(
            describe_tokens(
                self.image.security,
                self.token_rules,
                describing.DescribeDelegationTokenRequest(owners=owners),
                principal,
                may_describe,
            )
        )
        if response.error_code:
            return [], [ErrorCode(response.error_code).name]
        return [], [
            f"{token_text(t.token_id)} of {t.principal_type}:{t.principal_name} "
            f"renewers={[f'{r.principal_type}:{r.principal_name}' for r in t.renewers]} "
            f"expires={t.expiry_timestamp} hmac={digest(t.hmac)}"
            for t in response.tokens
        ]

    # -- quotas --------------------------------------------------------------------------------

    def do_quotas(self, *words: str) -> Any:
        """[--validate] TYPE[=NAME],... [KEY=VALUE | KEY ...]: a key without a value is removed"""
        only = words[0] == "--validate"
        entries = [
            quotas.RequestEntryData(
                entity=[
                    quotas.EntityData(entity_type=kind, entity_name=name if equals else None)
                    for kind, equals, name in (p.partition("=") for p in parts.split(",") if p)
                ],
                ops=[
                    quotas.OpData(key=key, value=float(value or 0), remove=not equals)
                    for key, equals, value in (op.partition("=") for op in ops)
                ],
            )
            for parts, *ops in groups(words[only:])
        ]
        request = quotas.AlterClientQuotasRequest(entries=entries, validate_only=only)
        records, response = at_once(self.controller.alter_client_quotas(request))
        return records, [outcome(entity_text(e.entity), e, "ok") for e in response.entries]

    def do_describe_quotas(self, *words: str) -> Any:
        """[strict] [TYPE=NAME | TYPE:default | TYPE:any | TYPE:NUMBER ...]"""
        strict = words[:1] == ("strict",)
        components = []
        for word in words[strict:]:
            kind, equals, name = word.partition("=")
            if not equals:
                kind, _, match = word.partition(":")
            components.append(
                described.ComponentData(
                    entity_type=kind,
                    match_type=0 if equals else int(MATCHES.get(match, match)),
                    match=name if equals else None,
                )
            )
        request = described.DescribeClientQuotasRequest(components=components, strict=strict)
        response = self.describe(request)
        return [], [
            f"{entity_text(entry.entity)}: {', '.join(f'{v.key}={v.value}' for v in entry.values)}"
            for entry in response.entries or ()
        ]

    # -- roles ---------------------------------------------------------------------------------

    def do_role(self, verb: str, name: str, *members: str) -> Any:
        """create|delete|add|remove NAME [MEMBER ...]"""
        controller = self.controller
        if verb == "delete":
            return controller.delete_role(name)[0], []
        decide = {
            "create": controller.create_role,
            "add": controller.add_role_members,
            "remove": controller.remove_role_members,
        }[verb]
        return decide(name, members)[0], []

    def do_roles(self) -> Any:
        return [], [
            f"{name}: {listed(sorted(members))}"
            for name, members in sorted(self.image.security.roles.items())
        ]

    def text(self, record: MetadataRecord) -> str:
        match record:
            case AccessControlEntryRecord():
                who = PermissionType(record.permission_type).name
                return (
                    f"acl {id_text(record.id)} {acl_text(record)} {who} {record.principal} "
                    f"from {record.host} {Operation(record.operation).name}"
                )
            case RemoveAccessControlEntryRecord():
                return f"remove-acl {id_text(record.id)}"
            case UserScramCredentialRecord():
                return (
                    f"scram {record.name} {record.mechanism} x {record.iterations} "
                    f"stored={digest(record.stored_key)} server={digest(record.server_key)}"
                )
            case RemoveUserScramCredentialRecord():
                return f"remove-scram {record.name} {record.mechanism}"
            case DelegationTokenRecord():
                return (
                    f"token {token_text(record.token_id)} {record.owner} by {record.requester} "
                    f"renewers={record.renewers} issued={record.issue_timestamp} "
                    f"expires={record.expiration_timestamp} ends={record.max_timestamp}"
                )
            case RemoveDelegationTokenRecord():
                return f"remove-token {token_text(record.token_id)}"
            case ClientQuotaRecord():
                shown = "(removed)" if record.remove else f"= {record.value}"
                return f"quota {entity_text(record.entity)} {record.key} {shown}"
            case RoleRecord():
                return f"role {record.name}"
            case RemoveRoleRecord():
                return f"remove-role {record.name}"
            case RoleMemberRecord():
                return f"role-member {record.role} {record.member}"
            case RemoveRoleMemberRecord():
                return f"remove-role-member {record.role} {record.member}"
        return super().text(record)


def code(words: Any, word: str) -> int:
    return int(word) if word.isdigit() else int(words[word.upper()])


def acl_filter(*words: str) -> dict[str, Any]:
    kind, pattern, name, principal, operation, permission, *host = words
    return {
        "resource_type_filter": code(ResourceType, kind),
        "resource_name_filter": null(name),
        "pattern_type_filter": code(PatternType, pattern),
        "principal_filter": null(principal),
        "host_filter": null(host[0] if host else "-"),
        "operation": code(Operation, operation),
        "permission_type": code(PermissionType, permission),
    }


def listed(texts: list[str]) -> str:
    return ", ".join(texts) or "none"


def null(word: str) -> str | None:
    return None if word == "-" else word


def acl_text(acl: Any) -> str:
    pattern = PatternType(acl.pattern_type).name
    return f"{ResourceType(acl.resource_type).name} {pattern} {acl.resource_name!r}"


def entity_text(parts: list[Any]) -> str:
    names = (
        f"{p.entity_type}={'' if p.entity_name is None else repr(p.entity_name)}" for p in parts
    )
    return ",".join(names)


def token_text(token_id: str) -> str:
    known = {uuid_text(number_id(number)): f"token{number}" for number in range(1, 200)}
    return known[token_id]


def token_outcome(done: Any) -> str:
    if done.error_code:
        return ErrorCode(done.error_code).name
    return f"expires={done.expiry_timestamp_ms}"


def digest(secret: bytes) -> str:
    return f"{hashlib.sha256(secret).hexdigest()[:6]}/{len(secret)}"
