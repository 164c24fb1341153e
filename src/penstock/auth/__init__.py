"""Who somebody is and what they may do: principals, SASL's machines, ACLs and roles, quotas.

Pure: a message, a credential or a time goes in; an answer or a decision comes out. No socket, file,
clock or random number: nonces and times are handed in. The drivers are elsewhere: `net` has the
TLS contexts, `api` the requests that carry SASL, `serving` the one place where rights are asked
for, `metadata` the records.

Invariants: what is not allowed is denied; what cannot be checked fails. A secret is in no `repr`,
in no text of an error, and is compared in constant time.
"""
