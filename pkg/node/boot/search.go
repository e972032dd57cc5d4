package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
)

// The sources of user data.
const (
	sourceCredential = "credential"
	sourceSeed       = "seed"
	sourceVolume     = "volume"
	sourceFile       = "file"
	sourceIMDS       = "imds"
)

// The options of the kernel command line. OptionSource names the sources to ask, separated by commas
// and in that order, instead of all of them; OptionIMDS is the endpoint of the metadata service. (User
// data itself can stand there too, as systemd.set_credential=hardtack.userdata:…, which is systemd's.)
const (
	OptionSource = "hardtack.userdata"
	OptionIMDS   = "hardtack.imds"
)

// The names of the systemd credentials.
const (
	CredentialUserData   = "hardtack.userdata"
	CredentialInstanceID = "hardtack.instance-id"
)

// The places below the root directory.
const (
	systemCredentials = "/run/credentials/@system"
	seedDir           = "/var/lib/cloud/seed"
	userDataFile      = "/etc/hardtack/user-data"
)

// seedNames are the directories in which cloud-init looks for a NoCloud seed, in its order.
var seedNames = []string{"nocloud", "nocloud-net"}

// source is one place that may have user data.
type source struct {
	name string
	// read returns the user data, an absentError where the source is not there or is empty, or any other
	// error where it is there and cannot be read.
	read func(context.Context) (foundData, error)
}

// foundData is the user data of one source. instanceID may be empty and launchIndex nil.
type foundData struct {
	source, from string
	data         []byte
	instanceID   string
	launchIndex  *int
}

// absentError is the reason why a source has no user data.
type absentError string

func (e absentError) Error() string { return string(e) }

// unreadableError is a source that exists but cannot be read.
type unreadableError struct {
	source string
	err    error
}

func (e *unreadableError) Error() string { return e.source + ": " + e.err.Error() }
func (e *unreadableError) Unwrap() error { return e.err }

// agent is one run.
type agent struct {
	root, credentials string
	newMetadata       func(string) (Metadata, error)
	noUserData        error
	deadline          time.Duration
	dryRun            bool
	log               *slog.Logger
	machine           machine
	kernel            map[string]string
	// sealed: the kernel was told the root hash, so that only /etc, /var and /run are written to, and /etc is new at each boot.
	sealed bool
	units  func(context.Context) (Units, error)
	// before is the state of the last run.
	before   state
	appended *appended
}

