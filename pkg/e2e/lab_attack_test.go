package e2e

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/identity"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

const (
	// thiefAgent is the user agent of the thief's requests, by which the audit log is searched.
	thiefAgent  = "hardtack-thief"
	requestsURI = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	auditLog    = "/var/log/kube-apiserver/audit.log"
	// heard bounds the wait for the controller's answers, which on a computer of one's own come within 5 s.
	heard = 3 * time.Minute
	// roleKeys prints the keys of the instance's role: the image has no program for it, and needs none.
	roleKeys = `ask() { exec 3<>/dev/tcp/169.254.169.254/80; printf '%s /latest/%s HTTP/1.0\r\n%s\r\n\r\n' "$@" >&3; sed '1,/^\r*$/d' <&3; }
t="X-aws-ec2-metadata-token: $(ask PUT api/token 'X-aws-ec2-metadata-token-ttl-seconds: 300')"; p=meta-data/iam/security-credentials/
ask GET $p$(ask GET $p "$t") "$t"`
)

// theft is what somebody who has a minion asks for: 403, or a certificate request of that name, which nobody approves.
type theft struct {
	what               string
	as                 *rest.Config
	method, path, body string
	// why is the refusal's reason.
	why, request string
}

func (s theft) code() int {
	if s.request != "" {
		return http.StatusCreated
	}
	return http.StatusForbidden
}

// audited is the part of an entry of the audit log that is read.
type audited struct {
	RequestURI, Verb, UserAgent string
	User                        struct{ Username string }
	ResponseStatus              struct {
		Code    int
		Message string
	}
	RequestObject struct {
		Metadata struct {
			Name        string
			Annotations map[string]string
		}
	}
}

