package klusterlet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/namespaceuse"
)

// checkAgentNamespace refuses a Klusterlet if the namespace for its agents has another use: it is deleted with the Klusterlet, and the
// agents of two would take each other's credentials. An agent that runs in its own namespace goes on if that gets another use, and leaves
// it there in the end. The error is why it is not known.
func (c *Controller) checkAgentNamespace(ctx context.Context, l layout) (refused, err error) {
	if l.agents == c.Namespace {
		return fmt.Errorf("the operator runs in the namespace %s, which would be deleted with the Klusterlet: choose another one for the agent",
			l.agents), nil
	}
	use, own, err := c.useOf(ctx, l, c.Management.Client, l.agents)
	if err == nil && use == "" && !own {
		use, err = c.claimOf(ctx, l)
	}
	switch {
	case err != nil || use == "":
		return nil, err
	case l.hosted:
		return invalid(field.NewPath("metadata", "name"), l.klusterlet.Name,
			"agents of a hosted Klusterlet run in the namespace of its name, which has another use: it %s; choose another name", use), nil
	default:
		return fmt.Errorf("the namespace %s %s: choose another spec.namespace", l.agents, use), nil
	}
}

// claimOf says, as the rest of a sentence about the namespace for the agents, which no Klusterlet has yet, which older one wants it; empty
// if none does.
func (c *Controller) claimOf(ctx context.Context, l layout) (string, error) {
	all := &operatorv1.KlusterletList{}
	if err := c.Client.List(ctx, all); err != nil {
		return "", fmt.Errorf("list Klusterlets: %w", err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.Name != l.klusterlet.Name && layoutOf(other).agents == l.agents && frame.Older(other, l.klusterlet) {
			return fmt.Sprintf("is to be that of Klusterlet %s, which is older", other.Name), nil
		}
	}
	return "", nil
}

// checkNamespaceOwner is an error if the namespace of the service accounts on the managed cluster has another use: it would be deleted with
// the Klusterlet.
func (c *Controller) checkNamespaceOwner(ctx context.Context, l layout, managed client.Client) error {
	use, _, err := c.useOf(ctx, l, managed, l.accounts)
	if err != nil || use == "" {
		return err
	}
	return fmt.Errorf("the namespace %s on the managed cluster %s: choose another spec.namespace", l.accounts, use)
}

// checkManaged is an error if what a hosted Klusterlet has on the managed cluster may be that of others. An agent that runs already gets
// tokens in time all the same. Of others, the accounts are where the agents run: see checkAgentNamespace.
func (c *Controller) checkManaged(ctx context.Context, l layout, managed managedCluster) error {
	if !l.hosted {
		return nil
	}
	refused := errors.Join(c.checkNamespaceOwner(ctx, l, managed.Client), c.checkNamesake(ctx, l, managed.Cluster))
	if refused == nil {
		return nil
	}
	return errors.Join(refused, c.renewTokens(ctx, l, managed))
}

// renewRefused gives the hosted agent that runs while its Klusterlet is refused tokens in time. The spec may say by now that the agent is
// not hosted.
func (c *Controller) renewRefused(ctx context.Context, l layout) error {
	if !controllerutil.ContainsFinalizer(l.klusterlet, fleet.FinalizerKlusterletHostedCleanup) {
		return nil
	}
	managed, err := c.connect(ctx, l)
	if err != nil {
		return fmt.Errorf("renew the tokens of the agent: %w", err)
	}
	return c.renewTokens(ctx, l, managed)
}

// renewTokens renews those of a hosted agent that there are, whatever the spec says by now.
func (c *Controller) renewTokens(ctx context.Context, l layout, managed managedCluster) error {
	var names []types.NamespacedName
	for _, name := range []string{fleet.SecretExternalManagedKubeconfigRegistration, fleet.SecretExternalManagedKubeconfigWork,
		fleet.SecretExternalManagedKubeconfigAgent} {
		names = append(names, types.NamespacedName{Namespace: l.klusterlet.Name, Name: name})
	}
	renewed, _, err := c.RenewedKubeconfigs(ctx, managed.Cluster, managed.access, names...) // it is looked at soon again
	if err != nil {
		return err
	}
	return c.Management.Apply(ctx, l.klusterlet.Name, renewed...)
}

// checkNamesake is an error if a managed cluster elsewhere has a Klusterlet of the same name: what its operator and this one apply there
// has the same names and labels, so each would delete what is of the other.
func (c *Controller) checkNamesake(ctx context.Context, l layout, managed *apply.Cluster) error {
	namesake, err := c.hasNamesake(ctx, l, managed)
	if err != nil || !namesake {
		return err
	}
	return invalid(field.NewPath("metadata", "name"), l.klusterlet.Name,
		"the managed cluster has a Klusterlet of this name, of an operator there; choose another name, or delete that one; if no operator runs "+
			"there, take its finalizers off and delete it")
}

// hasNamesake reports whether a managed cluster elsewhere has a Klusterlet of the same name. Where it may not be found out, there is none.
func (c *Controller) hasNamesake(ctx context.Context, l layout, managed *apply.Cluster) (bool, error) {
	if managed == c.Management {
		return false, nil
	}
	found, err := findKlusterlet(ctx, managed.Client, l.klusterlet.Name)
	switch {
	case apiclient.Denied(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find out whether the managed cluster has a Klusterlet %s of its own: %w", l.klusterlet.Name, err)
	default:
		return found != nil && found.UID != l.klusterlet.UID, nil
	}
}

// useOf says, as the rest of a sentence about a namespace, what that is for besides the Klusterlet; empty if for nothing else, or if the
// Klusterlet has it as its own already. What a Klusterlet that is gone has left can be taken over.
func (c *Controller) useOf(ctx context.Context, l layout, cluster client.Client, name string) (use string, own bool, err error) {
	namespace := &corev1.Namespace{}
	if err := cluster.Get(ctx, types.NamespacedName{Name: name}, namespace); err != nil {
		return "", false, client.IgnoreNotFound(err)
	}
	if l.owns(namespace) {
		return "", true, nil
	}
	owner := namespace.Labels[fleet.LabelKlusterlet]
	if use, err := otherUse(ctx, cluster, namespace); use != "" || err != nil || owner == "" {
		return use, false, err
	}
	// The Klusterlet may be one of this operator, or be installed on the managed cluster.
	for _, at := range []client.Client{c.Client, cluster} {
		found, err := findKlusterlet(ctx, at, owner)
		if err != nil {
			return "", false, fmt.Errorf("find out whether the namespace %s is still that of Klusterlet %s: %w", name, owner, err)
		}
		if found != nil {
			return "is that of Klusterlet " + owner, false, nil
		}
	}
	return "", false, nil
}

// owns reports whether a namespace is that of the Klusterlet. Open Cluster Management does not label that of hosted agents as one of a
// Klusterlet, but as made by it, as it does all objects.
func (l layout) owns(namespace *corev1.Namespace) bool {
	return cmp.Or(namespace.Labels[fleet.LabelKlusterlet], namespace.Labels[fleet.LabelCreatedByKlusterlet]) == l.klusterlet.Name
}

// findKlusterlet returns a Klusterlet of a cluster; nil if there is none.
func findKlusterlet(ctx context.Context, cluster client.Client, name string) (*operatorv1.Klusterlet, error) {
	found := &operatorv1.Klusterlet{}
	switch err := cluster.Get(ctx, types.NamespacedName{Name: name}, found); {
	case err == nil:
		return found, nil
	case notServed(err):
		return nil, nil
	default:
		return nil, err
	}
}

// otherUse says in the same way what a namespace is for besides Klusterlets. Who may not read Secrets in it does without.
func otherUse(ctx context.Context, cluster client.Client, namespace *corev1.Namespace) (string, error) {
	return namespaceuse.Of(namespace.Labels, func() (bool, error) {
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(secrets)
		name := types.NamespacedName{Namespace: namespace.Name, Name: fleet.SecretExternalHubKubeconfig}
		switch err := cluster.Get(ctx, name, secret); {
		case err == nil:
			return true, nil
		case notServed(err), apiclient.Denied(err):
			return false, nil
		default:
			return false, fmt.Errorf("find out whether the namespace %s is that of a ClusterManager: %w", name.Namespace, err)
		}
	})
}

// leaveUsed returns those of the Klusterlet's namespaces on a cluster that have another use, because an earlier version has taken them, or
// they got it later, and deletes what the agent has made there. They are released once the rest of the Klusterlet in them is deleted, which
// is found by their labels.
func (c *Controller) leaveUsed(ctx context.Context, l layout, cluster *apply.Cluster, made []client.Object) ([]client.Object, error) {
	var left []client.Object
	for _, namespace := range made {
		use, err := otherUseNow(ctx, cluster.Client, namespace.GetName())
		if err != nil {
			return nil, err
		}
		if use == "" {
			continue
		}
		if cluster == c.Management {
			if err := c.deleteMadeByAgent(ctx, l, namespace.GetName()); err != nil {
				return nil, err
			}
		}
		left = append(left, namespace)
	}
	return left, nil
}

// otherUseNow is otherUse of a namespace as it is now, which a cache may not have seen yet.
func otherUseNow(ctx context.Context, cluster client.Client, name string) (string, error) {
	namespace := &corev1.Namespace{}
	if err := cluster.Get(ctx, types.NamespacedName{Name: name}, namespace); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return otherUse(ctx, cluster, namespace)
}

// release takes off namespaces what makes them part of an installation, and by which they would be deleted.
func release(ctx context.Context, cluster *apply.Cluster, used []client.Object) error {
	change := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null,%q:null}}}`, cluster.Label, fleet.LabelKlusterlet)
	for _, object := range used {
		namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: object.GetName()}}
		namespace.SetGroupVersionKind(namespaces)
		if err := cluster.Client.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, change)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("release Namespace %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// hasNamespace reports whether a namespace is among objects.
func hasNamespace(objects []client.Object, name string) bool {
	return slices.ContainsFunc(objects, func(o client.Object) bool {
		_, isNamespace := o.(*corev1.Namespace)
		return isNamespace && o.GetName() == name
	})
}
