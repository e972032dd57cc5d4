package awsfake

// The modelled contract of Route 53, and the source of each part. "Guide" is the Amazon Route 53
// Developer Guide, "Reference" the Amazon Route 53 API Reference (its text is also in the comments of
// aws-sdk-go-v2/service/route53).
//
//	modelled                                                          source
//	a batch is made whole or not at all                               Reference, ChangeResourceRecordSets
//	DELETE needs the set's very values and TTL                        Reference, ChangeResourceRecordSets
//	one set deleted twice in a batch is refused                       Reference, ChangeResourceRecordSets
//	1000 values and 32,000 characters a batch, UPSERT counted twice   Guide, "Quotas"
//	400 values a set, 10,000 sets a zone                              Guide, "Quotas"
//	5 requests a second an account; Throttling, "Rate exceeded"       Guide, "Quotas"
//	PriorRequestNotComplete, as a fault, and its text                 Guide, "Quotas"
//	listing by reversed name, then type; 300 a page; pending shown    Reference, ListResourceRecordSets
//	zones by reversed name, 100 a page, those after the name too      Reference, ListHostedZonesByName
//	zones by identifier, 100 a page, from a marker on                 Reference, ListHostedZones
//	one zone of a name in a VPC; a caller reference once              Reference, CreateHostedZone
//	names in lower case, other characters as octal escapes            Guide, "DNS domain name format"
//	the SOA and NS of a new zone, which cannot be taken away          Guide, "NS and SOA records"
//	a "no" lives for the lesser of the SOA's TTL and minimum          RFC 2308, section 5
//	policies by zone, normalized names, types and actions             Guide, "Using IAM policy conditions"
//
// The texts of InvalidChangeBatch are those that users of Route 53 have reported in public issues:
// already exists, not found, do not match, CNAME conflicts, not permitted in zone, Duplicate Resource
// Record, ARRDATAIllegalIPv4Address, ARRDATANotSingleField, CharacterStringTooLong, DomainLabelEmpty,
// UnsupportedCharacter, "Number of records limit of 1000 exceeded.", "RDATA character limit of 32000
// exceeded.", MAX_RRSETS_BY_ZONE, "Cannot have more than … records in a RRSet." and "invalid set of
// changes". The others (AAAA, MX, SRV and SOA values, long names, the sets of the apex) are worded after
// them: do not decide on those.
//
// Where the documentation leaves room:
//   - A batch is tried in its order, so a CNAME has to be deleted before an A of its name is created.
//   - One set may appear in a batch once, or as DELETE and then CREATE.
//   - Values are compared as texts: "fd00::1" does not delete "FD00::1".
//   - The rate is a bucket of one second's calls, filled evenly; refused calls take nothing from it.
//
// Not modelled, and refused: alias targets; routing by weight, latency, failover, location and multivalue;
// health checks; CAA, NAPTR, DS, SPF and other types; reusable delegation sets; traffic policies;
// DNSSEC; tags; a zone's further VPCs. Ignored: regions, and the refusal
// of public zones for top-level domains.
