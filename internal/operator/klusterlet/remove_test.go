package klusterlet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientset "k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/remote"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

// KL-32: which errors mean that a cluster cannot be reached; one that answers, and refuses, can.
func TestIsUnreachable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, true},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}, true},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, true},
		{context.DeadlineExceeded, true},
		{fmt.Errorf("there is no Secret: %w", errNoKubeconfig), true},
		{apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "a", errors.New("no")), false},
		{apierrors.NewUnauthorized("expired"), false},
		{errors.New("another"), false},
	} {
		if got := isUnreachable(fmt.Errorf("wrapped: %w", test.err)); got != test.want {
			t.Errorf("%v: %t", test.err, got)
		}
	}
}

// KL-32: a managed cluster is given up when it was unreachable for five minutes without a break.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeHosted)
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var refused error
	c := &Controller{Operator: &frame.Operator{Options: frame.Options{Clock: clock},
		Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(k).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if refused != nil {
					return refused
				}
				return api.Patch(ctx, o, p, opts...)
			}}).Build()}}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(k), k); err != nil {
		t.Fatal(err)
	}
	after := func(wait time.Duration, want bool) {
		t.Helper()
		clock.Step(wait)
		if got, err := c.isAbandoned(t.Context(), k, errNoKubeconfig); err != nil || got != want {
			t.Errorf("%t, %v", got, err)
		}
	}
	after(0, false)
	after(4*time.Minute, false)
	if err := c.clearUnreachable(t.Context(), k); err != nil || len(k.Annotations) > 0 {
		t.Fatalf("%v, %v", k.Annotations, err)
	}
	after(2*time.Minute, false)
	after(4*time.Minute, false)
	after(2*time.Minute, true)

	after(6*time.Minute, false) // whether it could be reached while nobody looked, nobody knows
	after(4*time.Minute, false)
	after(2*time.Minute, true)

	c = &Controller{Operator: c.Operator} // nor while no operator ran
	refused = errors.New("unavailable")
	if _, err := c.isAbandoned(t.Context(), k, errNoKubeconfig); !errors.Is(err, refused) {
		t.Errorf("the time cannot be recorded: %v", err)
	}
	refused = nil
	after(0, false)
	after(4*time.Minute, false)
	after(2*time.Minute, true)
}

// KL-32: a managed cluster that answers with an error does not block the removal without a message that says what to do.
func TestRemovalNamesTheWayOut(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeHosted)
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Name, Name: fleet.SecretExternalManagedKubeconfig}}
	c := &Controller{Operator: &frame.Operator{
		Client:    fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(k.DeepCopy()).Build(),
		Elsewhere: remote.New(t.Context(), apply.Options{}),
		Secrets:   frame.NewSecrets(t.Context(), clientset.NewClientset(stored).CoreV1(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil),
	}}
	waitsFor, err := c.removeFromHosted(t.Context(), k)
	const want = "correct Secret klusterlet/external-managed-kubeconfig, or delete it: 5m0s later, what is on the managed cluster is given up"
	if err == nil || !strings.Contains(err.Error(), "has no key kubeconfig") || !strings.Contains(err.Error(), want) || waitsFor != "" {
		t.Errorf("waits for %q, error %v", waitsFor, err)
	}
}

// KL-32: the removal waits for the pods of the agents from when their Deployment was deleted, however long the Klusterlet has been deleted
// by then: the operator may not have run meanwhile.
func TestPodsAreWaitedFor(t *testing.T) {
	t.Parallel()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "open-cluster-management-agent", Name: "klusterlet-agent",
		Finalizers: []string{metav1.FinalizerDeleteDependents}}}
	api := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(deployment).Build()
	clock := clocktesting.NewFakeClock(time.Now())
	c := &Controller{Operator: &frame.Operator{Options: frame.Options{Clock: clock}, Management: &apply.Cluster{Client: api}}}
	for _, step := range []struct {
		wait  time.Duration
		waits bool
	}{{0, true}, {podsTimeout - time.Minute, true}, {2 * time.Minute, false}} {
		clock.Step(step.wait)
		live := &appsv1.Deployment{}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(deployment), live); err != nil {
			t.Fatal(err)
		}
		left, err := c.endDeployments(t.Context(), []client.Object{live})
		if err != nil || (len(left) > 0) != step.waits {
			t.Errorf("after %s more: waits for %q (%v)", step.wait, left, err)
		}
	}
}

