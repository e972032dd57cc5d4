package systemd

import "golang.org/x/sys/unix"

// Monotonic returns CLOCK_MONOTONIC in microseconds, the clock of the manager's timestamps.
func Monotonic() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // Linux has this clock
	}
	return uint64(t.Sec)*1e6 + uint64(t.Nsec)/1e3
}
