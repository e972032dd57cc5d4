//go:build linux

package main

import (
	"cmp"
	"os"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

func labNames() []candidate {
	root, err := lab.DefaultRoot(os.Getenv)
	if err != nil {
		return nil
	}
	homes, err := lab.Homes(root)
	if err != nil {
		return nil
	}
	var names []string
	for _, h := range homes {
		names = append(names, h.Name)
	}
	return these(names, "a lab")
}

func (l typed) client() *lab.Client {
	h, err := labNamed(cmp.Or(l.flag("name"), os.Getenv("HARDTACK_LAB")))
	if err != nil {
		return nil
	}
	return lab.NewClient(h)
}

// status is that of the lab that the line means; the zero value where none answers.
func (l typed) status() lab.Status {
	client := l.client()
	if client == nil {
		return lab.Status{}
	}
	s, _ := client.Status(l.ctx) // what does not answer has no machines
	return s
}

func (l typed) machines() []candidate { return these(l.status().Names(), "a machine") }

func (l typed) labGroups() (out []candidate) {
	for _, g := range l.status().Groups {
		out = append(out, candidate{g.Name, g.Roles})
	}
	return out
}

func (l typed) volumes() []candidate {
	client := l.client()
	if client == nil {
		return nil
	}
	list, err := client.Volumes(l.ctx)
	if err != nil {
		return nil
	}
	var ids []string
	for _, v := range list {
		ids = append(ids, v.ID)
	}
	return these(ids, "a volume")
}

func noticeKinds() []string { return lab.NoticeKinds }
