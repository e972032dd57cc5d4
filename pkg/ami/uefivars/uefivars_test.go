package uefivars_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/uefivars"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/uefivars/uefivarstest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// variable is one of the tool's JSON; Data is in hexadecimal digits.
type variable struct {
	Name string `json:"name"`
	Data string `json:"data"`
	GUID string `json:"guid"`
	Attr int    `json:"attr"`
}

// read is the store as EC2's own tool reads it.
func read(t *testing.T, store string) map[string]variable {
	t.Helper()
	var all struct {
		Variables []variable `json:"variables"`
	}
	assert.NilError(t, json.Unmarshal(uefivarstest.Convert(t, store, "json"), &all))
	byName := map[string]variable{}
	for _, v := range all.Variables {
		byName[v.Name] = v
	}
	assert.Equal(t, len(all.Variables), len(byName))
	return byName
}

// TestReadByEC2sTool: the tool finds the three keys and nothing else, each with the certificate, where firmware looks for it.
func TestReadByEC2sTool(t *testing.T) {
	key, err := pki.NewKey()
	assert.NilError(t, err)
	signer, err := pki.NewAuthority("db", key, time.Now())
	assert.NilError(t, err)
	certificate := signer.Certificate.Raw
	keys := read(t, uefivars.SecureBoot(certificate))
	const global, security = "8be4df61-93ca-11d2-aa0d-00e098032b8c", "d719b2cb-3d3a-4596-a3bc-dad00e67656f"
	for name, where := range map[string]string{"PK": global, "KEK": global, "db": security} {
		v := keys[name]
		assert.Equal(t, v.GUID, where, name)
		assert.Equal(t, v.Attr, 0x27, name)
		assert.Assert(t, strings.HasSuffix(v.Data, hex.EncodeToString(certificate)), name)
	}
	assert.Equal(t, len(keys), 3)
}

// TestSignatures compares a list of signatures with those that Debian has put into the variables of its OVMF by other programs: all but
// the owner is the same.
func TestSignatures(t *testing.T) {
	const variables, of = "/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd", "/usr/share/ovmf/PkKek-1-snakeoil.pem"
	store, err := os.ReadFile(variables)
	if err != nil {
		t.Skipf("%v: install Debian's package ovmf", err)
	}
	text, err := os.ReadFile(of)
	assert.NilError(t, err)
	block, _ := pem.Decode(text)
	assert.Assert(t, block != nil, "%s is no PEM", of)
	list := uefivars.Signatures(block.Bytes)
	const head, owner = 28, 16
	found := 0
	for rest := store; ; found++ {
		at := bytes.Index(rest, list[:head])
		if at < 0 {
			break
		}
		assert.DeepEqual(t, rest[at+head+owner:][:len(block.Bytes)], list[head+owner:])
		rest = rest[at+len(list):]
	}
	assert.Assert(t, found >= 3, "Debian's variables have %d lists of the certificate, want those of PK, KEK and db", found)
}
