package kubecontrollers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	pluginvalidating "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
)

const (
	// namespaceResync is a safety net, as in a stock controller manager.
	namespaceResync = 5 * time.Minute

	// initialSync is how long the garbage collector waits for its caches before it starts on what it has.
	initialSync = 30 * time.Second
)

// addNamespaces empties namespaces that are being deleted.
func (c *Controllers) addNamespaces(ctx context.Context) error {
	client, err := c.client("namespace-controller")
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(c.clientConfig("namespace-controller"))
	if err != nil {
		return err
	}
	controller := namespace.NewNamespaceController(ctx, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		c.informers.Core().V1().Namespaces(), namespaceResync, corev1.FinalizerKubernetes)
	c.Add(func(ctx context.Context) { controller.Run(ctx, 4) })
	return nil
}

// addGarbageCollector deletes objects whose owners are gone.
func (c *Controllers) addGarbageCollector(ctx context.Context) error {
	client, err := c.client("generic-garbage-collector")
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(c.clientConfig("generic-garbage-collector"))
	if err != nil {
		return err
	}
	// Events are many, short-lived and owned by nobody.
	ignored := map[schema.GroupResource]struct{}{
		{Resource: "events"}:                         {},
		{Group: "events.k8s.io", Resource: "events"}: {},
	}
	collector, err := garbagecollector.NewGarbageCollector(ctx, client, objects, c.mapper, ignored, c.objectInformers(), c.started)
	if err != nil {
		return err
	}
	c.Add(func(ctx context.Context) { collector.Run(ctx, 4, initialSync) })
	c.Add(c.resources.follow(func(ctx context.Context, period time.Duration) {
		collector.Sync(ctx, client.Discovery(), period)
	}))
	return nil
}

func (c *Controllers) objectInformers() objectInformers {
	return objectInformers{typed: c.informers, metadata: c.metadata}
}

// addClusterRoleAggregation fills ClusterRoles from the ones their selectors match.
func (c *Controllers) addClusterRoleAggregation(context.Context) error {
	client, err := c.client("clusterrole-aggregation-controller")
	if err != nil {
		return err
	}
	controller := clusterroleaggregation.NewClusterRoleAggregation(c.informers.Rbac().V1().ClusterRoles(), client.RbacV1())
	c.Add(func(ctx context.Context) { controller.Run(ctx, 2) })
	return nil
}

// addPolicyStatus checks the types in ValidatingAdmissionPolicies and reports mistakes in their status. Schemas come
// from the API server's OpenAPI when there is a policy to check; the compiled-in definitions would cost megabytes.
func (c *Controllers) addPolicyStatus(context.Context) error {
	client, err := c.client("validatingadmissionpolicy-status-controller")
	if err != nil {
		return err
	}
	checker := &pluginvalidating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: client.Discovery()},
		RestMapper:     c.mapper,
	}
	controller, err := validatingadmissionpolicystatus.NewController(
		c.informers.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), checker)
	if err != nil {
		return err
	}
	c.Add(func(ctx context.Context) { controller.Run(ctx, 1) })
	return nil
}
