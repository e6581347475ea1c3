package gitops

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

const (
	// retentionLimit is how long the Secret of a cluster that is no longer selected is retained while the Argo CD has Applications for it. One
	// that does not know the cluster can only forget the Applications, and leaves there what it has deployed. It is also how long a copy is
	// retained while there is nothing to copy: what renews its source may delete that and make it again.
	retentionLimit = 10 * time.Minute
	// applicationsRetryInterval is when Applications that cannot be read yet are listed again.
	applicationsRetryInterval = 10 * time.Second
)

const applicationCRD = "applications.argoproj.io"

var applicationKind = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"}

// retention is until when the Secret of a cluster is retained, and because of which Applications, in words.
type retention struct {
	until        time.Time
	applications string
}

// deselectedSecrets decides how long the Secrets of clusters that are no longer selected, and copies without a source, are retained.
type deselectedSecrets struct {
	*Controller
	g *appsv1beta1.GitOpsCluster
	r *registration
	// applications are those for a cluster, by what they name it by; nil until they are needed.
	applications map[string][]string
}

// remaining is how long the Secret of a cluster that is absent since a time is still retained; 0 if it is to be deleted now.
func (d *deselectedSecrets) remaining(ctx context.Context, secret *corev1.Secret, since time.Time) (time.Duration, error) {
	now := d.Clock.Now()
	if remaining := debounce.Delay - now.Sub(since); remaining > 0 {
		return remaining, nil
	}
	if d.r.hasNoCredential(clusterOf(secret)) && d.isNamedBySpec(secret) {
		return max(since.Add(retentionLimit).Sub(now), 0), nil
	}
	departed := departedAt(secret, since)
	until := departed.Add(retentionLimit)
	if !until.After(now) {
		return 0, nil
	}
	if allowed, err := d.mayBeRetained(ctx, secret); err != nil || !allowed {
		return 0, err
	}
	applications, ok, err := d.applicationsFor(ctx, secret)
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return applicationsRetryInterval, nil
	case len(applications) == 0:
		return 0, nil
	}
	d.r.retained[clusterOf(secret)] = retention{until, d.describe(applications)}
	return until.Sub(now), d.removeLabels(ctx, secret, departed)
}

// departedAt is when the cluster of a Secret has left. A hub that has started since then knows it from the Secret.
func departedAt(secret *corev1.Secret, since time.Time) time.Time {
	noted, err := time.Parse(time.RFC3339, secret.Annotations[fleet.AnnotationDepartedAt])
	if err != nil || noted.After(since) {
		return since
	}
	return noted
}

// describe names the Applications in the namespaces of the GitOpsCluster and of its Argo CD. Others are of other users.
func (d *deselectedSecrets) describe(applications []string) string {
	var named []string
	for _, app := range applications {
		if namespace, _, _ := strings.Cut(app, "/"); namespace == argoNamespace(d.g) || namespace == d.g.Namespace {
			named = append(named, app)
		}
	}
	if others := len(applications) - len(named); others > 0 {
		named = append(named, fmt.Sprintf("%d in other namespaces", others))
	}
	return text.FirstFew(named)
}

// removeLabels takes the labels of the cluster off a Secret that is retained: ApplicationSets that select clusters by them have their
// Applications removed while the Argo CD still knows the cluster. It notes when the cluster has left.
func (d *deselectedSecrets) removeLabels(ctx context.Context, secret *corev1.Secret, departed time.Time) error {
	unlabelled := &clusterv1.ManagedCluster{}
	unlabelled.Name = clusterOf(secret)
	updated := secret.DeepCopy()
	updated.Labels = labelsOf(unlabelled, string(secret.Data[keyServer]))
	updated.Annotations[fleet.AnnotationDepartedAt] = departed.UTC().Format(time.RFC3339)
	_, err := patch.Object(ctx, d.c.Secrets, updated, secret)
	return client.IgnoreNotFound(err)
}

// mayBeRetained reports whether a Secret is one that an Argo CD would still have if its cluster was selected. Who takes a cluster away from
// a namespace, or from the hub, takes it at once.
func (d *deselectedSecrets) mayBeRetained(ctx context.Context, secret *corev1.Secret) (bool, error) {
	name := clusterOf(secret)
	if d.r.selects(name) {
		return false, nil
	}
	if !d.isNamedBySpec(secret) {
		return false, nil
	}
	if given, err := d.isGiven(ctx, d.g, secret); err != nil || !given {
		return false, err
	}
	another, err := d.isSelectedByAnother(ctx, name)
	return !another, err
}

// isNamedBySpec reports whether a Secret is where the GitOpsCluster, as it is now, has one for the cluster.
func (d *deselectedSecrets) isNamedBySpec(secret *corev1.Secret) bool {
	return secret.Namespace == argoNamespace(d.g) && slices.Contains(names(d.g, clusterOf(secret)), secret.Name)
}

// isGiven reports whether the cluster of a Secret is one of the hub, in a set that is bound where a GitOpsCluster and its Argo CD are.
func (c *Controller) isGiven(ctx context.Context, g *appsv1beta1.GitOpsCluster, secret *corev1.Secret) (bool, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.c.Get(ctx, client.ObjectKey{Name: clusterOf(secret)}, cluster); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if !cluster.Spec.HubAcceptsClient || !cluster.DeletionTimestamp.IsZero() {
		return false, nil
	}
	for _, namespace := range []string{secret.Namespace, g.Namespace} {
		given, passedOver, err := c.selected.Named(ctx, namespace, cluster.Name)
		if err != nil || len(given) == 0 && !passedOver.Keeps(cluster.Name) {
			return false, err
		}
	}
	return true, nil
}

