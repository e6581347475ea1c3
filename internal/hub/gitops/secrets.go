package gitops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// ownerOf is the GitOpsCluster that a Secret of a cluster was made for; empty for Secrets of others.
func ownerOf(secret client.Object) types.NamespacedName {
	namespace, name, found := strings.Cut(secret.GetAnnotations()[fleet.AnnotationGitOpsCluster], "/")
	if !found || secret.GetLabels()[fleet.LabelArgoImported] != fleet.LabelTrue {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// clusterOf is the cluster that a Secret which the hub made is for; empty for Secrets of others.
func clusterOf(secret *corev1.Secret) string {
	if secret.Labels[fleet.LabelArgoImported] != fleet.LabelTrue {
		return ""
	}
	return secret.Labels[fleet.LabelArgoClusterName]
}

// ensureSecret writes the Secret of a cluster, and adds it to the index. It also returns the names under which one that exists is kept,
// whether or not it can be written.
func (c *Controller) ensureSecret(ctx context.Context, g *appsv1beta1.GitOpsCluster, name string, index secretIndex,
	r *registration) (kept []string, err error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.c.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
		return names(g, name), fmt.Errorf("get ManagedCluster %s: %w", name, err)
	}
	found, err := c.entry(ctx, g, cluster)
	if blocked := (*obstacleError)(nil); errors.As(err, &blocked) && blocked.nothingToCopy() {
		return []string{secretOf(name, accountOf(g))}, err
	} else if err != nil {
		return names(g, name), err
	}
	r.copies = r.copies || found.copied
	desired := desiredSecret(g, cluster, found)
	if err := index.check(desired); err != nil {
		return nil, err
	}
	if err := c.write(ctx, desired, r); err != nil {
		return []string{desired.Name}, err
	}
	index.add(desired)
	return []string{desired.Name}, nil
}

// desiredSecret is what the Secret of a cluster should be.
func desiredSecret(g *appsv1beta1.GitOpsCluster, cluster *clusterv1.ManagedCluster, e *entry) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: argoNamespace(g), Name: e.secret, Labels: labelsOf(cluster, e.server),
			Annotations: map[string]string{fleet.AnnotationGitOpsCluster: client.ObjectKeyFromObject(g).String()},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{keyName: []byte(cluster.Name), keyServer: []byte(e.server), keyConfig: e.config},
	}
}

// labelsOf are those of the cluster, by which ApplicationSets select clusters, and those that make the Secret one of a cluster. Labels by
// which an Argo CD knows what is part of an Application stay behind: it would delete the Secret with that.
func labelsOf(cluster *clusterv1.ManagedCluster, server string) map[string]string {
	labels := maps.Clone(cluster.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.DeleteFunc(labels, func(key, _ string) bool {
		return key == "app.kubernetes.io/instance" || strings.HasPrefix(key, "argocd.argoproj.io/")
	})
	maps.Copy(labels, map[string]string{
		fleet.LabelArgoSecretType: fleet.ArgoSecretTypeCluster, fleet.LabelArgoImported: fleet.LabelTrue, fleet.LabelBackup: "",
		fleet.LabelArgoClusterName: cluster.Name, fleet.LabelArgoClusterServer: hostLabel(server),
	})
	return labels
}

// hostLabel is the host of a URL, as far as it fits into a label.
func hostLabel(server string) string {
	parsed, err := url.Parse(server)
	if err != nil {
		return ""
	}
	host := parsed.Hostname()
	host = strings.Trim(strings.ReplaceAll(host[:min(len(host), validation.LabelValueMaxLength)], ":", "-"), "-.")
	if len(validation.IsValidLabelValue(host)) > 0 {
		return ""
	}
	return host
}

// secretIndex has the Secrets by which an Argo CD knows clusters, by what no two of them may have in common.
type secretIndex map[string][]*corev1.Secret

// indexSecrets reads those of an Argo CD.
func (c *Controller) indexSecrets(ctx context.Context, namespace string) (secretIndex, error) {
	list := &corev1.SecretList{}
	if err := c.c.Secrets.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Secrets of clusters in namespace %s: %w", namespace, err)
	}
	index := secretIndex{}
	for i := range list.Items {
		index.add(&list.Items[i])
	}
	return index, nil
}

