package admission

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// defaultClusterSet is the set of clusters that are in no other exclusive set.
const defaultClusterSet = fleet.ClusterSetDefault

var (
	managedClusterKind     = clusterv1.GroupVersion.WithKind("ManagedCluster").GroupKind()
	managedClusterResource = clusterv1.GroupVersion.WithResource(fleet.ResourceManagedClusters).GroupResource()
)

// MutateOptions is what MutateManagedCluster needs, in addition to the objects.
type MutateOptions struct {
	// Now becomes the time of new and changed taints, cut to whole seconds as the API stores it.
	Now time.Time
	// Taint and Finalizer are what the hub's own controllers would give a new cluster next, in a write each: the taint of one that no agent
	// has reported about, and the finalizer of their cleanup; none if it is empty.
	Taint     bool
	Finalizer string
	// DefaultClusterSet is the feature gate of this name: clusters without a set join the set default.
	DefaultClusterSet bool
	// Requester is the user name of the sender if it has a bootstrap credential, and empty otherwise.
	Requester string
	// Credential is the ID of that credential, if it has one.
	Credential string
	// BindCredentials makes certificates valid only for the ManagedCluster that they were issued for, which a standalone hub enforces.
	BindCredentials bool
	// Agent reports whether the sender is the agent of a cluster, or of an add-on there.
	Agent bool
}

// MutateManagedCluster completes a cluster that is created (old is nil) or updated, in place: it gives a new cluster its taint and its
// finalizer, sets the time of new taints, puts the cluster in the set default if it is in none, and records its requester and from when on
// certificates are valid. It changes nothing else. It fails with 400 when an update changes the timeAdded of a taint or sets an invalid
// time for certificates, and with 403 when a joining agent, or an agent, sets what is reserved for administrators.
func MutateManagedCluster(cluster, old *clusterv1.ManagedCluster, opts MutateOptions) error {
	now := metav1.NewTime(opts.Now).Rfc3339Copy()
	if old == nil && opts.Requester != "" {
		if err := requestToJoin(cluster, opts.Requester, opts.Credential); err != nil {
			return err
		}
	}
	if old == nil {
		prepare(cluster, opts)
		stampAll(cluster.Spec.Taints, now)
	} else if errs := stampChanged(cluster.Spec.Taints, old.Spec.Taints, now); len(errs) > 0 {
		return badRequest(managedClusterKind, cluster.Name, errs)
	}
	if opts.BindCredentials {
		if err := bindCredentials(cluster, old, opts.Agent, now); err != nil {
			return err
		}
	}
	if old != nil && cluster.Spec.HubAcceptsClient && !old.Spec.HubAcceptsClient {
		delete(cluster.Labels, fleet.LabelRequestedBy)
		delete(cluster.Labels, fleet.LabelRequestedWith)
	}
	if opts.DefaultClusterSet && cluster.Labels[fleet.LabelClusterSet] == "" {
		metav1.SetMetaDataLabel(&cluster.ObjectMeta, fleet.LabelClusterSet, defaultClusterSet)
	}
	return nil
}

// prepare gives a new cluster its taint, as the last one, and its finalizer.
func prepare(cluster *clusterv1.ManagedCluster, opts MutateOptions) {
	tainted := slices.ContainsFunc(cluster.Spec.Taints, func(t clusterv1.Taint) bool {
		return t.Key == fleet.TaintUnreachable && t.Effect == clusterv1.TaintEffectNoSelect
	})
	if opts.Taint && !tainted {
		cluster.Spec.Taints = append(cluster.Spec.Taints, clusterv1.Taint{Key: fleet.TaintUnreachable, Effect: clusterv1.TaintEffectNoSelect})
	}
	if opts.Finalizer != "" && !slices.Contains(cluster.Finalizers, opts.Finalizer) {
		cluster.Finalizers = append(cluster.Finalizers, opts.Finalizer)
	}
}

// stampAll sets the time of every taint of a new cluster, whatever the sender wrote there.
func stampAll(taints []clusterv1.Taint, now metav1.Time) {
	for i := range taints {
		taints[i].TimeAdded = now
	}
}

