// Package uefivars writes the variables of UEFI firmware that EC2 gives to the machines of an image: the keys by which Secure Boot
// decides what may start.
//
// A list of signatures has UEFI's form (specification 2.10, section 32.4.1). github.com/foxboron/go-uefi writes it too, and was not to
// be had as a module. A variable store has EC2's own form, known from the tool that its user guide names ("UEFI variables for Amazon EC2
// instances"), python-uefivars, which reads what this package writes (TestReadByEC2sTool). No library of Go writes that.
package uefivars

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"hash/adler32"
	"hash/crc32"
)

// guid is a GUID as UEFI writes it: three little-endian numbers, and eight bytes as they are.
type guid [16]byte

func newGUID(a uint32, b, c uint16, rest [8]byte) (g guid) {
	binary.LittleEndian.PutUint32(g[:], a)
	binary.LittleEndian.PutUint16(g[4:], b)
	binary.LittleEndian.PutUint16(g[6:], c)
	copy(g[8:], rest[:])
	return g
}

// GUIDs of the specification: EFI_GLOBAL_VARIABLE (section 3.3), EFI_IMAGE_SECURITY_DATABASE_GUID (32.6.1) and EFI_CERT_X509_GUID
// (32.4.1). The owner is whoever made the list: firmware does not look at it.
var (
	global   = newGUID(0x8be4df61, 0x93ca, 0x11d2, [8]byte{0xaa, 0x0d, 0x00, 0xe0, 0x98, 0x03, 0x2b, 0x8c})
	security = newGUID(0xd719b2cb, 0x3d3a, 0x4596, [8]byte{0xa3, 0xbc, 0xda, 0xd0, 0x0e, 0x67, 0x65, 0x6f})
	x509     = newGUID(0xa5c059a1, 0x94e4, 0x4aa7, [8]byte{0x87, 0xb5, 0xab, 0x15, 0x5c, 0x2b, 0xf0, 0x72})
	owner    = newGUID(0xb6d56b6f, 0x1f0a, 0x4f57, [8]byte{0x9c, 0x3e, 0x68, 0x61, 0x72, 0x64, 0x74, 0x6b})
)

// attributes are those of the keys (section 32.3): non-volatile, of the boot and of the running system, and changed by a signed request
// with a time alone.
const attributes = 0x01 | 0x02 | 0x04 | 0x20

// SecureBoot is a variable store for RegisterImage's UefiData, with which firmware starts only what one certificate's key has signed.
// The certificate, in DER, is the platform key and the key exchange key as well: so the owner of its key alone may change the variables
// of a machine. There is no list of what is revoked.
func SecureBoot(certificate []byte) string {
	list := signatures(certificate)
	var raw bytes.Buffer
	number := func(n int) { raw.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	number(3)
	for _, v := range []struct {
		name string
		of   guid
	}{{"PK", global}, {"KEK", global}, {"db", security}} {
		number(len(v.name))
		raw.WriteString(v.name)
		number(len(list))
		raw.Write(list)
		raw.Write(v.of[:])
		raw.Write(binary.LittleEndian.AppendUint32(nil, attributes))
		raw.Write(make([]byte, 16)) // no time: any later request is newer
		number(32)
		raw.Write(make([]byte, 32)) // no digest of a signer's certificate: it is for private variables
	}
	return encode(raw.Bytes())
}

// signatures is a list with one certificate.
func signatures(certificate []byte) []byte {
	size := len(owner) + len(certificate)
	list := append([]byte{}, x509[:]...)
	for _, n := range []int{28 + size, 0, size} { // of the list, of its empty header, and of each signature
		list = binary.LittleEndian.AppendUint32(list, uint32(n))
	}
	return append(append(list, owner[:]...), certificate...)
}

const (
	magic = "AMZNUEFI"
	// version of the store's form, and the checksum (Adler-32) of the dictionary that its streams are compressed with.
	version    = 0
	dictionary = 0x6bb7d9f7
)

// encode makes a store of its variables: EC2's header around a zlib stream (RFC 1950). The stream names the dictionary that a reader has
// ready, and refers to nothing in it.
func encode(variables []byte) string {
	var z bytes.Buffer
	z.Write([]byte{0x78, 0xf9}) // deflate with a window of 32 KiB; best compression, a dictionary, and what makes both a multiple of 31
	z.Write(binary.BigEndian.AppendUint32(nil, dictionary))
	w, err := flate.NewWriter(&z, flate.BestCompression)
	if err != nil {
		panic(err) // the level is one
	}
	if _, err := w.Write(variables); err != nil {
		panic(err) // into memory
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	z.Write(binary.BigEndian.AppendUint32(nil, adler32.Checksum(variables)))
	body := append(binary.LittleEndian.AppendUint32(nil, version), z.Bytes()...)
	store := binary.LittleEndian.AppendUint32([]byte(magic), crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return base64.StdEncoding.EncodeToString(append(store, body...))
}
