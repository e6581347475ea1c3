// Package clusterapi asks managed clusters through a hub, and says why they do not answer.
package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/reach/api"
)

// Server is the URL at which the hub serves the API of a cluster. It asks the hub, once.
func Server(ctx context.Context, hub *hubapi.Hub, cluster string) (string, error) {
	version, err := hub.ReachVersion(ctx)
	if err != nil {
		return "", err
	}
	server := hub.Server
	if !strings.Contains(server, "://") { // as clients take it, which want one in front of a path
		server = "https://" + server
	}
	return strings.TrimRight(server, "/") + api.Path(version, cluster, fleet.SubresourceProxy), nil
}

// Cluster is the API of a cluster, as the hub serves it.
type Cluster struct {
	Name      string
	hub       *hubapi.Hub
	client    rest.Interface
	discovery *discovery.DiscoveryClient
}

// Of prepares to ask a cluster; nothing is sent to it yet. All clusters share the connections to the hub.
func Of(ctx context.Context, hub *hubapi.Hub, name string) (*Cluster, error) {
	server, err := Server(ctx, hub, name)
	if err != nil {
		return nil, err
	}
	config := hub.Config()
	config.Host = server
	config.WarningHandler = rest.NoWarnings{} // each cluster would have the same
	found, err := discovery.NewDiscoveryClientForConfigAndClient(config, hub.Transport())
	if err != nil {
		return nil, err
	}
	return &Cluster{Name: name, hub: hub, client: found.RESTClient(), discovery: found}, nil
}

// Get asks for a path of the cluster's API, once: what fails is for the user to see, not to wait for.
func (c *Cluster) Get(path ...string) *rest.Request {
	return c.client.Get().AbsPath(path...).MaxRetries(0)
}

// Post sends something to a path of the cluster's API, once.
func (c *Cluster) Post(path string) *rest.Request {
	return c.client.Post().AbsPath(path).MaxRetries(0)
}

// Health is nil if the API server of the cluster says that it is well.
func (c *Cluster) Health(ctx context.Context) error { return c.Get("/healthz").Do(ctx).Error() }

// Resources are the resources of all groups, or those of the core group alone, which takes one small request.
func (c *Cluster) Resources(ctx context.Context, coreOnly bool) ([]*metav1.APIResourceList, error) {
	if coreOnly {
		core := &metav1.APIResourceList{GroupVersion: corev1.SchemeGroupVersion.String()}
		err := c.Get("/api/v1").Do(ctx).Into(core)
		return []*metav1.APIResourceList{core}, err
	}
	_, lists, err := c.discovery.ServerGroupsAndResourcesWithContext(ctx)
	if discovery.IsGroupDiscoveryFailedError(err) {
		err = nil // a group that does not answer is no reason to do without the others
	}
	return lists, err
}

// Trouble is why a cluster did not do what it was asked, in words for a person.
type Trouble struct {
	// What is wrong.
	What string
	// Next is what to do about it, empty if that is plain.
	Next string
	// Hub says that it is the way to the hub that fails, so that it fails for all clusters.
	Hub bool
	// Connected says that the cluster itself answered.
	Connected bool
}

// String is what is wrong and, in a line of its own, what to do about it.
func (t Trouble) String() string {
	if t.Next == "" {
		return t.What
	}
	return t.What + "\n" + t.Next
}

// Trouble says what is wrong with a request that failed, and that had a time to be answered in.
func (c *Cluster) Trouble(err error, limit time.Duration) Trouble {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if errors.Is(err, context.DeadlineExceeded) || hubapi.IsTimeout(err) {
			return Trouble{What: fmt.Sprintf("time-out: no answer in %s", limit), Next: "Wait longer with --timeout."}
		}
		problem, next := c.hub.Diagnose(err)
		return Trouble{What: problem.Error(), Next: next, Hub: true}
	}
	message := text.OneLine(status.Status().Message)
	switch {
	case hubapi.NotServed(err):
		return Trouble{
			What: "the hub does not serve the API of clusters, or the cluster is no API server",
			Next: "A hub of Capstan serves it for clusters with the add-on " + fleet.AddOnClusterProxy + ", in an existing cluster if its chart is installed.",
		}
	case apierrors.IsUnauthorized(err):
		return Trouble{What: "the credentials are not accepted: " + message, Next: c.hub.Source.RenewHint()}
	case isAboutCluster(status) && apierrors.IsNotFound(err):
		return Trouble{What: fmt.Sprintf("the hub has no cluster %q", c.Name), Next: "\"capstan get clusters\" lists those there are."}
	case isAboutCluster(status) && apierrors.IsForbidden(err):
		return Trouble{
			What: "forbidden: " + message,
			Next: "Ask an administrator of the hub for the right to use managedclusters/proxy of this cluster.",
		}
	case apierrors.IsServiceUnavailable(err):
		return Trouble{What: "not connected: " + message, Next: "\"capstan proxy health\" shows which clusters are."}
	case apierrors.IsForbidden(err):
		return Trouble{What: "forbidden: " + message, Connected: true}
	case status.Status().Code == http.StatusGatewayTimeout:
		return Trouble{What: "time-out: " + message}
	}
	return Trouble{What: message, Connected: true}
}

// isAboutCluster tells a Status that the hub wrote from one of the cluster itself, which has no ManagedClusters, if it is no hub.
func isAboutCluster(status apierrors.APIStatus) bool {
	details := status.Status().Details
	return details != nil && details.Kind == fleet.ResourceManagedClusters &&
		(details.Group == api.Standalone.Group || details.Group == api.Aggregated.Group)
}