func newAgent(o Options) *agent {
	a := &agent{root: o.Root, credentials: o.Credentials, newMetadata: o.Metadata, noUserData: o.NoUserData,
		deadline: o.Deadline, dryRun: o.DryRun, log: o.Log, units: o.Units}
	if a.root == "" {
		a.root = "/"
	}
	if a.deadline == 0 {
		a.deadline = DefaultDeadline
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.machine = a.readMachine()
	a.kernel, a.sealed = a.kernelOptions()
	return a
}

// path is a machine's path below the root directory.
func (a *agent) path(name string) string { return filepath.Join(a.root, name) }

// sources lists every source in the order in which they are tried: those of this one machine
// first, then those of the image, and the network, which may cost two minutes, last.
func (a *agent) sources() []source {
	return []source{
		{sourceCredential, a.readCredential},
		{sourceSeed, a.readSeed},
		{sourceVolume, a.readVolume},
		{sourceFile, a.readUserDataFile},
		{sourceIMDS, a.readIMDS},
	}
}

// search tries the sources in order. The first that has user data is used. One that exists and cannot be read ends the
// search, since the next one might hold the user data of another machine.
func (a *agent) search(ctx context.Context, report *Report) (foundData, error) {
	chosen, err := a.selectedSources()
	if err != nil {
		return foundData{}, err
	}
	for _, s := range chosen {
		f, err := s.read(ctx)
		var absent absentError
		switch {
		case errors.As(err, &absent):
		case err != nil:
			return foundData{}, &unreadableError{s.name, err}
		case len(strings.TrimSpace(string(f.data))) == 0:
			absent = absentError(f.from + " is empty")
		default:
			f.source = s.name
			if f.instanceID == "" {
				f.instanceID = a.machine.id
			}
			return f, nil
		}
		a.log.DebugContext(ctx, "source not used", "source", s.name, "reason", string(absent))
		report.Tried = append(report.Tried, Tried{s.name, string(absent)})
	}
	return foundData{}, errors.New("no source has user data")
}

// selectedSources returns the sources that the kernel command line names, or all.
func (a *agent) selectedSources() ([]source, error) {
	all := a.sources()
	value, ok := a.kernel[OptionSource]
	if !ok {
		return all, nil
	}
	var out []source
	for name := range strings.SplitSeq(value, ",") {
		i := slices.IndexFunc(all, func(s source) bool { return s.name == name })
		if i < 0 {
			var names []string
			for _, s := range all {
				names = append(names, s.name)
			}
			return nil, &reason.Error{Reason: reason.UserData, Next: correctKernelLine,
				Err: fmt.Errorf("kernel command line: %s=%s: source %q is not known: the sources are %s", OptionSource, value, name, strings.Join(names, ", "))}
		}
		out = append(out, all[i])
	}
	return out, nil
}

// correctKernelLine is the advice where an option of the kernel command line is wrong.
const correctKernelLine = "correct the kernel command line (cat /proc/cmdline shows it) in the boot loader's entry, and restart the machine"

// isSelected reports whether the kernel command line names the source.
func (a *agent) isSelected(source string) bool {
	return slices.Contains(strings.Split(a.kernel[OptionSource], ","), source)
}

// rootHashArgument is the argument of the kernel by which a machine has a sealed root: sealed.Argument, of whose package the reader
// needs nothing else.
const rootHashArgument = "roothash"

// kernelOptions reads the options of the kernel command line that are ours, of which the last of a name counts, and whether it
// has a root hash.
func (a *agent) kernelOptions() (options map[string]string, sealed bool) {
	options = map[string]string{}
	line, err := os.ReadFile(a.path("/proc/cmdline"))
	if err != nil {
		return options, false // a container without /proc has no kernel command line of its own
	}
	for word := range strings.FieldsSeq(string(line)) {
		name, value, ok := strings.Cut(word, "=")
		if ok && strings.HasPrefix(name, "hardtack.") {
			options[name] = strings.Trim(value, `"`)
		}
		sealed = sealed || ok && name == rootHashArgument
	}
	return options, sealed
}

func (a *agent) readCredential(context.Context) (foundData, error) {
	dirs := []string{a.path(systemCredentials)}
	if a.credentials != "" {
		dirs = append([]string{a.credentials}, dirs...)
	}
	for _, dir := range dirs {
		file := filepath.Join(dir, CredentialUserData)
		data, err := readFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return foundData{}, err
		}
		id, err := readFile(filepath.Join(dir, CredentialInstanceID))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return foundData{}, err
		}
		return foundData{from: file, data: data, instanceID: strings.TrimSpace(string(id))}, nil
	}
	return foundData{}, absentError("no credential " + CredentialUserData + " in " + strings.Join(dirs, " or "))
}

// readSeed reads the seed's directory. Below a sealed root that is on the state partition, which lasts when everything else of a
// machine is made anew: whoever has once written there would have the machine for good.
func (a *agent) readSeed(context.Context) (foundData, error) {
	if a.sealed && !a.isSelected(sourceSeed) {
		return foundData{}, absentError("not looked for, since the root is sealed and " + seedDir + " is not part of it")
	}
	for _, name := range seedNames {
		dir := a.path(filepath.Join(seedDir, name))
		read := func(file string) ([]byte, error) { return readFile(filepath.Join(dir, file)) }
		f, err := readNoCloud(read, filepath.Join(dir, "user-data"))
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return foundData{}, absentError(fmt.Sprintf("no user-data in %s/{%s}", a.path(seedDir), strings.Join(seedNames, ",")))
}

// readNoCloud reads the two files of a NoCloud seed that count here; the error matches fs.ErrNotExist
// where there is no user-data. Unlike cloud-init it does not insist on meta-data.
func readNoCloud(read func(string) ([]byte, error), from string) (foundData, error) {
	data, err := read("user-data")
	if err != nil {
		return foundData{}, err
	}
	meta, err := read("meta-data")
	if errors.Is(err, fs.ErrNotExist) {
		return foundData{from: from, data: data}, nil
	}
	if err != nil {
		// Not to be taken for a missing user-data by the caller, whatever it is.
		return foundData{}, fmt.Errorf("reading meta-data beside %s: %w", from, err)
	}
	seed, err := userdata.ParseSeed(meta)
	if err != nil {
		return foundData{}, fmt.Errorf("%s: %w", from, err)
	}
	return foundData{from: from, data: data, instanceID: seed.InstanceID, launchIndex: seed.LaunchIndex}, nil
}

func (a *agent) readUserDataFile(context.Context) (foundData, error) {
	file := a.path(userDataFile)
	data, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return foundData{}, absentError("no " + file)
	}
	return foundData{from: file, data: data}, err
}

