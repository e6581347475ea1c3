package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

// retryOnConflict tries a write again that another one got ahead of: controllers that still run change what is being removed, some of them
// often.
func retryOnConflict(write func() error) error {
	return retry.RetryOnConflict(wait.Backoff{Steps: 12, Duration: 10 * time.Millisecond, Factor: 1.6, Jitter: 0.1}, write)
}

// Delete deletes an object, and returns whether there was one. It does not wait.
func (c *Cluster) Delete(ctx context.Context, of Reference) (bool, error) {
	client, err := c.client(ctx, of.GroupVersionKind, of.Namespace)
	if errors.Is(err, errNotServed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	background := metav1.DeletePropagationBackground
	err = retryOnConflict(func() error { return client.Delete(ctx, of.Name, metav1.DeleteOptions{PropagationPolicy: &background}) })
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, c.Explain("delete "+of.String(), err)
}

// AwaitDeletion waits until an object with that UID is gone; others may make another one with its name at once. On a time-out the error
// says what keeps it: its finalizers, and what is left in it if it is a namespace.
func (c *Cluster) AwaitDeletion(ctx context.Context, of Reference, uid types.UID) error {
	err := c.await(ctx, of, func(found []*unstructured.Unstructured) bool {
		return !slices.ContainsFunc(found, func(object *unstructured.Unstructured) bool { return object.GetUID() == uid })
	})
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s is not gone: %w%s", of, err, c.describeBlockers(ctx, of))
}

// describeBlockers says what keeps an object that is being deleted. It also reads that when the time to wait is over.
func (c *Cluster) describeBlockers(ctx context.Context, of Reference) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnosisTimeout)
	defer cancel()
	object, err := c.Get(ctx, of)
	if err != nil || object == nil {
		return ""
	}
	var lines []string
	for _, finalizer := range object.GetFinalizers() {
		lines = append(lines, "finalizer "+finalizer)
	}
	for _, condition := range Conditions(object) {
		bad := condition.Status == metav1.ConditionTrue && (of.Kind == KindNamespace.Kind || of.Kind == KindCRD.Kind)
		if bad && condition.Type != "Established" && condition.Type != "NamesAccepted" && condition.Message != "" {
			lines = append(lines, condition.Message)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "\n  " + strings.Join(lines, "\n  ")
}

// RemoveFinalizers takes finalizers off an object that their owners do not take off. It returns those that it took off.
func (c *Cluster) RemoveFinalizers(ctx context.Context, of Reference, remove func(finalizer string) bool) (removed []string, err error) {
	err = retryOnConflict(func() error {
		removed, err = c.removeFinalizers(ctx, of, remove)
		return err
	})
	return removed, err
}

func (c *Cluster) removeFinalizers(ctx context.Context, of Reference, remove func(finalizer string) bool) ([]string, error) {
	object, err := c.Get(ctx, of)
	if err != nil || object == nil {
		return nil, err
	}
	var removed []string
	kept := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(finalizer string) bool {
		if remove(finalizer) {
			removed = append(removed, finalizer)
			return true
		}
		return false
	})
	if len(removed) == 0 {
		return nil, nil
	}
	patch := marshal(map[string]any{"metadata": map[string]any{"finalizers": kept, "resourceVersion": object.GetResourceVersion()}})
	err = c.Patch(ctx, of, patch)
	if apierrors.IsNotFound(err) { // its controller was faster
		return nil, nil
	}
	return removed, err
}

// AwaitNone waits until no object of a kind is left that counts. report is called with the names of those that are left
// whenever they change.
func (c *Cluster) AwaitNone(ctx context.Context, kind schema.GroupVersionKind, counts func(*unstructured.Unstructured) bool,
	report func([]string)) error {
	var left []string
	return c.await(ctx, Reference{GroupVersionKind: kind}, func(found []*unstructured.Unstructured) bool {
		var now []string
		for _, object := range found {
			if counts(object) {
				now = append(now, object.GetName())
			}
		}
		slices.Sort(now)
		if !slices.Equal(now, left) {
			left = now
			report(now)
		}
		return len(now) == 0
	})
}

// inNamespaces are the kinds whose objects show that a namespace is used.
var inNamespaces = []schema.GroupVersionKind{
	KindDeployment, KindStatefulSet, KindDaemonSet, KindPod, KindServiceAccount, KindSecret, KindConfigMap,
}

// Remaining lists what is in a namespace: workloads, service accounts, Secrets and ConfigMaps, without what Kubernetes puts into every
// namespace, and what is being deleted.
func (c *Cluster) Remaining(ctx context.Context, namespace string) ([]string, error) {
	var remaining []string
	for _, kind := range inNamespaces {
		found, err := c.List(ctx, kind, namespace, "")
		if err != nil {
			return nil, err
		}
		for i := range found {
			object := &found[i]
			object.SetGroupVersionKind(kind)
			if object.GetDeletionTimestamp() == nil && len(object.GetOwnerReferences()) == 0 && !inEveryNamespace(object) {
				remaining = append(remaining, ReferenceTo(object).String())
			}
		}
	}
	return remaining, nil
}

// inEveryNamespace reports whether an object is one that Kubernetes and OpenShift put into every namespace: a service account for pods that
// name none, its tokens, and certificate authorities.
func inEveryNamespace(object *unstructured.Unstructured) bool {
	if kind, _, _ := unstructured.NestedString(object.Object, "type"); strings.HasPrefix(kind, "kubernetes.io/service-account-token") ||
		strings.HasPrefix(kind, "kubernetes.io/dockercfg") {
		return true
	}
	switch object.GetName() {
	case "kube-root-ca.crt", "openshift-service-ca.crt", "default", "builder", "deployer":
		return true
	}
	return false
}
