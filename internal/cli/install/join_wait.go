package install

import (
	"cmp"
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/joinrequests"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// agentConditions are those of the Klusterlet of an agent that runs.
var agentConditions = []installation.DesiredCondition{
	{Type: "Applied", Status: metav1.ConditionTrue},
	{Type: "RegistrationDesiredDegraded", Status: metav1.ConditionFalse}, {Type: "WorkDesiredDegraded", Status: metav1.ConditionFalse},
}

// awaitAgent waits until the operator and the agent run, and the agent has registered the cluster.
func (c *clusterJoin) awaitAgent(ctx context.Context, cluster *Cluster, hub *hubapi.Hub, objects []*unstructured.Unstructured) error {
	if err := awaitRollout(ctx, c.Global, cluster, fleet.NamespaceOperators, klusterletOperator); err != nil {
		return err
	}
	for _, object := range objects {
		if object.GroupVersionKind() != installation.KindKlusterlet {
			continue
		}
		of := installation.ReferenceTo(object)
		namespace := agentNamespace(object)
		if err := awaitConditions(ctx, c.Global, cluster, of, agentConditions, namespace); err != nil {
			return err
		}
		agent, err := c.agentOf(ctx, cluster, of, namespace)
		if err == nil {
			err = c.awaitRegistered(ctx, hub, agent)
		}
		if err != nil {
			return fmt.Errorf("%w%s%s", err, connectionState(ctx, cluster, of), deploymentReasons(ctx, cluster, []string{namespace}))
		}
	}
	return nil
}

// joinedAgent identifies the agent of this cluster among others.
type joinedAgent struct {
	// user is who the agent is on the hub.
	user string
	// credential is what it has obtained in an earlier run; nil if there is none.
	credential *hubapi.Hub
}

// agentOf finds who the agent of a Klusterlet is.
func (c *clusterJoin) agentOf(ctx context.Context, cluster *Cluster, of installation.Reference, namespace string) (joinedAgent, error) {
	klusterlet, err := cluster.Get(ctx, of)
	if err != nil || klusterlet == nil {
		return joinedAgent{}, err
	}
	agent := joinedAgent{user: fleet.ClusterUser(c.cluster, string(klusterlet.GetUID()))}
	credential := installation.Reference{GroupVersionKind: installation.KindSecret, Namespace: namespace, Name: fleet.SecretHubKubeconfig}
	object, err := cluster.Get(ctx, credential)
	if err != nil || object == nil {
		return agent, err
	}
	secret := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, secret); err != nil {
		return agent, fmt.Errorf("read Secret %s/%s: %w", namespace, fleet.SecretHubKubeconfig, err)
	}
	if string(secret.Data[fleet.KeyClusterName]) == c.cluster && len(secret.Data[fleet.KeyTLSCert]) > 0 {
		agent.credential, err = c.invitation.ConnectAs(ctx, secret.Data[fleet.KeyTLSCert], secret.Data[fleet.KeyTLSKey])
	}
	return agent, err
}

// awaitRegistered waits until the agent of this cluster has requested to join, or works with the hub: the ManagedCluster alone may be from
// before.
func (c *clusterJoin) awaitRegistered(ctx context.Context, hub *hubapi.Hub, agent joinedAgent) error {
	progress := c.Progress()
	defer progress.Close()
	progress.Wait(c.cluster, "registering with the hub")
	if err := managedclusters.Wait(ctx, hub, c.cluster, func(*clusterv1.ManagedCluster) bool { return true }); err != nil {
		return err
	}
	if err := c.awaitAgentOnHub(ctx, hub, agent); err != nil {
		return err
	}
	progress.Done(c.cluster, "registered with the hub")
	return nil
}

// awaitAgentOnHub waits until the agent requests a certificate, or renews its lease with the one it has. Agents that register by AWS IAM
// make no requests, and those of the gRPC server none once they have joined.
func (c *clusterJoin) awaitAgentOnHub(ctx context.Context, hub *hubapi.Hub, agent joinedAgent) error {
	driver := c.driver.registration
	if driver == driverAWS || driver == driverGRPC && agent.credential != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make(chan struct{})
	if agent.credential != nil {
		go func() {
			if err := awaitNextHeartbeat(ctx, agent.credential, c.cluster); err == nil {
				close(seen)
				cancel()
			}
		}()
	}
	err := joinrequests.WaitFor(ctx, hub, c.cluster, agent.user, c.earlier)
	select {
	case <-seen:
		return nil
	default:
	}
	if apierrors.IsForbidden(err) { // who joins with a credential of his own need not have the right to look
		return nil
	}
	if err != nil {
		return fmt.Errorf("the hub has not heard of %s, which is the agent of this cluster: %w", agent.user, err)
	}
	return nil
}

// connectionState is what a Klusterlet says of the connection of its agent to the hub, as a line to append.
func connectionState(ctx context.Context, cluster *Cluster, of installation.Reference) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnosisTimeout)
	defer cancel()
	object, err := cluster.Get(ctx, of)
	if err != nil || object == nil {
		return ""
	}
	for _, condition := range installation.Conditions(object) {
		if condition.Type == "HubConnectionDegraded" && condition.Status == metav1.ConditionTrue {
			return fmt.Sprintf("\n  the agent has no connection to the hub (%s): %s", condition.Reason, condition.Message)
		}
	}
	return ""
}

// agentNamespace is the namespace that the agent of a Klusterlet runs in.
func agentNamespace(klusterlet *unstructured.Unstructured) string {
	if isHosted(klusterlet) {
		return klusterlet.GetName()
	}
	namespace, _, _ := unstructured.NestedString(klusterlet.Object, "spec", "namespace")
	return cmp.Or(namespace, fleet.NamespaceAgent)
}

// awaitNextHeartbeat returns once the agent of a cluster has renewed its lease, whatever its clock says.
func awaitNextHeartbeat(ctx context.Context, hub *hubapi.Hub, cluster string) error {
	var first *metav1.MicroTime
	seen := false
	leases := hub.Client(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(cluster)
	err := hubapi.Until(ctx, leases, hubapi.Named(fleet.ClusterNamespaceLease), func(lease *coordinationv1.Lease) bool {
		renewed := seen && !lease.Spec.RenewTime.Equal(first)
		first, seen = lease.Spec.RenewTime, true
		return renewed
	})
	return hub.Explain("wait for the agent of cluster "+cluster, err)
}
