package hubapi

import (
	"bytes"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// KnownCluster is a cluster of a kubeconfig: its user trusts it already.
type KnownCluster struct {
	// Name of the cluster in the kubeconfig.
	Name string
	// Server is the URL of the cluster.
	Server string
	// CA is the certificates to verify it with, in PEM; empty for those of the machine.
	CA []byte
}

// Known are the clusters of the kubeconfigs in which a person may have access to clusters. What cannot be read, or is not verified, has
// none.
func (t Target) Known() []KnownCluster {
	t.Context, t.InCluster = "", nil
	_, config, err := t.load()
	if err != nil {
		return nil
	}
	var known []KnownCluster
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		if cluster := config.Clusters[name]; !cluster.InsecureSkipTLSVerify && cluster.TLSServerName == "" {
			known = append(known, KnownCluster{Name: name, Server: cluster.Server, CA: certificatesOf(cluster)})
		}
	}
	return known
}

func certificatesOf(cluster *clientcmdapi.Cluster) []byte {
	if len(cluster.CertificateAuthorityData) > 0 || cluster.CertificateAuthority == "" {
		return cluster.CertificateAuthorityData
	}
	content, err := os.ReadFile(cluster.CertificateAuthority)
	if err != nil {
		return nil
	}
	return content
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
	pins := pinsOf(other.CA)
	return slices.ContainsFunc(pinsOf(k.CA), func(pin string) bool { return slices.Contains(pins, pin) })
}

// HasCA reports whether a cluster has a certificate authority by which it can be told from others.
func (k KnownCluster) HasCA() bool { return len(k.CA) > 0 }

// IsAt reports whether a cluster is reached at a URL.
func (k KnownCluster) IsAt(server string) bool { return sameServer(k.Server, server) }

// sameServer reports whether two URLs lead to the same server.
func sameServer(a, b string) bool {
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

// trustKnown finds the cluster of a kubeconfig with the address of the hub.
func (i Invitation) trustKnown() (Trust, bool) {
	for _, known := range i.Known {
		if sameServer(known.Server, i.Server) && len(known.CA) > 0 {
			return Trust{CA: known.CA, Known: true, Reason: "verified with the certificate authority of cluster " + known.Name + " in your kubeconfig"}, true
		}
	}
	return Trust{}, false
}

// trustKnownCA keeps the published certificates that the kubeconfig has for a cluster at another address, such as the one from within
// the network of the hub.
func (i Invitation) trustKnownCA(published []byte) (Trust, bool) {
	for _, known := range i.Known {
		if len(bytes.TrimSpace(known.CA)) == 0 {
			continue
		}
		if ca, err := keepPinned(published, pinsOf(known.CA)); err == nil {
			return Trust{CA: ca, Known: true, Reason: "verified with the certificate authority of cluster " + known.Name + " in your kubeconfig"}, true
		}
	}
	return Trust{}, false
}
