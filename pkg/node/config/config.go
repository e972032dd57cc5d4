// Package config computes the effective configuration of a machine: from its role files, the machine file if there is
// one, the image's own files, and the hardware.
//
// Its rule: a role file is enough, and each value says where it comes from. Two sources that disagree are an error that
// names both; a value that no source has is an error that names the line to write, and where. The package only reads
// files: values that only the instance or the cluster's store has stay empty here.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/envfile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The files that the agent writes from public objects of the cluster's store.
const (
	// InfoFile has the cluster's own facts, after they were compared with the machine's.
	InfoFile = "/run/hardtack/cluster-info.yaml"
	// CAFile is the cluster's public CA, unless the user data has one.
	CAFile = "/run/hardtack/ca.crt"
)

// The lines of a role file that are the agent's, beside role.ClusterVariable. The others are the units'.
const (
	StoreVariable  = "STORE"
	CAVariable     = "CA_FILE"
	MemberVariable = "ETCD_MEMBER"
	// StorageVariable and DiskVariable are Etcd.Storage and Etcd.Disk of a machine file.
	StorageVariable = "ETCD_STORAGE"
	DiskVariable    = "ETCD_DISK"
	// BackupVariable and BackupEveryVariable are Etcd.Backup and Etcd.BackupEvery.
	BackupVariable      = "ETCD_BACKUP"
	BackupEveryVariable = "ETCD_BACKUP_EVERY"
	// FirstComeVariable is "no" in a cluster without a cloud where only a token for it gives a machine its name.
	FirstComeVariable = "FIRST_COME"
)

// Variables lists the variables of a role file that the agent reads.
func Variables(r role.Role) []string {
	names := []string{role.ClusterVariable, StoreVariable, CAVariable}
	switch r {
	case role.Etcd:
		names = append(names, MemberVariable, StorageVariable, DiskVariable, BackupVariable, BackupEveryVariable)
	case role.Masters:
		names = append(names, FirstComeVariable)
	}
	return names
}

// From is the source of a value.
type From string

// The sources of values.
const (
	FromRole     From = "role file"
	FromDocument From = "document"
	FromImage    From = "image"
	FromInstance From = "instance"
	FromStore    From = "store"
)

// Value is one value with where it comes from.
type Value struct {
	// Field is its path in a machine file.
	Field string `json:"field"`
	Value string `json:"value"`
	From  From   `json:"from"`
	// Where is the file, or the property of the instance.
	Where string `json:"where"`
}

// Effective is the effective configuration of a machine, from all sources.
type Effective struct {
	// Config is complete, but for the etcd member and its group where only the instance knows them, and for the names of
	// the members where only the store does.
	machine.Config
	Roles role.Set
	// NoFirstCome is FirstComeVariable.
	NoFirstCome bool
	// Values are the values that some source has, in the order of Config's fields.
	Values []Value
	// daemons are values in the configuration of this machine's daemons, which must agree with Values.
	daemons []Value
}

// Hardware describes the machine: whether it has an instance metadata service, and why. UserData is the SHA-256 of
// its user data in hex, or empty.
type Hardware struct {
	Metadata bool
	Why      string
	UserData string
}

// reader collects values and problems.
type reader struct {
	root     string
	hardware Hardware
	roles    role.Set
	files    map[role.Role]envfile.Variables
	document machine.Config
	config   Effective
	problems []problem
}

// problem is a missing or contradictory value, and the line or the command that corrects it.
type problem struct{ cause, next string }

// Read reads the configuration of a machine below a root directory ("" is "/"). Its errors have a reason, list
// everything that is wrong, and say what to write and where.
func Read(root string, h Hardware) (Effective, error) {
	r := &reader{root: root, hardware: h, files: map[role.Role]envfile.Variables{}}
	if err := r.open(); err != nil {
		return Effective{}, err
	}
	r.cluster()
	r.store()
	r.ca()
	r.launch()
	r.facts()
	r.etcd()
	r.firstCome()
	if err := r.err(); err != nil {
		return Effective{}, err
	}
	r.config.Node, r.config.API.Names, r.config.Network.MTU = r.document.Node, r.document.API.Names, r.document.Network.MTU
	r.config.Addons, r.config.AddonImages = r.document.Addons, r.document.AddonImages
	r.ownValues()
	r.config.Roles = r.roles
	return r.config, nil
}

