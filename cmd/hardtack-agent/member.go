package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsconfig"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/backup"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/gateway"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/volume"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// memberEnvironment is the file without which etcd's unit does not start.
const memberEnvironment = "/run/hardtack/etcd/member"

// memberAnswer bounds an answer of the store or of a member: a TLS handshake takes seconds on an emulated processor during
// the boot.
const memberAnswer = 10 * time.Second

// memberCommand is hardtack-agent member.
func memberCommand(ctx context.Context, args []string, s command.Streams) error {
	var f certsFlags
	if done, err := f.parse("member", certsPatience, args, s); done || err != nil {
		return err
	}
	f.role = string(role.Etcd)
	var c member.Config
	err := unitRun(ctx, s, "member", command.NoPhase, func(ctx context.Context) (err error) {
		if err := f.open(ctx, s); err != nil {
			return err
		}
		c, err = f.member(ctx)
		return err
	})
	if err != nil {
		return err
	}
	says := &memberSays{Streams: s, member: c.Member, log: s.Logger(f.verbose), reports: make(chan member.Report)}
	c.Say = func(r member.Report) {
		select {
		case says.reports <- r:
		case <-ctx.Done():
		}
	}
	go says.run(ctx)
	return member.New(c).Run(ctx)
}

// member returns what the machine's member is and acts with, from the machine's configuration.
func (f *certsFlags) member(ctx context.Context) (member.Config, error) {
	manager, err := systemd.NewManager(ctx)
	if err != nil {
		return member.Config{}, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return member.Config{}, err
	}
	owner, err := etcdOwner()
	if err != nil {
		return member.Config{}, err
	}
	file := func(name string) string { return filepath.Join(f.root, pki.Dir, pki.DirEtcd, name) }
	files := gateway.Files{CA: file("ca" + pki.Crt), Certificate: file("server" + pki.Crt), Key: file("server" + pki.Key)}
	told := f.effective
	backups, err := f.backups()
	if err != nil {
		return member.Config{}, err
	}
	c := member.Config{
		Cluster: told.Cluster, Member: told.Etcd.Member, PeerURL: machine.EtcdPeerURL(told.Cluster, told.Etcd.Member, told.Etcd.Members),
		Instance: cmp.Or(boot.ReadFacts(f.root).Hardware, hostname), Storage: etcd.StorageMachine,
		Dir: filepath.Join(f.root, etcd.Dir), Owner: owner, Environment: filepath.Join(f.root, memberEnvironment),
		Own:   fmt.Sprintf("https://127.0.0.1:%d", role.EtcdClientPort),
		Peers: told.Etcd.PeerURLs(told.Cluster), Backups: backups, BackupEvery: told.Etcd.BackupsEvery(),
		Records: f.store, Service: etcdService{manager}, Peer: files.Peer, Clock: clock.System{}, Answer: memberAnswer,
	}
	return c, f.storage(ctx, &c, manager)
}

// etcdutl is the image's.
const etcdutl = "/usr/bin/etcdutl"

// backups are where the cluster's backups are; nil if its document names no place.
func (f *certsFlags) backups() (member.Backups, error) {
	told := f.effective
	if told.Etcd.Backup == "" {
		return nil, nil
	}
	endpoint, err := systemd.Credential(awsEndpoint)
	if err != nil {
		return nil, err
	}
	at, err := machine.LocateBackups(told.Cluster, told.Etcd.Backup)
	if err != nil {
		return nil, err
	}
	here := awsconfig.Machine{Endpoint: endpoint, Metadata: boot.ReadFacts(f.root).Endpoint, Region: at.Region}
	place, err := backup.Open(at.String(), backup.Options{Cluster: told.Cluster, Load: here.Load, Account: func(ctx context.Context) (string, error) {
		self, err := here.Identity(ctx)
		return self.AccountID, err
	}})
	if err != nil {
		return nil, err
	}
	return &backup.Keeper{Place: place, Cluster: told.Cluster, Scratch: filepath.Join(f.root, etcd.Dir, etcd.BackupDir), Program: filepath.Join(f.root, etcdutl), Clock: clock.System{}}, nil
}

