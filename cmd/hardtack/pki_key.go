package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// settleKey makes the key of the document's secrets, and gives it to a store without secrets. A store with secrets gets it
// with --rekey only; without, the note says what is to be done. Without a document the store stays as it is.
func settleKey(c *cli.Context, doc *spec.Complete, s store.Store) (note string, err error) {
	secrets, inParameterStore := s.(*store.SSM)
	if c.String("file") == "" || !inParameterStore {
		if c.Bool("rekey") {
			return "", usagef("--rekey: needs --file, the document with aws.secretsKey, of a cluster whose store is in Parameter Store")
		}
		return "", nil
	}
	conf, err := storeConfig(c.Context, c)
	if err != nil {
		return "", err
	}
	k := cluster.New(cluster.Config{Document: doc, AWS: conf, Log: logger(c), OnEvent: printEvent(c)})
	made, err := k.MakeKey(c.Context)
	if err != nil {
		return "", err
	}
	if made != "" {
		fmt.Fprintf(c.App.ErrWriter, "the key of the secrets is %s, %s\n", doc.SecretsKey(), made)
	}
	if c.Bool("rekey") {
		return "", k.Rekey(c.Context, secrets, rekeyProgress(c))
	}
	want := cmp.Or(doc.SecretsKey(), store.DefaultKey)
	have, err := secrets.Key(c.Context)
	if err != nil {
		return "", err
	}
	// The first secret that is created.
	if _, err := s.Get(c.Context, pki.Authorities()[0]+pki.Key); errors.Is(err, pki.ErrNotFound) && have != want {
		return "", secrets.SetKey(c.Context, want)
	}
	return strayNote(c, secrets, have, want)
}

// strayNote says how secrets under another key come under the wanted one.
func strayNote(c *cli.Context, secrets *store.SSM, have, want string) (string, error) {
	if have == want && want == store.DefaultKey {
		return "", nil // since ever, or since all versions were written again
	}
	strays, err := secrets.Strays(c.Context, want)
	if err != nil || len(strays) == 0 && have == want {
		return "", err
	}
	next := "hardtack stack apply, so that the machines may use it, and then hardtack pki create --rekey"
	if want == store.DefaultKey {
		next = "hardtack pki create --rekey, and then hardtack stack apply"
	}
	return fmt.Sprintf("%d secrets are not under %s, or have earlier versions that are not; next: %s", len(strays), want, addressed(c, next)), nil
}

// rekeyProgress tells of every hundredth write, of three a second.
func rekeyProgress(c *cli.Context) func(done, all int) {
	return func(done, all int) {
		if done%100 == 0 || done == all {
			fmt.Fprintf(c.App.ErrWriter, "%d of %d writes\n", done, all)
		}
	}
}
