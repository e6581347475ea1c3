package klusterlet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/klusterlet/hubaccess"
)

// inputs reads what the plan is made of.
func (c *Controller) inputs(ctx context.Context, l layout) (inputs, error) {
	in := inputs{defaultImage: c.Image, awsCLIImage: c.options.AWSCLIImage, addOnNamespace: !c.options.WithoutAddOnNamespace,
		syncLabels: c.SyncLabels}
	var err error
	if in.pullSecret, err = c.OwnSecret(ctx, c.PullSecret); err != nil {
		return in, err
	}
	if in.tlsProfile, err = c.TLSProfile(ctx); err != nil {
		return in, err
	}
	if in.replicas, err = c.ReplicasFor(ctx, l.hosted, l.klusterlet.Spec.NodePlacement); err != nil {
		return in, err
	}
	credential, err := c.Secrets.Get(ctx, l.agents, fleet.SecretHubKubeconfig)
	if err != nil {
		return in, err
	}
	if credential != nil {
		in.clusterName = string(credential.Data[fleet.KeyClusterName])
	}
	in.suspendWork = credential == nil ||
		!hubaccess.HasCredential(meta.FindStatusCondition(l.klusterlet.Status.Conditions, fleet.ConditionHubConnectionDegraded))
	return in, nil
}

// connection returns what is known about the connection to the hub, nil if nothing is yet, and when it is checked again.
func (c *Controller) connection(ctx context.Context, l layout) (due time.Duration, condition *metav1.Condition, err error) {
	credentials := hubaccess.Credentials{Namespace: l.agents, SkipBootstrap: l.multipleHubs(), GRPC: l.grpc(), AWS: l.byAWS()}
	if credentials.Hub, err = c.Secrets.Get(ctx, l.agents, fleet.SecretHubKubeconfig); err != nil {
		return 0, nil, err
	}
	if !credentials.SkipBootstrap {
		if credentials.Bootstrap, err = c.Secrets.Get(ctx, l.agents, fleet.SecretBootstrapHubKubeconfig); err != nil {
			return 0, nil, err
		}
	}
	condition, due = c.hub.Result(l.klusterlet.Name, credentials) //nolint:contextcheck // a check outlives the reconcile
	report, err := c.agentReport(ctx, l)
	return due, hubaccess.WithAgent(condition, report), err
}

// agentReport is what the agent says of its own connection to the hub; nil while it reaches it.
func (c *Controller) agentReport(ctx context.Context, l layout) (*corev1.ConfigMap, error) {
	report := &corev1.ConfigMap{}
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: l.agents, Name: fleet.ConfigMapHubConnection}, report)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what the agent says of its connection to the hub: %w", err)
	}
	return report, nil
}
