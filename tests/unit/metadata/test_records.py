from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metadata.records import (
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnreadableRecord,
    UnregisterBrokerRecord,
    decode_batch,
    decode_record,
    encode_record,
    written_versions,
)
from penstock.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveRoleMemberRecord,
    RemoveRoleRecord,
    RemoveUserScramCredentialRecord,
    RoleMemberRecord,
    RoleRecord,
    UserScramCredentialRecord,
)
from penstock.wire.errors import WireError
from penstock.wire.records import Record, build_batch
from penstock.wire.varint import unsigned_varint

ID = bytes(range(16))
ints = st.integers(-(1 << 31), (1 << 31) - 1)
node_lists = st.none() | st.lists(ints, max_size=3)

# Written by Apache Kafka 4.3's own serializer (MetadataRecordSerde) from the same fields, in the
# versions of the lowest level and, where a higher one has another, of that.
GOLDEN = [
    (TopicRecord(name="a", topic_id=ID), f"0102000261{ID.hex()}00"),
    (ConfigRecord(resource_type=4, name="b", value="1"), "01040004010262023100"),
    (
        ConfigRecord(resource_type=2, resource_name="t", name="b", value=None),
        "01040002027402620000",
    ),
    (
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        "010c00116d657461646174612e76657273696f6e001e00",
    ),
    (NoOpRecord(), "01140000"),
    (
        PartitionChangeRecord(partition_id=3, topic_id=ID, leader=1),
        f"01050200000003{ID.hex()}01010400000001",
    ),
    (
        PartitionChangeRecord(
            partition_id=3,
            topic_id=ID,
            leader=-1,
            isr=[],
            eligible_leader_replicas=[1, 2],
            last_known_elr=[1],
        ),
        f"01050200000003{ID.hex()}040001010104ffffffff060903000000010000000207050200000001",
    ),
    (
        PartitionChangeRecord(
            partition_id=3,
            topic_id=ID,
            leader=-1,
            isr=[1, 2],
            leader_recovery_state=1,
            directories=[ID],
        ),
        f"01050200000003{ID.hex()}0400090300000001000000020104ffffffff050101081102{ID.hex()}",
    ),
    (
        PartitionRecord(
            partition_id=1,
            topic_id=ID,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_epoch=5,
            partition_epoch=6,
            directories=[ID, ID],
            leader_recovery_state=1,
        ),
        f"01030200000001{ID.hex()}03000000010000000202000000010101000000010000000500000006"
        f"03{ID.hex()}{ID.hex()}01000101",
    ),
    (
        PartitionRecord(
            partition_id=1,
            topic_id=ID,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_epoch=5,
            partition_epoch=6,
            directories=[ID, ID],
            eligible_leader_replicas=[2],
            last_known_elr=[1],
        ),
        f"01030200000001{ID.hex()}03000000010000000202000000010101000000010000000500000006"
        f"03{ID.hex()}{ID.hex()}020105020000000202050200000001",
    ),
    (ClearElrRecord(), "011c000100"),
    (ClearElrRecord(topic_name="t"), "011c00027400"),
    (
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=ID,
            broker_epoch=9,
            end_points=[BrokerEndpoint(name="P", host="h", port=65000)],
            features=[BrokerFeature(name="f", min_supported_version=1, max_supported_version=2)],
            rack="r",
            fenced=False,
            log_dirs=[ID],
        ),
        f"0100030000000100{ID.hex()}00000000000000090202500268fde80000000202660001000200"
        f"02720000010011"
        f"02{ID.hex()}",
    ),
    (
        BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=9, fenced=-1, in_controlled_shutdown=1
        ),
        "011102000000010000000000000009020001ff010101",
    ),
    (
        UnregisterBrokerRecord(broker_id=1, broker_epoch=9),
        "01010000000001000000000000000900",
    ),
    (RemoveTopicRecord(topic_id=ID), f"010900{ID.hex()}00"),
    (
        ProducerIdsRecord(broker_id=1, broker_epoch=9, next_producer_id=1000),
        "010f0000000001000000000000000900000000000003e800",
    ),
    (
        AccessControlEntryRecord(
            id=ID,
            resource_type=2,
            resource_name="t",
            pattern_type=4,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        ),
        f"011200{ID.hex()}0202740407557365723a61022a030300",
    ),
    (RemoveAccessControlEntryRecord(id=ID), f"011300{ID.hex()}00"),
    (
        UserScramCredentialRecord(
            name="a",
            mechanism=2,
            salt=b"\1",
            stored_key=b"\2\3",
            server_key=b"\4",
            iterations=4096,
        ),
        "010b00026102020103020302040000100000",
    ),
    (RemoveUserScramCredentialRecord(name="a", mechanism=1), "01160002610100"),
    (
        DelegationTokenRecord(
            owner="User:a",
            requester="User:b",
            renewers=["User:c"],
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=2,
            token_id="i",
        ),
        "010a0007557365723a6107557365723a620207557365723a6300000000000000010000000000000003"
        "0000000000000002026900",
    ),
    (RemoveDelegationTokenRecord(token_id="i"), "011a00026900"),
    (
        ClientQuotaRecord(
            entity=[
                EntityData(entity_type="client-id", entity_name=None),
                EntityData(entity_type="user", entity_name="a"),
            ],
            key="producer_byte_rate",
            value=1024.0,
        ),
        "010e00030a636c69656e742d6964000005757365720261001370726f64756365725f627974655f72617465"
        "40900000000000000000",
    ),
    (
        ClientQuotaRecord(
            entity=[EntityData(entity_type="ip", entity_name="::1")],
            key="connection_creation_rate",
            remove=True,
        ),
        "010e0002036970043a3a310019636f6e6e656374696f6e5f6372656174696f6e5f72617465"
        "00000000000000000100",
    ),
]
# Kafka does not have them: as the first release wrote them.
OWN = [
    (RoleMemberRecord(role="r", member="User:a"), "01a09c0100027207557365723a6100"),
    (RemoveRoleMemberRecord(role="r", member="User:a"), "01a19c0100027207557365723a6100"),
    (RoleRecord(name="r"), "01a29c0100027200"),
    (RemoveRoleRecord(name="r"), "01a39c0100027200"),
]


