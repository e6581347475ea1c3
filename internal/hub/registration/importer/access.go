package importer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/operator/kubeconfigsecret"
)

const (
	capiCRD = "clusters.cluster.x-k8s.io"
	// provisioned is the phase of a cluster of Cluster API whose API server answers.
	provisioned = "Provisioned"
)

var (
	capiKind = schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"}
	// capiVersions have the phase at the same place.
	capiVersions = []string{"v1beta2", "v1beta1"}
)

// onlyPhase keeps of a cluster of Cluster API what the importer reads.
func onlyPhase(o any) (any, error) {
	cluster, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	kept := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": phaseOf(cluster)}}}
	kept.SetGroupVersionKind(cluster.GroupVersionKind())
	kept.SetNamespace(cluster.GetNamespace())
	kept.SetName(cluster.GetName())
	kept.SetUID(cluster.GetUID())
	kept.SetResourceVersion(cluster.GetResourceVersion())
	return kept, nil
}

func phaseOf(cluster *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(cluster.Object, "status", "phase")
	return phase
}

// capiClusterOf is the cluster of Cluster API that a ManagedCluster stands for, and whether the ManagedCluster says so.
func capiClusterOf(cluster client.Object) (key client.ObjectKey, named bool, err error) {
	value, named := cluster.GetAnnotations()[fleet.AnnotationCAPICluster]
	if !named {
		return client.ObjectKey{Namespace: cluster.GetName(), Name: cluster.GetName()}, false, nil
	}
	namespace, name, valid := managedcluster.CAPICluster(cluster)
	if !valid {
		return key, true, fmt.Errorf("annotation %s: %q is not NAMESPACE/NAME of a Cluster of Cluster API", fleet.AnnotationCAPICluster, value)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, true, nil
}

// access is how the hub gets into a cluster; nil without an error if it has no access, and nobody says that it should.
func (c *Controller) access(ctx context.Context, cluster *clusterv1.ManagedCluster) (*rest.Config, error) {
	if name, named := cluster.Annotations[fleet.AnnotationImportSecret]; named {
		return c.accessBy(ctx, client.ObjectKey{Namespace: cluster.Name, Name: name}, fleet.KeyKubeconfig, fleet.KeyCAPIKubeconfig)
	}
	key, named, err := capiClusterOf(cluster)
	if err != nil {
		return nil, notFound(err)
	}
	phase, err := c.phase(ctx, key)
	switch {
	case apierrors.IsNotFound(err) && named:
		return nil, notFound(fmt.Errorf("annotation %s: there is no Cluster %s of Cluster API", fleet.AnnotationCAPICluster, key))
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // no access and no error is an answer
	case err != nil:
		return nil, failed(fleet.ReasonKubeConfigGetFailed, fmt.Errorf("get Cluster %s of Cluster API: %w", key, err))
	case phase != provisioned:
		return nil, notFound(fmt.Errorf("the phase of Cluster %s of Cluster API is %q; it is imported when that is %s", key, phase, provisioned))
	}
	key.Name += fleet.SuffixCAPIKubeconfig
	return c.accessBy(ctx, key, fleet.KeyCAPIKubeconfig)
}

// phase is that of a cluster of Cluster API. On a hub without Cluster API none is found.
func (c *Controller) phase(ctx context.Context, key client.ObjectKey) (string, error) {
	clusters, cluster := c.c.Clusters()
	if clusters == nil {
		return "", apierrors.NewNotFound(schema.GroupResource{Group: capiKind.Group, Resource: "clusters"}, key.Name)
	}
	err := clusters.Get(ctx, key, cluster)
	return phaseOf(cluster), err
}

// accessBy is the access by the kubeconfig in a Secret, under the first of the keys that the Secret has.
func (c *Controller) accessBy(ctx context.Context, of client.ObjectKey, keys ...string) (*rest.Config, error) {
	secret := &corev1.Secret{}
	err := c.c.Live.Get(ctx, of, secret)
	if apierrors.IsNotFound(err) {
		return nil, notFound(fmt.Errorf("there is no Secret %s with a kubeconfig of the cluster", of))
	}
	if err != nil {
		return nil, failed(fleet.ReasonKubeConfigGetFailed, fmt.Errorf("get Secret %s: %w", of, err))
	}
	key := keys[0]
	for _, other := range keys[1:] {
		if len(secret.Data[key]) == 0 && len(secret.Data[other]) > 0 {
			key = other
		}
	}
	access, err := kubeconfigsecret.ConfigOf(secret, key)
	if err != nil {
		return nil, failed(fleet.ReasonKubeConfigGetFailed, err)
	}
	return access, nil
}

// notFound is the failure that there is no kubeconfig yet.
func notFound(err error) error {
	return &failure{reason: fleet.ReasonKubeConfigNotFound, err: err, waits: true}
}
