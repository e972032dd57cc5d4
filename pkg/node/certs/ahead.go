package certs

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Ahead returns the store as a minion reads it that joins: the first read of anything that such a minion needs reads all of it,
// with one request. Each object is given out once; a later read of it asks the store again.
func Ahead(s Secrets, conf config.Effective) Secrets {
	a := &ahead{Secrets: s, wanted: []string{pki.PublicInfo, pki.BootstrapToken}}
	if conf.CAFile == "" {
		a.wanted = append(a.wanted, pki.PublicKubernetes)
	}
	return a
}

type ahead struct {
	Secrets
	mu sync.Mutex
	// wanted are the objects to read together, nil once they were.
	wanted []string
	have   map[string][]byte
}

// Get returns the object, and reads all that are wanted first.
func (a *ahead) Get(ctx context.Context, object string) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fresh := slices.Contains(a.wanted, object)
	if fresh {
		got, err := a.GetAll(ctx, a.wanted...)
		if err != nil {
			return nil, err
		}
		a.wanted, a.have = nil, got
	}
	if content, ok := a.have[object]; ok {
		delete(a.have, object)
		return content, nil
	}
	if fresh {
		return nil, fmt.Errorf("reading %s in %s: %w", object, a, pki.ErrNotFound)
	}
	return a.Secrets.Get(ctx, object)
}
