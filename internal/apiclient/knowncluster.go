package apiclient

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
)

// KnownCluster is the cluster that a kubeconfig leads to.
type KnownCluster struct {
	// Name of the cluster in the kubeconfig.
	Name string
	// Server is the URL of the cluster.
	Server string
	// CA is the certificates to verify it with, in PEM; empty for those of the machine.
	CA []byte
}

// ClusterIn is the cluster that the current context of a kubeconfig leads to, with the certificates that the kubeconfig itself has.
func ClusterIn(kubeconfig []byte) (known KnownCluster, found bool) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil || config.Contexts[config.CurrentContext] == nil {
		return KnownCluster{}, false
	}
	name := config.Contexts[config.CurrentContext].Cluster
	cluster := config.Clusters[name]
	if cluster == nil || cluster.Server == "" {
		return KnownCluster{}, false
	}
	return KnownCluster{Name: name, Server: cluster.Server, CA: cluster.CertificateAuthorityData}, true
}

// SharesCA reports whether a key of a certificate authority vouches for both clusters. The authorities of the machine vouch for anybody.
func (k KnownCluster) SharesCA(other KnownCluster) bool {
	pins := PinsOf(other.CA)
	return slices.ContainsFunc(PinsOf(k.CA), func(pin string) bool { return slices.Contains(pins, pin) })
}

// HasCA reports whether a cluster has a certificate authority by which it can be told from others.
func (k KnownCluster) HasCA() bool { return len(k.CA) > 0 }

// IsAt reports whether a cluster is reached at a URL.
func (k KnownCluster) IsAt(server string) bool { return SameServer(k.Server, server) }

// SameServer reports whether two URLs lead to the same server.
func SameServer(a, b string) bool {
	first, errFirst := url.Parse(a)
	second, errSecond := url.Parse(b)
	return errFirst == nil && errSecond == nil && first.Scheme == second.Scheme &&
		strings.EqualFold(hostAndPort(first), hostAndPort(second)) && strings.Trim(first.Path, "/") == strings.Trim(second.Path, "/")
}

func hostAndPort(server *url.URL) string {
	if server.Port() == "" {
		return server.Hostname() + ":443"
	}
	return server.Hostname() + ":" + server.Port()
}

// PinOf names a certificate by the hash of its public key: it stays when the certificate is renewed with the same key.
func PinOf(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// PinsOf are the pins of all certificates of a PEM bundle.
func PinsOf(bundle []byte) []string {
	certificates, err := certutil.ParseCertsPEM(bundle)
	if err != nil {
		return nil
	}
	pins := make([]string, len(certificates))
	for i, certificate := range certificates {
		pins[i] = PinOf(certificate)
	}
	return slices.Compact(pins)
}