// Roles returns the roles that the machine has role files for, below a root directory.
func Roles(root string) (role.Set, error) {
	entries, err := os.ReadDir(filepath.Join("/", root, role.Dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for role files: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return role.Files(names), nil
}

// open reads the role files and the machine file.
func (r *reader) open() (err error) {
	if r.roles, err = Roles(r.root); err != nil {
		return err
	}
	for _, each := range r.roles {
		text, err := r.read(each.File())
		if err != nil {
			return reason.With(reason.Config, err)
		}
		r.files[each] = envfile.Parse(text)
	}
	text, err := r.read(machine.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return reason.With(reason.Config, err)
	}
	c, problems := machine.Parse(machine.Path, []byte(text))
	if err := problems.Err(); err != nil {
		return &reason.Error{Reason: reason.Config, Err: fmt.Errorf("%s cannot be used:\n%w", machine.Path, err),
			Next: "leave it out of the user data where the cluster is a default one; else hardtack userdata -f CLUSTER.yaml --group GROUP prints it"}
	}
	r.document = c
	return nil
}

func (r *reader) read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join("/", r.root, name))
	return string(text), err
}

func (r *reader) problemf(next, format string, args ...any) {
	r.problems = append(r.problems, problem{fmt.Sprintf(format, args...), next})
}

// err is all problems as one error.
func (r *reader) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	var causes, nexts []string
	for _, p := range r.problems {
		causes = append(causes, p.cause)
		if !slices.Contains(nexts, p.next) {
			nexts = append(nexts, p.next)
		}
	}
	return &reason.Error{Reason: reason.Config, Err: errors.New(strings.Join(causes, "; ")), Next: strings.Join(nexts, "; ")}
}

// resolve records the value of a field that several sources may have. The first one counts, and one that disagrees is a
// problem: it would be undefined which of them a daemon uses. The zero Value is no value.
func (r *reader) resolve(values ...Value) string {
	values = slices.DeleteFunc(values, func(v Value) bool { return v.Value == "" })
	if len(values) == 0 {
		return ""
	}
	first := values[0]
	for _, other := range values[1:] {
		if other.Value != first.Value {
			r.problemf(fmt.Sprintf("write the same %s into both, or into one only", first.Field),
				"%s is %q in %s and %q in %s", first.Field, first.Value, first.Where, other.Value, other.Where)
			return first.Value
		}
	}
	r.config.Values = append(r.config.Values, first)
	return first.Value
}

// recordFirst records the first of several values; the others are only defaults.
func (r *reader) recordFirst(values ...Value) string {
	for _, v := range values {
		if v.Value != "" {
			r.config.Values = append(r.config.Values, v)
			return v.Value
		}
	}
	return ""
}

// roleLines are the values that role files have for a line of theirs.
func (r *reader) roleLines(field, variable string) []Value {
	var out []Value
	for _, each := range r.roles {
		if value, _ := r.files[each].Get(variable); value != "" {
			out = append(out, Value{field, value, FromRole, each.File()})
		}
	}
	return out
}

func written(field, value string) Value { return Value{field, value, FromDocument, machine.Path} }

// cluster is the name. Every role file has it, since the units take it from there.
func (r *reader) cluster() {
	if len(r.roles) == 0 {
		r.problemf("give the machine user data with the role file "+role.Masters.File()+", "+role.Minions.File()+" or "+role.Etcd.File(),
			"this machine has no role file")
		return
	}
	for _, each := range r.roles {
		if name, _ := r.files[each].Get(role.ClusterVariable); name == "" {
			r.problemf(fmt.Sprintf("write the line %s=NAME into %s in the machine's user data", role.ClusterVariable, each.File()),
				"%s does not say which cluster the machine belongs to", each.File())
		}
	}
	values := append(r.roleLines(machine.FieldCluster, role.ClusterVariable), written(machine.FieldCluster, r.document.Cluster))
	name := r.resolve(values...)
	if name != "" && !machine.IsLabel(name) {
		r.problemf(fmt.Sprintf("write the cluster's name, as in %s=demo, into %s in the machine's user data", role.ClusterVariable, values[0].Where),
			"the cluster's name %q in %s is not a DNS label", name, values[0].Where)
	}
	r.config.Cluster = name
}

