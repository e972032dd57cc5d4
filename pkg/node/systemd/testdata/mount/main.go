// Command mount mounts a file system as the agent does: mount WHAT WHERE KIND OPTIONS.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
)

func main() {
	if err := mount(os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func mount(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	m, err := systemd.NewManager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Mount(ctx, args[0], args[1], args[2], args[3])
}
