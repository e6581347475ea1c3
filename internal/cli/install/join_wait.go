package install

import (
	"context"
	"errors"
	"fmt"

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
func (c *clusterJoin) awaitAgent(ctx context.Context, w *waiting, hub *hubapi.Hub, trust hubapi.Trust,
	custom []unstructured.Unstructured) error {
	if err := w.awaitRollout(ctx, fleet.NamespaceOperators, klusterletOperator); err != nil {
		return err
	}
	for i := range custom {
		of := installation.ReferenceTo(&custom[i])
		namespace := installation.NamespaceOfInstalled(&custom[i])
		if err := w.awaitConditions(ctx, of, agentConditions, namespace); err != nil {
			return err
		}
		agent, err := c.agentOf(ctx, w.cluster, trust, of, namespace)
		if err == nil {
			err = c.awaitRegistered(ctx, hub, agent)
		}
		if err != nil {
			return fmt.Errorf("%w%s%s", err, connectionState(ctx, w.cluster, of), deploymentReasons(ctx, w.cluster, []string{namespace}))
		}
	}
	return nil
}

// hubBefore is what the hub had of a cluster before its agent was installed.
type hubBefore struct {
	// requests are the certificate requests; none where they may not be read.
	requests map[string]bool
	// without says that it did not have the cluster.
	without bool
}

func readBefore(ctx context.Context, hub *hubapi.Hub, cluster string) (before hubBefore) {
	before.requests, _ = joinrequests.Names(ctx, hub, cluster)
	_, err := managedclusters.Get(ctx, hub, cluster)
	before.without = apierrors.IsNotFound(err)
	return before
}

// agentOf finds who the agent of a Klusterlet is, and what it has obtained in an earlier run.
func (c *clusterJoin) agentOf(ctx context.Context, cluster *Cluster, trust hubapi.Trust, of installation.Reference,
	namespace string) (joinrequests.Agent, error) {
	agent := joinrequests.Agent{Cluster: c.cluster, Earlier: c.before.requests}
	klusterlet, err := cluster.Get(ctx, of)
	if err != nil {
		return agent, err
	}
	user := ""
	if klusterlet != nil {
		user = fleet.ClusterUser(c.cluster, string(klusterlet.GetUID()))
	}
	agent.User = func() string { return user }
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
		agent.Credential, err = c.invitation.HubAs(trust, secret.Data[fleet.KeyTLSCert], secret.Data[fleet.KeyTLSKey])
	}
	return agent, err
}

// awaitRegistered waits until the agent of this cluster has requested to join, or works with the hub: the ManagedCluster alone may be from
// before.
func (c *clusterJoin) awaitRegistered(ctx context.Context, hub *hubapi.Hub, agent joinrequests.Agent) error {
	progress := c.Progress()
	defer progress.Close()
	progress.Wait(c.cluster, "registering with the hub")
	if err := managedclusters.Wait(ctx, hub, c.cluster, func(*clusterv1.ManagedCluster) bool { return true }); err != nil {
		return err
	}
	return c.reportRegistered(progress, c.awaitAgentOnHub(ctx, hub, agent))
}

// awaitAgentOnHub waits until the hub sees the agent. Where nothing that it does can be seen there, a cluster that the hub did not have
// before is from it.
func (c *clusterJoin) awaitAgentOnHub(ctx context.Context, hub *hubapi.Hub, agent joinrequests.Agent) error {
	err := c.awaitVisible(ctx, hub, agent)
	var invisible *joinrequests.InvisibleError
	switch {
	case errors.As(err, &invisible) && c.before.without:
		return nil
	case err == nil, errors.As(err, &invisible):
		return err
	}
	return fmt.Errorf("the hub has not heard of %s, which is the agent of this cluster: %w", agent.User(), err)
}

func (c *clusterJoin) awaitVisible(ctx context.Context, hub *hubapi.Hub, agent joinrequests.Agent) error {
	switch driver := c.driver.registration; {
	case driver == driverAWS:
		return &joinrequests.InvisibleError{Reason: "an agent that registers by AWS IAM makes no certificate request"}
	case driver == driverGRPC && agent.Credential != nil:
		return &joinrequests.InvisibleError{Reason: "it has joined through the gRPC server before, and makes no request again"}
	}
	return agent.AwaitRegistered(ctx, hub)
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
