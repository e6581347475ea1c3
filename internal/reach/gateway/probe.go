package gateway

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/reach/gateway/clustersecret"
)

const (
	// probeWorkers bounds how many clusters are probed at the same time. Those that do not answer keep theirs until the time is up.
	probeWorkers = 100
	probeTimeout = 10 * time.Second
	// healthyInterval and unhealthyInterval are how often a cluster is probed, if nothing else has it probed: there is no event when one goes.
	// The latter doubles with each failure in a row, up to the former, so that those that do not answer leave workers to the others.
	healthyInterval   = time.Minute
	unhealthyInterval = 5 * time.Second
	// intervalJitter spreads clusters whose probes started together.
	intervalJitter = 0.2
	// probePath is one that API servers let everybody read.
	probePath = "/healthz"
	// maxReason bounds what of the answer of a cluster becomes a reason.
	maxReason = 256
)

// probes are the clusters to probe. They wait in a queue until a worker takes them.
type probes struct {
	queue    workqueue.TypedDelayingInterface[string]
	failures workqueue.TypedRateLimiter[string]
	opened   chan struct{}
	opening  sync.Once
}

func newProbes() *probes {
	return &probes{
		queue:    workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Name: "clustergateways"}),
		failures: workqueue.NewTypedItemExponentialFailureRateLimiter[string](unhealthyInterval, healthyInterval),
		opened:   make(chan struct{}),
	}
}

// open says that there is a client to write with.
func (p *probes) open() { p.opening.Do(func() { close(p.opened) }) }

// now has a cluster probed at once, as one that has not failed yet.
func (p *probes) now(cluster string) {
	p.failures.Forget(cluster)
	p.queue.Add(cluster)
}

// interval is that until the next probe of a cluster, after one with this result.
func (p *probes) interval(cluster string, healthy bool) time.Duration {
	if healthy {
		p.failures.Forget(cluster)
		return healthyInterval
	}
	return p.failures.When(cluster)
}

// TunnelChanged has a cluster probed: its tunnel has come or gone.
func (g *Gateway) TunnelChanged(cluster string) { g.probes.now(cluster) }

// Probe probes clusters, and writes the results, until ctx ends. It starts when the gateway runs. Of several gateways on the same
// Secrets one does.
func (g *Gateway) Probe(ctx context.Context) error {
	select {
	case <-g.probes.opened:
	case <-ctx.Done():
		return nil
	}
	var workers sync.WaitGroup
	for range probeWorkers {
		workers.Go(func() {
			for {
				cluster, stop := g.probes.queue.Get()
				if stop {
					return
				}
				g.probeNext(ctx, cluster)
				g.probes.queue.Done(cluster)
			}
		})
	}
	<-ctx.Done()
	g.probes.queue.ShutDown()
	workers.Wait()
	return nil
}

// probeNext probes one cluster, and says when it is probed again.
func (g *Gateway) probeNext(ctx context.Context, cluster string) {
	backend, err := g.backend()
	if err != nil {
		return // it stops
	}
	secret, err := backend.secrets.Get(cluster)
	if err != nil {
		g.probes.failures.Forget(cluster)
		return // it has gone
	}
	found := g.connections.to(secret).probe(ctx)
	if ctx.Err() != nil {
		return
	}
	interval := g.probes.interval(cluster, found.Healthy)
	if err := backend.report(ctx, secret, found); err != nil {
		interval = unhealthyInterval
		klog.FromContext(ctx).Error(err, "Cannot write down how a cluster is", "cluster", cluster)
	}
	g.probes.queue.AddAfter(cluster, interval+time.Duration(rand.Float64()*intervalJitter*float64(interval))) //nolint:gosec // it spreads load
}

// report writes a difference.
func (r *running) report(ctx context.Context, secret *corev1.Secret, found gatewayv1alpha1.ClusterGatewayStatus) error {
	if _, written := secret.Annotations[gatewayv1alpha1.AnnotationHealthy]; written && clustersecret.Gateway(secret).Status == found {
		return nil
	}
	patch, err := healthPatch(found, secret.UID, "")
	if err != nil {
		return err
	}
	_, err = r.client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // what is there now is probed on its own
	}
	return err
}

// probe reads the health of the API server of the cluster.
func (c *connection) probe(ctx context.Context) (found gatewayv1alpha1.ClusterGatewayStatus) {
	if c.problem != nil {
		found.HealthyReason = c.problem.Error()
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cluster.Endpoint.String()+probePath, nil)
	if err != nil {
		found.HealthyReason = err.Error()
		return found
	}
	answer, err := c.requests.RoundTrip(request)
	if err != nil {
		_, _, reason := c.explain(ctx, err)
		found.HealthyReason = text.Stable(reason)
		return found
	}
	defer func() { _ = answer.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(answer.Body, maxReason))
	return c.statusOf(answer, strings.ToValidUTF8(strings.TrimSpace(string(said)), ""))
}

func (c *connection) statusOf(answer *http.Response, said string) (found gatewayv1alpha1.ClusterGatewayStatus) {
	switch {
	case answer.StatusCode == http.StatusUnauthorized:
		found.HealthyReason = fmt.Sprintf("the API server of cluster %s does not accept the credential of the Secret; renew it", c.cluster.Name)
	case answer.StatusCode == http.StatusForbidden, answer.StatusCode < http.StatusMultipleChoices:
		found.Healthy = true // who is forbidden to has been authenticated
		if c.cluster.Insecure() {
			found.HealthyReason = "not verified: the Secret has no key " + gatewayv1alpha1.KeyCA +
				" with the CA of the cluster, so anybody may answer for it and read the credential"
		}
	default:
		found.HealthyReason = fmt.Sprintf("the API server of cluster %s answers GET %s with %s: %s", c.cluster.Name, probePath, answer.Status, said)
	}
	return found
}
