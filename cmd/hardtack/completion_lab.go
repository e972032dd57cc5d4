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

func (l typed) machines() []candidate {
	client := l.client()
	if client == nil {
		return nil
	}
	s, err := client.Status(l.ctx)
	if err != nil {
		return nil
	}
	return these(s.Names(), "a machine")
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
