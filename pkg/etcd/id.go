package etcd

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
)

// ID is a member ID or a cluster ID of etcd; zero is none. Its text is hexadecimal, as etcd prints it: "36286a59e213784b".
type ID uint64

func (id ID) String() string { return strconv.FormatUint(uint64(id), 16) }

// MarshalText formats it as String does.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses the text of String.
func (id *ID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil {
		return fmt.Errorf("%q is not an ID of etcd, which is hexadecimal: %w", text, err)
	}
	*id = ID(n)
	return nil
}

// MemberID computes the ID that etcd gives a member of a first start. A member that is added later gets another one, which
// depends on the time.
func MemberID(token, peerURL string) ID {
	return idOf([]byte(peerURL + token))
}

// ClusterID computes the ID of a cluster that members started first with a token.
func ClusterID(token string, members []Peer) ID {
	ids := make([]ID, 0, len(members))
	for _, m := range members {
		ids = append(ids, MemberID(token, m.URL))
	}
	slices.Sort(ids)
	var b []byte
	for _, id := range ids {
		b = binary.BigEndian.AppendUint64(b, uint64(id))
	}
	return idOf(b)
}

// idOf is the first 8 bytes of SHA-1: what etcd computes, and no protection of anything.
func idOf(b []byte) ID {
	sum := sha1.Sum(b)
	return ID(binary.BigEndian.Uint64(sum[:8]))
}

// NewToken returns 128 random bits as 32 hexadecimal digits: the token of an epoch, or the attempt of a first start.
func NewToken() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails, and fills b
	return hex.EncodeToString(b)
}
