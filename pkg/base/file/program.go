package file

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// WriteProgram makes a file of mode 0755 that can be run at once. A process that another goroutine starts while the file is open for
// writing has it open too, until it runs its own program; whoever runs the file meanwhile gets ETXTBSY ("text file busy"). No
// process is started while it is written, as syscall.ForkLock offers: content must not come from a process that is still to be started.
func WriteProgram(name string, content io.Reader) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
