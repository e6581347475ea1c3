package framework

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// Site is a set of clusters, bound to a namespace, that no other test knows.
type Site struct {
	C    client.WithWatch
	Name string // of the set, of the namespace, and what the names of the clusters begin with
}

// NewSiteOn makes a site on a hub, with clusters by the ends of their names.
func NewSiteOn(t *testing.T, on *env.Server, name string, clusters ...string) *Site {
	t.Helper()
	s := &Site{C: on.Client(t), Name: name}
	Namespace(t, s.C, name)
	Create(t, s.C,
		&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name},
			Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: name}})
	for _, end := range clusters {
		s.Add(t, end, nil)
	}
	return s
}

// Add makes a cluster that tells the hub nothing. Its unreachable taint is tolerated by the placements here.
func (s *Site) Add(t *testing.T, end string, labels map[string]string) *clusterv1.ManagedCluster {
	t.Helper()
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-" + end,
		Labels: map[string]string{fleet.LabelClusterSet: s.Name}}}
	for key, value := range labels {
		mc.Labels[key] = value
	}
	Create(t, s.C, mc)
	return mc
}

// Tolerant tolerates that a cluster does not report.
var Tolerant = clusterv1beta1.Toleration{Key: fleet.TaintUnreachable, Operator: clusterv1beta1.TolerationOpExists}

// Place makes a placement in the namespace of the site.
func (s *Site) Place(t *testing.T, name string, spec clusterv1beta1.PlacementSpec) *clusterv1beta1.Placement {
	t.Helper()
	p := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: name}, Spec: spec}
	Create(t, s.C, p)
	return p
}

// Selected reads the decisions of a placement exactly as the ApplicationSet generator of Argo CD does (AR-01): by the label
// with the name of the placement.
func (s *Site) Selected(ctx context.Context, name string) (ends []string, err error) {
	list := &clusterv1beta1.PlacementDecisionList{}
	if err := s.C.List(ctx, list, client.InNamespace(s.Name),
		client.MatchingLabels{"cluster.open-cluster-management.io/placement": name}); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("placement %s has no decision object", name)
	}
	for _, d := range list.Items {
		for _, one := range d.Status.Decisions {
			ends = append(ends, strings.TrimPrefix(one.ClusterName, s.Name+"-"))
		}
	}
	slices.Sort(ends)
	return ends, nil
}

// Await waits until a placement has decided for these clusters.
func (s *Site) Await(t *testing.T, name string, want ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		got, err := s.Selected(ctx, name)
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("placement %s selected %v, want %v", name, got, want)
		}
		return nil
	})
}

// AwaitPlacement waits until the condition of a placement, at its present generation, has the status and the reason, and returns the
// placement.
func (s *Site) AwaitPlacement(t *testing.T, name, kind string, status metav1.ConditionStatus, reason string) *clusterv1beta1.Placement {
	t.Helper()
	p := &clusterv1beta1.Placement{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.C.Get(ctx, client.ObjectKey{Namespace: s.Name, Name: name}, p); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(p.Status.Conditions, kind)
		if cond == nil || cond.Status != status || cond.Reason != reason || cond.ObservedGeneration != p.Generation {
			return fmt.Errorf("want %s=%s (%s), have %+v", kind, status, reason, cond)
		}
		return nil
	})
	return p
}

// Taint taints a cluster of the site.
func (s *Site) Taint(t *testing.T, end string, taints ...clusterv1.Taint) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := s.C.Get(ctx, client.ObjectKey{Name: s.Name + "-" + end}, mc); err != nil {
			return err
		}
		mc.Spec.Taints = append(slices.DeleteFunc(mc.Spec.Taints,
			func(taint clusterv1.Taint) bool { return !strings.Contains(taint.Key, "open-cluster-management.io") }), taints...)
		return s.C.Update(ctx, mc)
	})
}

// ExpectDelay fails the test if a decision that has just left a cluster has waited for less than the delay since the cluster
// has the taint.
func (s *Site) ExpectDelay(t *testing.T, end, taint string, delay time.Duration) {
	t.Helper()
	moved := time.Now()
	mc := &clusterv1.ManagedCluster{}
	if err := s.C.Get(t.Context(), client.ObjectKey{Name: s.Name + "-" + end}, mc); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(mc.Spec.Taints, func(has clusterv1.Taint) bool { return has.Key == taint })
	if i < 0 {
		t.Fatalf("it has no taint %s: %+v", taint, mc.Spec.Taints)
	}
	if after := moved.Sub(mc.Spec.Taints[i].TimeAdded.Time); after < delay {
		t.Errorf("the decision that waits for %s has moved after %s", delay, after)
	}
}

// NewSite makes a site on the shared hub, with clusters by the ends of their names.
func NewSite(t *testing.T, name string, clusters ...string) *Site {
	t.Helper()
	return NewSiteOn(t, Hub, name, clusters...)
}

// SteadyOne selects one cluster. It has no Balance, which would give each placement a cluster of its own.
func SteadyOne(tolerations ...clusterv1beta1.Toleration) clusterv1beta1.PlacementSpec {
	return clusterv1beta1.PlacementSpec{
		NumberOfClusters: ptr.To[int32](1), Tolerations: tolerations,
		PrioritizerPolicy: clusterv1beta1.PrioritizerPolicy{Mode: clusterv1beta1.PrioritizerPolicyModeExact,
			Configurations: []clusterv1beta1.PrioritizerConfig{{
				ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeBuiltIn,
					BuiltIn: clusterv1beta1.PrioritizerSteady}, Weight: 1,
			}}},
	}
}