@pytest.mark.parametrize(("record", "golden"), GOLDEN)
def test_the_bytes_are_kafkas(record, golden: str) -> None:
    assert encode_record(record, METADATA_VERSION_MIN).hex() == golden
    assert decode_record(bytes.fromhex(golden)) == record


REGISTRATION = RegisterBrokerRecord(
    broker_id=1,
    incarnation_id=ID,
    broker_epoch=9,
    end_points=[BrokerEndpoint(name="P", host="h", port=65000)],
    features=[BrokerFeature(name="f", min_supported_version=1, max_supported_version=2)],
    rack="r",
    fenced=False,
    log_dirs=[ID],
    cordoned_log_dirs=[ID],
)


@pytest.mark.parametrize(
    ("record", "golden"),
    [
        (
            REGISTRATION,
            f"0100040000000100{ID.hex()}00000000000000090202500268fde8000000020266000100020002720000"
            f"02001102{ID.hex()}011102{ID.hex()}",
        ),
        (
            BrokerRegistrationChangeRecord(
                broker_id=1,
                broker_epoch=9,
                fenced=-1,
                in_controlled_shutdown=1,
                cordoned_log_dirs=[ID],
            ),
            f"011103000000010000000000000009030001ff010101031102{ID.hex()}",
        ),
        (
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, cordoned_log_dirs=[]),
            "01110300000001000000000000000901030101",
        ),
    ],
)
def test_the_bytes_of_level_30_are_kafkas(record, golden: str) -> None:
    assert encode_record(record, 30).hex() == golden
    assert decode_record(bytes.fromhex(golden)) == record
    with pytest.raises(WireError):
        encode_record(record, 29)


def test_a_level_writes_no_version_that_an_older_release_cannot_read() -> None:
    """The table of each level, as it was when the level was released."""
    first, second = written_versions(29), written_versions(30)
    assert {c.__name__: v for c, v in second.items() if v != first[c]} == {
        "RegisterBrokerRecord": 4,
        "BrokerRegistrationChangeRecord": 3,
    }
    assert written_versions(31) == second


@given(
    st.builds(
        PartitionChangeRecord,
        partition_id=ints,
        isr=node_lists,
        leader=ints,
        replicas=node_lists,
        removing_replicas=node_lists,
        adding_replicas=node_lists,
        leader_recovery_state=st.integers(-1, 1),
        eligible_leader_replicas=node_lists,
        last_known_elr=node_lists,
    )
)
def test_changes_read_back(record: PartitionChangeRecord) -> None:
    assert decode_record(encode_record(record, METADATA_VERSION_MAX)) == record


@pytest.mark.parametrize(("record", "golden"), OWN)
def test_the_bytes_of_our_own_types_stay(record, golden: str) -> None:
    assert encode_record(record, METADATA_VERSION_MIN).hex() == golden
    assert decode_record(bytes.fromhex(golden)) == record


def test_a_record_shows_no_secret() -> None:
    record = UserScramCredentialRecord(salt=b"pass", stored_key=b"pass", server_key=b"pass")
    assert "pass" not in repr(record)


def test_every_written_type_has_golden_bytes() -> None:
    assert {type(record) for record, _ in [*GOLDEN, *OWN]} == set(
        written_versions(METADATA_VERSION_MIN)
    )


def test_every_version_is_read() -> None:
    for cls in written_versions(METADATA_VERSION_MAX):
        for version in cls.VERSIONS:
            record = cls()
            frame = [unsigned_varint(number) for number in (1, cls.API_KEY or 0, version)]
            value = b"".join(frame) + record.encode(version)
            assert decode_record(value) == record


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (b"\x02\x02\x00", "frame version 2 is not known"),
        (b"\x01\x63\x00", "record type 99 version 0 is not known"),
        (b"\x01\x02\x09", "record type 2 version 9 is not known"),
    ],
)
def test_a_record_of_the_future_stops_the_reader(value: bytes, sentence: str) -> None:
    with pytest.raises(UnreadableRecord, match=sentence):
        decode_record(value)


def test_a_batch_reads_back_and_a_control_batch_has_no_records() -> None:
    control = build_batch([Record(0, 5, b"\0\0\0\2", b"")], control=True)
    records = [TopicRecord(name="a", topic_id=ID), PartitionRecord(partition_id=0, topic_id=ID)]
    values = [encode_record(record, METADATA_VERSION_MAX) for record in records]
    batch = build_batch([Record(i, 6, None, value) for i, value in enumerate(values)])
    assert decode_batch(control) == []
    assert decode_batch(batch) == records
