package awstest

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
)

// authorizedKeys of Debian's user on EC2, below the root.
const authorizedKeys = "home/admin/.ssh/authorized_keys"

// machine replaces the instance: a chroot of Debian with its own ssh server.
type machine struct {
	t    *testing.T
	root string
	port int
}

// debianBase is the tar archive of such a Debian. It is cached until one of its inputs changes.
func debianBase(t *testing.T) string {
	t.Helper()
	packages, err := bake.Packages(images.FS)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--quiet", "--variant=apt",
		"--include=" + strings.Join(append(packages, "openssh-server", "sudo"), ","),
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		// As cloud-init does on EC2: the user, without a password, who may do everything.
		`--customize-hook=chroot "$1" useradd --create-home --shell /bin/bash --password "*" admin`,
		`--customize-hook=echo "admin ALL=(ALL) NOPASSWD:ALL" >"$1/etc/sudoers.d/90-cloud-init-users"`,
		`--customize-hook=rm -rf "$1"/var/lib/apt/lists/*`,
		"trixie",
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(strings.Join(args, "\x00")))
	base := filepath.Join(cache, "hardtack", "awstest", "debian-"+hex.EncodeToString(sum[:8])+".tar")
	if _, err := os.Stat(base); err == nil {
		return base
	}
	t.Logf("making %s (once)", base)
	if err := os.MkdirAll(filepath.Dir(base), 0o755); err != nil {
		t.Fatal(err)
	}
	partial := base + ".partial.tar"
	defer os.Remove(partial)
	if out, err := exec.CommandContext(t.Context(), "mmdebstrap", append(args, partial)...).CombinedOutput(); err != nil {
		t.Fatalf("mmdebstrap: %v\n%s", err, out)
	}
	if err := os.Rename(partial, base); err != nil {
		t.Fatal(err)
	}
	return base
}

// startMachine unpacks the base and starts its ssh server.
func startMachine(t *testing.T, base string) *machine {
	t.Helper()
	m := &machine{t: t, root: filepath.Join(t.TempDir(), "root"), port: freePort(t)}
	if err := os.Mkdir(m.root, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-xpf", base, "-C", m.root, "--numeric-owner").CombinedOutput(); err != nil {
		t.Fatalf("unpacking %s: %v\n%s", base, err, out)
	}
	// sudo wants to know the address of the machine that it runs on.
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(m.root, "etc/hosts"), "127.0.0.1 localhost "+host+"\n")
	// Mounts in a namespace of their own end with the server; so does every process.
	log := create(t, filepath.Join(t.TempDir(), "sshd.log"))
	startProcess(t, run.Command{Name: "unshare", Stdout: log, Stderr: log, Args: []string{
		"--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", `
set -e
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mkdir -p "$1/run/sshd"
exec chroot "$1" /usr/sbin/sshd -D -e -o UsePAM=no -o PasswordAuthentication=no -o ListenAddress=127.0.0.1 -p "$2"`,
		"sh", m.root, strconv.Itoa(m.port),
	}})
	waitFor(t, "the ssh server", log.Name(), func() bool {
		conn, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(m.port), time.Second)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	return m
}

// authorize adds the key, as cloud-init does at an instance's first boot. EC2's public key ends with the name of the
// key pair.
func (m *machine) authorize(name, publicKey string) {
	fields := append(strings.Fields(publicKey), "", "")[:2]
	script := `install -d -m 0700 -o admin -g admin /home/admin/.ssh && cat >/` + authorizedKeys + ` && chown admin: /` + authorizedKeys
	cmd := exec.CommandContext(m.t.Context(), "chroot", m.root, "sh", "-c", script)
	cmd.Stdin = strings.NewReader(strings.Join(append(fields, name), " ") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Errorf("writing %s: %v\n%s", authorizedKeys, err, out)
	}
}

// startProcess starts a process, with all its children, that the test's end ends.
func startProcess(t *testing.T, c run.Command) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run.Run(t.Context(), c); t.Context().Err() == nil {
			t.Errorf("%s ended by itself: %v", c.Name, err)
		}
	}()
	t.Cleanup(func() { <-ended }) // by then the context has ended
}

func waitFor(t *testing.T, what, log string, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ready(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer after 30 s\n%s", what, readFile(t, log))
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return port
}
