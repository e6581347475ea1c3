package serviceaccount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// An agent may list service accounts only where somebody lets it, so it cannot look for its own in all namespaces. It always looks in the
// usual one, and marks others by labels before it makes an account there: they say to a later process where to look, until the accounts
// have gone.

// clear removes the accounts that are left in other namespaces than the one in use: those of an earlier session, or of an earlier process.
func (c *Controller) clear(ctx context.Context, inUse string) error {
	if c.cleared {
		return nil
	}
	marked, err := c.markedNamespaces(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, namespace := range sets.List(marked.Insert(fleet.NamespaceAgentAddOn).Delete(inUse)) {
		errs = append(errs, c.clearNamespace(ctx, namespace))
	}
	err = errors.Join(errs...)
	c.cleared = err == nil
	return err
}

// clearNamespace removes the accounts from a namespace, and then its mark.
func (c *Controller) clearNamespace(ctx context.Context, name string) error {
	if err := c.removeAll(ctx, name); err != nil {
		return err
	}
	if err := c.labelNamespace(ctx, name, nil); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take the labels %v from namespace %s of the managed cluster: %w", c.marks(name), name, err)
	}
	return nil
}

// markedNamespaces are those with the mark. An agent that may not list namespaces has marked none.
func (c *Controller) markedNamespaces(ctx context.Context) (sets.Set[string], error) {
	marked := sets.New[string]()
	for _, label := range fleet.ServiceAccountsLabels(c.Cluster, c.HubHash, c.Agent) {
		namespaces := &corev1.NamespaceList{}
		err := c.managed.List(ctx, namespaces, client.HasLabels{label})
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("list the namespaces of the managed cluster with label %s: %w", label, err)
		}
		for i := range namespaces.Items {
			marked.Insert(namespaces.Items[i].Name)
		}
	}
	return marked, nil
}

// markNamespace marks the namespace of an account, and makes it where there is none.
func (c *Controller) markNamespace(ctx context.Context, name string) error {
	err := c.labelNamespace(ctx, name, ptr.To(fleet.LabelTrue))
	if apierrors.IsNotFound(err) {
		return c.createNamespace(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("label namespace %s of the managed cluster with %v: %w", name, c.marks(name), err)
	}
	return nil
}

func (c *Controller) createNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{fleet.LabelAddOnAgentNamespace: fleet.LabelTrue}}}
	for _, label := range c.marks(name) {
		namespace.Labels[label] = fleet.LabelTrue
	}
	err := c.managed.Create(ctx, namespace)
	if apierrors.IsAlreadyExists(err) {
		err = c.labelNamespace(ctx, name, ptr.To(fleet.LabelTrue))
	}
	if err != nil {
		return fmt.Errorf("create namespace %s on the managed cluster: %w", name, err)
	}
	return nil
}

// labelNamespace gives a namespace the labels of its mark with a value, or takes them away.
func (c *Controller) labelNamespace(ctx context.Context, name string, value *string) error {
	labels := map[string]*string{}
	for _, label := range c.marks(name) {
		labels[label] = value
	}
	if len(labels) == 0 {
		return nil
	}
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return c.managed.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, change))
}

// marks are the labels that a namespace with accounts has. The usual one needs none.
func (c *Controller) marks(namespace string) []string {
	if namespace == fleet.NamespaceAgentAddOn {
		return nil
	}
	return fleet.ServiceAccountsLabels(c.Cluster, c.HubHash, c.Agent)
}
