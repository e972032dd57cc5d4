package awsfake

import (
	"cmp"
	"slices"
)

type xmlSnapshot struct {
	ID          string   `xml:"snapshotId"`
	Volume      string   `xml:"volumeId"`
	State       string   `xml:"status"`
	Started     string   `xml:"startTime"`
	Completed   string   `xml:"completionTime,omitempty"`
	Progress    string   `xml:"progress"`
	Owner       string   `xml:"ownerId"`
	Size        int      `xml:"volumeSize"`
	Description string   `xml:"description"`
	Encrypted   bool     `xml:"encrypted"`
	Tags        []xmlTag `xml:"tagSet>item"`
	xmlSnapshotStore
}

type xmlSnapshotStore struct {
	Key  string `xml:"kmsKeyId,omitempty"`
	Tier string `xml:"storageTier"`
	Full int64  `xml:"fullSnapshotSizeInBytes"`
}

// noVolumeID is the volume of a snapshot that was made of no volume: "an arbitrary volume ID that you should not use
// for any purpose".
const noVolumeID = "vol-ffffffff"

func (m *Images) snapshotXML(s Snapshot) xmlSnapshot {
	x := xmlSnapshot{
		ID: s.ID, Volume: cmp.Or(s.Volume, noVolumeID), State: s.State, Started: stamp(s.Started), Progress: "0%", Owner: owner, Size: s.Size, Description: s.Description,
		Encrypted: s.Key != "", Tags: tagsXML(s.Tags), xmlSnapshotStore: xmlSnapshotStore{Key: s.Key, Tier: "standard"},
	}
	if s.State == SnapshotCompleted {
		x.Progress, x.Completed = "100%", stamp(s.Completed)
		if c := m.contents[s.ID]; c != nil {
			x.Full = int64(len(c.blocks)) * BlockSize
		}
	}
	return x
}

func (m *Images) describeSnapshots(c *call) (any, error) {
	p := params(c.Form)
	ids := p.list("SnapshotId")
	list := slices.DeleteFunc(m.snapshots.at(m.now().Add(-m.lag)), func(s Snapshot) bool { return s.State == snapshotDeleted })
	slices.SortStableFunc(list, byStart)
	for _, id := range ids {
		if !snapshotPattern.MatchString(id) {
			return nil, invalidValue(id, "snapshotId", "Expected: 'snap-...'.")
		}
		if !slices.ContainsFunc(list, func(s Snapshot) bool { return s.ID == id }) {
			return nil, noSnapshot(id)
		}
	}
	filters := filtersOf(p.structs("Filter"), "Value", true)
	owners := p.list("Owner")
	kept := []Snapshot{}
	for _, s := range list {
		ok, err := passAll(filters, nil, s.Tags)
		if err != nil {
			return nil, err
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, s.ID)) && ownedBy(owners) {
			kept = append(kept, s)
		}
	}
	kept, token, err := paged(p, "SnapshotId", "snapshotSet", kept)
	if err != nil {
		return nil, err
	}
	out := struct {
		Snapshots []xmlSnapshot `xml:"snapshotSet>item"`
		Next      string        `xml:"nextToken,omitempty"`
	}{Next: token}
	for _, s := range kept {
		out.Snapshots = append(out.Snapshots, m.snapshotXML(s))
	}
	return out, nil
}

// ownSnapshot is a snapshot that a call may change.
func (m *Images) ownSnapshot(id string) (Snapshot, error) {
	if !snapshotPattern.MatchString(id) {
		return Snapshot{}, invalidValue(id, "snapshotId", "Expected: 'snap-...'.")
	}
	s, ok := m.snapshot(id)
	if !ok {
		return s, noSnapshot(id)
	}
	return s, nil
}

func (m *Images) deleteSnapshotCall(c *call) (any, error) {
	s, err := m.ownSnapshot(params(c.Form).get("SnapshotId"))
	if err != nil {
		return nil, err
	}
	if err := m.deleteSnapshot(s.ID); err != nil {
		return nil, err
	}
	return xmlReturn{true}, nil
}
