package framework

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// SetBinding binds a set of clusters to a namespace.
func SetBinding(namespace, name, set string) *clusterv1beta2.ManagedClusterSetBinding {
	return &clusterv1beta2.ManagedClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: set},
	}
}

// ClusterSet is a ManagedClusterSet with a selector.
func ClusterSet(name string, kind clusterv1beta2.SelectorType, selector *metav1.LabelSelector) *clusterv1beta2.ManagedClusterSet {
	set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: kind, LabelSelector: selector}
	return set
}

// CheckSetWarnings deletes a set that is bound to a namespace and has a cluster, of which the server warns, and creates one without
// members.
func CheckSetWarnings(t *testing.T, server *env.Server, name string) {
	t.Helper()
	admin := server.Client(t)
	Create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name + "-team"}})
	Create(t, admin, ClusterSet(name, clusterv1beta2.ExclusiveClusterSetLabel, nil), SetBinding(name+"-team", name, name),
		&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelClusterSet: name}}})
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	said := &warnings{}
	config.WarningHandler = said
	c := env.ClientFor(t, config)
	set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	warned := func(want ...string) error {
		if got := said.take(); !slices.EqualFunc(got, want, strings.Contains) {
			return fmt.Errorf("warnings %q, want %q", got, want)
		}
		return nil
	}
	bound := "ManagedClusterSet " + name + " is bound to namespace " + name + "-team: "
	members := "ManagedClusterSet " + name + " has members (1 ManagedClusters selected): "
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Delete(ctx, set.DeepCopy(), client.DryRunAll); err != nil {
			return err
		}
		return warned(bound, members)
	})
	if err := c.Delete(t.Context(), set.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := warned(bound, members); err != nil {
		t.Error(err)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(set), set); !apierrors.IsNotFound(err) {
		t.Errorf("the set is not deleted: %v", err)
	}
	Create(t, c, ClusterSet(name+"-none", clusterv1beta2.LabelSelector, nil))
	if err := warned("no cluster is in the set: spec.clusterSelector.labelSelector is missing"); err != nil {
		t.Error(err)
	}
}

// warnings are those that a server has sent since they were taken last.
type warnings struct {
	mu   sync.Mutex
	said []string
}

// HandleWarningHeader implements the handler of client-go.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}
