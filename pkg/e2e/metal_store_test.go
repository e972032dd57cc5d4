package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine/machinetest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// ganesha serves a directory by NFS 4, without Kerberos, rpcbind, or names of users. %s are the port, a line that says where its
// libraries are, and two directories. Machines mount it by NFS 4.1: by 4.2 they read zeros
// from this server, supposedly since Linux then reads by READ_PLUS.
const ganesha = `
NFS_CORE_PARAM { Protocols = 4; NFS_Port = %s; Bind_addr = 127.0.0.1; Enable_NLM = false; Enable_RQUOTA = false; %s }
NFSv4 { Grace_Period = 1; Lease_Lifetime = 60; RecoveryBackend = fs; RecoveryRoot = %q; Minor_Versions = 1; Only_Numeric_Owners = true; UseGetpwnam = true; }
NFS_KRB5 { Active_krb5 = false; }
EXPORT { Export_Id = 1; Path = %q; Pseudo = /; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 4; Transports = TCP; FSAL { Name = VFS; } }
LOG { Default_Log_Level = WARN; }
`

// serveStore creates the cluster's store in a directory, and has a file server export it, as a site's does: the store makes an
// object by a link, which some that are written for tests cannot do.
func (m *metal) serveStore(ctx context.Context, t *testing.T) {
	t.Helper()
	program := need(t, "ganesha.nfsd", "nfs-ganesha-vfs, or unpack it by scripts/setup --judges")
	dir := t.TempDir()
	m.store = store.NewDir(dir)
	if _, err := authority.Create(ctx, m.store, machinetest.Info(metalCluster), time.Now()); err != nil {
		t.Fatal(err)
	}
	local := freeAddress(t)
	_, port, err := net.SplitHostPort(local)
	if err != nil {
		t.Fatal(err)
	}
	libraries := ""
	if found, _ := filepath.Glob(filepath.Join(filepath.Dir(program), "../ganesha/usr/lib/*/ganesha")); len(found) > 0 { // the pattern is a good one
		libraries = fmt.Sprintf("Plugins_Dir = %q;", found[0])
	}
	own := t.TempDir()
	config := filepath.Join(own, "ganesha.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, ganesha, port, libraries, own, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	serving, stop := context.WithCancel(ctx)
	log, ended := &run.Log{}, make(chan error, 1)
	go func() {
		ended <- run.Run(serving, run.Command{Name: program, Args: []string{"-F", "-L", "/dev/stderr", "-f", config, "-p", filepath.Join(own, "pid")}, Stdout: log, Stderr: log})
	}()
	t.Cleanup(func() {
		stop()
		t.Logf("the file server has ended: %v\n%s", <-ended, log)
	})
	for ; ; time.Sleep(100 * time.Millisecond) {
		conn, err := net.Dial("tcp", local)
		if err == nil {
			_ = conn.Close()
			break
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the file server does not start: %v\n%s", err, log)
		default:
		}
	}
	listener, err := m.network.Listen(m.files)
	if err != nil {
		t.Fatal(err)
	}
	go forwardAll(serving, listener, local)
}

// forwardAll joins every connection of a listener with one to an address, until the listener is closed.
func forwardAll(ctx context.Context, listener net.Listener, to string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = from.Close() }()
			there, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err != nil {
				return
			}
			defer func() { _ = there.Close() }()
			defer context.AfterFunc(ctx, func() { _ = there.Close() })()
			go func() {
				_, _ = io.Copy(there, from)
				_ = there.Close()
			}()
			_, _ = io.Copy(from, there)
		}()
	}
}
