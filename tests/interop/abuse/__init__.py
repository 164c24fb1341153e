"""Attacks, most of which have hurt others, and the tests that show that they fail here.

`test_table.py` holds that each row has its tests, that they are there, and that no test of this
package is left out. An attack is told by its fault's number where it has one.

before somebody is known
    oversized frames before a login (CVE-2022-34917)
        test_before_login::test_an_oversized_frame_is_refused_by_its_length
        test_before_login::test_frames_that_never_end_take_nobodys_memory
        unit/net/test_login_limits::test_who_is_in_does_not_wait_for_the_memory_of_those_who_are_not
    slow handshakes and slow logins
        test_before_login::test_slow_handshakes_and_slow_logins_end
        unit/net/test_login_limits::test_who_does_not_authenticate_in_time_is_closed
    more handshakes than a node can hold
        unit/net/test_tls::test_the_oldest_handshake_makes_room
    more connections than a node can hold
        chaos/test_bad_peers::test_max_connections
        chaos/test_bad_peers::test_max_connections_per_ip
    a weaker mechanism
        test_before_login::test_a_mechanism_that_is_not_enabled
        test_before_login::test_a_mechanism_cannot_be_changed_on_the_way
        unit/auth/test_sasl::test_the_mechanism_stays_the_same
    a weaker version of TLS
        test_before_login::test_an_old_version_of_tls
    requests before a login
        test_before_login::test_no_request_is_served_before_a_login
        unit/auth/test_sasl::test_before_a_login_three_requests_are_decoded_and_none_served
    storms of wrong passwords
        test_storm::test_others_hardly_notice_a_storm_of_wrong_passwords
    who exists, and how much of a secret is right, by answers and times (CVE-2021-38153)
        unit/auth/test_sasl::test_an_unknown_user_is_told_what_a_wrong_password_is_told
        unit/auth/test_scram_server::test_as_much_is_hashed_for_an_unknown_user_as_for_a_wrong_password

identity
    no credentials (CVE-2025-61673)
        test_identity::test_no_credentials_are_no_login
    another authorization id (CVE-2017-12610)
        test_identity::test_nobody_authorizes_as_another
    alg none, HS256 by the public key, keys in the token (CVE-2026-33557)
        test_identity::test_a_token_that_is_not_believed
        unit/auth/test_jwt::test_a_key_that_the_token_brings_along
    addresses in the token
        test_identity::test_nobody_asks_where_a_token_says
    no keys to verify tokens with (CVE-2026-110985)
        unit/auth/test_jwt::test_without_keys_nothing_is_believed
        unit/auth/test_oauthbearer::test_without_keys_every_login_fails
    tokens that have ended or have not begun
        test_identity::test_a_token_that_is_not_believed
        unit/auth/test_jwt::test_times_to_the_second
    certificates that have ended or have not begun
        test_identity::test_a_certificate_that_is_not_believed
    replayed nonces and proofs (CVE-2024-56128)
        test_identity::test_a_recorded_login_by_scram_is_worth_nothing
        test_identity::test_a_proof_for_another_nonce
        unit/auth/test_scram_server::test_the_nonce_alone_is_compared_too
    what is stored, used as a password
        test_identity::test_a_hash_of_the_password_is_not_the_password

rights
    a client that poses as a replica (CVE-2018-1288)
        test_rights::test_a_client_that_fetches_as_a_replica
        test_rights::test_a_client_that_asks_for_offsets_as_a_replica
        test_rights::test_a_client_that_asks_for_epochs_as_a_replica
    a request that a client forwards
        test_rights::test_a_client_that_forwards_a_request
    a Produce past the rights of a transaction (GHSA-47w3-66wq-cpxg)
        test_rights::test_a_produce_in_the_transaction_of_another
    names of ACLs with odd bytes
        test_rights::test_acls_with_odd_names_are_for_those_names
        test_rights::test_acls_of_no_principal
    a request or a route that forgets to ask (CVE-2026-105938)
        unit/api/test_rights_of_every_api::test_nothing_is_done_and_nothing_is_told
        test_routes::test_every_route_is_known_and_tells_no_more_than_it_should
        test_routes::test_labels_of_metrics_name_nothing_else
        test_routes::test_an_odd_path_is_no_route
        test_routes::test_nothing_can_be_changed
    the topics in a description of a group (CVE-2026-41115)
        interop/test_referee_rights::test_kafka_refuses_the_same

memory
    counts of arrays, nested ones, tagged fields (CVE-2026-111108, CVE-2026-111115)
        test_memory::test_a_count_is_not_believed
        test_memory::test_tagged_fields_of_the_header
        test_memory::test_as_many_as_may_be_from_many_at_once
    elements of no size
        unit/wire/test_element_sizes::test_every_element_of_an_array_takes_bytes
    compressed bombs (CVE-2026-111073)
        chaos/test_bad_peers::test_a_decompression_bomb_is_refused
        unit/serving/test_telemetry::test_a_bomb_is_refused_within_its_bounds

injection
    lines of the log
        test_injection::test_a_name_forges_no_line_of_the_log
        unit/auth/test_authorizer::test_a_name_forges_no_line_of_the_log
        unit/auth/test_audit::test_names_with_control_characters_stay_in_their_line
    floods of labels of metrics
        test_injection::test_names_of_clients_make_no_metrics
        unit/serving/test_client_metrics::test_clients_cannot_flood_the_labels
    names of classes, JNDI (CVE-2023-25194, CVE-2025-27818)
        test_injection::test_a_class_is_not_loaded
        test_injection::test_our_client_loads_no_class
    secrets in arguments, logs, metrics, descriptions (GO-2026-4827)
        interop/cli/test_canary::test_a_secret_is_nowhere_to_be_read
        unit/auth/test_secrets::test_what_holds_a_secret_does_not_show_it

our own clients
    a server that asks for hashing without end (CVE-2026-10143)
        test_our_client::test_a_server_that_wants_too_much
        test_our_client::test_a_command_says_so_in_a_sentence
    a server that does not know the password
        interop/auth/test_java_sasl::test_kafkas_client_finds_out_a_server_that_does_not_know_the_password
        unit/auth/test_scram::test_a_proof_of_another_length_proves_nothing
"""