func (index secretIndex) add(secret *corev1.Secret) {
	for _, key := range keysOf(secret) {
		index[key] = append(index[key], secret)
	}
}

// keysOf are the name and the server that an Argo CD knows a cluster by, and the ManagedCluster that the hub made the Secret for.
func keysOf(secret *corev1.Secret) []string {
	return []string{"name " + string(secret.Data[keyName]), "server " + serverOf(secret), "cluster " + clusterOf(secret)}
}

// serverOf is the server of a Secret, as an Argo CD compares them.
func serverOf(secret *corev1.Secret) string {
	return strings.TrimRight(string(secret.Data[keyServer]), "/")
}

// check finds Secrets by which the Argo CD knows a cluster already, or something else by the same server. A Secret that the hub has made
// counts if it was made before: one for the cluster and another GitOpsCluster, and one for another cluster with the same server. To the
// latter, a Secret that has another server until now gives way: no cluster takes the server of another one by naming it.
func (index secretIndex) check(desired *corev1.Secret) error {
	var related []*corev1.Secret
	for _, key := range keysOf(desired) {
		related = append(related, index[key]...)
	}
	own := slices.IndexFunc(related, func(s *corev1.Secret) bool { return s.Name == desired.Name && ownerOf(s) == ownerOf(desired) })
	for _, other := range related {
		owner, key := ownerOf(other), client.ObjectKeyFromObject(other)
		made, same := owner != (types.NamespacedName{}), clusterOf(other) == clusterOf(desired)
		first := made && own >= 0 && isOlder(related[own], other) && (same || serverOf(related[own]) == serverOf(desired))
		switch {
		case other.Name == desired.Name, made && same && owner == ownerOf(desired), first:
		case made && same:
			return obstacle(reasonTaken, "GitOpsCluster %s has made Secret %s for it, with another credential; leave the cluster to one of "+
				"the two", owner, key)
		case made:
			return obstacle(reasonTaken, "Secret %s, which the hub has made for cluster %s, is for the same server; correct the server of the "+
				"cluster that has another one, or select only one of the two", key, clusterOf(other))
		default:
			return obstacle(reasonTaken, "Secret %s, which was not made for this GitOpsCluster, is for the same name or server; delete that, "+
				"or leave the cluster to it", key)
		}
	}
	return nil
}

// isOlder reports whether a Secret was made before another one.
func isOlder(a, b *corev1.Secret) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// write writes what is different of a Secret. What an Argo CD keeps in its data and annotations besides stays.
func (c *Controller) write(ctx context.Context, desired *corev1.Secret, r *registration) error {
	if problems := validation.IsDNS1123Subdomain(desired.Name); len(problems) > 0 {
		return obstacle(reasonTaken, "%q is no name of a Secret: %s; choose a ManagedServiceAccount with a shorter name", desired.Name,
			strings.Join(problems, ", "))
	}
	key := client.ObjectKeyFromObject(desired)
	secret := &corev1.Secret{}
	if err := c.c.Secrets.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return c.create(ctx, desired, r)
	} else if err != nil {
		return fmt.Errorf("get Secret %s: %w", key, err)
	}
	owner := ownerOf(secret)
	foreign := owner != (types.NamespacedName{}) && owner != ownerOf(desired)
	switch {
	case clusterOf(secret) != clusterOf(desired):
		return secretTaken(key)
	case foreign && bytes.Equal(secret.Data[keyServer], desired.Data[keyServer]):
		return nil // with the same credential, which is in the name
	case foreign:
		return obstacle(reasonTaken, "GitOpsCluster %s has made Secret %s, for another server; leave the cluster to one of the two", owner, key)
	}
	before := secret.DeepCopy()
	secret.Labels = desired.Labels
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Annotations, desired.Annotations)
	delete(secret.Annotations, fleet.AnnotationDepartedAt)
	maps.Copy(secret.Data, desired.Data)
	_, err := patch.Object(ctx, c.c.Secrets, secret, before)
	return client.IgnoreNotFound(err)
}

// secretTaken is the error of a Secret with the name that is none of the cluster.
func secretTaken(key client.ObjectKey) error {
	return obstacle(reasonTaken, "Secret %s is there, and was not made for it; delete that, or choose another ManagedServiceAccount", key)
}