// KL-32: what this agent has applied stays, and nothing holds its records any more; those of other agents on the cluster are left alone.
func TestAppliedWorksAreLetGo(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeDefault)
	k.UID = "mine"
	applied := func(name, agent string, finalizers ...string) *workv1.AppliedManifestWork {
		return &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
			Spec: workv1.AppliedManifestWorkSpec{AgentID: agent}}
	}
	const ofAgent, ofOthers = fleet.FinalizerAppliedManifestWorkCleanup, "example.com/stay"
	deleted := applied("deleted", "mine", ofAgent)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)}
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(applied("kept", "mine", ofAgent, ofOthers), deleted,
		applied("other", "another", ofAgent)).Build()
	if err := (&Controller{}).removeAppliedWorks(t.Context(), k, &apply.Cluster{Client: api}); err != nil {
		t.Fatal(err)
	}
	left := &workv1.AppliedManifestWorkList{}
	if err := api.List(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, w := range left.Items {
		got[w.Name] = strings.Join(w.Finalizers, " ")
	}
	if want := map[string]string{"kept": ofOthers, "other": ofAgent}; !maps.Equal(got, want) {
		t.Errorf("left with their finalizers: %v, want %v", got, want)
	}
}

// KL-32: a managed cluster may lose the kind of what an agent has applied before or while the agent is removed, which does not wait for it.
func TestAppliedWorksAreNotServed(t *testing.T) {
	t.Parallel()
	works := schema.GroupResource{Group: workv1.GroupVersion.Group, Resource: "appliedmanifestworks"}
	for name, test := range map[string]struct {
		err   error
		fails bool
	}{
		"never":    {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: works.Group, Kind: "AppliedManifestWork"}}, false},
		"no more":  {apierrors.NewNotFound(works, ""), false},
		"denied":   {apierrors.NewForbidden(works, "", errors.New("no")), true},
		"starting": {apierrors.NewServiceUnavailable("starting"), true},
	} {
		api := fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return test.err
			},
		}).Build()
		k := klusterletWith(operatorv1.InstallModeDefault)
		err := (&Controller{}).removeAppliedWorks(t.Context(), k, &apply.Cluster{Client: api})
		if (err != nil) != test.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// KL-32: a namespace that has another use by the time its Klusterlet is removed stays, with what users have stored there. It loses what the
// agent has made, and what says that it is part of a Klusterlet. Any other namespace goes.
func TestUsedNamespaceStays(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeHosted)
	made := []string{fleet.LabelCreatedByKlusterlet, k.Name}
	own := append(slices.Clone(made), fleet.LabelKlusterlet, k.Name)
	for name, test := range map[string]struct {
		own    []string
		labels []string
		stored []client.Object
		stays  bool
	}{
		"its own alone":          {own: own},
		"also that of a cluster": {own: own, labels: []string{fleet.LabelClusterName, "c1"}, stays: true},
		"also that of a hub":     {own: own, stored: []client.Object{kubeconfigOfHub(k.Name)}, stays: true},
		"also that of a cluster, labelled by Open Cluster Management": {own: made, labels: []string{fleet.LabelClusterName, "c1"},
			stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := func(name string) client.Object {
				return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Name, Name: name}}
			}
			credential, ofUser := secret(fleet.SecretHubKubeconfig), secret(fleet.SecretBootstrapHubKubeconfig)
			namespace := labelledNamespace(k.Name, slices.Concat(test.own, test.labels)...)
			management := clusterToLeave(t, slices.Concat([]client.Object{namespace, credential, ofUser}, test.stored)...)
			c := &Controller{Operator: &frame.Operator{Management: management}}
			if _, err := c.uninstall(t.Context(), layoutOf(k), management); err != nil {
				t.Fatal(err)
			}
			if left, err := c.uninstall(t.Context(), layoutOf(k), management); err != nil || len(left) > 0 {
				t.Errorf("waits for %v (%v)", left, err)
			}
			if got := exists(t, management.Client, namespace); got != test.stays {
				t.Fatalf("it stays: %t", got)
			}
			if !test.stays {
				return
			}
			if labels := namespace.GetLabels(); labels[fleet.LabelKlusterlet] != "" || labels[fleet.LabelCreatedByKlusterlet] != "" {
				t.Errorf("it still has the labels %v", labels)
			}
			if exists(t, management.Client, credential) || !exists(t, management.Client, ofUser) {
				t.Error("the credential of the agent stays, or what a user has stored goes")
			}
		})
	}
}

