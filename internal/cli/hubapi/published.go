package hubapi

import (
	"cmp"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/capstan-io/capstan/internal/apiclient"
)

// Published is what the hub publishes about itself.
type Published struct {
	// Server is the URL under which agents reach the hub: the one that the hub publishes, else that of the kubeconfig.
	Server string
	// Pins name the certificate authorities of that URL, for --ca-cert-hash; none if the hub publishes none.
	Pins []string
	// InClusterInfo says that Server is what the hub publishes.
	InClusterInfo bool
}

// Published reads what those who join read as well, but over a connection that is verified.
func (h *Hub) Published(ctx context.Context) (Published, error) {
	published := Published{Server: h.Server}
	info, err := h.publicConfigMap(ctx, bootstrapapi.ConfigMapClusterInfo)
	switch {
	case err == nil:
		if config, err := clientcmd.Load([]byte(info.Data[bootstrapapi.KubeConfigKey])); err == nil {
			cluster := FirstCluster(config)
			published.Server = cmp.Or(cluster.Server, h.Server)
			published.InClusterInfo = cluster.Server != ""
			published.Pins = apiclient.PinsOf(cluster.CertificateAuthorityData)
		}
		return published, nil
	case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return published, h.Explain("read the address that the hub publishes", err)
	}
	published.Pins = apiclient.PinsOf(h.OwnCA(ctx))
	return published, nil
}

// OwnCA is the certificate authority that the cluster of the hub gives its own pods, in PEM; nil if that is not to be had.
func (h *Hub) OwnCA(ctx context.Context) []byte {
	root, err := h.publicConfigMap(ctx, configMapRootCA)
	if err != nil {
		return nil
	}
	return []byte(root.Data["ca.crt"])
}
