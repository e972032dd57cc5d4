package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

// The names of files and directories in a lab's directory.
const (
	lockFile    = "lock"
	startFile   = "starting"
	socketFile  = "api.sock"
	daemonFile  = "daemon.json"
	logFile     = "daemon.log"
	machinesDir = "machines"
	volumesDir  = "volumes"
	registryDir = "registry"
	// KubeconfigFile is the kubeconfig for this computer: an administrator's certificate and the API's forwarded port.
	KubeconfigFile = "kubeconfig"
)

// ErrNotRunning means that the lab's daemon does not run.
var ErrNotRunning = errors.New("the lab is not running (hardtack lab up starts it)")

// ErrRunning means that the lab's daemon runs already.
var ErrRunning = errors.New("the lab is running already (hardtack lab status shows it, hardtack lab down ends it)")

// labName is a DNS label, since it is a directory's name and part of machines' names.
var labName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// Home is the directory of one lab. It is made at the first start, with mode 0700, since it holds secrets.
type Home struct {
	Name string
	Dir  string
}

// DefaultRoot is the directory of all labs: $XDG_STATE_HOME/hardtack/labs, with ~/.local/state if the variable is not
// set.
func DefaultRoot(getenv func(string) string) (string, error) {
	state := getenv("XDG_STATE_HOME")
	if state == "" {
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("finding the labs' directory: neither XDG_STATE_HOME nor HOME is set")
		}
		state = filepath.Join(home, ".local", "state")
	}
	if !filepath.IsAbs(state) {
		return "", fmt.Errorf("finding the labs' directory: XDG_STATE_HOME %q is not an absolute path", state)
	}
	return filepath.Join(state, "hardtack", "labs"), nil
}

// NewHome returns the lab with this name below root. It makes no directory. An error if the name is not a DNS label.
func NewHome(root, name string) (Home, error) {
	if !labName.MatchString(name) {
		return Home{}, fmt.Errorf("%q is no name of a lab: up to 32 lower-case letters, digits and hyphens", name)
	}
	return Home{Name: name, Dir: filepath.Join(root, name)}, nil
}

// Homes lists the labs below root by name, running or not.
func Homes(root string) ([]Home, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the labs: %w", err)
	}
	var homes []Home
	for _, e := range entries {
		if h, err := NewHome(root, e.Name()); err == nil && e.IsDir() {
			homes = append(homes, h)
		}
	}
	slices.SortFunc(homes, func(a, b Home) int { return cmp.Compare(a.Name, b.Name) })
	return homes, nil
}

func (h Home) path(name ...string) string { return filepath.Join(append([]string{h.Dir}, name...)...) }

// Kubeconfig is the path of the kubeconfig that `hardtack lab kubectl` uses.
func (h Home) Kubeconfig() string { return h.path(KubeconfigFile) }

// Log is the path of the daemon's log.
func (h Home) Log() string { return h.path(logFile) }

// machine is the directory of one machine's disk, console and journal.
func (h Home) machine(id string) string { return h.path(machinesDir, id) }

func (h Home) make() error {
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return fmt.Errorf("making the lab's directory: %w", err)
	}
	// An existing directory may have another mode.
	if err := os.Chmod(h.Dir, 0o700); err != nil {
		return fmt.Errorf("closing the lab's directory to others: %w", err)
	}
	return nil
}

// lock takes the lab for this process; ErrRunning if another process has it. Closing the file releases it, at the
// latest the end of the process.
func (h Home) lock() (*os.File, error) { return h.lockBy(lockFile) }

// lockBy is lock, by this file in the lab's directory.
func (h Home) lockBy(name string) (*os.File, error) {
	f, err := os.OpenFile(h.path(name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lab's lock: %w", err)
	}
	err = file.TryLock(f)
	if errors.Is(err, file.ErrLocked) {
		_ = f.Close()
		return nil, ErrRunning
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking the lab: %w", err)
	}
	return f, nil
}

// shortPath opens the directory and returns a path to it that is short enough for a socket's address, which has at most
// 107 bytes. The path is valid until closed is called.
func (h Home) shortPath() (path string, closed func(), err error) {
	fd, err := unix.Open(h.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("opening the lab's directory: %w", err)
	}
	return "/proc/self/fd/" + strconv.Itoa(fd), func() { _ = unix.Close(fd) }, nil
}

// Running reports whether the lab's daemon runs.
func (h Home) Running() (bool, error) {
	if _, err := os.Stat(h.path(lockFile)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock, err := h.lock()
	if errors.Is(err, ErrRunning) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, lock.Close()
}

// Gone waits until the lab's daemon has ended.
func (h Home) Gone(ctx context.Context) error {
	for {
		runs, err := h.Running()
		if err != nil || !runs {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