// KL-32, KL-36: with a hosted Klusterlet, what it has on its managed cluster goes, unless a Klusterlet of the same name there has that.
func TestNamesakeKeepsItsObjects(t *testing.T) {
	t.Parallel()
	l := layoutOf(klusterletWith(operatorv1.InstallModeHosted))
	for name, test := range map[string]struct {
		there []client.Object
		stays bool
	}{
		"none":    {},
		"another": {there: []client.Object{&operatorv1.Klusterlet{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "b"}}}},
		"one":     {there: []client.Object{namesake("b")}, stays: true},
	} {
		labels := map[string]string{fleet.LabelCreatedByKlusterlet: l.klusterlet.Name}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: l.accounts, Name: l.workAccount, Labels: labels}}
		namespace := labelledNamespace(l.accounts, fleet.LabelCreatedByKlusterlet, l.klusterlet.Name)
		managed := clusterToLeave(t, append(test.there, namespace, account)...)
		c := &Controller{Operator: &frame.Operator{Management: clusterToLeave(t)}}
		if _, err := c.removeElsewhere(t.Context(), l, managedCluster{Cluster: managed}); err != nil {
			t.Fatal(err)
		}
		if waitsFor, err := c.removeElsewhere(t.Context(), l, managedCluster{Cluster: managed}); err != nil || waitsFor != "" {
			t.Errorf("%s: waits for %q (%v)", name, waitsFor, err)
		}
		if exists(t, managed.Client, account) != test.stays {
			t.Errorf("%s: its account stays: %t", name, !test.stays)
		}
	}
}

// KL-23, KL-26, KL-32: the last Klusterlet of an operator takes with it, in all modes, what all of them share on the operator's cluster: a
// hosted one may manage that, or have done so before. With another one there, it stays. What the agent has applied is let go either way.
func TestNothingIsLeftHere(t *testing.T) {
	t.Parallel()
	shared := map[string]string{fleet.LabelCreatedByKlusterlet: sharedInstallation}
	for _, mode := range modes {
		for name, others := range map[string][]client.Object{
			"the last":     nil,
			"with another": {labelledNamespace("klusterlet-hosted-other", fleet.LabelKlusterlet, "klusterlet-hosted-other")},
		} {
			l := layoutOf(klusterletWith(mode))
			own := labelledNamespace(l.agents, fleet.LabelKlusterlet, l.klusterlet.Name, fleet.LabelCreatedByKlusterlet, l.klusterlet.Name)
			addOns := labelledNamespace(fleet.NamespaceAgentAddOn, fleet.LabelCreatedByKlusterlet, sharedInstallation)
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "clusterclaims.example.com", Labels: shared,
				Annotations: map[string]string{fleet.AnnotationOperatorVersion: "1.4.0"}}}
			applied := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "w",
				Finalizers: []string{fleet.FinalizerAppliedManifestWorkCleanup}}, Spec: workv1.AppliedManifestWorkSpec{AgentID: "3f0c"}}
			here := clusterToLeave(t, append(slices.Clone(others), own, addOns, crd, applied)...)
			c := &Controller{Operator: &frame.Operator{Management: here}}
			for range 2 { // what is deleted is gone the second time
				if _, err := c.removeHere(t.Context(), l); err != nil {
					t.Fatal(err)
				}
			}
			if waitsFor, err := c.removeHere(t.Context(), l); err != nil || waitsFor != "" {
				t.Errorf("%s, %s: waits for %q (%v)", mode, name, waitsFor, err)
			}
			stays := len(others) > 0
			if exists(t, here.Client, own) || exists(t, here.Client, addOns) != stays {
				t.Errorf("%s, %s: its own namespace stays, or that of add-ons: %t", mode, name, !stays)
			}
			there := exists(t, here.Client, crd)
			if _, labelled := crd.Labels[fleet.LabelCreatedByKlusterlet]; !there || labelled != stays {
				t.Errorf("%s, %s: the CRD is there: %t, labelled: %t", mode, name, there, labelled)
			}
			if !exists(t, here.Client, applied) || len(applied.Finalizers) > 0 {
				t.Errorf("%s, %s: what was applied has the finalizers %v", mode, name, applied.Finalizers)
			}
		}
	}
}

