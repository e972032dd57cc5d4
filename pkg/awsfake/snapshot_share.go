package awsfake

import "slices"

// modifySnapshot changes who may make volumes from a snapshot: accounts, which are given it or lose it.
func (m *Images) modifySnapshot(c *call) (any, error) {
	p := params(c.Form)
	s, err := m.ownSnapshot(p.get("SnapshotId"))
	if err != nil {
		return nil, err
	}
	if a := p.get("Attribute"); a != "" && a != "createVolumePermission" {
		return nil, invalidValue(a, "attribute", "Valid values: createVolumePermission.")
	}
	add, remove := p.structs("CreateVolumePermission.Add"), p.structs("CreateVolumePermission.Remove")
	for _, account := range p.list("UserId") {
		one := params{"UserId": {account}}
		switch p.get("OperationType") {
		case "add":
			add = append(add, one)
		case "remove":
			remove = append(remove, one)
		default:
			return nil, invalidValue(p.get("OperationType"), "operationType", "Valid values: add, remove.")
		}
	}
	for _, group := range p.list("UserGroup") {
		add = append(add, params{"Group": {group}})
	}
	accounts, err := m.volumePermissions(s, add, remove)
	if err != nil {
		return nil, err
	}
	m.change(s.ID, func(s *Snapshot) {
		for _, account := range accounts {
			s.Shared = slices.DeleteFunc(s.Shared, func(a string) bool { return a == account })
			if len(add) > 0 {
				s.Shared = append(s.Shared, account)
			}
		}
	})
	return xmlReturn{true}, nil
}

// volumePermissions are the accounts that a call is about.
func (m *Images) volumePermissions(s Snapshot, add, remove []params) (accounts []string, err error) {
	switch {
	case len(add) > 0 && len(remove) > 0:
		return nil, invalidCombination("Permissions can't be added and removed in one call.")
	case len(add)+len(remove) == 0:
		return nil, refuse("MissingParameter", "The request must contain the parameter createVolumePermission")
	case len(add)+len(remove) > maxShared:
		return nil, invalidCombination("One call makes at most %d modifications.", maxShared)
	case len(add) > 0 && s.Key == m.defaultKey():
		return nil, refuse("InvalidParameter", "Snapshot %s is encrypted with the account's default key for EBS and can't be shared.", s.ID)
	}
	for _, p := range append(slices.Clone(add), remove...) {
		switch account := p.get("UserId"); {
		case p.get("Group") != "":
			return nil, refuse("OperationNotPermitted", "Public sharing of snapshots is blocked for the account.")
		case !accountID.MatchString(account):
			return nil, refuse("InvalidParameterValue", "Value ( %s ) for parameter userId is invalid.", account)
		default:
			accounts = append(accounts, account)
		}
	}
	return accounts, nil
}

func (m *Images) describeSnapshot(c *call) (any, error) {
	p := params(c.Form)
	s, err := m.ownSnapshot(p.get("SnapshotId"))
	if err != nil {
		return nil, err
	}
	if a := p.get("Attribute"); a != "createVolumePermission" {
		return nil, invalidValue(a, "attribute", "(awsfake only models createVolumePermission)")
	}
	type permission struct {
		Account string `xml:"userId"`
	}
	out := struct {
		ID          string       `xml:"snapshotId"`
		Permissions []permission `xml:"createVolumePermission>item"`
	}{ID: s.ID}
	for _, account := range s.Shared {
		out.Permissions = append(out.Permissions, permission{account})
	}
	return out, nil
}
