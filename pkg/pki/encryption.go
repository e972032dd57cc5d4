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

// EncryptionKeySize is the size of a secretbox key in bytes.
const EncryptionKeySize = 32

// NewEncryptionKey makes the content of EncryptionKey: a random key in base64, and a newline.
func NewEncryptionKey() []byte {
	key := make([]byte, EncryptionKeySize)
	_, _ = rand.Read(key) // never fails: see its documentation
	return []byte(base64.StdEncoding.EncodeToString(key) + "\n")
}

// ParseEncryptionKey parses the content that NewEncryptionKey makes. Its errors never contain the key.
func ParseEncryptionKey(data []byte) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(data)))
	if err != nil || len(key) != EncryptionKeySize {
		return nil, fmt.Errorf("reading an encryption key: it is not %d bytes in base64", EncryptionKeySize)
	}
	return key, nil
}

// encryptionConfig is an EncryptionConfiguration (apiserver.config.k8s.io/v1).
//
// It uses secretbox (XSalsa20 and Poly1305) and not aescbc: altered data is rejected instead of decrypted, and
// Kubernetes itself calls aescbc weak for its padding oracle. aesgcm has a random nonce of 96 bits, so that its key would
// have to be replaced every 200,000 writes. kms needs another daemon. "identity" is left out: nothing was ever stored
// unencrypted, so unencrypted data is forged.
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

// EncryptionConfig renders the file for --encryption-provider-config. The key's name is derived from the key: it
// prefixes everything encrypted with it, and two keys must never share a name.
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
