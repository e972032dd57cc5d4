package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/registry"
)

const (
	// credentialsPatience ends before the kubelet's own, which is a minute and leaves no word of why.
	credentialsPatience = 50 * time.Second
	// maxRequest is more than any request of a kubelet has, in bytes.
	maxRequest = 1 << 20
)

// credentialsCommand is hardtack-agent credentials. The kubelet runs it when it pulls an image of a registry that has credentials, and keeps the
// answer for registry.CacheDuration. They come from the store each time, so that none are on the machine's disk, and a machine that pulls nothing
// private asks for none.
func credentialsCommand(ctx context.Context, args []string, s command.Streams) error {
	flags := flag.NewFlagSet("credentials", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	root := flags.String("root", "/", "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, err := io.WriteString(s.Out, usage)
		return err
	case err != nil:
		return command.UsageError{Err: fmt.Errorf("credentials: %w", err)}
	case flags.NArg() == 0:
		return command.UsageError{Err: errors.New("credentials: name the registries, as in docker.io=mirror.example.org")}
	}
	sources, err := pki.ParseRegistrySources(flags.Args())
	if err != nil {
		return command.UsageError{Err: fmt.Errorf("credentials: %w", err)}
	}
	data, err := io.ReadAll(io.LimitReader(os.Stdin, maxRequest))
	if err != nil {
		return fmt.Errorf("reading the kubelet's request: %w", err)
	}
	asked, err := registry.ParseRequest(data, sources)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, credentialsPatience, fmt.Errorf("gave up after %v", credentialsPatience))
	defer cancel()
	effective, secrets, err := credentialsStore(ctx, *root)
	if err != nil {
		return err
	}
	answer, err := registry.Answer(ctx, secrets, asked, effective.Cluster)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "%s\n", answer)
	return err
}

// credentialsStore opens the store of the machine's configuration.
func credentialsStore(ctx context.Context, root string) (config.Effective, registry.Reader, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return config.Effective{}, nil, err
	}
	effective, err := command.ReadConfig(root)
	if err != nil {
		return config.Effective{}, nil, err
	}
	secrets, err := openStore(ctx, root, effective, 0)
	return effective, secrets, err
}