func (a *agent) readIMDS(ctx context.Context) (foundData, error) {
	if !a.machine.ec2 && !a.isSelected(sourceIMDS) {
		return foundData{}, absentError(fmt.Sprintf("not asked, since %s; %s=%s on the kernel command line asks it all the same",
			a.machine.why, OptionSource, sourceIMDS))
	}
	client, err := a.newMetadata(a.kernel[OptionIMDS])
	if err != nil {
		return foundData{}, &reason.Error{Reason: reason.Metadata, Next: correctKernelLine, Err: fmt.Errorf("kernel command line: %s: %w", OptionIMDS, err)}
	}
	a.log.InfoContext(ctx, "asking the instance metadata service", "deadline", a.deadline, "since", a.machine.why)
	ctx, cancel := context.WithTimeoutCause(ctx, a.deadline, fmt.Errorf("no answer within %v", a.deadline))
	defer cancel()
	id, err := client.InstanceID(ctx)
	if err != nil && !errors.Is(err, a.noUserData) {
		return foundData{}, err
	}
	data, err := client.UserData(ctx)
	if errors.Is(err, a.noUserData) && a.before.Source == sourceIMDS && a.machine.id != "" && a.isMachine(a.before) {
		if data, err = a.askAgain(ctx, client); errors.Is(err, a.noUserData) {
			return foundData{}, fmt.Errorf("%w; it had user data at the last boot, and an instance's user data does not go by itself. "+
				"(To take its roles from a machine, start it with the user data \"#cloud-config\" or replace it)", err)
		}
	}
	if errors.Is(err, a.noUserData) {
		return foundData{}, absentError("the instance " + id + " was started without user data")
	}
	found := foundData{from: "the instance metadata service", data: data, instanceID: id}
	if err != nil || !userdata.NeedsLaunchIndex(data) {
		return found, err
	}
	index, err := client.LaunchIndex(ctx)
	if errors.Is(err, a.noUserData) {
		return found, nil // Parse says what that means
	}
	found.launchIndex = &index
	return found, err
}

// The retries where the metadata service denies that there is user data. A service that starts can be wrong for
// seconds; the machine keeps its roles afterwards, so that its boot need not wait for long.
const (
	denials    = 5
	denialWait = 2 * time.Second
)

// askAgain asks a service for user data that it had at the last boot and denies now.
func (a *agent) askAgain(ctx context.Context, client Metadata) (data []byte, err error) {
	for range denials {
		a.log.WarnContext(ctx, "the metadata service says that there is no user data, and there was at the last boot: asking again")
		select {
		case <-time.After(min(denialWait, a.deadline/(denials+1))):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if data, err = client.UserData(ctx); !errors.Is(err, a.noUserData) {
			return data, err
		}
	}
	return nil, err
}

// readFile reads a regular file within the bound of user data.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return readBounded(f, name)
}

func readBounded(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, userdata.MaxInput+1))
	if err != nil {
		return nil, err
	}
	if len(data) > userdata.MaxInput {
		return nil, fmt.Errorf("%s is over the bound of %d bytes", name, userdata.MaxInput)
	}
	return data, nil
}
