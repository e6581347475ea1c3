package admission_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var (
	now     = time.Date(2026, 11, 21, 4, 30, 0, 123, time.UTC)
	stamped = metav1.NewTime(now.Truncate(time.Second))
	earlier = metav1.NewTime(stamped.Add(-time.Hour))
)

func taint(key, value string, effect clusterv1.TaintEffect, added metav1.Time) clusterv1.Taint {
	return clusterv1.Taint{Key: key, Value: value, Effect: effect, TimeAdded: added}
}

func tainted(taints ...clusterv1.Taint) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "c1"},
		Spec:       clusterv1.ManagedClusterSpec{Taints: taints},
	}
}

func TestTaintTimes(t *testing.T) {
	t.Parallel()
	const none = clusterv1.TaintEffectNoSelect
	const prefer = clusterv1.TaintEffectPreferNoSelect
	for _, test := range []struct {
		name     string
		old      *clusterv1.ManagedCluster
		taints   []clusterv1.Taint
		want     []metav1.Time
		refusals []string
	}{
		// WH-01
		{name: "create stamps", taints: []clusterv1.Taint{taint("a", "", none, metav1.Time{})}, want: []metav1.Time{stamped}},
		{name: "create ignores what the sender wrote", taints: []clusterv1.Taint{taint("a", "", none, earlier)}, want: []metav1.Time{stamped}},
		// WH-02
		{name: "update stamps a new taint", old: tainted(), taints: []clusterv1.Taint{taint("a", "", none, metav1.Time{})},
			want: []metav1.Time{stamped}},
		{name: "update keeps an old taint", old: tainted(taint("a", "x", none, earlier)),
			taints: []clusterv1.Taint{taint("b", "", none, metav1.Time{}), taint("a", "x", none, earlier)}, want: []metav1.Time{stamped, earlier}},
		{name: "update stamps a new value", old: tainted(taint("a", "x", none, earlier)),
			taints: []clusterv1.Taint{taint("a", "y", none, metav1.Time{})}, want: []metav1.Time{stamped}},
		{name: "update stamps a new effect", old: tainted(taint("a", "x", none, earlier)),
			taints: []clusterv1.Taint{taint("a", "x", prefer, metav1.Time{})}, want: []metav1.Time{stamped}},
		{name: "one key with two effects", old: tainted(taint("a", "", none, earlier), taint("a", "", prefer, stamped)),
			taints: []clusterv1.Taint{taint("a", "", none, earlier), taint("a", "", prefer, stamped)}, want: []metav1.Time{earlier, stamped}},
		{name: "time of a new taint", old: tainted(), taints: []clusterv1.Taint{taint("a", "", none, earlier)},
			refusals: []string{`TimeAdded of taint "a" may not be set`, "spec.taints[0].timeAdded"}},
		{name: "time of a changed taint", old: tainted(taint("a", "x", none, earlier)), taints: []clusterv1.Taint{taint("a", "y", none, earlier)},
			refusals: []string{`TimeAdded of taint "a" may not be set`}},
		{name: "other time of an unchanged taint", old: tainted(taint("a", "x", none, earlier)),
			taints:   []clusterv1.Taint{taint("a", "x", none, stamped)},
			refusals: []string{`TimeAdded of taint "a" may not be set`, "leave its time at 2026-11-21T03:30:00Z"}},
		{name: "time of an unchanged taint is left out", old: tainted(taint("a", "x", none, earlier)),
			taints: []clusterv1.Taint{taint("a", "x", none, metav1.Time{})},
			want:   []metav1.Time{earlier}},
		{name: "every wrong taint is named", old: tainted(),
			taints:   []clusterv1.Taint{taint("a", "", none, earlier), taint("b", "", none, earlier)},
			refusals: []string{`taint "a"`, `taint "b"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cluster := tainted(test.taints...)
			err := admission.MutateManagedCluster(cluster, test.old, admission.MutateOptions{Now: now})
			if test.refusals != nil {
				checkStatus(t, err, 400, test.refusals...)
				return
			}
			checkStatus(t, err, 0)
			for i, want := range test.want {
				if got := cluster.Spec.Taints[i].TimeAdded; !got.Equal(&want) || got.Nanosecond() != 0 {
					t.Errorf("taint %d was added at %v, want %v", i, got, want)
				}
			}
		})
	}
}

// RG-28 RG-44: a new cluster starts with the taint and the finalizer that the hub's controllers would give it next, each once. An update
// adds neither.
func TestNewCluster(t *testing.T) {
	t.Parallel()
	const finalizer = "cluster.open-cluster-management.io/resource-cleanup"
	own := taint("a", "", clusterv1.TaintEffectNoSelect, stamped)
	unreachable := taint("cluster.open-cluster-management.io/unreachable", "", clusterv1.TaintEffectNoSelect, stamped)
	preferred := taint(unreachable.Key, "", clusterv1.TaintEffectPreferNoSelect, stamped)
	for name, test := range map[string]struct {
		old                        *clusterv1.ManagedCluster
		without                    bool
		taints, wants              []clusterv1.Taint
		finalizers, wantFinalizers []string
	}{
		"plain":                        {wants: []clusterv1.Taint{unreachable}, wantFinalizers: []string{finalizer}},
		"on a hub without controllers": {without: true, taints: []clusterv1.Taint{own}, wants: []clusterv1.Taint{own}},
		"with others": {taints: []clusterv1.Taint{own}, wants: []clusterv1.Taint{own, unreachable},
			finalizers: []string{"a.io/b"}, wantFinalizers: []string{"a.io/b", finalizer}},
		"that has them": {taints: []clusterv1.Taint{unreachable, own}, wants: []clusterv1.Taint{unreachable, own},
			finalizers: []string{finalizer}, wantFinalizers: []string{finalizer}},
		"with a taint of another effect": {taints: []clusterv1.Taint{preferred}, wants: []clusterv1.Taint{preferred, unreachable},
			wantFinalizers: []string{finalizer}},
		"update": {old: tainted(unreachable)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := tainted(slices.Clone(test.taints)...)
			cluster.Finalizers = slices.Clone(test.finalizers)
			options := admission.MutateOptions{Now: now, Taint: true, Finalizer: finalizer}
			if test.without {
				options = admission.MutateOptions{Now: now}
			}
			checkStatus(t, admission.MutateManagedCluster(cluster, test.old, options), 0)
			if !equality.Semantic.DeepEqual(cluster.Spec.Taints, test.wants) || !slices.Equal(cluster.Finalizers, test.wantFinalizers) {
				t.Errorf("taints %v, want %v; finalizers %v, want %v", cluster.Spec.Taints, test.wants, cluster.Finalizers, test.wantFinalizers)
			}
		})
	}
}

// WH-03
func TestDefaultClusterSet(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		gate   bool
		labels map[string]string
		want   string
	}{
		{name: "no labels", gate: true, want: "default"},
		{name: "other labels", gate: true, labels: map[string]string{"a": "b"}, want: "default"},
		{name: "empty", gate: true, labels: map[string]string{fleet.LabelClusterSet: ""}, want: "default"},
		{name: "chosen", gate: true, labels: map[string]string{fleet.LabelClusterSet: "prod"}, want: "prod"},
		{name: "gate off", labels: map[string]string{"a": "b"}, want: ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, old := range []*clusterv1.ManagedCluster{nil, tainted()} {
				cluster := tainted()
				cluster.Labels = test.labels
				checkStatus(t, admission.MutateManagedCluster(cluster, old, admission.MutateOptions{Now: now, DefaultClusterSet: test.gate}), 0)
				if got := cluster.Labels[fleet.LabelClusterSet]; got != test.want {
					t.Errorf("set is %q, want %q", got, test.want)
				}
			}
		})
	}
}

// WH-04
func TestManagedClusterContent(t *testing.T) {
	t.Parallel()
	deleting := metav1.NewTime(now)
	for _, test := range []struct {
		name     string
		cluster  string
		urls     []string
		deleting *metav1.Time
		refusals []string
	}{
		{name: "plain", cluster: "c1"},
		{name: "https", cluster: "c1", urls: []string{"https://c1.example.com:6443", "https://10.0.0.1"}},
		{name: "name without client configs", cluster: "c.1", refusals: []string{"metadata.name", `"c.1"`, "namespace"}},
		{name: "name with client configs", cluster: "c.1", urls: []string{"https://a"}, refusals: []string{"metadata.name"}},
		{name: "long name", cluster: "a123456789a123456789a123456789a123456789a123456789a123456789a123456789",
			refusals: []string{"metadata.name", "63"}},
		{name: "http", cluster: "c1", urls: []string{"https://a", "http://a"},
			refusals: []string{"spec.managedClusterClientConfigs[1].url", `"http://a"`, "must start with https://"}},
		{name: "no scheme", cluster: "c1", urls: []string{"c1.example.com:6443"}, refusals: []string{"https://"}},
		{name: "no host", cluster: "c1", urls: []string{"https://"}, refusals: []string{"names no host"}},
		{name: "no URL", cluster: "c1", urls: []string{"https://a b"}, refusals: []string{"managedClusterClientConfigs[0]"}},
		{name: "all at once", cluster: "c.1", urls: []string{"http://a"}, refusals: []string{"metadata.name", "managedClusterClientConfigs[0]"}},
		{name: "a cluster on its way out", cluster: "c.1", urls: []string{"http://a"}, deleting: &deleting},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cluster := tainted()
			cluster.Name, cluster.DeletionTimestamp = test.cluster, test.deleting
			for _, url := range test.urls {
				cluster.Spec.ManagedClusterClientConfigs = append(cluster.Spec.ManagedClusterClientConfigs, clusterv1.ClientConfig{URL: url})
			}
			code := 0
			if test.refusals != nil {
				code = 400
			}
			for _, old := range []*clusterv1.ManagedCluster{nil, tainted()} {
				err := admission.ValidateManagedCluster(context.Background(), cluster, old, (&fakeAuthorizer{}).sender(), noNamespaces)
				checkStatus(t, err, code, test.refusals...)
			}
		})
	}
}

// RG-16: names under which a cluster would get the rights of all clusters. One from before this rule may be changed and
// deleted, but not accepted.
func TestReservedNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"managed-clusters", "cluster-proxy", "registration", "work"} {
		cluster := tainted()
		cluster.Name = name
		accepted := cluster.DeepCopy()
		accepted.Spec.HubAcceptsClient = true
		for _, test := range []struct {
			cluster, old *clusterv1.ManagedCluster
			code         int
		}{{cluster, nil, 400}, {accepted, nil, 400}, {accepted, cluster, 400}, {cluster, cluster, 0}, {cluster, accepted, 0},
			{accepted, accepted, 0}} {
			authorizer := &fakeAuthorizer{allowed: []string{"update managedclusters/accept.register.open-cluster-management.io /" + name}}
			err := admission.ValidateManagedCluster(context.Background(), test.cluster, test.old, authorizer.sender(), noNamespaces)
			var texts []string
			if test.code != 0 {
				texts = []string{"metadata.name", `"` + name + `"`, "reserved"}
			}
			checkStatus(t, err, test.code, texts...)
		}
	}
}

// noNamespaces is for a hub that has none.
var noNamespaces = admission.ValidateOptions{Namespaces: noNamespace}

func noNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}

func namespaceIn(phase corev1.NamespacePhase) admission.NamespaceGetter {
	return func(_ context.Context, name string) (*corev1.Namespace, error) {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: phase}}, nil
	}
}

// WH-05, WH-06
func TestAcceptance(t *testing.T) {
	t.Parallel()
	const accept = "update managedclusters/accept.register.open-cluster-management.io /c1"
	brokenNamespace := func(context.Context, string) (*corev1.Namespace, error) { return nil, errors.New("no connection") }
	accepts := func(accepts bool) *clusterv1.ManagedCluster {
		cluster := tainted()
		cluster.Spec.HubAcceptsClient = accepts
		return cluster
	}
	for _, test := range []struct {
		name         string
		cluster, old *clusterv1.ManagedCluster
		authorizer   fakeAuthorizer
		namespace    admission.NamespaceGetter
		code         int
		texts        []string
		noReview     bool
	}{
		{name: "created accepted", cluster: accepts(true), authorizer: fakeAuthorizer{allowed: []string{accept}}},
		{name: "created accepted without permission", cluster: accepts(true), code: 403, texts: []string{
			`user "ann" cannot update the HubAcceptsClient field`, "managedclusters/accept", "register.open-cluster-management.io",
			"no rule allows it"}},
		{name: "accepted", cluster: accepts(true), old: accepts(false), authorizer: fakeAuthorizer{allowed: []string{accept}}},
		{name: "accepted without permission", cluster: accepts(true), old: accepts(false), code: 403, texts: []string{`user "ann"`}},
		{name: "permission for another cluster", cluster: accepts(true), code: 403,
			authorizer: fakeAuthorizer{allowed: []string{"update managedclusters/accept.register.open-cluster-management.io /c2"}}},
		{name: "still accepted", cluster: accepts(true), old: accepts(true), noReview: true},
		{name: "no longer accepted", cluster: accepts(false), old: accepts(true), authorizer: fakeAuthorizer{allowed: []string{accept}}},
		{name: "no longer accepted without permission", cluster: accepts(false), old: accepts(true), code: 403, texts: []string{`user "ann"`}},
		{name: "created unaccepted", cluster: accepts(false), noReview: true},
		{name: "authorizer fails", cluster: accepts(true), authorizer: fakeAuthorizer{err: errors.New("no connection")}, code: 403,
			texts: []string{"no connection"}},
		{name: "authorizer fails and allows", cluster: accepts(true), code: 403,
			authorizer: fakeAuthorizer{allowed: []string{accept}, err: errors.New("no connection")}},

		{name: "namespace is there", cluster: accepts(true), namespace: namespaceIn(corev1.NamespaceActive),
			authorizer: fakeAuthorizer{allowed: []string{accept}}},
		{name: "namespace terminates", cluster: accepts(true), namespace: namespaceIn(corev1.NamespaceTerminating),
			authorizer: fakeAuthorizer{allowed: []string{accept}}, code: 403, texts: []string{`namespace "c1"`, "is being deleted"}, noReview: true},
		{name: "namespace cannot be read", cluster: accepts(true), namespace: brokenNamespace,
			authorizer: fakeAuthorizer{allowed: []string{accept}}, code: 403, texts: []string{"no connection"}, noReview: true},
		{name: "namespace of a cluster that stays accepted", cluster: accepts(true), old: accepts(true),
			namespace: namespaceIn(corev1.NamespaceTerminating), noReview: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.namespace == nil {
				test.namespace = noNamespace
			}
			err := admission.ValidateManagedCluster(context.Background(), test.cluster, test.old, test.authorizer.sender(),
				admission.ValidateOptions{Namespaces: test.namespace})
			checkStatus(t, err, test.code, test.texts...)
			want := []string{accept}
			if test.noReview {
				want = nil
			}
			if !slices.Equal(test.authorizer.reviewed, want) {
				t.Errorf("asked for %q, want %q", test.authorizer.reviewed, want)
			}
		})
	}
}

// RG-47: who names a cluster of Cluster API in another namespace needs the permission to read its kubeconfig, which the hub would use.
func TestClusterOfClusterAPI(t *testing.T) {
	t.Parallel()
	const read = "get secrets/. eu/blue-kubeconfig"
	named := func(value string) *clusterv1.ManagedCluster {
		cluster := tainted()
		cluster.Annotations = map[string]string{"x": value}
		if value != "" {
			cluster.Annotations["cluster.x-k8s.io/cluster"] = value
		}
		return cluster
	}
	for name, test := range map[string]struct {
		before, after string
		noReview      bool
	}{
		"set": {after: "eu/blue"}, "changed": {before: "eu/green", after: "eu/blue"}, "changed from no name": {before: "x", after: "eu/blue"},
		"from its own namespace": {before: "c1/blue", after: "eu/blue"}, "in its own namespace": {after: "c1/blue", noReview: true},
		"kept": {before: "eu/blue", after: "eu/blue", noReview: true}, "removed": {before: "eu/blue", noReview: true}, "none": {noReview: true},
		"no namespace": {after: "blue", noReview: true}, "too much of a name": {after: "eu/blue/x", noReview: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			olds := []*clusterv1.ManagedCluster{named(test.before)}
			if test.before == "" {
				olds = append(olds, nil)
			}
			for _, old := range olds {
				refuses, allows := &fakeAuthorizer{}, &fakeAuthorizer{allowed: []string{read}}
				code, want := 403, []string{read}
				if test.noReview {
					code, want = 0, nil
				}
				checkStatus(t, admission.ValidateManagedCluster(t.Context(), named(test.after), old, refuses.sender(), noNamespaces), code,
					`user "ann" cannot have the cluster eu/blue imported by metadata.annotations[cluster.x-k8s.io/cluster]`,
					`the permission to get secrets named "blue-kubeconfig" in namespace "eu"`)
				checkStatus(t, admission.ValidateManagedCluster(t.Context(), named(test.after), old, allows.sender(), noNamespaces), 0)
				if !slices.Equal(allows.reviewed, want) {
					t.Errorf("asked for %q, want %q", allows.reviewed, want)
				}
			}
		})
	}
}

// WH-07
func TestSetMembership(t *testing.T) {
	t.Parallel()
	const joinA = "create managedclustersets/join.cluster.open-cluster-management.io /a"
	const joinB = "create managedclustersets/join.cluster.open-cluster-management.io /b"
	const joinDefault = "create managedclustersets/join.cluster.open-cluster-management.io /default"
	in := func(set string) *clusterv1.ManagedCluster {
		cluster := tainted()
		cluster.Labels = map[string]string{fleet.LabelClusterSet: set, "x": set}
		return cluster
	}
	for _, test := range []struct {
		name         string
		cluster, old *clusterv1.ManagedCluster
		gate         bool
		allowed      []string
		reviewed     []string
		texts        []string
	}{
		{name: "created in a set", cluster: in("a"), allowed: []string{joinA}, reviewed: []string{joinA}},
		{name: "created in a set without permission", cluster: in("a"), reviewed: []string{joinA},
			texts: []string{`user "ann" cannot add/remove a ManagedCluster to/from ManagedClusterSet "a"`, "managedclustersets/join"}},
		{name: "created in none", cluster: in("")},
		{name: "moved", cluster: in("b"), old: in("a"), allowed: []string{joinA, joinB}, reviewed: []string{joinA, joinB}},
		{name: "moved without permission on the old set", cluster: in("b"), old: in("a"), allowed: []string{joinB}, reviewed: []string{joinA},
			texts: []string{`ManagedClusterSet "a"`}},
		{name: "moved without permission on the new set", cluster: in("b"), old: in("a"), allowed: []string{joinA},
			reviewed: []string{joinA, joinB},
			texts:    []string{`ManagedClusterSet "b"`}},
		{name: "taken out", cluster: in(""), old: in("a"), allowed: []string{joinA}, reviewed: []string{joinA}},
		{name: "taken out without permission", cluster: in(""), old: in("a"),
			reviewed: []string{joinA}, texts: []string{`ManagedClusterSet "a"`}},
		{name: "stays", cluster: in("a"), old: in("a")},
		{name: "put by the hub into the default set", cluster: in("default"), old: in(""), gate: true},
		{name: "put by the sender into the default set", cluster: in("default"), old: in(""), reviewed: []string{joinDefault},
			texts: []string{`ManagedClusterSet "default"`}},
		{name: "created in the default set", cluster: in("default"), gate: true, reviewed: []string{joinDefault},
			texts: []string{`ManagedClusterSet "default"`}},
		{name: "moved to the default set", cluster: in("default"), old: in("a"), gate: true, allowed: []string{joinA},
			reviewed: []string{joinA, joinDefault}, texts: []string{`ManagedClusterSet "default"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			authorizer := fakeAuthorizer{allowed: test.allowed}
			err := admission.ValidateManagedCluster(context.Background(), test.cluster, test.old, authorizer.sender(),
				admission.ValidateOptions{Namespaces: noNamespace, DefaultClusterSet: test.gate})
			code := 0
			if test.texts != nil {
				code = 403
			}
			checkStatus(t, err, code, test.texts...)
			if !slices.Equal(authorizer.reviewed, test.reviewed) {
				t.Errorf("asked for %q, want %q", authorizer.reviewed, test.reviewed)
			}
		})
	}
}

