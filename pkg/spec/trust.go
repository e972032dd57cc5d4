package spec

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path"
	"strings"
)

// anchorsDir has the certificates that machines trust beside Debian's. It is not below /usr/local, which a sealed root has for reading only.
const anchorsDir = "/etc/hardtack/trust-anchors"

// trustAnchors completes and checks the certificates that all machines trust.
func (f *completer) trustAnchors() {
	const field = "machines.trustAnchors"
	for i, text := range f.in.Machines.TrustAnchors {
		f.certificates(at(field, i), text)
	}
	f.out.Cluster.Machines.TrustAnchors = listOrDefault(f, field, f.in.Machines.TrustAnchors, nil, byHardtack)
}

// certificates checks text that is to be certificates of authorities in PEM, and nothing else.
func (f *completer) certificates(field, text string) {
	const form = "write the authority's certificate in PEM: -----BEGIN CERTIFICATE-----"
	rest, n := []byte(text), 0
	for ; len(bytes.TrimSpace(rest)) > 0; n++ {
		var block *pem.Block
		before := rest
		if block, rest = pem.Decode(rest); block == nil || !bytes.HasPrefix(bytes.TrimSpace(before), []byte("-----BEGIN ")) {
			f.hint(field, form, "has text that is no certificate")
			return
		}
		if block.Type != "CERTIFICATE" {
			f.hint(field, form, "has a %s, and not only certificates", block.Type)
			return
		}
		switch c, err := x509.ParseCertificate(block.Bytes); {
		case err != nil:
			f.errorf(field, "certificate %d: %v", n+1, err)
		case !c.IsCA:
			f.hint(field, "write that of the authority which signed it", "certificate %d, of %s, is not an authority's", n+1, c.Subject)
		}
	}
	if n == 0 {
		f.hint(field, form, "is empty")
	}
}

// trustFiles are the certificates that machines trust, and what puts them among those of the system.
func (m Machines) trustFiles() (files []File, commands []string) {
	for i, text := range m.TrustAnchors {
		// update-ca-certificates takes one certificate from a file.
		rest := []byte(text)
		for n := 1; ; n++ {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			name := fmt.Sprintf("hardtack-spec-%d-%d.crt", i+1, n)
			files = append(files, File{Path: path.Join(anchorsDir, name), Content: pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})})
		}
	}
	if len(files) > 0 {
		commands = []string{"/usr/sbin/update-ca-certificates --localcertsdir " + anchorsDir}
	}
	return files, commands
}

// isAnchor reports whether a file is among those of the trusted certificates.
func isAnchor(name string) bool { return strings.HasPrefix(name, anchorsDir+"/") }
