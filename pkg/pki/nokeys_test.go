package pki_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// secrets matches secrets, which must never be in the image: private keys and bootstrap tokens.
var secrets = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{16}|"?token"?[:=]\s*"?[a-z0-9]{6}\.[a-z0-9]{16}\b`)

// TestNoKeysInTheImage looks at every plain file and unit that the image is made of, and that minted files are kept in
// memory: below /run, which is a tmpfs on every machine with systemd.
func TestNoKeysInTheImage(t *testing.T) {
	files, keyPaths := 0, 0
	// A condition may have "|" before its path.
	keyPath := regexp.MustCompile(`[^\s"'=|\[,]+\.(key|pem)\b`)
	for _, dir := range []string{"../../images/rootfs", "../../units"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || filepath.Ext(path) == ".go" {
				return err
			}
			data, err := os.ReadFile(path)
			files++
			if secrets.Match(data) {
				t.Errorf("%s has a secret", path)
			}
			for _, key := range keyPath.FindAll(data, -1) {
				keyPaths++
				// In a pod: the kubelet keeps a Secret's volume on a tmpfs.
				if filepath.Dir(path) == "../../images/rootfs/usr/lib/hardtack/addons/optional" &&
					(string(key) == "tls.key" || bytes.HasPrefix(key, []byte("/etc/metrics-server/serving/"))) {
					continue
				}
				// The kubelet's directory of certificates is a link to /run/hardtack/pki/node, by tmpfiles.d.
				if !bytes.HasPrefix(key, []byte("/run/hardtack/pki/")) && !bytes.HasPrefix(key, []byte("/var/lib/kubelet/pki/")) {
					t.Errorf("%s names a key that is not in memory: %s", path, key)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 30 || keyPaths < 10 {
		t.Errorf("only %d files and %d paths of keys were looked at", files, keyPaths)
	}
	tmpfiles, err := os.ReadFile("../../images/rootfs/usr/lib/tmpfiles.d/hardtack.conf")
	if err != nil || !bytes.Contains(tmpfiles, []byte("\nL+ /var/lib/kubelet/pki - - - - /run/hardtack/pki/node\n")) {
		t.Errorf("the kubelet's keys would be on a disk: %v", err)
	}
}
