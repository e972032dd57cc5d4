package operate

import (
	"fmt"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// drilled says which backup was last taken back from its place and restored, by the reports of the newest epoch's members,
// and what is wrong with that.
func (r *Report) drilled(now time.Time) {
	var failed *etcd.BackupFailure
	by := ""
	for _, m := range r.Members {
		s := m.Status
		if s == nil || s.Epoch != r.Epoch {
			continue
		}
		if v := s.Verified; v != nil && (r.Verified == nil || v.Verified.After(r.Verified.Verified)) {
			r.Verified = v
		}
		if f := s.DrillFailed; f != nil && (failed == nil || f.At.After(failed.At)) {
			failed, by = f, m.Name
		}
	}
	v := r.Verified
	since := failed != nil && v != nil && v.Verified.After(failed.At) // it has succeeded
	switch {
	case failed != nil && failed.Damaged:
		r.find(Finding{Member: by, What: fmt.Sprintf("a stored backup was found damaged %s ago: %s", now.Sub(failed.At).Round(time.Minute), failed.Why), Warning: since,
			Next: "find out who or what changes the place of backups, and restore from none that it had then; hardtack etcd backup --wait takes another one"})
	case failed != nil && !since:
		r.find(Finding{Member: by, What: fmt.Sprintf("its last drill failed %s ago: %s", now.Sub(failed.At).Round(time.Minute), failed.Why), Warning: true,
			Next: "its machine tries again every hour; a restore would meet the same"})
	}
	switch {
	case r.Backup == nil:
	case v != nil && now.Sub(v.At) > oldTrial:
		r.find(Finding{What: fmt.Sprintf("the newest backup that was taken back from its place and restored is %s old", now.Sub(v.At).Round(time.Minute)),
			Next: "the leader's machine does that once a day: the journal of hardtack-member says why not"})
	case v == nil && failed == nil:
		r.find(Finding{What: "no backup was taken back from its place and restored yet", Warning: true,
			Next: "the leader's machine does that ten minutes after it began to lead, and then once a day; machines of an older image do not"})
	}
}
