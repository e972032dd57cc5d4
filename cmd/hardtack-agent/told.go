package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// unitRun runs try as the body of a unit and reports when it works, which ends the phase. If it fails, the process
// ends and systemd starts it again: a start that never ends would delay the units ordered after it.
func unitRun(ctx context.Context, s command.Streams, verb string, phase timeline.Phase, try func(context.Context) error) error {
	if err := try(ctx); err != nil {
		return s.Fail("hardtack-agent "+verb, err)
	}
	s.Works(phase, command.ReaderUnit)
	return nil
}

// learn completes the machine's configuration with the cluster's own facts.
func (f *certsFlags) learn(ctx context.Context, s command.Streams) (err error) {
	f.effective, err = certs.Learn(ctx, certs.LearnOptions{Root: f.root, Roles: f.roles, Config: f.effective, Store: f.secrets, Member: instanceMember(f.root),
		Masters: f.announced(s), Patience: f.patience, Status: systemd.Status, Log: s.Logger(f.verbose)})
	return err
}

// instanceMember returns a function that reads the etcd member's name from the instance's tags; nil if the machine has
// no metadata service.
func instanceMember(root string) func(context.Context) (string, string, error) {
	if !boot.ReadFacts(root).Metadata {
		return nil
	}
	return func(ctx context.Context) (string, string, error) {
		return instanceTag(ctx, root, role.TagEtcdMember)
	}
}

// instanceTag reads a tag of the instance. If value is empty, why explains it.
func instanceTag(ctx context.Context, root, key string) (value, why string, err error) {
	client, err := imds.New(imds.Options{Endpoint: boot.ReadFacts(root).Endpoint})
	if err != nil {
		return "", "", err
	}
	value, why, err = client.Tag(ctx, key)
	return value, why, reason.With(reason.Metadata, err)
}

// configCommand is hardtack-agent config.
func configCommand(ctx context.Context, args []string, s command.Streams) error {
	flags := flag.NewFlagSet("config", flag.ContinueOnError)
	root := flags.String("root", "/", "")
	asJSON := flags.Bool("json", false, "")
	if done, err := command.ParseFlags(flags, args, s, usage); done || err != nil {
		return err
	}
	effective, err := command.ReadConfig(*root)
	if err != nil {
		return s.Fail("hardtack-agent config", err)
	}
	asked, err := askInstance(ctx, *root, effective)
	if err != nil {
		return s.Fail("hardtack-agent config", err)
	}
	effective.Values = append(effective.Values, asked...)
	if effective.CAFile == "" {
		if _, err := os.Stat(filepath.Join("/", *root, config.CAFile)); err == nil {
			effective.Values = append(effective.Values, config.Value{Field: "caFile", Value: config.CAFile, From: config.FromStore, Where: effective.Store})
		}
	}
	return printConfig(s.Out, effective, *asJSON)
}

// askInstance reads from the instance the values that only its tags have.
func askInstance(ctx context.Context, root string, effective config.Effective) (out []config.Value, err error) {
	if !boot.ReadFacts(root).Metadata {
		return nil, nil
	}
	ask := map[string]string{}
	if effective.Group == "" {
		ask[role.TagGroup] = "group"
	}
	if effective.Etcd.Member == "" && effective.Roles.Has(role.Etcd) && len(effective.Etcd.Members) > 0 {
		ask[role.TagEtcdMember] = "etcd.member"
	}
	for _, tag := range []string{role.TagGroup, role.TagEtcdMember} {
		if ask[tag] == "" {
			continue
		}
		value, why, err := instanceTag(ctx, root, tag)
		if err != nil {
			return nil, err
		}
		if value != "" {
			why = "its tag " + tag
		}
		out = append(out, config.Value{Field: ask[tag], Value: value, From: config.FromInstance, Where: why})
	}
	return out, nil
}

// printConfig prints every value with its source.
func printConfig(w io.Writer, effective config.Effective, asJSON bool) error {
	if asJSON {
		return printJSON(w, struct {
			Roles      role.Set       `json:"roles"`
			ConfigHash string         `json:"config_hash"`
			Values     []config.Value `json:"values"`
		}{effective.Roles, effective.ConfigHash, effective.Values})
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIELD\tVALUE\tFROM\tWHERE")
	for _, v := range effective.Values {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.Field, v.Value, v.From, v.Where)
	}
	return t.Flush()
}

// logConfig logs every value with its source.
func logConfig(ctx context.Context, log *slog.Logger, effective config.Effective) {
	for _, v := range effective.Values {
		log.InfoContext(ctx, "told", "field", v.Field, "value", v.Value, "from", string(v.From), "where", v.Where)
	}
}
