package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

// Process identifies a process. Its start time distinguishes it from a later process with the same number.
type Process struct {
	PID int `json:"pid"`
	// Start is in clock ticks after the computer's boot (proc(5), field 22 of stat).
	Start uint64 `json:"start"`
	// Boot is the computer's boot (/proc/sys/kernel/random/boot_id), since ticks start at zero with each boot.
	Boot string `json:"boot"`
}

// processOf returns the process that has this number now; fs.ErrNotExist if none has it, or if only a zombie has.
func processOf(pid int) (Process, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Process{}, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	// The second field is the program's name in brackets, which may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return Process{}, fmt.Errorf("looking at process %d: its stat has %d fields", pid, len(fields)+2)
	}
	if s := string(fields[0]); s == "Z" || s == "X" {
		return Process{}, fmt.Errorf("looking at process %d: %w: it has ended", pid, fs.ErrNotExist)
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return Process{}, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Process{}, fmt.Errorf("reading the computer's boot id: %w", err)
	}
	return Process{PID: pid, Start: start, Boot: string(bytes.TrimSpace(boot))}, nil
}

// Alive reports whether the process still runs.
func (p Process) Alive() bool {
	now, err := processOf(p.PID)
	return err == nil && now == p
}

// kill ends the process, if it still runs, and waits for it. A process that has got the number meanwhile is not
// touched: the file descriptor is of the process that was compared.
func (p Process) kill() error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening process %d: %w", p.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !p.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending process %d: %w", p.PID, err)
	}
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// writeProcess records a process, so that a later daemon can find it.
func writeProcess(file string, pid int) error {
	p, err := processOf(pid)
	if err != nil {
		return err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("recording process %d: %w", pid, err)
	}
	return writeFile(file, append(text, '\n'))
}

// readProcess reads a process that writeProcess recorded; fs.ErrNotExist if it recorded none.
func readProcess(file string) (Process, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Process{}, fmt.Errorf("reading a recorded process: %w", err)
	}
	var p Process
	if err := json.Unmarshal(text, &p); err != nil || p.PID <= 0 {
		return Process{}, fmt.Errorf("reading a recorded process: %s holds none", file)
	}
	return p, nil
}

// writeFile replaces a file atomically; only its owner may read it.
func writeFile(name string, text []byte) error {
	if _, err := file.Replace(name, text, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// removeFile removes a file; no error if it does not exist.
func removeFile(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", file, err)
	}
	return nil
}