// store is where the cluster's secrets are. In a cloud that follows from the cluster's name.
func (r *reader) store() {
	const field = "store"
	place := r.resolve(append(r.roleLines(field, StoreVariable), written(field, r.document.Store))...)
	if place == "" && r.config.Cluster != "" && r.hardware.Metadata {
		place = r.recordFirst(Value{field, machine.DefaultStore(r.config.Cluster), FromInstance, "EC2: " + r.hardware.Why})
	}
	switch {
	case place == "" && len(r.roles) > 0 && !r.hardware.Metadata:
		r.problemf(fmt.Sprintf("write the line %s=dir:/PATH, a directory that the cluster's machines share, or %s=%s into %s in the machine's user data",
			StoreVariable, StoreVariable, machine.DefaultStore(cmp.Or(r.config.Cluster, "NAME")), r.roles[0].File()),
			"the store of the cluster's secrets is not given, and outside a cloud it does not follow from the name (%s)", r.hardware.Why)
	case place != "" && !machine.IsStore(place):
		r.problemf(fmt.Sprintf("write %s=ssm:/hardtack/NAME or %s=dir:/PATH", StoreVariable, StoreVariable), "the store %q is neither ssm:/path nor dir:/path", place)
	}
	r.config.Store = place
}

// ca is where the machine has its cluster's public CA; where it was given none, the store is asked.
func (r *reader) ca() {
	const field = "caFile"
	file := r.resolve(append(r.roleLines(field, CAVariable), written(field, r.document.CAFile))...)
	if file == "" {
		if _, err := os.Stat(filepath.Join("/", r.root, machine.CAPath)); err == nil {
			file = r.recordFirst(Value{field, machine.CAPath, FromDocument, machine.CAPath})
		}
	} else if _, err := os.Stat(filepath.Join("/", r.root, file)); err != nil {
		r.problemf(fmt.Sprintf("hardtack pki ca prints the certificate: put it there, or leave the line %s=%s out, and the store is asked for it", CAVariable, file),
			"reading the cluster's public CA: %v", err)
	}
	r.config.CAFile = file
}

// launch is the group and its hook. A machine without a metadata service has neither.
func (r *reader) launch() {
	r.config.Group = r.recordFirst(written("group", r.document.Group))
	hook := r.document.LaunchHook
	switch {
	case hook == machine.NoHook:
		r.recordFirst(written("launchHook", hook))
	case hook != "":
		r.config.LaunchHook = r.recordFirst(written("launchHook", hook))
	case r.hardware.Metadata:
		r.config.LaunchHook = r.recordFirst(Value{"launchHook", machine.DefaultLaunchHook, FromImage, "the agent"})
	}
	if r.config.ConfigHash = r.document.ConfigHash; r.config.ConfigHash == "" && r.hardware.UserData != "" {
		r.config.ConfigHash = machine.HashPrefix + r.hardware.UserData
	}
}

// etcd is the membership: the members' names are the cluster's, and the machine's own is its role file's or its tag's.
func (r *reader) etcd() {
	r.config.Etcd.Members = r.document.Etcd.Members
	if len(r.config.Etcd.Members) > 0 {
		r.recordFirst(written(machine.FieldMembers, machine.JoinMembers(r.config.Etcd.Members)))
	} else if text, err := r.read(InfoFile); err == nil {
		if info, err := machine.ParseInfo(InfoFile, []byte(text)); err == nil {
			r.config.Etcd.Members = info.Etcd.Members
			r.recordFirst(Value{machine.FieldMembers, machine.JoinMembers(info.Etcd.Members), FromStore, InfoFile})
		}
	}
	const field = "etcd.member"
	var own []Value
	if r.roles.Has(role.Etcd) {
		own = r.roleLines(field, MemberVariable)
	}
	r.config.Etcd.Member = r.resolve(append(own, written(field, r.document.Etcd.Member))...)
	if r.roles.Has(role.Etcd) {
		r.storage()
		r.backups()
	}
}

// backups is where backups of etcd are stored, and how often.
func (r *reader) backups() {
	e, file := &r.config.Etcd, role.Etcd.File()
	e.Backup = r.resolve(append(r.roleLines("etcd.backup", BackupVariable), written("etcd.backup", r.document.Etcd.Backup))...)
	every := ""
	if n := r.document.Etcd.BackupEvery; n != 0 {
		every = strconv.Itoa(n)
	}
	every = r.resolve(append(r.roleLines("etcd.backupEvery", BackupEveryVariable), written("etcd.backupEvery", every))...)
	if e.Backup != "" {
		if at, err := machine.LocateBackups(r.config.Cluster, e.Backup); err != nil {
			r.problemf(fmt.Sprintf("write %s=s3://BUCKET/PREFIX or %s=dir:/PATH into %s, or leave it out", BackupVariable, BackupVariable, file), "the place of etcd's backups: %v", err)
		} else if strings.Contains(at.Bucket, machine.BackupAccount) && !r.hardware.Metadata {
			r.problemf(fmt.Sprintf("write the bucket's name into %s", file), "the place of etcd's backups is named after an AWS account, and this machine is in none (%s)", r.hardware.Why)
		}
	}
	if every == "" {
		return
	}
	n, err := strconv.Atoi(every)
	if err != nil || n < machine.LeastBackupMinutes || n > machine.MostBackupMinutes {
		r.problemf(fmt.Sprintf("write %s=MINUTES into %s", BackupEveryVariable, file), "the time between two backups of etcd is %q, and not a number of minutes from %d to %d", every, machine.LeastBackupMinutes, machine.MostBackupMinutes)
	}
	e.BackupEvery = n
}