// WH-03 WH-07: a cluster that is in no set, such as one from before the webhooks, joins the set default at the next update, also of its
// agent and of the hub, which have no right to move it.
func TestUpdateOfClusterWithoutSet(t *testing.T) {
	t.Parallel()
	authorizer := fakeAuthorizer{}
	agent := authorizer.sender()
	agent.Clusters = []string{"c1"}
	for name, test := range map[string]struct {
		sender admission.Sender
		change func(*clusterv1.ManagedCluster)
	}{
		"its agent says how it is reached": {agent, func(c *clusterv1.ManagedCluster) {
			c.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: "https://c1.example.com:6443"}}
		}},
		"the hub has cleaned up": {authorizer.sender(), func(c *clusterv1.ManagedCluster) { c.Finalizers = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := tainted()
			old.Name, old.Finalizers = "c1", []string{fleet.FinalizerManagedCluster}
			cluster := old.DeepCopy()
			test.change(cluster)
			if err := admission.MutateManagedCluster(cluster, old, admission.MutateOptions{Now: time.Now(), DefaultClusterSet: true}); err != nil {
				t.Fatal(err)
			}
			if got := cluster.Labels[fleet.LabelClusterSet]; got != "default" {
				t.Errorf("the cluster is in the set %q", got)
			}
			opts := admission.ValidateOptions{Namespaces: noNamespace, DefaultClusterSet: true}
			if err := admission.ValidateManagedCluster(context.Background(), cluster, old, test.sender, opts); err != nil {
				t.Error(err)
			}
			if _, labelled := old.Labels[fleet.LabelClusterSet]; labelled {
				t.Error("the old object has changed")
			}
		})
	}
}
