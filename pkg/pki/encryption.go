package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// EncryptionKeySize is that of secretbox, in bytes.
const EncryptionKeySize = 32

// NewEncryptionKey makes the content of EncryptionKey: a key in base64, and a line feed.
func NewEncryptionKey() []byte {
	key := make([]byte, EncryptionKeySize)
	_, _ = rand.Read(key) // never fails: see its documentation
	return []byte(base64.StdEncoding.EncodeToString(key) + "\n")
}

// ParseEncryptionKey reads what NewEncryptionKey makes. Its errors never show what was read.
func ParseEncryptionKey(data []byte) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(data)))
	if err != nil || len(key) != EncryptionKeySize {
		return nil, fmt.Errorf("reading an encryption key: it is not %d bytes in base64", EncryptionKeySize)
	}
	return key, nil
}

// encryptionConfig is an EncryptionConfiguration (apiserver.config.k8s.io/v1).
//
// secretbox (XSalsa20 and Poly1305) and not aescbc: what is altered in etcd is refused instead of decrypted, and
// Kubernetes itself calls aescbc weak for its padding oracle. aesgcm has a random nonce of 96 bits, so that
// its key would have to be replaced every 200,000 writes. kms needs another daemon. There is no "identity":
// nothing was ever written in the clear, so what looks like it has been forged.
const encryptionConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources:
      - secrets
    providers:
      - secretbox:
          keys:
            - name: NAME
              secret: SECRET
`

// EncryptionConfig renders the file for --encryption-provider-config. The key's name follows from the key: it stands
// before everything that is encrypted with it, and two keys must never have the same.
func EncryptionConfig(key []byte) ([]byte, error) {
	if len(key) != EncryptionKeySize {
		return nil, errors.New("rendering the encryption configuration: the key has the wrong size")
	}
	sum := sha256.Sum256(key)
	return []byte(strings.NewReplacer(
		"NAME", "key-"+hex.EncodeToString(sum[:4]),
		"SECRET", base64.StdEncoding.EncodeToString(key),
	).Replace(encryptionConfig)), nil
}