// storage is where the data of the machine's member are.
func (r *reader) storage() {
	e := &r.config.Etcd
	e.Storage = r.resolve(append(r.roleLines("etcd.storage", StorageVariable), written("etcd.storage", r.document.Etcd.Storage))...)
	e.Disk = r.resolve(append(r.roleLines("etcd.disk", DiskVariable), written("etcd.disk", r.document.Etcd.Disk))...)
	if e.Storage == "" {
		e.Storage = r.recordFirst(Value{"etcd.storage", machine.StorageMachine, FromImage, "the agent"})
	}
	file := role.Etcd.File()
	switch storages := machine.Storages(); {
	case !slices.Contains(storages, e.Storage):
		r.problemf(fmt.Sprintf("write %s=NAME, with one of %s, into %s", StorageVariable, strings.Join(storages, ", "), file), "etcd's storage is %q", e.Storage)
	case e.Storage == machine.StorageDisk && !machine.IsDisk(e.Disk):
		r.problemf(fmt.Sprintf("write %s=/dev/disk/by-id/NAME into %s: ls /dev/disk/by-id lists the names", DiskVariable, file), "the disk of etcd's member is %q, and not a path below /dev/disk/by-id", e.Disk)
	case e.Storage != machine.StorageDisk && e.Disk != "":
		r.problemf(fmt.Sprintf("write %s=%s into %s, or leave %s out", StorageVariable, machine.StorageDisk, file, DiskVariable), "a disk is named for etcd's member, and its storage is %q", e.Storage)
	case e.Storage == machine.StorageVolume && !r.hardware.Metadata:
		r.problemf(fmt.Sprintf("write %s=%s and %s=/dev/disk/by-id/NAME, or %s=%s, into %s", StorageVariable, machine.StorageDisk, DiskVariable, StorageVariable, machine.StorageMachine, file),
			"etcd's storage is a volume, and this machine is in no cloud that attaches one (%s)", r.hardware.Why)
	}
}

// firstCome is whether a master gives names to machines that come without a proof of who they are.
func (r *reader) firstCome() {
	value, said := r.files[role.Masters].Get(FirstComeVariable)
	if !said {
		return
	}
	value = r.resolve(Value{"firstCome", value, FromRole, role.Masters.File()})
	if value != "no" && value != "yes" {
		r.problemf(fmt.Sprintf("write %s=no or %s=yes, or leave the line out, which is yes", FirstComeVariable, FirstComeVariable),
			"%s is %q in %s", FirstComeVariable, value, role.Masters.File())
	}
	r.config.NoFirstCome = value == "no"
}

// ownValues records the values that only the machine file has and that concern only this machine.
func (r *reader) ownValues() {
	n := r.config.Node
	for _, v := range []struct {
		field string
		value any
		said  bool
	}{
		{"addons", strings.Join(r.config.Addons, " "), len(r.config.Addons) > 0},
		{"addonImages", r.config.AddonImages, len(r.config.AddonImages) > 0},
		{"api.names", strings.Join(r.config.API.Names, " "), len(r.config.API.Names) > 0},
		{"network.mtu", r.config.Network.MTU, r.config.Network.MTU != 0},
		{"node.naming", n.Naming, n.Naming != ""},
		{"node.labels", n.Labels, len(n.Labels) > 0},
		{"node.taints", strings.Join(n.Taints, " "), len(n.Taints) > 0},
		{"node.maxPods", n.MaxPods, n.MaxPods != 0},
	} {
		if v.said {
			r.config.Values = append(r.config.Values, written(v.field, fmt.Sprint(v.value)))
		}
	}
}

// CA is the path of the cluster's public CA on the machine, without the root directory: the file of the user data, or
// the one that the agent writes from the store's.
func (t Effective) CA() string {
	if t.CAFile != "" {
		return t.CAFile
	}
	return CAFile
}
