package installation

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Klusterlets are those of the cluster; one without the kind has none.
func (c *Cluster) Klusterlets(ctx context.Context) ([]operatorv1.Klusterlet, error) {
	objects, err := c.List(ctx, KindKlusterlet, "", "")
	if err != nil {
		return nil, err
	}
	found := make([]operatorv1.Klusterlet, len(objects))
	for i := range objects {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, &found[i]); err != nil {
			return nil, fmt.Errorf("read Klusterlet %s: %w", objects[i].GetName(), err)
		}
	}
	return found, nil
}

// IsHosted reports whether what a ClusterManager or a Klusterlet describes runs in another cluster than the one that it is for. A hub stays
// in the mode in which it is installed.
func IsHosted(custom *unstructured.Unstructured) bool {
	installed := operatorv1.InstallMode(custom.GetAnnotations()[fleet.AnnotationInstalledMode])
	if installed == operatorv1.InstallModeDefault || installed == operatorv1.InstallModeHosted {
		return isHosted(installed)
	}
	mode, _, _ := unstructured.NestedString(custom.Object, "spec", "deployOption", "mode")
	return isHosted(operatorv1.InstallMode(mode))
}

// HasHostedAgent reports whether the agent of a Klusterlet runs in another cluster than the one that it is for.
func HasHostedAgent(klusterlet *operatorv1.Klusterlet) bool {
	return isHosted(klusterlet.Spec.DeployOption.Mode)
}

func isHosted(mode operatorv1.InstallMode) bool {
	return mode == operatorv1.InstallModeHosted || mode == operatorv1.InstallModeSingletonHosted
}

// NamespaceOfAgent is where an agent runs; that of a hosted agent on the managed cluster is the operator's to delete.
func NamespaceOfAgent(klusterlet *operatorv1.Klusterlet) string {
	if HasHostedAgent(klusterlet) {
		return klusterlet.Name
	}
	return cmp.Or(klusterlet.Spec.Namespace, fleet.NamespaceAgent)
}

// NamespaceOfInstalled is the same for a Klusterlet among objects to install.
func NamespaceOfInstalled(klusterlet *unstructured.Unstructured) string {
	if IsHosted(klusterlet) {
		return klusterlet.GetName()
	}
	namespace, _, _ := unstructured.NestedString(klusterlet.Object, "spec", "namespace")
	return cmp.Or(namespace, fleet.NamespaceAgent)
}

// ClusterNameOf is the name that an agent's cluster has on the hub: that of the Klusterlet, or else the one that the agent made, which it
// keeps beside its credential. It is empty as long as the agent has made none.
func (c *Cluster) ClusterNameOf(ctx context.Context, klusterlet *operatorv1.Klusterlet) (string, error) {
	if klusterlet.Spec.ClusterName != "" {
		return klusterlet.Spec.ClusterName, nil
	}
	secret, err := c.secretOfAgent(ctx, klusterlet, fleet.SecretHubKubeconfig)
	if err != nil || secret == nil {
		return "", err
	}
	return string(DataOf(secret, fleet.KeyClusterName)), nil
}

// HubsOfAgent is what an agent knows of its hub, as far as its namespace has that: first what it joins with, then what its credential is
// for, which it adapts to a hub that changes.
func (c *Cluster) HubsOfAgent(ctx context.Context, klusterlet *operatorv1.Klusterlet) (hubs []apiclient.KnownCluster, err error) {
	for _, name := range []string{fleet.SecretBootstrapHubKubeconfig, fleet.SecretHubKubeconfig} {
		secret, err := c.secretOfAgent(ctx, klusterlet, name)
		if err != nil {
			return nil, err
		}
		if secret == nil {
			continue
		}
		if hub, found := apiclient.ClusterIn(DataOf(secret, fleet.KeyKubeconfig)); found {
			hubs = append(hubs, hub)
		}
	}
	return hubs, nil
}

// secretOfAgent is a Secret in the namespace of an agent; nil without an error if there is none.
func (c *Cluster) secretOfAgent(ctx context.Context, klusterlet *operatorv1.Klusterlet, name string) (*unstructured.Unstructured, error) {
	return c.Get(ctx, Reference{GroupVersionKind: KindSecret, Namespace: NamespaceOfAgent(klusterlet), Name: name})
}

// DataOf is what a Secret has under a key; empty if it has nothing there.
func DataOf(secret *unstructured.Unstructured, key string) []byte {
	encoded, _, _ := unstructured.NestedString(secret.Object, "data", key)
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil
	}
	return content
}