// isSelectedByAnother reports whether the Placement of another GitOpsCluster of the same Argo CD selects a cluster: that is to register it,
// maybe as another account.
func (d *deselectedSecrets) isSelectedByAnother(ctx context.Context, cluster string) (bool, error) {
	others, err := d.others(ctx, client.ObjectKeyFromObject(d.g))
	if err != nil {
		return false, err
	}
	for i := range others {
		other := &others[i]
		if argoNamespace(other) != argoNamespace(d.g) {
			continue
		}
		clusters, err := d.clusters(ctx, other, newRegistration(other))
		if err != nil || slices.Contains(clusters, cluster) {
			return err == nil, err
		}
	}
	return false, nil
}

// applicationsFor are the Applications that an Argo CD deploys to a cluster by its Secret; ok is false for a moment after a start, until
// they can be read.
func (d *deselectedSecrets) applicationsFor(ctx context.Context, secret *corev1.Secret) (applications []string, ok bool, err error) {
	if d.applications == nil {
		reader := d.c.Applications()
		if reader == nil {
			_, err := d.c.Live.RESTMapper().RESTMapping(applicationKind.GroupKind(), applicationKind.Version)
			if meta.IsNoMatchError(err) {
				return nil, true, nil // the hub has not the kind
			}
			return nil, false, err
		}
		if d.applications, err = byDestination(ctx, reader); err != nil {
			return nil, false, err
		}
	}
	for _, key := range destinationKeys(string(secret.Data[keyName]), string(secret.Data[keyServer])) {
		applications = append(applications, d.applications[key]...)
	}
	slices.Sort(applications)
	return slices.Compact(applications), true, nil
}

// byDestination are the Applications by the names and the servers of the clusters that they are for, but for those that the Argo CD skips.
func byDestination(ctx context.Context, reader client.Reader) (map[string][]string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(applicationKind.GroupVersion().WithKind(applicationKind.Kind + "List"))
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Applications: %w", err)
	}
	all := map[string][]string{}
	for i := range list.Items {
		app := &list.Items[i]
		if app.GetAnnotations()[fleet.AnnotationArgoSkip] == fleet.LabelTrue {
			continue
		}
		for _, key := range destinationKeys(destinationOf(app)) {
			all[key] = append(all[key], client.ObjectKeyFromObject(app).String())
		}
	}
	return all, nil
}

func destinationOf(app *unstructured.Unstructured) (name, server string) {
	name, _, _ = unstructured.NestedString(app.Object, "spec", "destination", "name")
	server, _, _ = unstructured.NestedString(app.Object, "spec", "destination", "server")
	return name, server
}

// destinationKeys are what an Argo CD finds a cluster by.
func destinationKeys(name, server string) (keys []string) {
	if name != "" {
		keys = append(keys, "name "+name)
	}
	if server != "" {
		keys = append(keys, "server "+strings.TrimRight(server, "/"))
	}
	return keys
}

// onlyDestination is an Application with what is cached of it.
func onlyDestination(o any) (any, error) {
	app, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	kept := &unstructured.Unstructured{}
	kept.SetGroupVersionKind(app.GroupVersionKind())
	kept.SetNamespace(app.GetNamespace())
	kept.SetName(app.GetName())
	kept.SetUID(app.GetUID())
	kept.SetResourceVersion(app.GetResourceVersion())
	if skip, found := app.GetAnnotations()[fleet.AnnotationArgoSkip]; found {
		kept.SetAnnotations(map[string]string{fleet.AnnotationArgoSkip: skip})
	}
	destination := map[string]any{}
	name, server := destinationOf(app)
	maps.Copy(destination, map[string]any{"name": name, "server": server})
	kept.Object["spec"] = map[string]any{"destination": destination}
	return kept, nil
}

// applicationMayLeave matches events after which an Application may no longer be for a cluster.
func applicationMayLeave() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			oldApp, oldOK := e.ObjectOld.(*unstructured.Unstructured)
			newApp, newOK := e.ObjectNew.(*unstructured.Unstructured)
			if !oldOK || !newOK {
				return true
			}
			oldName, oldServer := destinationOf(oldApp)
			newName, newServer := destinationOf(newApp)
			return oldName != newName || oldServer != newServer ||
				oldApp.GetAnnotations()[fleet.AnnotationArgoSkip] != newApp.GetAnnotations()[fleet.AnnotationArgoSkip]
		},
	}
}

// withAbsences are the GitOpsClusters with Secrets of clusters that are no longer selected.
func (c *Controller) withAbsences(context.Context) (requests []reconcile.Request) {
	for _, g := range c.absences.Owners() {
		requests = append(requests, ctrl.Request{NamespacedName: g})
	}
	return requests
}

// withRetained is a message that also says which clusters stay registered, and why, if there are any.
func (r *registration) withRetained(message string) string {
	texts := []string{message}
	for _, cluster := range slices.Sorted(maps.Keys(r.retained)) {
		s := r.retained[cluster]
		texts = append(texts, fmt.Sprintf("%s is no longer selected, and stays registered until %s at the latest, as Applications "+
			"deploy to it: %s", cluster, s.until.UTC().Format(time.RFC3339), s.applications))
	}
	return strings.Join(texts, "; ")
}