// etcdOwner is the user that etcd runs as.
func etcdOwner() (member.Owner, error) {
	u, err := user.Lookup(string(role.Etcd))
	if err != nil {
		return member.Owner{}, fmt.Errorf("looking for etcd's user: %w", err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return member.Owner{UID: uid, GID: gid}, errors.Join(err1, err2)
}

// storage says where the member's data are, and how its disk is found.
func (f *certsFlags) storage(ctx context.Context, c *member.Config, manager *systemd.Manager) error {
	switch told := f.effective; told.Etcd.Storage {
	case machine.StorageVolume:
		endpoint, err := systemd.Credential(awsEndpoint)
		if err != nil {
			return err
		}
		volumes := volume.NewEC2(volume.Options{Endpoint: endpoint, Metadata: boot.ReadFacts(f.root).Endpoint, Cluster: c.Cluster, Member: c.Member})
		self, err := volumes.Identity(ctx)
		if err != nil {
			return err
		}
		c.Storage, c.Volumes, c.Instance = etcd.StorageVolume, volumes, self.InstanceID
	case machine.StorageDisk:
		c.Storage, c.Volumes = etcd.StorageDisk, volume.Local{Name: path.Base(told.Etcd.Disk), Instance: c.Instance}
	default:
		return nil
	}
	c.Disk = &volume.Disk{Mounter: manager, Where: c.Dir}
	return nil
}

// etcdService is etcd's unit.
type etcdService struct{ manager *systemd.Manager }

// etcdUnit is the unit of the role's only check.
var etcdUnit = role.Etcd.Profile().Checks[0].Unit

// panicked is the exit status of a Go program that panics (runtime/panic.go). etcd's own fatal errors (no space, no certificate)
// end it with 1.
const panicked = 2

// State is whether the unit was started, which it also is while it waits for its next try.
func (e etcdService) State(ctx context.Context) (member.State, error) {
	unit, err := e.manager.Unit(ctx, etcdUnit)
	if err != nil {
		return member.State{}, err
	}
	s := member.State{Running: unit.Active != "inactive" && unit.Active != "failed", Failing: unit.Sub == "auto-restart", Ends: int(unit.Restarts)}
	if s.Failing {
		s.Ends++ // systemd counts when it starts the unit again
		s.Panicked = unit.Result == "exit-code" && unit.Exit == panicked
	}
	return s, nil
}

// startTime is how long a start may be queued: the unit is ordered after others that are being started.
const startTime = 2 * time.Minute

// Start returns once the unit has begun to start.
func (e etcdService) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("%s did not begin to start within %v", etcdUnit, startTime))
	defer cancel()
	if err := e.manager.Start(ctx, etcdUnit); err != nil {
		return reason.With(reason.Etcd, err)
	}
	for {
		state, err := e.State(ctx)
		if state.Running || err != nil {
			return reason.With(reason.Etcd, err)
		}
		if err := (clock.System{}).Sleep(ctx, 20*time.Millisecond); err != nil {
			return reason.With(reason.Etcd, context.Cause(ctx))
		}
	}
}

// Stop returns once the unit has ended.
func (e etcdService) Stop(ctx context.Context) error {
	return reason.With(reason.Etcd, e.manager.Stop(ctx, etcdUnit))
}

// memberSays tells people what the member does and waits for: the journal each step, the unit's status what is waited for,
// and the console what has not passed.
type memberSays struct {
	command.Streams
	member  string
	log     *slog.Logger
	reports chan member.Report
}

// unusual is how long a wait lasts before the console has a line about it: members wait for each other during every first
// boot.
const unusual = time.Minute

// run waits for the next report, or until the last one is unusual.
func (m *memberSays) run(ctx context.Context) {
	var late <-chan time.Time
	var waited error
	for ready := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-late:
			_, _ = m.Report("hardtack-agent member", waited) // failing to write to the console does not end the wait
		case r := <-m.reports:
			if r.Step == member.StepBackup || r.Step == member.StepDrill {
				m.backup(ctx, r.Step, r.Err)
				continue
			}
			waited, late = waitsFor(r), nil
			m.log.InfoContext(ctx, r.Step, "row", r.Action.Row.String(), "waits", waited)
			runs := r.Action.Row == etcd.SRuns
			switch {
			case waited != nil:
				systemd.Status(reason.Status(waited))
				late = time.After(unusual)
			case runs:
				systemd.Status("member " + m.member + " runs")
				m.Works(command.NoPhase, command.ReaderUnit)
			}
			if runs && !ready && (waited == nil || r.Err == nil) { // with an alarm, it runs nevertheless
				ready = true
				systemd.Ready()
			}
		}
	}
}

// backup tells of a backup, or of one that was taken back for a drill. The unit is none the worse for one that failed: the
// console alone says so.
func (m *memberSays) backup(ctx context.Context, step string, err error) {
	m.log.InfoContext(ctx, step, "error", err)
	if err == nil {
		m.Works(command.NoPhase)
		return
	}
	_, _ = m.Report("hardtack-agent member", reason.With(reason.Backup, err)) // failing to write to the console does not end the member
}

// waitsFor is what a member waits for, as an error with a reason; nil if it goes on.
func waitsFor(r member.Report) error {
	err := r.Err
	idle := r.Action.Do == etcd.Wait || r.Action.Do == etcd.Stop || r.Action.Do == etcd.Join || r.Action.Do == etcd.Report && r.Why.Reason != ""
	if idle && r.Why.Cause != "" {
		err = errors.New(r.Why.Cause)
		if r.Err != nil {
			err = fmt.Errorf("%s: %w", r.Why.Cause, r.Err)
		}
	}
	var has *reason.Error
	switch {
	case err == nil || errors.As(r.Err, &has): // what failed knows more
		return err
	case r.Why.Reason != "":
		return &reason.Error{Reason: reason.Reason(r.Why.Reason), Err: err, Next: r.Why.Next}
	case errors.Is(err, pki.ErrForbidden):
		return reason.With(reason.Permission, err)
	case errors.Is(err, pki.ErrUnreachable):
		return reason.With(reason.Store, err)
	}
	return reason.With(reason.Membership, err)
}
