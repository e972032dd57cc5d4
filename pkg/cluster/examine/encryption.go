package examine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// encryptionMetric has the digest of the encryption configuration that an API server uses: k8s.io/apiserver,
	// pkg/server/options/encryptionconfig/metrics. It is alpha; an API server that does not have it is not asked further.
	encryptionMetric = "apiserver_encryption_config_controller_last_config_info"
	// encryptionRead is longer than an API server takes to notice another file: it looks every minute (EncryptionConfiguration
	// with --encryption-provider-config-automatic-reload).
	encryptionRead = 2 * time.Minute
	// encryptionAgain is the time between two looks.
	encryptionAgain = 5 * time.Second
	// encryptionTurns bounds the connections of one look, for each API server there is: behind the one address of a load balancer
	// each goes to any of them. Of three, twelve connections miss one in 2 % of the looks.
	encryptionTurns = 4
)

// Servers are the API servers of a cluster. kube.Client is one.
type Servers interface {
	// Masters lists their own addresses, by which they are counted.
	Masters(ctx context.Context) ([]netip.Addr, error)
	// Everywhere gets a path from each address of the kubeconfig's server, by a connection of its own, and calls got with the
	// address, and with the answer or why there is none.
	Everywhere(ctx context.Context, path string, got func(address string, body []byte, err error)) error
}

// UsesEncryption waits until every API server uses an encryption configuration, the content of its file: each address of the
// kubeconfig's server is asked, and again until as many different ones have answered as there are, since the address may be a load
// balancer's. A machine has the file when hardtack-renew.service has ended; the API server reads it up to a
// minute later, and what is written until then is encrypted as before. The error names each API server that still uses another
// after two minutes. One of a version that does not say what it uses is named to story, and taken as right.
func UsesEncryption(ctx context.Context, servers Servers, config []byte, story io.Writer) error {
	want := fmt.Sprintf("sha256:%x", sha256.Sum256(config))
	silent, late := map[string]bool{}, error(nil)
	err := wait.PollUntilContextTimeout(ctx, encryptionAgain, encryptionRead, true, func(ctx context.Context) (bool, error) {
		clear(silent)
		before := late
		late = otherEncryption(ctx, servers, want, silent)
		if late != nil && before == nil {
			fmt.Fprintf(story, "waiting for %v: %v\n", encryptionRead, late)
		}
		return late == nil, nil
	})
	for _, address := range slices.Sorted(maps.Keys(silent)) {
		fmt.Fprintf(story, "the API server at %s does not say which keys it uses; it reads them a minute after hardtack-renew.service has ended\n", address)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("waiting until every API server uses the keys of the last step: %w; next: systemctl start hardtack-renew.service "+
		"on its machine, and if that ends well, journalctl -u kube-apiserver --grep=encryption", errors.Join(late, ctx.Err()))
}

// otherEncryption returns an error for the API servers that do not use the configuration with this digest, and for those that were
// not met, and puts those that do not say into silent.
func otherEncryption(ctx context.Context, servers Servers, want string, silent map[string]bool) error {
	all, err := servers.Masters(ctx)
	if err != nil {
		return err
	}
	met := map[string]bool{}
	for range max(1, encryptionTurns*len(all)) {
		var others []error
		err := servers.Everywhere(ctx, "/metrics", func(address string, body []byte, err error) {
			digest, id := "", ""
			if err == nil {
				digest, id, err = encryptionOf(body)
			}
			switch {
			case err != nil:
				others = append(others, fmt.Errorf("the API server at %s: %w", address, err))
			case digest == "":
				silent[address] = true
			case digest != want:
				others = append(others, fmt.Errorf("the API server at %s uses other keys: its file was %s, and is to be %s", address, digest, want))
			default:
				met[id] = true
			}
		})
		// One that does not say what it uses does not say who it is either, so that they cannot be counted.
		if err := errors.Join(append(others, err)...); err != nil || len(silent) > 0 || len(met) >= len(all) {
			return err
		}
	}
	return fmt.Errorf("%d of %d API servers have said which keys they use: behind the server of the kubeconfig the others were not met", len(met), len(all))
}

// encryptionOf is the digest of the configuration that an API server with these metrics uses, and who it is; "" where it does not
// say.
func encryptionOf(metrics []byte) (digest, id string, err error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(metrics))
	if err != nil {
		return "", "", fmt.Errorf("reading /metrics: %w", err)
	}
	for _, m := range families[encryptionMetric].GetMetric() {
		for _, label := range m.GetLabel() {
			switch label.GetName() {
			case "hash":
				digest = label.GetValue()
			case "apiserver_id_hash":
				id = label.GetValue()
			}
		}
	}
	return digest, id, nil
}
