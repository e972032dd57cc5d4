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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/identity"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

const (
	// thiefAgent is the user agent of the thief's requests, and thiefRequest how the names of its certificate requests
	// begin: by them the audit log is searched.
	thiefAgent   = "hardtack-thief"
	thiefRequest = "thief-"
	requestsURI  = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	auditLog     = "/var/log/kube-apiserver/audit.log"
	// heard bounds the wait for the controller's answers, which on a computer of one's own come within 5 s.
	heard = 3 * time.Minute
	// roleKeys prints the keys of the instance's role: the image has no program for it, and needs none.
	roleKeys = `ask() { exec 3<>/dev/tcp/169.254.169.254/80; printf '%s /latest/%s HTTP/1.0\r\n%s\r\n\r\n' "$@" >&3; sed '1,/^\r*$/d' <&3; }
t="X-aws-ec2-metadata-token: $(ask PUT api/token 'X-aws-ec2-metadata-token-ttl-seconds: 300')"; p=meta-data/iam/security-credentials/
ask GET $p$(ask GET $p "$t") "$t"`
)

// theft is a request of who has a minion, and its answer.
type theft struct {
	what               string
	as                 *rest.Config
	user               string
	method, path, body string
	// code is the answer's, and why what the audit log says of it; of a certificate request, why nobody approves it.
	code int
	why  string
	// request is the name of the certificate request that it makes, of that signer.
	request, signer string
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
	thief := func() *rest.Config {
		return &rest.Config{Host: admin.Host, UserAgent: thiefAgent, TLSClientConfig: rest.TLSClientConfig{ServerName: admin.ServerName, CAData: admin.CAData}}
	}
	bearer, node := thief(), thief()
	bearer.BearerToken = token.Bearer()
	identityFile := r.ask(t, mine.ID, "cat "+certs.NodeIdentity)
	node.CertData, node.KeyData = []byte(identityFile), []byte(identityFile)
	bell, me := "system:bootstrap:"+token.ID, "system:node:"+mine.Name

	// The request for a certificate of that node, and the proof that this minion can make for it.
	client := func(name string) (der []byte, proof string) {
		der = newRequest(t, x509.CertificateRequest{}, name)
		proof, err := identity.Prove(t.Context(), conf, "cncfdemo", der, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return der, proof
	}
	othersRequest, _ := client(other.Name)
	mastersRequest, proof := client(master.Name)
	object := func(name, signer string, der []byte, proof string) string {
		return requestObject(t, name, signer, der, proof)
	}
	serving := func(name string, asked x509.CertificateRequest) string {
		return object(name, controller.SignerServing, newRequest(t, asked, mine.Name), "")
	}
	secret := "/api/v1/namespaces/kube-system/secrets/bootstrap-token-" + token.ID
	// Serving certificates first: the controller says of the other two at once what is wrong.
	steps := []theft{
		{"the API server's name in a serving certificate", node, me, http.MethodPost, requestsURI,
			serving(thiefRequest+"name", x509.CertificateRequest{DNSNames: []string{"masters.cncfdemo.k8s"}}), http.StatusCreated,
			"the name masters.cncfdemo.k8s is not one of the machine's", thiefRequest + "name", controller.SignerServing},
		{"the Service kubernetes in a serving certificate", node, me, http.MethodPost, requestsURI,
			serving(thiefRequest+"address", x509.CertificateRequest{IPAddresses: []net.IP{net.IPv4(10, 96, 0, 1)}}), http.StatusCreated,
			"the address 10.96.0.1 is not one of the machine's", thiefRequest + "address", controller.SignerServing},
		{"the certificate of another minion", bearer, bell, http.MethodPost, requestsURI,
			object(thiefRequest+"minion", controller.SignerClient, othersRequest, ""), http.StatusCreated,
			"the request has no proof of identity", thiefRequest + "minion", controller.SignerClient},
		{"the master's name, with the minion's own proof", bearer, bell, http.MethodPost, requestsURI,
			object(thiefRequest+"master", controller.SignerClient, mastersRequest, proof), http.StatusCreated,
			"instance " + mine.ID + " is " + mine.Name + ", and asks for the node " + master.Name, thiefRequest + "master", controller.SignerClient},
		{"all Secrets", bearer, bell, http.MethodGet, "/api/v1/secrets", "", http.StatusForbidden, `cannot list resource "secrets"`, "", ""},
		{"the token's own Secret", bearer, bell, http.MethodGet, secret, "", http.StatusForbidden, `cannot get resource "secrets"`, "", ""},
		{"the nodes", bearer, bell, http.MethodGet, "/api/v1/nodes", "", http.StatusForbidden, `cannot list resource "nodes"`, "", ""},
		{"a service account's token", bearer, bell, http.MethodPost, "/api/v1/namespaces/kube-system/serviceaccounts/default/token", "{}",
			http.StatusForbidden, `cannot create resource "serviceaccounts/token"`, "", ""},
		{"a pod", bearer, bell, http.MethodPost, "/api/v1/namespaces/kube-system/pods", "{}", http.StatusForbidden, `cannot create resource "pods"`, "", ""},
		{"a Secret of no pod of the node", node, me, http.MethodGet, secret, "", http.StatusForbidden, "no relationship found between node", "", ""},
		{"a label of masters", node, me, http.MethodPatch, "/api/v1/nodes/" + mine.Name, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`,
			http.StatusForbidden, "is not allowed to modify labels: node-role.kubernetes.io/control-plane", "", ""},
	}
	t.Cleanup(func() {
		args := []string{"lab", "kubectl", "--name", "e2e", "delete", "csr", "--ignore-not-found"}
		for _, step := range steps {
			if step.request != "" {
				args = append(args, step.request)
			}
		}
		if out, err := r.run(context.Background(), args...); err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	})
	for _, step := range steps {
		kind := "application/json"
		if step.method == http.MethodPatch {
			kind = "application/merge-patch+json"
		}
		if code, body, err := send(t.Context(), step.as, step.method, step.path, kind, step.body); err != nil || code != step.code {
			t.Errorf("%s, as %s: %d %v, want %d: %s", step.what, step.user, code, err, step.code, body)
		}
	}
	if open := eventually(heard, func() []string { return r.refused(t, operator, master.ID, steps) }); len(open) > 0 {
		t.Errorf("certificate requests:\n%s", strings.Join(open, "\n"))
	}
	if open := eventually(time.Minute, func() []string { return r.notAudited(t, master.ID, steps) }); len(open) > 0 {
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

// refused says of which certificate requests the cluster has not said, as it should, why they stay undecided: of machines'
// in an annotation, and of kubelets' in the controller's journal.
func (r *running) refused(t *testing.T, operator *kube.Client, master string, steps []theft) (open []string) {
	t.Helper()
	pending, err := operator.Requests(t.Context())
	if err != nil {
		return []string{err.Error()}
	}
	journal, err := os.ReadFile(filepath.Join(r.home.Dir, "machines", master, lab.JournalFile))
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
		said := pending[i].Reason
		if step.signer == controller.SignerServing {
			for line := range strings.Lines(string(journal)) {
				if strings.Contains(line, "undecided") && strings.Contains(line, "request="+step.request+" ") {
					said = line
				}
			}
		}
		if !strings.Contains(said, step.why) {
			open = append(open, fmt.Sprintf("%s: %s is undecided because of %q, want %q", step.what, step.request, said, step.why))
		}
	}
	return open
}

// notAudited says which of the requests, and of the controller's reasons, the master's audit log does not have.
func (r *running) notAudited(t *testing.T, master string, steps []theft) (open []string) {
	t.Helper()
	out := r.ask(t, master, `grep -hF -e '"userAgent":"`+thiefAgent+`"' -e '`+requestsURI+"/"+thiefRequest+`' `+auditLog)
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
		has(fmt.Sprintf("%s: %s %s by %s, %d, %q", step.what, step.method, step.path, step.user, step.code, step.why), func(e audited) bool {
			return e.UserAgent == thiefAgent && e.RequestURI == step.path && e.User.Username == step.user && e.ResponseStatus.Code == step.code &&
				(step.request == "" && strings.Contains(e.ResponseStatus.Message, step.why) || step.request != "" && e.RequestObject.Metadata.Name == step.request)
		})
		if step.signer == controller.SignerClient {
			has(step.what+": that the controller refuses it because "+step.why, func(e audited) bool {
				uri, _, _ := strings.Cut(e.RequestURI, "?")
				return e.Verb == "patch" && uri == requestsURI+"/"+step.request && e.User.Username == "hardtack:controller" && e.ResponseStatus.Code == http.StatusOK &&
					strings.Contains(e.RequestObject.Metadata.Annotations[controller.AnnotationReason], step.why)
			})
		}
	}
	return open
}

// newRequest is a new key's certificate request in DER for a node, with what else it asks for.
func newRequest(t *testing.T, asked x509.CertificateRequest, node string) []byte {
	t.Helper()
	asked.Subject = pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &asked, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// requestObject is a CertificateSigningRequest in JSON, with the proof of identity unless that is empty.
func requestObject(t *testing.T, name, signer string, der []byte, proof string) string {
	t.Helper()
	meta, usage := map[string]any{"name": name}, "client auth"
	if proof != "" {
		meta["annotations"] = map[string]any{controller.AnnotationProof: proof}
	}
	if signer == controller.SignerServing {
		usage = "server auth"
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": meta,
		"spec": map[string]any{"signerName": signer, "usages": []string{"digital signature", usage},
			"request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
