package hubapi

import (
	"bytes"
	"maps"
	"os"
	"slices"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/apiclient"
)

// Known are the clusters of the kubeconfigs in which a person may have access to clusters. What cannot be read, or is not verified, has
// none.
func (t Target) Known() []apiclient.KnownCluster {
	t.Context, t.InCluster = "", nil
	_, config, err := t.load()
	if err != nil {
		return nil
	}
	var known []apiclient.KnownCluster
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		if cluster := config.Clusters[name]; !cluster.InsecureSkipTLSVerify && cluster.TLSServerName == "" {
			known = append(known, apiclient.KnownCluster{Name: name, Server: cluster.Server, CA: certificatesOf(cluster)})
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

// trustKnown finds the cluster of a kubeconfig with the address of the hub.
func (i Invitation) trustKnown() (Trust, bool) {
	for _, known := range i.Known {
		if apiclient.SameServer(known.Server, i.Server) && len(known.CA) > 0 {
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
		if ca, err := keepPinned(published, apiclient.PinsOf(known.CA)); err == nil {
			return Trust{CA: ca, Known: true, Reason: "verified with the certificate authority of cluster " + known.Name + " in your kubeconfig"}, true
		}
	}
	return Trust{}, false
}
