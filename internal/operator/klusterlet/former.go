package klusterlet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// annotationAgentNamespace on a Klusterlet is the namespace of its agent. After a change of the mode or the namespace, it is the former one
// until what the agent has made there is deleted.
const annotationAgentNamespace = "capstan.io/agent-namespace"

// former is where the agent ran before its mode or its namespace changed.
type former struct {
	// namespace is empty if what the agent has made there is deleted.
	namespace string
	// needed says that the credential for the hub there may be the only one of the agent that works.
	needed bool
	// deployments are those of the agent in other namespaces than that in which it runs now.
	deployments []client.Object
}

// former finds out where the agent ran before. connection is the condition for the namespace in which it runs now; nil while that is not
// known.
func (c *Controller) former(ctx context.Context, l layout, connection *metav1.Condition) (former, error) {
	deployments, err := c.Management.List(ctx, l.klusterlet.Name, apply.Deployments)
	if err != nil {
		return former{}, err
	}
	return c.formerOf(ctx, l, deployments, connection)
}

// formerOf does so with all Deployments of the agent.
func (c *Controller) formerOf(ctx context.Context, l layout, deployments []client.Object, connection *metav1.Condition) (former, error) {
	f := former{namespace: l.klusterlet.Annotations[annotationAgentNamespace]}
	for _, deployment := range deployments {
		if deployment.GetNamespace() != l.agents {
			f.deployments = append(f.deployments, deployment)
		}
	}
	if f.namespace == "" && len(f.deployments) > 0 { // of a Klusterlet from before the annotation
		f.namespace = f.deployments[0].GetNamespace()
	}
	if f.namespace == l.agents {
		f.namespace = ""
	}
	if f.namespace == "" || connection != nil && connection.Status == metav1.ConditionFalse {
		return f, nil
	}
	credential, err := c.Secrets.Get(ctx, f.namespace, fleet.SecretHubKubeconfig)
	f.needed = credential != nil
	return f, err
}

// unpruned is what must not be pruned: the Deployments, because leave ends them, and what is kept.
func (f former) unpruned() []client.Object { return slices.Concat(f.deployments, f.kept()) }

// kept is the namespace if it is needed.
func (f former) kept() []client.Object {
	if !f.needed {
		return nil
	}
	return []client.Object{newNamespace(f.namespace, nil)}
}

// leave ends the agent where it ran before. When its pods have ended, and the credential there is not needed, it deletes what the agent has
// made in that namespace, which stays if the service accounts are in it. What is stored there later is a user's. It returns how long the
// pods may yet take: those on a node that is lost never end, so no event comes.
func (c *Controller) leave(ctx context.Context, l layout, f former) (due time.Duration, err error) {
	if f.namespace != "" { // once the Deployments are gone, only the annotation tells
		if err := frame.Annotate(ctx, c.Client, l.klusterlet, annotationAgentNamespace, f.namespace); err != nil {
			return 0, err
		}
	}
	running, err := c.endDeployments(ctx, f.deployments)
	if len(running) > 0 {
		return podsTimeout, nil
	}
	if err != nil || f.needed {
		return 0, err
	}
	if f.namespace != "" {
		if err := c.deleteMadeByAgent(ctx, l, f.namespace); err != nil {
			return 0, fmt.Errorf("clear up where the agent ran before: %w", err)
		}
	}
	return 0, frame.Annotate(ctx, c.Client, l.klusterlet, annotationAgentNamespace, l.agents)
}

// deleteMadeByAgent deletes what the agent itself has made in its namespace, unless that is another Klusterlet's by now. Secrets of add-ons
// and of users stay. So do Leases, which give no access, if the operator has no right to delete them.
func (c *Controller) deleteMadeByAgent(ctx context.Context, l layout, name string) error {
	namespace := &corev1.Namespace{}
	if err := c.Management.Client.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !l.owns(namespace) {
		return nil
	}
	failures := []error{c.deleteNamed(ctx, configMaps, name, fleet.ConfigMapHubConnection)}
	for _, lease := range []string{fleet.LeaseRegistrationAgent, fleet.LeaseWorkAgent, fleet.LeaseKlusterletAgent} {
		if err := c.deleteNamed(ctx, coordinationv1.SchemeGroupVersion.WithKind("Lease"), name, lease); !apiclient.Denied(err) {
			failures = append(failures, err)
		}
	}
	// The credential goes last, and whatever else could not be deleted, which is tried again.
	failures = append(failures, c.deleteNamed(ctx, secrets, name, fleet.SecretHubKubeconfig))
	return errors.Join(failures...)
}

func (c *Controller) deleteNamed(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) error {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	object.SetGroupVersionKind(kind)
	if err := c.Management.Delete(ctx, object); err != nil {
		return fmt.Errorf("delete %s %s/%s: %w", kind.Kind, namespace, name, err)
	}
	return nil
}

// advice says what to do about credentials for the hub in a namespace in which the agent does not run; empty if there are none. managed is
// the cluster with the service accounts.
func (c *Controller) advice(ctx context.Context, l layout, f former, managed managedCluster) (string, error) {
	if f.needed {
		credentials := append([]string{fleet.SecretHubKubeconfig}, l.bootstrapSecrets()...)
		return fmt.Sprintf("its namespace was %s, and the credential for the hub there stays until the agent has one that works in the "+
			"namespace %s: copy the Secrets %s, or let it register again", f.namespace, l.agents, strings.Join(credentials, ", ")), nil
	}
	if f.namespace != "" || l.accounts == l.agents || !managed.here {
		return "", nil
	}
	var unused []string
	for _, name := range []string{fleet.SecretBootstrapHubKubeconfig, fleet.SecretHubKubeconfig} {
		secret, err := c.Secrets.Get(ctx, l.accounts, name)
		if err != nil {
			return "", err
		}
		if secret != nil {
			unused = append(unused, l.accounts+"/"+name)
		}
	}
	if len(unused) == 0 {
		return "", nil
	}
	return fmt.Sprintf("in the mode %s nothing uses Secret %s: delete it unless you keep it for another mode",
		l.klusterlet.Spec.DeployOption.Mode, strings.Join(unused, ", Secret ")), nil
}
