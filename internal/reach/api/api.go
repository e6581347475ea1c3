// Package api says by which paths a hub lets its clients reach managed clusters.
//
// A standalone hub has them below its ManagedClusters. In an existing cluster these are custom resources, which can have no subresources of
// ours, so there an aggregated API has a group for them.
package api

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var (
	// Standalone is the version of ManagedClusters, which a standalone hub serves.
	Standalone = clusterv1.GroupVersion
	// Aggregated is the version that a hub in an existing cluster has for this alone.
	Aggregated = schema.GroupVersion{Group: "reach.capstan.io", Version: "v1alpha1"}
)

// ProtocolStream is what the connection of a request for the subresource stream is upgraded to.
const ProtocolStream = "capstan-stream-1"

// ProtocolPortForward is what the connection of a request for the subresource portforward is upgraded to, and QueryAddress names the
// address in its query.
const (
	ProtocolPortForward = "capstan-portforward-1"
	QueryAddress        = "address"
)

// Served finds out which version a hub has. The client is one for its config.
func Served(ctx context.Context, hub *rest.Config, client *http.Client) (schema.GroupVersion, error) {
	found, err := discovery.NewDiscoveryClientForConfigAndClient(hub, client)
	if err != nil {
		return schema.GroupVersion{}, err
	}
	err = found.RESTClient().Get().AbsPath("/apis", Aggregated.Group, Aggregated.Version).MaxRetries(0).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return Standalone, nil
	}
	return Aggregated, err
}

// Path is that of a subresource of a cluster, below the address of a hub.
func Path(version schema.GroupVersion, cluster, subresource string) string {
	return "/apis/" + version.String() + "/" + fleet.ResourceManagedClusters + "/" + cluster + "/" + subresource
}

// Attach is the subresource by which the agent of a cluster makes a tunnel. API servers put a time limit on requests for subresources that
// they do not know, which has to be one that they do where a request passes through one to the Aggregated API.
func Attach(version schema.GroupVersion) string {
	if version == Aggregated {
		return fleet.SubresourceAttach
	}
	return fleet.SubresourceTunnel
}

// Unreached is the answer to a request that does not reach the API server of a cluster. Its details tell clients that the hub or the agent
// of the cluster writes it: API servers of clusters answer 503, too, as do those behind them.
func Unreached(cluster, message string) error {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{Group: Standalone.Group, Kind: fleet.ResourceManagedClusters, Name: cluster}
	return err
}

// Impersonates reports whether a request asks an API server to take it for one of somebody else than whom its credential is of.
func Impersonates(header http.Header) bool {
	for key := range header {
		if strings.HasPrefix(http.CanonicalHeaderKey(key), "Impersonate-") {
			return true
		}
	}
	return false
}
