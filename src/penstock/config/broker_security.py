"""The broker settings of TLS, SASL and ACLs: whose certificate a listener shows, who may log in,
and who may do what then.

Each `ssl.` and `sasl.` setting may stand behind `listener.name.NAME.` (the name in lower case) as
that of one listener, some behind `listener.name.NAME.MECHANISM.`. What the files they name come to
is read in `node/certificates.py`, what the logins come to in `node/logins.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.config.table import (
    ConfigError,
    Importance,
    OneOf,
    SettingType,
    UpdateMode,
    at_least,
    setting,
)

NONE: Final = "none"
REQUESTED: Final = "requested"
REQUIRED: Final = "required"
PEM: Final = "PEM"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
_STORES: Final = "PKCS12", "JKS", PEM
_IDENTITY: Final = "ssl.keystore.location", "ssl.keystore.certificate.chain"
_TRUST: Final = "ssl.truststore.location", "ssl.truststore.certificates"


@dataclass(frozen=True)
class TlsSettings:
    ssl_keystore_type: str = setting(
        SettingType.STRING,
        "JKS",
        "The format of the node's certificate and key. `PEM` is the one that can be read here, and "
        "has to be said: the default is Kafka's.",
        rule=OneOf(_STORES),
        update=UpdateMode.PER_BROKER,
    )
    ssl_keystore_location: str | None = setting(
        SettingType.STRING,
        None,
        "A PEM file with the node's key and its certificate, followed by those between it and the "
        "one that others trust. A file that has changed is read again, at the latest after "
        "`penstock.ssl.reload.interval.ms`; connections stay.",
        update=UpdateMode.PER_BROKER,
        importance=Importance.HIGH,
    )
    ssl_keystore_key: str | None = setting(
        SettingType.PASSWORD,
        None,
        "The node's key itself, as PEM, instead of `ssl.keystore.location`.",
        update=UpdateMode.PER_BROKER,
        importance=Importance.HIGH,
    )
    ssl_keystore_certificate_chain: str | None = setting(
        SettingType.PASSWORD,
        None,
        "The node's certificates themselves, as PEM, with `ssl.keystore.key`.",
        update=UpdateMode.PER_BROKER,
        importance=Importance.HIGH,
    )
    ssl_key_password: str | None = setting(
        SettingType.PASSWORD,
        None,
        "The password of the node's key, if it is encrypted.",
        update=UpdateMode.PER_BROKER,
        importance=Importance.HIGH,
    )
    ssl_truststore_type: str = setting(
        SettingType.STRING,
        "JKS",
        "The format of the certificates that are trusted: `PEM`, as for `ssl.keystore.type`.",
        rule=OneOf(_STORES),
        update=UpdateMode.PER_BROKER,
    )
    ssl_truststore_location: str | None = setting(
        SettingType.STRING,
        None,
        "A PEM file with the certificates of those who sign certificates: of clients "
        "(`ssl.client.auth`), and of the other nodes. It is read again when it has changed: what "
        "is taken out of it is not trusted any more.",
        update=UpdateMode.PER_BROKER,
        importance=Importance.HIGH,
    )
    ssl_truststore_certificates: str | None = setting(
        SettingType.PASSWORD,
        None,
        "The trusted certificates themselves, as PEM, instead of `ssl.truststore.location`.",
        update=UpdateMode.PER_BROKER,
        importance=Importance.HIGH,
    )
    ssl_client_auth: str = setting(
        SettingType.STRING,
        NONE,
        "Whether clients must show a certificate (`required`), may (`requested`), or are not asked "
        "(`none`).",
        rule=OneOf((NONE, REQUESTED, REQUIRED)),
        update=UpdateMode.PER_BROKER,
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        SettingType.LIST,
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that are spoken.",
        rule=OneOf(("TLSv1.2", "TLSv1.3")),
        update=UpdateMode.PER_BROKER,
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        SettingType.LIST,
        (),
        "The ciphers of TLS 1.2 that are offered, by the names that OpenSSL has for them; all that "
        "it takes for safe where it is empty. Those of TLS 1.3 are always offered.",
        update=UpdateMode.PER_BROKER,
        importance=Importance.LOW,
    )
    ssl_endpoint_identification_algorithm: str = setting(
        SettingType.STRING,
        "https",
        "Whether a node that connects to another one wants the name it calls it by in its "
        "certificate (`https`), or trusts any certificate that is signed (empty).",
        rule=OneOf(("https", "")),
        update=UpdateMode.PER_BROKER,
        importance=Importance.LOW,
    )
    ssl_principal_mapping_rules: str = setting(
        SettingType.STRING,
        "DEFAULT",
        "How the name in a client's certificate becomes the name of its user: the first rule that "
        "matches of a list of `RULE:PATTERN/REPLACEMENT/` (with `L` or `U` at its end for lower or "
        "upper case) and `DEFAULT`, which takes the name as it is.",
        importance=Importance.LOW,
    )
    ssl_allow_dn_changes: bool = setting(
        SettingType.BOOLEAN,
        False,
        "Whether a certificate that is read again may be in another name.",
        importance=Importance.LOW,
    )
    ssl_allow_san_changes: bool = setting(
        SettingType.BOOLEAN,
        False,
        "Whether a certificate that is read again may leave out hosts that it was for.",
        importance=Importance.LOW,
    )
    penstock_ssl_reload_interval_ms: int = setting(
        SettingType.LONG,
        60_000,
        "How often the node looks whether the files of its certificates have changed; 0 for never, "
        "so that only a change of a setting has them read.",
        rule=at_least(0),
        importance=Importance.LOW,
    )


@dataclass(frozen=True)
class SaslSettings:
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        SettingType.LIST,
        ("GSSAPI",),
        "By which mechanisms clients may log in to a listener with SASL: `PLAIN`, `SCRAM-SHA-256`, "
        "`SCRAM-SHA-512`, `OAUTHBEARER`. Kafka's default, `GSSAPI`, cannot be had here.",
        update=UpdateMode.PER_BROKER,
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        SettingType.STRING,
        "GSSAPI",
        "By which mechanism this node logs in to other nodes, if the listener by which nodes reach "
        "each other has SASL: `PLAIN`; with the `username` and `password` in `sasl.jaas.config` of "
        "that listener and mechanism. Both count from the next start on.",
        update=UpdateMode.PER_BROKER,
    )
    sasl_mechanism_controller_protocol: str = setting(
        SettingType.STRING,
        "GSSAPI",
        "The same as `sasl.mechanism.inter.broker.protocol`, for the listeners of "
        "`controller.listener.names`.",
    )
    sasl_jaas_config: str | None = setting(
        SettingType.PASSWORD,
        None,
        "A login as Java writes it, always as `listener.name.NAME.MECHANISM.sasl.jaas.config`: "
        '`org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="...";` lets '
        "ann in by PLAIN (users with SCRAM credentials get in by PLAIN without it); `username` and "
        "`password` are this node's own.",
        update=UpdateMode.PER_BROKER,
    )
    penstock_founding_scram_file: str | None = setting(
        SettingType.STRING,
        None,
        "A file with the first users of a new cluster, one in each line, as `kafka-storage format "
        "--add-scram` takes them: `SCRAM-SHA-512=[name=admin,password=...]`. The node that founds "
        "the cluster reads it, once; afterwards it can go.",
    )
    sasl_server_max_receive_size: int = setting(
        SettingType.INT,
        524_288,
        "The largest request of a connection that is not authenticated yet.",
        rule=at_least(1024),
    )
    connections_max_reauth_ms: int = setting(
        SettingType.LONG,
        0,
        "After how long a client has to log in again, by SASL (KIP-368); 0 for never. Also as "
        "`listener.name.NAME.MECHANISM.connections.max.reauth.ms`.",
        rule=at_least(0),
    )
    connection_failed_authentication_delay_ms: int = setting(
        SettingType.INT,
        100,
        "For how long the answer to a failed login is held back.",
        rule=at_least(0),
        importance=Importance.LOW,
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        SettingType.STRING,
        None,
        "Where the keys are that tokens are signed with: an `https:` or a `file:` URL of a JWKS. "
        "Without it OAUTHBEARER cannot be enabled.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        SettingType.LONG,
        3_600_000,
        "How often the keys are read anew; also when a token names one that is not known.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        SettingType.LONG,
        100,
        "How long to wait after the keys could not be read.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        SettingType.LONG,
        10_000,
        "The longest of these waits, which double.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        SettingType.LIST,
        (),
        "Whom tokens must be for, one of these; a token that names an audience is refused where "
        "none is expected.",
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        SettingType.STRING,
        None,
        "Who must have issued tokens; anybody whose keys they are if empty.",
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        SettingType.STRING,
        "sub",
        "The claim of a token that is the name of the user.",
        importance=Importance.LOW,
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        SettingType.STRING,
        "scope",
        "The claim of a token that has its scopes, which must be texts; nothing else is done with "
        "them.",
        importance=Importance.LOW,
    )
    penstock_oauthbearer_roles_claim_name: str = setting(
        SettingType.STRING,
        "",
        "The claim of a token that has the names of the user's roles, a text or a list of texts, "
        "such as `groups`: for as long as the session lasts ACLs of `Role:NAME` count for the "
        "user, too. Empty: tokens give no roles.",
        importance=Importance.LOW,
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        SettingType.INT,
        30,
        "By how much the clock of an issuer may differ from this machine's.",
        rule=at_least(0),
        importance=Importance.LOW,
    )


STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True)
class AclSettings:
    authorizer_class_name: str = setting(
        SettingType.STRING,
        "",
        f"`{STANDARD_AUTHORIZER}`: ACLs decide what each user may do, by the rules of that class "
        "of Kafka. Empty: everybody may do everything.",
        rule=OneOf(("", STANDARD_AUTHORIZER)),
        importance=Importance.LOW,
    )
    super_users: str = setting(
        SettingType.STRING,
        "",
        "Users who may do everything, whatever ACLs say, as `User:ann;User:bob`. The users as whom "
        "nodes reach each other have to be among them: they are let in before the ACLs are known.",
        importance=Importance.LOW,
    )
    allow_everyone_if_no_acl_found: bool = setting(
        SettingType.BOOLEAN,
        False,
        "Whether everybody may use a resource that no ACL is about.",
        importance=Importance.LOW,
    )


@dataclass(frozen=True)
class DelegationTokenSettings:
    delegation_token_secret_key: str | None = setting(
        SettingType.PASSWORD,
        None,
        "What delegation tokens are made with and verified by: a long random text, the same on "
        "every node. Without it there are no tokens; with another one those that there are cannot "
        "be used any more.",
    )
    delegation_token_max_lifetime_ms: int = setting(
        SettingType.LONG,
        604_800_000,
        "How long a delegation token can be used at most, however often it is renewed.",
        rule=at_least(1),
    )
    delegation_token_expiry_time_ms: int = setting(
        SettingType.LONG,
        86_400_000,
        "How long a delegation token can be used before it has to be renewed.",
        rule=at_least(1),
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        SettingType.LONG,
        3_600_000,
        "How often delegation tokens that have expired are removed. They let nobody in before that "
        "either.",
        rule=at_least(1),
        importance=Importance.LOW,
    )


def check_sasl(listener: str, mechanisms: Iterable[str], jwks_url: str | None) -> None:
    """`ConfigError` unless clients of a listener can log in by all these mechanisms."""
    mechanisms = tuple(mechanisms)
    unknown = [name for name in mechanisms if name not in MECHANISMS]
    if unknown or not mechanisms:
        raise ConfigError(
            f"sasl.enabled.mechanisms is {','.join(mechanisms) or 'empty'} for the listener "
            f"{listener}: it must be a list of {', '.join(MECHANISMS)}"
        )
    if OAUTHBEARER in mechanisms and not jwks_url:
        raise ConfigError(
            f"OAUTHBEARER is enabled for the listener {listener} without keys to verify tokens "
            "with: set sasl.oauthbearer.jwks.endpoint.url"
        )
    if jwks_url and not jwks_url.startswith(("https://", "file:")):
        raise ConfigError(
            f"sasl.oauthbearer.jwks.endpoint.url cannot be {jwks_url!r}: it must be an https: or a "
            "file: URL, or anybody on the way could send keys"
        )


def check_tls(listener: str, texts: Mapping[str, str]) -> None:
    """`ConfigError` unless `texts`, the ssl settings of a listener, name what TLS needs."""
    for store in ("keystore", "truststore"):
        location = texts.get(f"ssl.{store}.location")
        if location is not None and texts.get(f"ssl.{store}.type") != PEM:
            raise ConfigError(
                f"ssl.{store}.location is {location!r}, of type "
                f"{texts.get(f'ssl.{store}.type', 'JKS')}: only PEM can be read here; write the "
                f"store as PEM and set ssl.{store}.type to PEM"
            )
    if not _any(texts, _IDENTITY):
        raise ConfigError(
            f"the listener {listener} speaks TLS and needs a certificate: set ssl.keystore.type to "
            "PEM and ssl.keystore.location to a PEM file with key and certificates"
        )
    if texts.get("ssl.client.auth", NONE) != NONE and not _any(texts, _TRUST):
        raise ConfigError(
            f"ssl.client.auth is {texts['ssl.client.auth']} for the listener {listener}: set "
            "ssl.truststore.type to PEM and ssl.truststore.location to the certificates of those "
            "who sign clients' certificates"
        )


def _any(texts: Mapping[str, str], names: Iterable[str]) -> bool:
    return any(texts.get(name) for name in names)
