package profilecredentials

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// fixture is a hub whose set s is bound in namespace team.
type fixture struct {
	*testing.T
	client.Client
	events chan string
	c      *Controller
}

func setUp(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1beta1.AddToScheme, clusterv1.AddToScheme,
		clusterv1beta2.AddToScheme, multiclusterv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	set.Spec.ClusterSelector.SelectorType = clusterv1beta2.ExclusiveClusterSetLabel
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "s"}}
	binding.Spec.ClusterSet = "s"
	binding.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionBound, Status: metav1.ConditionTrue}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, set, binding)...).
		WithIndex(&multiclusterv1alpha1.ClusterProfile{}, indexCluster, func(o client.Object) []string { return []string{o.GetName()} }).Build()
	recorder := events.NewFakeRecorder(100)
	return &fixture{T: t, Client: api, events: recorder.Events, c: New(api, api, api, recorder)}
}

// member is a cluster of set s, with its profile in a namespace.
func member(cluster string, namespaces ...string) []client.Object {
	objects := []client.Object{&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster,
		Labels: map[string]string{fleet.LabelClusterSet: "s"}}}}
	for _, namespace := range namespaces {
		profile := &multiclusterv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster,
			UID: types.UID(namespace + cluster)}}
		profile.Spec.ClusterManager.Name = fleet.ClusterManagerOfProfiles
		objects = append(objects, profile)
	}
	return objects
}

// requested is an account whose label requests copies, with its token.
func requested(cluster, name, token string) []client.Object {
	return []client.Object{
		&authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name,
			Labels: map[string]string{fleet.LabelSyncToClusterProfile: fleet.LabelTrue}}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name,
			Labels: map[string]string{fleet.LabelManagedServiceAccount: fleet.LabelTrue}},
			Data: map[string][]byte{"token": []byte(token), "ca.crt": []byte("ca"), "more": []byte("more")}},
	}
}

func (f *fixture) reconcile(cluster, name string) ctrl.Result {
	f.Helper()
	result, err := f.c.Reconcile(f.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: cluster, Name: name}})
	if err != nil {
		f.Fatal(err)
	}
	return result
}

// token is that of a Secret, empty if there is none.
func (f *fixture) token(namespace, name string) string {
	f.Helper()
	secret := &corev1.Secret{}
	err := f.Get(f.Context(), client.ObjectKey{Namespace: namespace, Name: name}, secret)
	if client.IgnoreNotFound(err) != nil {
		f.Fatal(err)
	}
	return string(secret.Data["token"])
}

// said reports whether an event says why a token is not copied.
func (f *fixture) said() string {
	select {
	case event := <-f.events:
		return event
	default:
		return ""
	}
}

// MS-07: tokens are copied to where the hub presents the cluster, and nowhere else.
func TestCopies(t *testing.T) {
	t.Parallel()
	f := setUp(t, slices.Concat(member("c1", "team", "thief"), requested("c1", "ci", "t1"))...)
	f.reconcile("c1", "ci")
	secret := &corev1.Secret{}
	if err := f.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "c1-ci"}, secret); err != nil {
		t.Fatal(err)
	}
	owner := secret.OwnerReferences[0]
	data := map[string][]byte{"token": []byte("t1"), "ca.crt": []byte("ca")}
	if fmt.Sprint(secret.Data) != fmt.Sprint(data) || secret.Type != corev1.SecretTypeOpaque ||
		secret.Labels[fleet.LabelSyncedFrom] != "c1-ci" || owner.Kind != "ClusterProfile" || owner.UID != "teamc1" {
		t.Errorf("the copy is %+v", secret)
	}
	if f.token("thief", "c1-ci") != "" {
		t.Error("there is a copy next to a profile that the hub does not present")
	}
	secret.Data["token"] = []byte("changed")
	if err := f.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if f.reconcile("c1", "ci"); f.token("team", "c1-ci") != "t1" {
		t.Error("a change of the copy stays")
	}
	for what, change := range map[string]func(*fixture) error{
		"label": func(f *fixture) error {
			return f.Patch(t.Context(), requested("c1", "ci", "")[0], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`)))
		},
		"account": func(f *fixture) error { return f.Delete(t.Context(), requested("c1", "ci", "")[0]) },
		"token":   func(f *fixture) error { return f.Delete(t.Context(), requested("c1", "ci", "")[1]) },
		"profile": func(f *fixture) error { return f.Delete(t.Context(), member("c1", "team")[1]) },
		"set": func(f *fixture) error {
			return f.Patch(t.Context(), member("c1")[0], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`)))
		},
		"binding": func(f *fixture) error {
			return f.Delete(t.Context(), &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "s"}})
		},
	} {
		f := setUp(t, slices.Concat(member("c1", "team"), requested("c1", "ci", "t1"))...)
		if f.reconcile("c1", "ci"); f.token("team", "c1-ci") != "t1" {
			t.Fatal("there is no copy")
		}
		if err := change(f); err != nil {
			t.Fatal(err)
		}
		if f.reconcile("c1", "ci"); f.token("team", "c1-ci") != "" {
			t.Errorf("without %s, there is a copy", what)
		}
	}
}

// MS-07: a Secret that is not a copy of the token stays as it is, and an event says so. Copies for accounts of two clusters may have the
// same name.
func TestSecretOfAnother(t *testing.T) {
	t.Parallel()
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c1-ci"}, Data: map[string][]byte{"token": []byte("own")}}
	f := setUp(t, slices.Concat(member("c1", "team"), requested("c1", "ci", "t1"), []client.Object{own})...)
	result := f.reconcile("c1", "ci")
	if f.token("team", "c1-ci") != "own" || result.RequeueAfter != blockedInterval {
		t.Errorf("the Secret has the token %s, and it is looked again after %s", f.token("team", "c1-ci"), result.RequeueAfter)
	}
	event := f.said()
	if !strings.Contains(event, "TokenNotCopied") || !strings.Contains(event, "team/c1-ci") || strings.Contains(event, "t1") {
		t.Errorf("the event is %q", event)
	}
	f = setUp(t, slices.Concat(member("a", "team"), member("a-b", "team"), requested("a", "b-c", "of-a"), requested("a-b", "c", "of-a-b"))...)
	f.reconcile("a", "b-c")
	f.reconcile("a-b", "c")
	if f.token("team", "a-b-c") != "of-a" || !strings.Contains(f.said(), "TokenNotCopied") {
		t.Errorf("the copy has the token %s", f.token("team", "a-b-c"))
	}
	if err := f.Delete(t.Context(), requested("a-b", "c", "")[0]); err != nil {
		t.Fatal(err)
	}
	if f.reconcile("a-b", "c"); f.token("team", "a-b-c") != "of-a" {
		t.Error("the copy goes with an account of another cluster")
	}
}

// MS-07: what cannot be the name of a copy is said.
func TestNameOfCopies(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 62)
	f := setUp(t, slices.Concat(member("c1", "team"), requested("c1", long, "t1"))...)
	f.reconcile("c1", long)
	if event := f.said(); !strings.Contains(event, "is longer than 63 characters") {
		t.Errorf("the event is %q", event)
	}
	if err := f.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "c1-" + long}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a copy: %v", err)
	}
	forged := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "c1-ci", Labels: map[string]string{fleet.LabelSyncedFrom: "c1-ci"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ClusterProfile", Name: "c1"}}}}
	if _, isCopy := accountOf(forged); isCopy {
		t.Error("a Secret of another owner is a copy")
	}
}
