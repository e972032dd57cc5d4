package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
)

// digest writes a snapshot on and computes two digests of it: of the whole, and of all before the last 32 bytes, which are
// that digest in etcd's snapshots.
type digest struct {
	to          io.Writer
	size        int64
	whole, data hash.Hash
	end         []byte // what may be the last 32 bytes
}

func newDigest(to io.Writer) *digest {
	return &digest{to: to, whole: sha256.New(), data: sha256.New()}
}

func (d *digest) Write(p []byte) (int, error) {
	n, err := d.to.Write(p)
	d.size += int64(n)
	d.whole.Write(p[:n])
	d.end = append(d.end, p[:n]...)
	if more := len(d.end) - sha256.Size; more > 0 {
		d.data.Write(d.end[:more])
		d.end = append(d.end[:0], d.end[more:]...)
	}
	return n, err
}

func (d *digest) sum() string { return hex.EncodeToString(d.whole.Sum(nil)) }

// sector is what the size of a database is a multiple of (bbolt's pages), in bytes.
const sector = 512

// check compares the snapshot with the digest at its end.
func (d *digest) check() error {
	if d.size%sector != sha256.Size || !bytes.Equal(d.data.Sum(nil), d.end) {
		return fmt.Errorf("the snapshot of %d bytes is not whole: it does not have the digest of its data at its end", d.size)
	}
	return nil
}
