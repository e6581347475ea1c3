// Package clusterapi sends requests to managed clusters through a hub, and says why they fail.
package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/reach/api"
)

// Server is the URL at which the hub serves the API of a cluster. It reads the version of that API from the hub, once.
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
	Name   string
	hub    *hubapi.Hub
	config *rest.Config
	client rest.Interface
}

// Of is the client of a cluster; nothing is sent to it yet. All clusters share the connections to the hub.
func Of(ctx context.Context, hub *hubapi.Hub, name string) (*Cluster, error) {
	server, err := Server(ctx, hub, name)
	if err != nil {
		return nil, err
	}
	config := hub.Config()
	config.Host = server
	config.WarningHandler = rest.NoWarnings{} // each cluster would have the same
	requests, err := discovery.NewDiscoveryClientForConfigAndClient(config, limited(hub.Transport(), false))
	if err != nil {
		return nil, err
	}
	return &Cluster{Name: name, hub: hub, config: config, client: requests.RESTClient()}, nil
}

// Get requests a path of the cluster's API, once: what fails is for the user to see, not to wait for.
func (c *Cluster) Get(path ...string) *rest.Request {
	return c.client.Get().AbsPath(path...).MaxRetries(0)
}

// Post sends something to a path of the cluster's API, once.
func (c *Cluster) Post(path string) *rest.Request {
	return c.client.Post().AbsPath(path).MaxRetries(0)
}

// Health is nil if the API server of the cluster says that it is healthy.
func (c *Cluster) Health(ctx context.Context) error { return c.Get("/healthz").Do(ctx).Error() }

// Resources are the resources of all groups, or those of the core group alone, which takes one small request. A group that does not answer
// is no reason to do without the others: failed has the versions of those that do not.
func (c *Cluster) Resources(ctx context.Context, coreOnly bool) (lists []*metav1.APIResourceList, failed []string, err error) {
	if coreOnly {
		core := &metav1.APIResourceList{GroupVersion: corev1.SchemeGroupVersion.String()}
		err := c.Get("/api/v1").Do(ctx).Into(core)
		return []*metav1.APIResourceList{core}, nil, err
	}
	served, err := discovery.NewDiscoveryClientForConfigAndClient(c.config, limited(c.hub.Transport(), true))
	if err != nil {
		return nil, nil, err
	}
	_, lists, err = served.ServerGroupsAndResourcesWithContext(ctx)
	groups, some := discovery.GroupDiscoveryFailedErrorGroups(err)
	switch {
	case some && ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case some:
		return lists, versionsOf(groups), firstTooLarge(groups)
	}
	return lists, nil, err
}

// versionsOf are the versions of groups in the order of their names.
func versionsOf(groups map[schema.GroupVersion]error) (versions []string) {
	for version := range groups {
		versions = append(versions, version.String())
	}
	slices.Sort(versions)
	return versions
}

// firstTooLarge is the error of a group whose response is not read to its end; nil if there is none.
func firstTooLarge(groups map[schema.GroupVersion]error) error {
	for _, err := range groups {
		if errors.Is(err, errResponseTooLarge) {
			return err
		}
	}
	return nil
}

// Problem is why a request to a cluster failed, in words for a person.
type Problem struct {
	// Message says what is wrong.
	Message string
	// Next is what to do about it, empty if that is plain.
	Next string
	// Hub says that the connection to the hub fails, and so that to all clusters.
	Hub bool
	// Connected says that the cluster itself answered.
	Connected bool
	// NotServed says that the cluster serves no such resource, as far as it knows.
	NotServed bool
}

// String is what is wrong and, in a line of its own, what to do about it.
func (t Problem) String() string {
	if t.Next == "" {
		return t.Message
	}
	return t.Message + "\n" + t.Next
}

// Diagnose says what is wrong with a request that failed, and that had a time limit.
func (c *Cluster) Diagnose(err error, limit time.Duration) Problem {
	var status apierrors.APIStatus
	var tooLarge *tooLargeError
	if errors.As(err, &tooLarge) {
		return Problem{Message: tooLarge.Error(), Next: tooLarge.next, Connected: true}
	}
	if !errors.As(err, &status) {
		if errors.Is(err, context.DeadlineExceeded) || hubapi.IsTimeout(err) {
			return Problem{Message: fmt.Sprintf("time-out: no answer in %s", limit), Next: "Wait longer with --timeout."}
		}
		problem, next := c.hub.Diagnose(err)
		return Problem{Message: problem.Error(), Next: next, Hub: true}
	}
	message := text.OneLine(text.Message(status.Status().Message))
	switch {
	case hubapi.NotServed(err):
		return Problem{
			Message: "the hub does not serve the API of clusters, or the cluster is no API server",
			Next: "A hub of Capstan serves it for clusters with the add-on " + fleet.AddOnClusterProxy +
				", in an existing cluster if its chart is installed.",
		}
	case apierrors.IsUnauthorized(err):
		return Problem{Message: "the credentials are not accepted: " + message, Next: c.hub.Source.RenewHint()}
	case isAboutCluster(status) && apierrors.IsNotFound(err):
		return Problem{Message: fmt.Sprintf("the hub has no cluster %q", c.Name), Next: "\"capstan get clusters\" lists those there are."}
	case isAboutCluster(status) && apierrors.IsForbidden(err) && status.Status().Details.Name == "": // about all clusters, and no right
		return Problem{Message: "forbidden: " + message, Next: "An administrator of the hub decides what it lets through."}
	case isAboutCluster(status) && apierrors.IsForbidden(err):
		return Problem{
			Message: "forbidden: " + message,
			Next:    "Ask an administrator of the hub for the right to use managedclusters/proxy of this cluster.",
		}
	case isAboutCluster(status) && apierrors.IsServiceUnavailable(err):
		return Problem{Message: "not connected: " + message, Next: "\"capstan proxy health\" shows which clusters are."}
	case apierrors.IsServiceUnavailable(err):
		return Problem{Message: "unavailable: " + message, Connected: true}
	case apierrors.IsForbidden(err):
		return Problem{Message: "forbidden: " + message, Connected: true}
	case status.Status().Code == http.StatusGatewayTimeout:
		return Problem{Message: "time-out: " + message}
	}
	return Problem{Message: message, Connected: true}
}

// isAboutCluster distinguishes a Status that the hub or the agent wrote from one of the cluster itself, which has no ManagedClusters, if it
// is no hub.
func isAboutCluster(status apierrors.APIStatus) bool {
	details := status.Status().Details
	return details != nil && details.Kind == fleet.ResourceManagedClusters &&
		(details.Group == api.Standalone.Group || details.Group == api.Aggregated.Group)
}
