package awsfake

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
)

// from returns a copy's source region.
func (m *Images) from(region string) (*Images, error) {
	if p, ok := m.account.regional.places[region]; ok {
		return p.images, nil
	}
	return nil, invalidValue(region, "sourceRegion", "The account has no such region.")
}

// sameCall is a call without its client token, to know another one by.
func sameCall(p params) string {
	plain := maps.Clone(url.Values(p))
	plain.Del("ClientToken")
	return plain.Encode()
}

// copyImage copies an image of the account with its snapshots into the region that is called. Launch permissions
// are not copied.
func (m *Images) copyImage(c *call) (any, error) {
	p := params(c.Form)
	token := p.get("ClientToken")
	type answer struct {
		ID string `xml:"imageId"`
	}
	switch made, ok := m.copies[token]; {
	case !clientToken.MatchString(token):
		return nil, invalidValue(token, "clientToken", "It has at most 64 ASCII characters.")
	case ok && token != "" && made.call != sameCall(p):
		return nil, refuse("IdempotentParameterMismatch", "The client token %s was used with other parameters.", token)
	case ok && token != "":
		return answer{made.id}, nil
	}
	there, source, err := m.copySource(p)
	if err != nil {
		return nil, err
	}
	tags, err := tagsOf(p, "image", "snapshot")
	if err != nil {
		return nil, err
	}
	key, failure, err := m.copyKey(p, slices.ContainsFunc(source.Disks, func(d Disk) bool { return d.Encrypted }))
	if err != nil {
		return nil, err
	}
	i := Image{Name: p.get("Name"), Description: source.Description, Root: source.Root, Firmware: source.Firmware, Source: Origin{source.ID, there.region}}
	if p.has("Description") {
		i.Description = p.get("Description")
	}
	i.Tags = tags["image"]
	i = m.addImage(i)
	disks := m.copyDisks(there, source, i.ID, key, tags["snapshot"], failure)
	m.changeImage(i.ID, func(i *Image) { i.Disks = disks })
	m.ready(i.ID, m.options.Copy, failure)
	if token != "" {
		m.copies[token] = tokened{sameCall(p), i.ID}
	}
	return answer{i.ID}, nil
}

// copySource is the image that a call copies, and the region that it is in.
func (m *Images) copySource(p params) (there *Images, source Image, err error) {
	for _, name := range []string{"SourceImageId", "SourceRegion"} {
		if p.get(name) == "" {
			return nil, source, refuse("MissingParameter", "The request must contain the parameter %s", name)
		}
	}
	if err := m.checkName(p.get("Name")); err != nil {
		return nil, source, err
	}
	if there, err = m.from(p.get("SourceRegion")); err != nil {
		return nil, source, err
	}
	source, err = there.launchable(p.get("SourceImageId"))
	return there, source, err
}

// copyDisks copies the snapshots of an image; key is that of the call, or empty.
func (m *Images) copyDisks(there *Images, source Image, id, key string, tags map[string]string, failure string) []Disk {
	disks := slices.Clone(source.Disks)
	for n, d := range disks {
		if d.Snapshot == "" {
			continue
		}
		was, _ := there.snapshot(d.Snapshot)
		copied := m.copied(there, was, key, failure)
		m.change(copied.ID, func(s *Snapshot) {
			s.Description = fmt.Sprintf("Copied for DestinationAmi %s from SourceAmi %s for SourceSnapshot %s. Task created on %d.", id, source.ID, was.ID, m.now().UnixMilli())
			s.Tags = maps.Clone(tags)
		})
		disks[n].Snapshot, disks[n].Encrypted = copied.ID, copied.Key != ""
	}
	return disks
}

// copied is a copy of a snapshot, with the key or, where the source is encrypted, with the account's own: keys do
// not leave their region.
func (m *Images) copied(there *Images, was Snapshot, key, failure string) Snapshot {
	if key == "" && was.Key != "" {
		key = m.defaultKey()
	}
	s := m.add(Snapshot{Size: was.Size, Key: key, Description: was.Description}, there.contents[was.ID])
	content := m.contents[s.ID]
	content.sealed = true
	for index, b := range content.blocks {
		content.blocks[index] = block{b.sum, content.writer}
	}
	end := SnapshotCompleted
	if failure != "" {
		end = SnapshotError
	}
	if m.options.Copy == 0 {
		m.finish(s.ID, end)
	} else {
		m.after(m.options.Copy, func() { m.finish(s.ID, end) })
	}
	return s
}

// copyKey returns the key that encrypts a copy. A key that does not exist fails the copy later, and not the call: "AWS
// authenticates the KMS key asynchronously".
func (m *Images) copyKey(p params, encrypted bool) (key, failure string, err error) {
	wanted, err := p.flag("Encrypted", false)
	id := p.get("KmsKeyId")
	switch {
	case err != nil:
		return "", "", err
	case id != "" && !wanted:
		return "", "", invalidCombination("KmsKeyId takes Encrypted to be true.")
	case p.has("Encrypted") && !wanted && encrypted:
		return "", "", invalidCombination("An encrypted snapshot can't be copied to one that is not encrypted.")
	case !wanted:
		return "", "", nil
	}
	key, ok := m.keyOf(true, id)
	if !ok {
		return m.defaultKey(), "Given key ID is not accessible", nil
	}
	return key, "", nil
}
