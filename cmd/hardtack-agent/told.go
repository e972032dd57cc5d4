package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// reportedDir keeps the failures that this boot's units have reported, so that none is reported twice.
const reportedDir = "/run/hardtack/said"

// readerUnit reads the user data. It is the first to report an incomplete configuration.
const readerUnit = "hardtack-userdata.service"

// readConfig reads the machine's configuration and completes it with the facts of its hardware.
func readConfig(root string) (config.Effective, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return config.Effective{}, err
	}
	h := boot.ReadFacts(root)
	return config.Read(root, config.Hardware{Metadata: h.Metadata, Why: h.Why, UserData: h.Digest})
}

// noPhase is for commands that do not end a phase of the boot.
const noPhase timeline.Phase = ""

// unitRun runs try as the body of a unit and reports when it works, which ends the phase. If it fails, the process
// ends and systemd starts it again: a start that never ends would delay the units ordered after it.
func unitRun(ctx context.Context, s streams, verb string, phase timeline.Phase, try func(context.Context) error) error {
	if err := try(ctx); err != nil {
		return fail(s, verb, err)
	}
	reportWorking(s, phase, readerUnit)
	return nil
}

// reportWorking clears the reported failures of the process's unit and of others, and writes a progress line to the console.
// Without a unit, that is, called by a person, it does nothing.
func reportWorking(s streams, phase timeline.Phase, others ...string) {
	if s.unit == "" {
		return
	}
	units := slices.Compact(append([]string{s.unit}, others...))
	reason.Reporter{Dir: reportedDir}.Clear(units...)
	progress(s, phase, units...)
}

// progress writes the progress line for units that work now. Failing to write to the console is not an error.
func progress(s streams, phase timeline.Phase, units ...string) {
	_ = timeline.Progress{Phase: phase, Units: units, At: int64(systemd.Monotonic() / 1000)}.Write(s.out)
}

// reportedError is an error that the console has already, so that a unit that systemd restarts does not repeat it.
type reportedError struct{ error }

func (e reportedError) Unwrap() error { return e.error }

// fail reports an error of a command on the console, and returns the error to print. It does not report a wrong
// command line, which a test of the unit finds.
func fail(s streams, verb string, err error) error {
	var usage usageError
	if errors.As(err, &usage) || errors.Is(err, context.Canceled) {
		return err
	}
	written, writeErr := reportFailure(s, verb, err)
	if !written && writeErr == nil {
		return reportedError{err}
	}
	return errors.Join(err, writeErr)
}

// reportFailure writes the line of a failure, once for each cause, even if several units fail for it. written is false
// if the line was written before.
func reportFailure(s streams, verb string, err error) (written bool, writeErr error) {
	if s.unit == "" {
		return true, reason.Explain("hardtack-agent "+verb, err).Write(s.out)
	}
	return reason.Reporter{Dir: reportedDir}.Report(s.out, reason.Explain(s.unit, err))
}

// learn completes the machine's configuration with the cluster's own facts.
func (f *certsFlags) learn(ctx context.Context, s streams) (err error) {
	f.effective, err = certs.Learn(ctx, certs.LearnOptions{Root: f.root, Roles: f.roles, Config: f.effective, Store: f.store, Member: instanceMember(f.root),
		Patience: f.patience, Status: systemd.Status, Log: logger(s.err, f.verbose)})
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
	defer client.Close()
	value, why, err = client.Tag(ctx, key)
	return value, why, reason.With(reason.Metadata, err)
}

// configCommand is hardtack-agent config.
func configCommand(ctx context.Context, args []string, s streams) error {
	flags := flag.NewFlagSet("config", flag.ContinueOnError)
	root := flags.String("root", "/", "")
	asJSON := flags.Bool("json", false, "")
	if done, err := parseFlags(flags, args, s); done || err != nil {
		return err
	}
	effective, err := readConfig(*root)
	if err != nil {
		return fail(s, "config", err)
	}
	asked, err := askInstance(ctx, *root, effective)
	if err != nil {
		return fail(s, "config", err)
	}
	effective.Values = append(effective.Values, asked...)
	if effective.CAFile == "" {
		if _, err := os.Stat(filepath.Join("/", *root, config.CAFile)); err == nil {
			effective.Values = append(effective.Values, config.Value{Field: "caFile", Value: config.CAFile, From: config.FromStore, Where: effective.Store})
		}
	}
	return printConfig(s.out, effective, *asJSON)
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
