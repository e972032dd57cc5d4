package examine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
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
)

// Servers are the API servers of a cluster. kube.Client is one.
type Servers interface {
	// Everywhere gets a path from each, and calls got with its address, and with its answer or why there is none.
	Everywhere(ctx context.Context, path string, got func(address string, body []byte, err error)) error
}

// UsesEncryption waits until every API server uses an encryption configuration, the content of its file: each address of the
// kubeconfig's server is asked. A machine has the file when hardtack-renew.service has ended; the API server reads it up to a
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

// otherEncryption returns an error for the API servers that do not use the configuration with this digest, and puts those that
// do not say into silent.
func otherEncryption(ctx context.Context, servers Servers, want string, silent map[string]bool) error {
	var others []error
	err := servers.Everywhere(ctx, "/metrics", func(address string, body []byte, err error) {
		digest := ""
		if err == nil {
			digest, err = encryptionOf(body)
		}
		switch {
		case err != nil:
			others = append(others, fmt.Errorf("the API server at %s: %w", address, err))
		case digest == "":
			silent[address] = true
		case digest != want:
			others = append(others, fmt.Errorf("the API server at %s uses other keys: its file was %s, and is to be %s", address, digest, want))
		}
	})
	return errors.Join(append(others, err)...)
}

// encryptionOf is the digest of the configuration that an API server with these metrics uses, "" where it does not say.
func encryptionOf(metrics []byte) (string, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(metrics))
	if err != nil {
		return "", fmt.Errorf("reading /metrics: %w", err)
	}
	for _, m := range families[encryptionMetric].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "hash" {
				return label.GetValue(), nil
			}
		}
	}
	return "", nil
}
