package pki

import (
	"encoding/base64"
	"encoding/json"
	"time"
)

// Kubeconfig describes a client of an API server. Of each pair of fields, a file and its content, one is set. Clients
// reload a certificate file when it changes, but not a certificate in the kubeconfig.
type Kubeconfig struct {
	Server string
	// ServerName is the name to expect in the server's certificate, if it is not the host in Server.
	ServerName string
	CAFile     string
	CA         []byte
	User       string
	// Token is a bearer token, used instead of a certificate.
	Token                    string
	CertificateFile, KeyFile string
	Pair                     Pair
}

// The fields of the format (client-go's clientcmd/api/v1) that are used.
type (
	configFile struct {
		APIVersion     string         `json:"apiVersion"`
		Kind           string         `json:"kind"`
		Clusters       []namedCluster `json:"clusters"`
		Users          []namedUser    `json:"users"`
		Contexts       []namedContext `json:"contexts"`
		CurrentContext string         `json:"current-context"`
	}
	namedCluster struct {
		Name    string      `json:"name"`
		Cluster clusterInfo `json:"cluster"`
	}
	clusterInfo struct {
		Server string `json:"server"`
		Name   string `json:"tls-server-name,omitempty"`
		CAFile string `json:"certificate-authority,omitempty"`
		CA     string `json:"certificate-authority-data,omitempty"`
	}
	namedUser struct {
		Name string   `json:"name"`
		User userInfo `json:"user"`
	}
	userInfo struct {
		Token           string `json:"token,omitempty"`
		CertificateFile string `json:"client-certificate,omitempty"`
		KeyFile         string `json:"client-key,omitempty"`
		Certificate     string `json:"client-certificate-data,omitempty"`
		Key             string `json:"client-key-data,omitempty"`
	}
	namedContext struct {
		Name    string      `json:"name"`
		Context contextInfo `json:"context"`
	}
	contextInfo struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	}
)

// Render returns the file: JSON, which is also YAML.
func (k Kubeconfig) Render() []byte {
	const name = "hardtack"
	base64 := base64.StdEncoding.EncodeToString
	data, err := json.MarshalIndent(configFile{
		APIVersion: "v1", Kind: "Config",
		Clusters: []namedCluster{{name, clusterInfo{Server: k.Server, Name: k.ServerName, CAFile: k.CAFile, CA: base64(k.CA)}}},
		Users: []namedUser{{k.User, userInfo{Token: k.Token, CertificateFile: k.CertificateFile, KeyFile: k.KeyFile,
			Certificate: base64(k.Pair.Certificate), Key: base64(k.Pair.Key)}}},
		Contexts:       []namedContext{{name, contextInfo{Cluster: name, User: k.User}}},
		CurrentContext: name,
	}, "", "  ")
	if err != nil {
		panic(err) // strings in structs can always be encoded
	}
	return append(data, '\n')
}

// AdminKubeconfig returns a self-contained kubeconfig for administrators, with all rights until it expires.
func AdminKubeconfig(a Authority, server string, life time.Duration, now time.Time) ([]byte, error) {
	pair, err := a.Issue(Profile{Name: userAdmin, Groups: []string{GroupAdmins}, Usage: Client, Life: life}, now)
	if err != nil {
		return nil, err
	}
	return Kubeconfig{Server: server, CA: EncodeCertificates(a.Trusted()), User: userAdmin, Pair: pair}.Render(), nil
}