// KL-32, CM-20: a user of a namespace that no Klusterlet has cannot keep one there, nor have it delete anything, by labelling an object.
// What a Klusterlet has in its namespaces goes, also in a former one, in one that has another use, which stays, and in kube-system.
func TestLabelsInNamespacesOfUsers(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		l := layoutOf(klusterletWith(mode))
		made := []string{fleet.LabelCreatedByKlusterlet, l.klusterlet.Name}
		named := func(namespace string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: namespace, Name: "a", Labels: map[string]string{made[0]: made[1]}}
		}
		used := labelledNamespace("cluster1", append(slices.Clone(made), fleet.LabelClusterName, "cluster1")...)
		ofUser := &corev1.ConfigMap{ObjectMeta: named("team-a")}
		ofUser.Finalizers = []string{"example.com/stay"}
		own := []client.Object{&corev1.ServiceAccount{ObjectMeta: named("former")}, &corev1.ServiceAccount{ObjectMeta: named("cluster1")},
			&rbacv1.RoleBinding{ObjectMeta: named(metav1.NamespaceSystem)}, &corev1.ConfigMap{ObjectMeta: named(l.agents)}}
		here := clusterToLeave(t, append(slices.Clone(own), ofUser, used, labelledNamespace("team-a"), labelledNamespace("former", made...),
			labelledNamespace(l.agents, made...))...)
		c := &Controller{Operator: &frame.Operator{Management: here}}
		if _, err := c.removeHere(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if waitsFor, err := c.removeHere(t.Context(), l); err != nil || waitsFor != "" {
			t.Errorf("%s: waits for %q (%v)", mode, waitsFor, err)
		}
		for _, object := range own {
			if exists(t, here.Client, object) {
				t.Errorf("%s: %T in %s stays", mode, object, object.GetNamespace())
			}
		}
		if !exists(t, here.Client, ofUser) || ofUser.DeletionTimestamp != nil {
			t.Errorf("%s: the object of a user is deleted", mode)
		}
		if !exists(t, here.Client, used) || used.GetLabels()[fleet.LabelCreatedByKlusterlet] != "" {
			t.Errorf("%s: a namespace with another use goes, or has the labels %v", mode, used.GetLabels())
		}
	}
}

// tokenAccount is a service account that an agent has made for a ManagedServiceAccount.
func tokenAccount(namespace, name, agent string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels:      map[string]string{fleet.LabelManagedServiceAccount: fleet.LabelTrue},
		Annotations: map[string]string{fleet.AnnotationAgentID: agent}}}
}

