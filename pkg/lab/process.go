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
)

// Process is a process that can be told from a later one with the same number: by when it started.
type Process struct {
	PID int `json:"pid"`
	// Start is in clock ticks after the computer's boot (proc(5), field 22 of stat).
	Start uint64 `json:"start"`
	// Boot is the computer's boot (/proc/sys/kernel/random/boot_id), since ticks begin anew with it.
	Boot string `json:"boot"`
}

// processOf is the process with this number as it is now; fs.ErrNotExist where there is none. One that has
// ended and that nobody has waited for is none.
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

// Alive reports whether it is this process that runs under its number.
func (p Process) Alive() bool {
	now, err := processOf(p.PID)
	return err == nil && now == p
}

// kill ends the process and waits for it, where it still is that one. A pid that was given to another process
// meanwhile stays untouched: the descriptor is of the process that was compared.
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

// writeProcess records a process, so that whoever comes later can find it.
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

// readProcess reads what writeProcess has recorded; fs.ErrNotExist where it has not.
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

// writeFile puts a file in place at once or not at all; only its owner may read it.
func writeFile(file string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// removeFile removes a file where there is one.
func removeFile(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", file, err)
	}
	return nil
}
