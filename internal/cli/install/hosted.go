package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/kubeconfigsecret"
)

// hostedManager is the ClusterManager among the objects if it is hosted, or else nil.
func hostedManager(objects []*unstructured.Unstructured) *unstructured.Unstructured {
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GroupVersionKind() == installation.KindClusterManager && installation.IsHosted(o)
	})
	if at < 0 {
		return nil
	}
	return objects[at]
}

// hubOf is the cluster with the API of the hub that a ClusterManager in the cluster describes.
func hubOf(ctx context.Context, in *Cluster, manager *unstructured.Unstructured) (*Cluster, error) {
	if manager == nil || !installation.IsHosted(manager) {
		return in, nil
	}
	return hostedHub(ctx, in, manager.GetName())
}

// hostedHub is the cluster with the API of the hub of a hosted ClusterManager, whose namespace has the kubeconfig.
func hostedHub(ctx context.Context, in *Cluster, manager string) (*Cluster, error) {
	of := installation.Reference{GroupVersionKind: installation.KindSecret, Namespace: manager, Name: fleet.SecretExternalHubKubeconfig}
	hub, err := clusterOfSecret(ctx, in, of)
	if err != nil {
		return nil, err
	}
	return clusterOf(hub), nil
}

// clusterOfSecret is the cluster that the kubeconfig in a Secret leads to, if it answers.
func clusterOfSecret(ctx context.Context, in *Cluster, of installation.Reference) (*hubapi.Hub, error) {
	object, err := in.Get(ctx, of)
	if err != nil {
		return nil, err
	}
	if object == nil {
		return nil, fmt.Errorf("there is no %s with a kubeconfig of it", of)
	}
	secret := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, secret); err != nil {
		return nil, fmt.Errorf("read %s: %w", of, err)
	}
	config, err := kubeconfigsecret.Config(secret)
	if err != nil {
		return nil, err
	}
	cluster, err := hubapi.New(config)
	if err != nil {
		return nil, fmt.Errorf("use the kubeconfig of %s: %w", of, err)
	}
	return cluster, cluster.Live(ctx)
}

// splitForHostedHub divides the objects of a hosted hub: what clusters join with belongs on the hub, the rest where its controllers run.
func splitForHostedHub(objects []*unstructured.Unstructured) (onHub, here []*unstructured.Unstructured) {
	for _, object := range objects {
		switch {
		case object.GroupVersionKind() == installation.KindNamespace && object.GetName() == fleet.NamespaceOperators:
			onHub, here = append(onHub, object.DeepCopy()), append(here, object)
		case isForJoining(object):
			onHub = append(onHub, object)
		default:
			here = append(here, object)
		}
	}
	return onHub, here
}

// isForJoining reports whether an object of the chart cluster-manager gives clusters the right to request to join.
func isForJoining(object *unstructured.Unstructured) bool {
	return strings.HasPrefix(object.GetName(), fleet.ClusterRoleBootstrap) ||
		object.GetNamespace() == fleet.NamespaceOperators && object.GetName() == fleet.ServiceAccountBootstrap ||
		object.GroupVersionKind() == installation.KindSecret && strings.HasPrefix(object.GetName(), "bootstrap-token-")
}