// stampChanged sets the time of new taints, restores the time of existing ones where it was omitted, as kubectl apply does, and refuses
// any other change of a time.
func stampChanged(taints, old []clusterv1.Taint, now metav1.Time) field.ErrorList {
	var errs field.ErrorList
	for i := range taints {
		taint, path := &taints[i], field.NewPath("spec", "taints").Index(i).Child("timeAdded")
		before := sameTaint(old, *taint)
		switch {
		case before == nil && taint.TimeAdded.IsZero():
			taint.TimeAdded = now
		case before == nil:
			errs = append(errs, field.Invalid(path, taint.TimeAdded, fmt.Sprintf(
				"TimeAdded of taint %q may not be set: leave it out, the hub sets it when a taint is new or changed", taint.Key)))
		case taint.TimeAdded.IsZero():
			taint.TimeAdded = before.TimeAdded
		case !taint.TimeAdded.Equal(&before.TimeAdded):
			errs = append(errs, field.Invalid(path, taint.TimeAdded, fmt.Sprintf(
				"TimeAdded of taint %q may not be set: the taint did not change, so leave its time at %s",
				taint.Key, before.TimeAdded.UTC().Format(time.RFC3339))))
		}
	}
	return errs
}

// sameTaint returns the taint with this key, value and effect. A key may occur with several effects, so the key alone does not identify
// a taint.
func sameTaint(taints []clusterv1.Taint, taint clusterv1.Taint) *clusterv1.Taint {
	for i := range taints {
		if taints[i].Key == taint.Key && taints[i].Value == taint.Value && taints[i].Effect == taint.Effect {
			return &taints[i]
		}
	}
	return nil
}

// NamespaceGetter reads a namespace of the hub. A namespace that does not exist is an error for which
// apierrors.IsNotFound is true.
type NamespaceGetter func(ctx context.Context, name string) (*corev1.Namespace, error)

// ValidateOptions is what ValidateManagedCluster needs, in addition to the objects and the sender.
type ValidateOptions struct {
	// Namespaces reads those of the hub.
	Namespaces NamespaceGetter
	// DefaultClusterSet is that of MutateOptions: the hub puts a cluster that was in no set into the set default at any update, such as one
	// of its agent or of the controllers of the hub, who need no right to that.
	DefaultClusterSet bool
}

// ValidateManagedCluster validates a cluster that is created (old is nil) or updated, after MutateManagedCluster. It fails with 400
// when the name is reserved, or the name or an address is invalid, and with 403 when the sender may not accept the cluster or revoke
// that, may not move it between sets, may not let the add-ons of the cluster run on another one, or may not read the kubeconfig that it is
// to be imported with, when the namespace of the cluster is still being deleted, or when a joining agent uses the name of a namespace that
// is not a cluster's.
func ValidateManagedCluster(
	ctx context.Context, cluster, old *clusterv1.ManagedCluster, sender Sender, opts ValidateOptions,
) error {
	if opts.DefaultClusterSet && old != nil && old.Labels[fleet.LabelClusterSet] == "" &&
		cluster.Labels[fleet.LabelClusterSet] == defaultClusterSet {
		old = old.DeepCopy()
		metav1.SetMetaDataLabel(&old.ObjectMeta, fleet.LabelClusterSet, defaultClusterSet)
	}
	accepted := cluster.Spec.HubAcceptsClient && (old == nil || !old.Spec.HubAcceptsClient)
	if (old == nil || accepted) && fleet.ReservedClusterName(cluster.Name) {
		return badRequest(managedClusterKind, cluster.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), cluster.Name,
			"the name is reserved: the group, the role or the namespace of this cluster would be one that the hub has for something else; choose another name")})
	}
	if cluster.DeletionTimestamp == nil {
		if errs := validateManagedClusterContent(cluster); len(errs) > 0 {
			return badRequest(managedClusterKind, cluster.Name, errs)
		}
	}
	if accepted {
		if err := validateNamespace(ctx, cluster.Name, opts.Namespaces); err != nil {
			return err
		}
	}
	if accepted || old != nil && old.Spec.HubAcceptsClient && !cluster.Spec.HubAcceptsClient {
		if err := validateAcceptance(ctx, cluster.Name, sender); err != nil {
			return err
		}
	}
	var setBefore string
	if old != nil {
		setBefore = old.Labels[fleet.LabelClusterSet]
	}
	if err := validateSetChange(ctx, setBefore, cluster.Labels[fleet.LabelClusterSet], sender); err != nil {
		return err
	}
	if err := validateClusterSize(cluster, old, sender); err != nil {
		return err
	}
	if old == nil && sender.Joining {
		if err := validateFreeName(ctx, cluster.Name, sender, opts.Namespaces); err != nil {
			return err
		}
	}
	if err := validateCAPICluster(ctx, cluster, old, sender); err != nil {
		return err
	}
	if old == nil {
		return validateHosting(ctx, managedClusterResource, cluster, nil, sender)
	}
	if err := validateHosting(ctx, managedClusterResource, cluster, old, sender); err != nil {
		return err
	}
	if len(sender.Clusters) > 0 {
		return validateAgentUpdate(cluster, old, sender)
	}
	return nil
}

