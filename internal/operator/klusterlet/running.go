package klusterlet

import (
	"cmp"
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// observe reports on the agent that runs while nothing may be applied: it may fail, or lose the hub, all the same. It returns when to look
// again.
func (c *Controller) observe(ctx context.Context, r *report, l layout) (due time.Duration, err error) {
	running, installed, err := c.running(ctx, l)
	if err != nil {
		return 0, err
	}
	r.deployments(ctx, c, running)
	if !installed {
		return refusedInterval, nil // the namespace, with what is in it, may be that of another agent
	}
	due, connection, err := c.connection(ctx, running)
	if err != nil {
		return 0, err
	}
	r.connection(ctx, connection)
	return retry.Soonest(due, refusedInterval), nil
}

// running is the layout of the agent that runs, which need not be that of the Klusterlet as it is now, and whether there is one.
func (c *Controller) running(ctx context.Context, l layout) (running layout, installed bool, err error) {
	deployments, err := c.Management.List(ctx, l.klusterlet.Name, apply.Deployments)
	if err != nil {
		return l, false, err
	}
	running, installed = l.running(deployments)
	return running, installed, nil
}

// running does so with all Deployments of the agent. If they may not be listed, where the agent was installed last is known.
func (l layout) running(deployments []client.Object) (running layout, installed bool) {
	if slices.ContainsFunc(deployments, l.runs) {
		return l, true
	}
	running = l
	if len(deployments) == 0 {
		last := l.klusterlet.Annotations[annotationAgentNamespace]
		running.agents = cmp.Or(last, l.agents)
		return running, last != ""
	}
	first := slices.MinFunc(deployments, func(a, b client.Object) int {
		return cmp.Compare(client.ObjectKeyFromObject(a).String(), client.ObjectKeyFromObject(b).String())
	})
	running.agents, running.single = first.GetNamespace(), first.GetName() == l.singleDeployment()
	return running, true
}

// runs reports whether a Deployment is one of the layout.
func (l layout) runs(deployment client.Object) bool {
	return deployment.GetNamespace() == l.agents && slices.Contains(l.deploymentNames(), deployment.GetName())
}
