package klusterlet

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// observe reports on the agent that runs while nothing may be applied: it may fail, or lose the hub, all the same. It returns when to look
// again.
func (c *Controller) observe(ctx context.Context, r *report, l layout) (due time.Duration, err error) {
	deployments, err := c.Management.List(ctx, l.klusterlet.Name, apply.Deployments)
	if err != nil {
		return 0, err
	}
	return c.observeRunning(ctx, r, l, deployments)
}

// observeRunning does so with all Deployments of the agent.
func (c *Controller) observeRunning(ctx context.Context, r *report, l layout, deployments []client.Object) (due time.Duration, err error) {
	running, installed := l.running(deployments)
	r.deployments(ctx, c.Client, c.Management.Deployment, running)
	if !installed {
		return refusedInterval, nil // the namespace, with what is in it, may be that of another agent
	}
	if !running.registersAsSpecified(deployments) {
		return refusedInterval, nil // what is said of other credentials than those of the agent would be wrong
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

// registersAsSpecified reports whether the agent that runs has the registration driver of the spec, and as many hubs, by which it is known
// what its credentials are. The spec may have been refused since.
func (l layout) registersAsSpecified(deployments []client.Object) bool {
	for _, object := range deployments {
		deployment, typed := object.(*appsv1.Deployment)
		if !typed || deployment.Namespace != l.agents || deployment.Name != l.deploymentNames()[0] {
			continue
		}
		driver, multipleHubs := operatorv1.RegistrationAuthTypeCSR, false
		for _, container := range deployment.Spec.Template.Spec.Containers {
			for _, arg := range container.Args {
				flag, value, _ := strings.Cut(arg, "=")
				switch flag {
				case "--registration-auth":
					driver = operatorv1.RegistrationAuthType(cmp.Or(value, string(driver)))
				case "--bootstrap-kubeconfigs", "--grpc-bootstrap-configs":
					multipleHubs = true
				}
			}
		}
		specified := cmp.Or(registrationOf(l.klusterlet).RegistrationDriver.AuthType, operatorv1.RegistrationAuthTypeCSR)
		return driver == specified && multipleHubs == l.multipleHubs()
	}
	return false
}

// runs reports whether a Deployment is one of the layout.
func (l layout) runs(deployment client.Object) bool {
	return deployment.GetNamespace() == l.agents && slices.Contains(l.deploymentNames(), deployment.GetName())
}