// validateManagedClusterContent checks the name, which becomes the name of a namespace whether or not the cluster has
// client configs, and the addresses in those.
func validateManagedClusterContent(cluster *clusterv1.ManagedCluster) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range validation.ValidateNamespaceName(cluster.Name, false) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), cluster.Name,
			"it is also the name of the cluster's namespace on the hub: "+problem))
	}
	for i, config := range cluster.Spec.ManagedClusterClientConfigs {
		path := field.NewPath("spec", "managedClusterClientConfigs").Index(i).Child("url")
		if problem := checkURL(config.URL); problem != "" {
			errs = append(errs, field.Invalid(path, config.URL, problem))
		}
	}
	return errs
}

// checkURL returns what is wrong with the address of an API server, or an empty text.
func checkURL(address string) string {
	const example = "write the address of the API server, such as https://cluster1.example.com:6443"
	parsed, err := url.Parse(address)
	switch {
	case err != nil:
		return fmt.Sprintf("%v: %s", err, example)
	case parsed.Scheme != "https":
		return "it must start with https://: " + example
	case parsed.Hostname() == "":
		return "it names no host: " + example
	default:
		return ""
	}
}

// acceptance is the permission to decide about a cluster.
func acceptance(cluster string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{
		Group: fleet.GroupRegister, Resource: fleet.ResourceManagedClusters, Subresource: fleet.SubresourceAccept,
		Verb: "update", Name: cluster,
	}
}

// validateNamespace is called when a cluster becomes accepted: its namespace must not be terminating.
func validateNamespace(ctx context.Context, cluster string, namespaces NamespaceGetter) error {
	namespace, err := namespaces(ctx, cluster)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return forbidden(acceptance(cluster), fmt.Errorf("the namespace %q of the cluster could not be read: %w", cluster, err))
	case namespace.Status.Phase == corev1.NamespaceTerminating:
		return forbidden(acceptance(cluster), fmt.Errorf("the namespace %q of the cluster is being deleted: "+
			"accept the cluster again once the namespace is gone", cluster))
	}
	return nil
}

// validateAcceptance is called when a cluster is accepted, and when that is revoked: an agent may update its own ManagedCluster, and
// must not be able to revoke its own acceptance.
func validateAcceptance(ctx context.Context, cluster string, sender Sender) error {
	if err := sender.may(ctx, acceptance(cluster)); err != nil {
		return forbidden(acceptance(cluster), fmt.Errorf("user %q cannot update the HubAcceptsClient field: %w", sender.Name, err))
	}
	return nil
}

// validateSetChange checks the permission for both the set that the cluster leaves and the set that it joins.
func validateSetChange(ctx context.Context, before, after string, sender Sender) error {
	if before == after {
		return nil
	}
	for _, set := range []string{before, after} {
		if set == "" {
			continue
		}
		join := authorizationv1.ResourceAttributes{
			Group: clusterv1.GroupVersion.Group, Resource: "managedclustersets", Subresource: fleet.SubresourceJoin,
			Verb: "create", Name: set,
		}
		if err := sender.may(ctx, join); err != nil {
			return forbidden(join, fmt.Errorf("user %q cannot add/remove a ManagedCluster to/from ManagedClusterSet %q: %w",
				sender.Name, set, err))
		}
	}
	return nil
}