// labAttack is what who is root on a minion does with what is there: with the bootstrap token that its role may read, and
// with the node's certificate. Nothing is granted, and the audit log has every request, by whom, and why it was refused.
func labAttack(t *testing.T, r *running, s lab.Status) {
	minions := living(s, "minions")
	master, err := s.Find("masters")
	if err != nil || len(minions) != 2 {
		t.Fatalf("%v: the minions are %+v, want two", err, minions)
	}
	mine, other := minions[0], minions[1]
	kubeconfig, err := r.Kubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	admin, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	operator, err := kube.New(admin)
	if err != nil {
		t.Fatal(err)
	}
	token, conf := labSteal(t, r, mine.ID)
	if out := strings.TrimSpace(r.ask(t, mine.ID, "grep -rlF "+token.Secret+" /run/hardtack /var/lib/hardtack /var/lib/kubelet /etc 2>/dev/null")); out != "" {
		t.Errorf("the minion %s keeps the bootstrap token in %q", mine.ID, out)
	}
	thief := func(bearer, pair string) *rest.Config {
		return &rest.Config{Host: admin.Host, UserAgent: thiefAgent, BearerToken: bearer, TLSClientConfig: rest.TLSClientConfig{
			ServerName: admin.ServerName, CAData: admin.CAData, CertData: []byte(pair), KeyData: []byte(pair)}}
	}
	bell := thief(token.Bearer(), "")
	node := thief("", r.ask(t, mine.ID, "cat "+certs.NodeIdentity))
	users := map[*rest.Config]string{bell: "system:bootstrap:" + token.ID, node: "system:node:" + mine.Name}
	asks := func(what string, as *rest.Config, name, node, why string, proven bool, asked x509.CertificateRequest) theft {
		return theft{what, as, http.MethodPost, requestsURI, requestObject(t, conf, name, node, proven, asked), why, name}
	}
	const kubeSystem = "/api/v1/namespaces/kube-system/"
	secret := kubeSystem + "secrets/bootstrap-token-" + token.ID
	steps := []theft{
		asks("the API server's name in a serving certificate", node, "thief-name", mine.Name, "the name masters.cncfdemo.k8s is not one of the machine's",
			false, x509.CertificateRequest{DNSNames: []string{"masters.cncfdemo.k8s"}}),
		asks("the Service kubernetes in a serving certificate", node, "thief-address", mine.Name, "the address 10.96.0.1 is not one of the machine's",
			false, x509.CertificateRequest{IPAddresses: []net.IP{net.IPv4(10, 96, 0, 1)}}),
		asks("another minion's certificate", bell, "thief-minion", other.Name, "the request has no proof of identity", false, x509.CertificateRequest{}),
		asks("a certificate of the master's name, with the minion's own proof", bell, "thief-master", master.Name,
			"instance "+mine.ID+" is "+vnet.HostnameOf(mine.Address)+", and asks for the node "+master.Name, true, x509.CertificateRequest{}),
		{"all Secrets", bell, http.MethodGet, "/api/v1/secrets", "", `cannot list resource "secrets"`, ""},
		{"the token's own Secret", bell, http.MethodGet, secret, "", `cannot get resource "secrets"`, ""},
		{"the nodes", bell, http.MethodGet, "/api/v1/nodes", "", `cannot list resource "nodes"`, ""},
		{"a service account's token", bell, http.MethodPost, kubeSystem + "serviceaccounts/default/token", "{}", `cannot create resource "serviceaccounts/token"`, ""},
		{"a pod", bell, http.MethodPost, kubeSystem + "pods", "{}", `cannot create resource "pods"`, ""},
		{"a Secret of no pod of the node", node, http.MethodGet, secret, "", "no relationship found between node", ""},
		{"the label of masters", node, http.MethodPatch, "/api/v1/nodes/" + mine.Name, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`,
			"is not allowed to modify labels: node-role.kubernetes.io/control-plane", ""},
	}
	t.Cleanup(func() {
		if out, err := r.run(context.Background(), "lab", "kubectl", "--name", "e2e", "delete", "csr", "--ignore-not-found",
			"thief-name", "thief-address", "thief-minion", "thief-master"); err != nil {
			t.Errorf("deleting the thief's requests: %v: %s", err, out)
		}
	})
	for _, step := range steps {
		kind := "application/json"
		if step.method == http.MethodPatch {
			kind = "application/merge-patch+json"
		}
		if code, body, err := send(t.Context(), step.as, step.method, step.path, kind, step.body); err != nil || code != step.code() {
			t.Errorf("%s, as %s: %d %v, want %d: %s", step.what, users[step.as], code, err, step.code(), body)
		}
	}
	if open := eventually(heard, func() []string { return r.refused(t, operator, steps) }); len(open) > 0 {
		t.Errorf("certificate requests:\n%s", strings.Join(open, "\n"))
	}
	if open := eventually(time.Minute, func() []string { return r.notAudited(t, master.ID, steps, users) }); len(open) > 0 {
		t.Errorf("%s of %s:\n%s", auditLog, master.ID, strings.Join(open, "\n"))
	}
}

// labSteal takes the keys of the minion's role, as a process of root can, and with them the bootstrap token. It returns the
// configuration of the minion's calls, too.
func labSteal(t *testing.T, r *running, id string) (pki.Token, aws.Config) {
	t.Helper()
	out := r.ask(t, id, `bash -c "$(echo `+base64.StdEncoding.EncodeToString([]byte(roleKeys))+` | base64 -d)" 2>&1 </dev/null`)
	var keys struct{ AccessKeyID, SecretAccessKey, Token string }
	if err := json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &keys); err != nil || keys.Token == "" {
		t.Fatalf("the keys of the role of %s: %v: %q", id, err, out)
	}
	endpoint := strings.TrimSpace(r.ask(t, id, "cat /run/credentials/@system/hardtack.aws-endpoint; echo"))
	if !strings.HasPrefix(endpoint, "http://") {
		t.Fatalf("the endpoint of AWS in %s: %q", id, endpoint)
	}
	labPodAsks(t, r, endpoint)
	at, err := r.AWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conf := aws.Config{Region: at.Region, BaseEndpoint: &at.Endpoint, Credentials: credentials.NewStaticCredentialsProvider(keys.AccessKeyID, keys.SecretAccessKey, keys.Token)}
	outside := conf // the same APIs, from this computer
	secrets := store.NewSSM("/hardtack/cncfdemo", func(context.Context) (aws.Config, error) { return outside, nil })
	conf.BaseEndpoint = &endpoint
	if _, err := secrets.Get(t.Context(), pki.KubernetesCA+pki.Key); !errors.Is(err, pki.ErrForbidden) {
		t.Errorf("a minion's role reads the key of the cluster's authority: %v, want %v", err, pki.ErrForbidden)
	}
	text, err := secrets.Get(t.Context(), pki.BootstrapToken)
	if err != nil {
		t.Fatalf("the token, with the keys of the role of %s: %v", id, err)
	}
	token, err := pki.ParseToken(text)
	if err != nil {
		t.Fatal(err)
	}
	return token, conf
}

// labPodAsks asks for the bootstrap token from a pod's network, which reaches the lab's APIs as pods reach AWS's, with an invented key.
func labPodAsks(t *testing.T, r *running, endpoint string) {
	t.Helper()
	host, port, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	body := `{"Name":"/hardtack/cncfdemo/` + pki.BootstrapToken + `","WithDecryption":true}`
	ask := fmt.Sprintf("exec 3<>/dev/tcp/%s/%s; printf 'POST / HTTP/1.0\\r\\nX-Amz-Target: AmazonSSM.GetParameter\\r\\nContent-Type: application/x-amz-json-1.1\\r\\nContent-Length: %d\\r\\nX-Amz-Date: %s\\r\\nAuthorization: %s\\r\\n\\r\\n%%s' '%s' >&3; cat <&3",
		host, port, len(body), now.Format("20060102T150405Z"), "AWS4-HMAC-SHA256 Credential=ASIAINVENTED00000000/"+now.Format("20060102")+
			"/us-west-2/ssm/aws4_request, SignedHeaders=host;x-amz-date, Signature="+strings.Repeat("0", 64), body)
	asked := false
	for _, m := range living(s, "minions") {
		pod := strings.TrimSpace(r.ask(t, m.ID, "pgrep -o -x pause || true"))
		if pod == "" {
			continue
		}
		asked = true
		out := r.ask(t, m.ID, "nsenter --net --target "+pod+` bash -c "$(echo `+base64.StdEncoding.EncodeToString([]byte(ask))+` | base64 -d)" 2>&1 </dev/null`)
		if status, _, _ := strings.Cut(out, "\r\n"); !strings.HasSuffix(status, " 400 Bad Request") || !strings.Contains(out, "UnrecognizedClientException") {
			t.Errorf("a pod of %s asks for the token: %q", m.ID, out)
		}
	}
	if !asked {
		t.Error("no minion has a pod")
	}
}

// refused says of which certificate requests the cluster has not said, in an annotation, why they stay undecided.
func (r *running) refused(t *testing.T, operator *kube.Client, steps []theft) (open []string) {
	t.Helper()
	pending, err := operator.Requests(t.Context())
	if err != nil {
		return []string{err.Error()}
	}
	for _, step := range steps {
		if step.request == "" {
			continue
		}
		i := slices.IndexFunc(pending, func(p controller.Request) bool { return p.Name == step.request })
		if i < 0 {
			open = append(open, fmt.Sprintf("%s: %s is not pending, among %d that are", step.what, step.request, len(pending)))
			continue
		}
		if said := pending[i].Reason; !strings.Contains(said, step.why) {
			open = append(open, fmt.Sprintf("%s: %s is undecided because of %q, want %q", step.what, step.request, said, step.why))
		}
	}
	return open
}

// notAudited says which of the requests, and of the controller's reasons, the master's audit log does not have.
func (r *running) notAudited(t *testing.T, master string, steps []theft, users map[*rest.Config]string) (open []string) {
	t.Helper()
	out := r.ask(t, master, `grep -hF -e '"userAgent":"`+thiefAgent+`"' -e '`+requestsURI+`/thief-' `+auditLog)
	var entries []audited
	for line := range strings.Lines(out) {
		var e audited
		if !strings.HasPrefix(line, "{") {
			continue
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("an entry of the audit log: %v: %s", err, line)
		}
		entries = append(entries, e)
	}
	has := func(want string, ok func(audited) bool) {
		if !slices.ContainsFunc(entries, ok) {
			open = append(open, fmt.Sprintf("no entry of %s; the %d entries are %+v", want, len(entries), entries))
		}
	}
	for _, step := range steps {
		has(fmt.Sprintf("%s: %s %s by %s, %d, %q", step.what, step.method, step.path, users[step.as], step.code(), step.why), func(e audited) bool {
			return e.UserAgent == thiefAgent && e.RequestURI == step.path && e.User.Username == users[step.as] && e.ResponseStatus.Code == step.code() &&
				e.RequestObject.Metadata.Name == step.request && (step.request != "" || strings.Contains(e.ResponseStatus.Message, step.why))
		})
		if step.request != "" {
			has(step.what+": that the controller leaves it undecided because "+step.why, func(e audited) bool {
				uri, _, _ := strings.Cut(e.RequestURI, "?")
				return e.Verb == "patch" && uri == requestsURI+"/"+step.request && e.User.Username == "hardtack:controller" && e.ResponseStatus.Code == http.StatusOK &&
					strings.Contains(e.RequestObject.Metadata.Annotations[controller.AnnotationReason], step.why)
			})
		}
	}
	return open
}

// requestObject is a CertificateSigningRequest in JSON for a node, by a new key: for a serving certificate if it asks for
// names or addresses, and with the proof of identity that these credentials make, if it is to have one.
func requestObject(t *testing.T, conf aws.Config, name, node string, proven bool, asked x509.CertificateRequest) string {
	t.Helper()
	asked.Subject = pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &asked, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	meta, signer, usage := map[string]any{"name": name}, controller.SignerClient, "client auth"
	if len(asked.DNSNames)+len(asked.IPAddresses) > 0 {
		signer, usage = controller.SignerServing, "server auth"
	}
	if proven {
		proof, err := identity.Prove(t.Context(), conf, "cncfdemo", der, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		meta["annotations"] = map[string]any{controller.AnnotationProof: proof}
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": meta,
		"spec": map[string]any{"signerName": signer, "usages": []string{"digital signature", usage},
			"request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