// KL-32 KL-36 MS-04: the tokens that the hub has of the cluster end with the Klusterlet, also where another one is there, for another hub,
// whose tokens do not.
func TestTokensEndWithTheKlusterlet(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		l := layoutOf(klusterletWith(mode))
		agent := string(l.klusterlet.UID)
		mark := fleet.ServiceAccountsLabels(l.klusterlet.Spec.ClusterName, "hub", agent)[0]
		for where, remove := range map[string]func(*apply.Cluster) error{
			"here": func(cluster *apply.Cluster) error {
				_, err := (&Controller{Operator: &frame.Operator{Management: cluster}}).removeHere(t.Context(), l)
				return err
			},
			"elsewhere": func(cluster *apply.Cluster) error {
				c := &Controller{Operator: &frame.Operator{Management: clusterToLeave(t)}}
				_, err := c.removeElsewhere(t.Context(), l, managedCluster{Cluster: cluster})
				return err
			},
		} {
			own := []client.Object{tokenAccount(fleet.NamespaceAgentAddOn, "ci", agent), tokenAccount("team-a", "ci", agent)}
			another := tokenAccount(fleet.NamespaceAgentAddOn, "another", "another")
			cluster := clusterToLeave(t, own[0], own[1], another, labelledNamespace("team-a", mark, fleet.LabelTrue),
				labelledNamespace("agent-of-another", fleet.LabelKlusterlet, "another"))
			if err := remove(cluster); err != nil {
				t.Fatal(err)
			}
			if exists(t, cluster.Client, own[0]) || exists(t, cluster.Client, own[1]) || !exists(t, cluster.Client, another) {
				t.Errorf("%s, %s: its accounts stay, or that of another goes", mode, where)
			}
		}
	}
}

// KL-32 MS-04: when the mode of a Klusterlet that manages the operator's own cluster is not a hosted one any more, its agent goes on, and
// the tokens do, too. They end when it is deleted.
func TestTokensWhereTheModeChanges(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ here, deleted, stays bool }{
		"here": {here: true, stays: true}, "here, deleted": {here: true, deleted: true}, "elsewhere": {}, "elsewhere, deleted": {deleted: true},
	} {
		l := layoutOf(klusterletWith(operatorv1.InstallModeDefault))
		if test.deleted {
			l.klusterlet.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		account := tokenAccount(fleet.NamespaceAgentAddOn, "ci", string(l.klusterlet.UID))
		cluster := clusterToLeave(t, account)
		c := &Controller{Operator: &frame.Operator{Management: cluster}}
		if _, err := c.removeElsewhere(t.Context(), l, managedCluster{Cluster: cluster, here: test.here}); err != nil {
			t.Fatal(err)
		}
		if stays := exists(t, cluster.Client, account); stays != test.stays {
			t.Errorf("%s: the account stays: %t, want %t", name, stays, test.stays)
		}
	}
}

// KL-32: the operator of hosted agents needs none of the rights to what agents have applied in its own cluster, to list the namespaces
// there, in which what Klusterlets share is found, and to list service accounts of ManagedServiceAccounts.
func TestRemovalWithFewRights(t *testing.T) {
	t.Parallel()
	for resource, refuses := range map[string]func(client.ObjectList) bool{
		"appliedmanifestworks": func(list client.ObjectList) bool { _, is := list.(*workv1.AppliedManifestWorkList); return is },
		"namespaces":           func(list client.ObjectList) bool { _, is := list.(*corev1.NamespaceList); return is },
		"serviceaccounts":      func(list client.ObjectList) bool { _, is := list.(*corev1.ServiceAccountList); return is },
	} {
		for _, mode := range modes {
			l := layoutOf(klusterletWith(mode))
			here := clusterToLeave(t)
			here.Client = fake.NewClientBuilder().WithScheme(here.Scheme).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if refuses(list) {
						return denied(resource)
					}
					return api.List(ctx, list, options...)
				}}).Build()
			waitsFor, err := (&Controller{Operator: &frame.Operator{Management: here}}).removeHere(t.Context(), l)
			if waitsFor != "" || (err == nil) != l.hosted {
				t.Errorf("%s, %s: waits for %q (%v)", resource, mode, waitsFor, err)
			}
		}
	}
}

// clusterToLeave is a cluster, without a cache, that Klusterlets are removed from.
func clusterToLeave(t *testing.T, objects ...client.Object) *apply.Cluster {
	t.Helper()
	scheme := Scheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &apply.Cluster{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		Options: apply.Options{Label: fleet.LabelCreatedByKlusterlet, Kinds: frame.ManagementKinds(managedKinds()), Scheme: scheme}}
}

// exists reports whether an object exists, and reads it.
func exists(t *testing.T, api client.Client, object client.Object) bool {
	t.Helper()
	err := api.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}