func (c *Controller) create(ctx context.Context, desired *corev1.Secret, r *registration) error {
	err := c.c.Secrets.Create(ctx, desired)
	if apierrors.IsAlreadyExists(err) {
		// The cache does not have it: because it is too new, or because it is no Secret of a cluster.
		key, existing := client.ObjectKeyFromObject(desired), &corev1.Secret{}
		switch readErr := c.c.Live.Get(ctx, key, existing); {
		case readErr == nil && clusterOf(existing) == "":
			return secretTaken(key)
		case readErr == nil:
			return apierrors.NewConflict(corev1.Resource("secrets"), key.String(), errors.New("another process has made it meanwhile"))
		}
	}
	if err != nil {
		return fmt.Errorf("create Secret %s: %w", client.ObjectKeyFromObject(desired), err)
	}
	r.added = append(r.added, clusterOf(desired))
	return nil
}

// ownedBy are the Secrets that were made for a GitOpsCluster, for whichever Argo CD.
func (c *Controller) ownedBy(ctx context.Context, g types.NamespacedName) ([]corev1.Secret, error) {
	all := &corev1.SecretList{}
	made := client.MatchingLabels{fleet.LabelArgoImported: fleet.LabelTrue}
	if err := c.c.Secrets.List(ctx, all, made, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Secrets of clusters: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(all.Items), func(s corev1.Secret) bool { return ownerOf(&s) != g }), nil
}

// removeAll releases all Secrets of a GitOpsCluster that has gone.
func (c *Controller) removeAll(ctx context.Context, g types.NamespacedName) error {
	own, err := c.ownedBy(ctx, g)
	if err != nil {
		return err
	}
	releaser := &releaser{Controller: c, from: g, registration: newRegistration(&appsv1beta1.GitOpsCluster{})}
	var failed []error
	for i := range own {
		failed = append(failed, releaser.release(ctx, &own[i]))
	}
	return errors.Join(failed...)
}

// removeOthers releases the Secrets of a GitOpsCluster that are none of those that are kept, and returns when it is due again: a cluster
// that moves from one decision to another is in neither for a moment, and the Secret of one that is no longer selected is retained while
// Applications deploy to it, as is a copy while there is nothing to copy.
func (c *Controller) removeOthers(ctx context.Context, g *appsv1beta1.GitOpsCluster, kept map[string]bool,
	r *registration) (wait time.Duration, err error) {
	key := client.ObjectKeyFromObject(g)
	own, err := c.ownedBy(ctx, key)
	if err != nil {
		return 0, err
	}
	absent := map[types.NamespacedName]bool{}
	own = slices.DeleteFunc(own, func(s corev1.Secret) bool {
		stays := s.Namespace == argoNamespace(g) && (kept[s.Name] || r.passedOver.Keeps(clusterOf(&s)))
		if !stays {
			absent[client.ObjectKeyFromObject(&s)] = true
		}
		return stays
	})
	since := c.absences.Update(key, absent, c.Clock.Now())
	deselected, releaser := &deselectedSecrets{Controller: c, g: g, r: r}, &releaser{Controller: c, from: key, registration: r}
	var failed []error
	for i := range own {
		remaining, err := deselected.remaining(ctx, &own[i], since[client.ObjectKeyFromObject(&own[i])])
		if err == nil && remaining == 0 {
			err = releaser.release(ctx, &own[i])
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		wait = retry.Soonest(wait, remaining)
	}
	return wait, errors.Join(failed...)
}

// removeRevoked releases the Secrets of a GitOpsCluster whose clusters are not given any more. It is for one that is otherwise left as
// it is.
func (c *Controller) removeRevoked(ctx context.Context, g *appsv1beta1.GitOpsCluster, r *registration) error {
	key := client.ObjectKeyFromObject(g)
	own, err := c.ownedBy(ctx, key)
	releaser := &releaser{Controller: c, from: key, registration: r}
	failed := []error{err}
	for i := range own {
		given, err := c.isGiven(ctx, g, &own[i])
		if err == nil && !given {
			err = releaser.release(ctx, &own[i])
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// remove deletes this Secret, and not one of the same name that was made meanwhile.
func (c *Controller) remove(ctx context.Context, secret *corev1.Secret) error {
	target := &corev1.Secret{ObjectMeta: *secret.ObjectMeta.DeepCopy()}
	err := c.c.Secrets.Delete(ctx, target, client.Preconditions{UID: &target.UID, ResourceVersion: &target.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}
