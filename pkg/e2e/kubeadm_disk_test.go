package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// kubeadmFiles are the files that a user of kubeadm bakes besides the image's programs: path in the image, and source
// below testdata/kubeadm. kubeadm itself comes from the cache.
var kubeadmFiles = map[string]string{
	"/usr/local/sbin/kubeadm-boot":                          "kubeadm-boot",
	"/etc/systemd/system/kubelet.service":                   "kubelet.service",
	"/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": "10-kubeadm.conf",
	"/etc/systemd/system/kubeadm-join.service":              "kubeadm-join.service",
}

// kubeadmLinks are symbolic links by their targets. They mask the Hardtack units that make a machine a node.
// Hardtack's reader of user data stays, in place of cloud-init.
var kubeadmLinks = map[string]string{
	"/etc/systemd/system/multi-user.target.wants/kubeadm-join.service": "/etc/systemd/system/kubeadm-join.service",
	"/etc/systemd/system/hardtack-bootstrap.service":                   "/dev/null",
	"/etc/systemd/system/hardtack-images.service":                      "/dev/null",
	"/etc/systemd/system/hardtack-node.service":                        "/dev/null",
	"/etc/systemd/system/hardtack-notices.service":                     "/dev/null",
	"/etc/systemd/system/hardtack-ready.service":                       "/dev/null",
	"/etc/systemd/system/hardtack-renew.timer":                         "/dev/null",
	"/etc/systemd/system/flanneld.service":                             "/dev/null",
	"/etc/systemd/system/kube-proxy.service":                           "/dev/null",
}

// rootDisk is a raw disk whose root file system is changed without a mount.
type rootDisk struct {
	file   string
	offset int64
}

// kubeadmDisk copies a baked disk and adds kubeadm and its units; all other files are the same. The copy has the same
// compression, so that reading both takes equally long.
func kubeadmDisk(ctx context.Context, baked, kubeadm, dir string) (string, error) {
	raw := filepath.Join(dir, "disk.raw")
	if _, err := run.Output(ctx, "qemu-img", "convert", "-O", "raw", baked, raw); err != nil {
		return "", err
	}
	defer os.Remove(raw)
	disk, err := openRoot(ctx, raw)
	if err != nil {
		return "", err
	}
	files := map[string]string{kubeadmPath: kubeadm}
	for to, name := range kubeadmFiles {
		from := filepath.Join(dir, name)
		data, err := os.ReadFile(filepath.Join("testdata", "kubeadm", name))
		if err != nil {
			return "", err
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(to, "/usr/") {
			mode = 0o755
		}
		if err := os.WriteFile(from, data, mode); err != nil {
			return "", err
		}
		files[to] = from
	}
	if err := disk.add(ctx, files, kubeadmLinks, dir); err != nil {
		return "", fmt.Errorf("putting kubeadm into a copy of %s: %w", baked, err)
	}
	made := filepath.Join(dir, "kubeadm.qcow2")
	_, err = run.Output(ctx, "qemu-img", "convert", "-c", "-O", "qcow2", "-o", "compression_type=zstd,cluster_size=256K", raw, made)
	return made, err
}

// openRoot finds the root partition.
func openRoot(ctx context.Context, raw string) (rootDisk, error) {
	out, err := run.Output(ctx, "sfdisk", "--json", raw)
	if err != nil {
		return rootDisk{}, err
	}
	var table struct {
		Table struct {
			Sector     int64 `json:"sectorsize"`
			Partitions []struct {
				Name  string `json:"name"`
				Start int64  `json:"start"`
			} `json:"partitions"`
		} `json:"partitiontable"`
	}
	if err := json.Unmarshal(out, &table); err != nil {
		return rootDisk{}, fmt.Errorf("reading the partitions of %s: %w", raw, err)
	}
	for _, p := range table.Table.Partitions {
		if p.Name == "root" {
			return rootDisk{raw, p.Start * table.Table.Sector}, nil
		}
	}
	return rootDisk{}, fmt.Errorf("%s has no partition named root", raw)
}

// name is the file system as e2fsprogs take it.
func (d rootDisk) name() string { return fmt.Sprintf("%s?offset=%d", d.file, d.offset) }

// add writes files and links by their paths, and reads all of them back, since debugfs exits with 0 after errors.
func (d rootDisk) add(ctx context.Context, files, links map[string]string, dir string) error {
	var script bytes.Buffer
	fmt.Fprintln(&script, "mkdir /etc/systemd/system/kubelet.service.d")
	for to, from := range files {
		fmt.Fprintf(&script, "cd %s\nwrite %s %s\n", path.Dir(to), from, path.Base(to))
	}
	for at, to := range links {
		fmt.Fprintf(&script, "cd %s\nsymlink %s %s\n", path.Dir(at), path.Base(at), to)
	}
	if err := os.WriteFile(filepath.Join(dir, "debugfs"), script.Bytes(), 0o600); err != nil {
		return err
	}
	if _, err := run.Output(ctx, "debugfs", "-w", "-f", filepath.Join(dir, "debugfs"), d.name()); err != nil {
		return err
	}
	var errs []error
	for to, from := range files {
		errs = append(errs, d.same(ctx, to, from))
	}
	for at, to := range links {
		out, err := run.Output(ctx, "debugfs", "-R", "stat "+at, d.name())
		if err == nil && !bytes.Contains(out, []byte(`Fast link dest: "`+to+`"`)) {
			err = fmt.Errorf("%s is no link to %s: %s", at, to, out)
		}
		errs = append(errs, err)
	}
	_, err := run.Output(ctx, "e2fsck", "-f", "-n", d.name())
	return errors.Join(append(errs, err)...)
}

// same compares the content, mode and owner (root) of a file of the disk with a file of this computer.
func (d rootDisk) same(ctx context.Context, to, from string) error {
	want, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	got, err := run.Output(ctx, "debugfs", "-R", "cat "+to, d.name())
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s has %d bytes on the disk, and not the %d of %s", to, len(got), len(want), from)
	}
	stat, err := run.Output(ctx, "debugfs", "-R", "stat "+to, d.name())
	if err != nil {
		return err
	}
	fields := strings.Join(strings.Fields(string(stat)), " ")
	if mode := fmt.Sprintf("Mode: 0%o ", info.Mode().Perm()); !strings.Contains(fields, mode) || !strings.Contains(fields, "User: 0 Group: 0 ") {
		return fmt.Errorf("%s on the disk is not root's with the mode %o: %s", to, info.Mode().Perm(), fields)
	}
	return nil
}

// TestKubeadmUnits has systemd read the units that a user of kubeadm would bake.
func TestKubeadmUnits(t *testing.T) {
	t.Parallel()
	analyze := need(t, "systemd-analyze", "systemd")
	dir := t.TempDir()
	for to, name := range kubeadmFiles {
		data, err := os.ReadFile(filepath.Join("testdata", "kubeadm", name))
		if err != nil {
			t.Fatal(err)
		}
		unit, ok := strings.CutPrefix(to, "/etc/systemd/system/")
		if !ok {
			continue
		}
		// No program of the image is on this computer.
		text := strings.NewReplacer("/usr/bin/kubelet", "/bin/true", "/usr/local/sbin/kubeadm-boot", "/bin/true").Replace(string(data))
		file := filepath.Join(dir, unit)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, unit := range []string{"kubelet.service", "kubeadm-join.service"} {
		// The units that they are ordered after are the image's. --man=no, since the manual pages are missing too.
		out, err := run.Output(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=no", filepath.Join(dir, unit))
		if err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("systemd-analyze verify %s: %v: %s", unit, err, out)
		}
	}
}
