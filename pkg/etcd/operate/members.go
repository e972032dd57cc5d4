package operate

import "github.com/hardtack/packer-plugin-hardtack/pkg/etcd"

// Row is a member as a row of a list, by what it reported last.
type Row struct {
	Name string `json:"name"`
	// Role is leader, voter, learner, or empty for a member whose machine waits or has never reported.
	Role string `json:"role"`
	// ID is the member's ID; empty if it is not known.
	ID string `json:"id,omitempty"`
	// Machine and Volume are where it runs, or waits; Volume is empty for data on the machine's own disk.
	Machine string `json:"machine,omitempty"`
	Volume  string `json:"volume,omitempty"`
	// Lag is how many entries of the log it is behind; nil for a member without a role.
	Lag *uint64 `json:"lag,omitempty"`
	// Size, InUse and Quota are the database's, in bytes; Quota is 0 if it is not known.
	Size   int64    `json:"size"`
	InUse  int64    `json:"in_use"`
	Quota  int64    `json:"quota,omitempty"`
	Alarms []string `json:"alarms"`
}

// List returns the members as rows. A member of the formed epoch that has not reported has its ID from the outcome.
func (r *Report) List() []Row {
	list := []Row{}
	for _, m := range r.Members {
		row := Row{Name: m.Name, Role: m.Role, Alarms: []string{}}
		if m.Role != "" {
			row.Lag = new(m.Lag)
		}
		id := r.formed[m.Name]
		if s := m.Status; s != nil {
			row.Machine, row.Volume, row.Size, row.InUse, row.Quota = s.Instance, s.Volume, s.Store.Size, s.Store.InUse, s.Store.Quota
			row.Alarms = append(row.Alarms, s.Store.Alarms...)
			if s.MemberID != 0 && s.Epoch == r.Epoch {
				id = s.MemberID
			}
		}
		if id != etcd.ID(0) {
			row.ID = id.String()
		}
		list = append(list, row)
	}
	return list
}
