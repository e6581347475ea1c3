package klusterlet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientset "k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

// works is the condition of an agent that reaches the hub with a credential of its own.
var works = &metav1.Condition{Type: fleet.ConditionHubConnectionDegraded, Status: metav1.ConditionFalse,
	Reason: fleet.ReasonHubConnectionFunctional}

// joins is that of an agent that has no credential yet.
var joins = &metav1.Condition{Type: fleet.ConditionHubConnectionDegraded, Status: metav1.ConditionTrue,
	Reason: fleet.ReasonBootstrapSecretFunctional + "," + fleet.ReasonHubKubeConfigSecretMissing}

const addOnSecret = "metrics-hub-kubeconfig"

// What an agent has made in its namespace, and what others have stored there.
var (
	madeByAgent = []string{fleet.SecretHubKubeconfig, fleet.ConfigMapHubConnection, fleet.LeaseRegistrationAgent, fleet.LeaseWorkAgent,
		fleet.LeaseKlusterletAgent}
	madeByOthers = []string{fleet.SecretBootstrapHubKubeconfig, addOnSecret, fleet.ConfigMapHubAccess}
)

// formerCluster is a cluster with an agent that has joined, and a Klusterlet that has another mode now.
type formerCluster struct {
	*Controller
	api        client.Client
	klusterlet *operatorv1.Klusterlet
	from       layout
}

// newFormerCluster has a namespace of the agent that is of the Klusterlet owner. Deletions are intercepted if that is not nil.
func newFormerCluster(t *testing.T, from, to operatorv1.InstallMode, owner string, deletion func(client.Object) error) formerCluster {
	t.Helper()
	k := klusterletWith(from)
	l := layoutOf(k)
	k.Annotations = map[string]string{annotationAgentNamespace: l.agents}
	k.Spec.DeployOption.Mode = to
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: l.agents, Name: name} }
	credential := &corev1.Secret{ObjectMeta: named(fleet.SecretHubKubeconfig)}
	objects := []client.Object{k, newNamespace(l.agents, map[string]string{fleet.LabelKlusterlet: owner}), credential,
		&corev1.Secret{ObjectMeta: named(fleet.SecretBootstrapHubKubeconfig)}, &corev1.Secret{ObjectMeta: named(addOnSecret)},
		&corev1.ConfigMap{ObjectMeta: named(fleet.ConfigMapHubConnection)}, &corev1.ConfigMap{ObjectMeta: named(fleet.ConfigMapHubAccess)},
		&coordinationv1.Lease{ObjectMeta: named(fleet.LeaseRegistrationAgent)}, &coordinationv1.Lease{ObjectMeta: named(fleet.LeaseWorkAgent)},
		&coordinationv1.Lease{ObjectMeta: named(fleet.LeaseKlusterletAgent)}}
	scheme := Scheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if deletion != nil {
				if err := deletion(object); err != nil {
					return err
				}
			}
			return api.Delete(ctx, object, options...)
		}}).Build()
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(k), k); err != nil {
		t.Fatal(err)
	}
	return formerCluster{api: api, klusterlet: k, from: l, Controller: &Controller{Operator: &frame.Operator{
		Options: frame.Options{Clock: clocktesting.NewFakeClock(time.Now())}, Client: api,
		Management: &apply.Cluster{Client: api, Options: apply.Options{Label: fleet.LabelCreatedByKlusterlet, Scheme: scheme}},
		Secrets: frame.NewSecrets(t.Context(), clientset.NewClientset(credential.DeepCopy()).CoreV1(),
			rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil),
	}}}
}

// ending are the Deployments of the former mode while their pods end.
func (c formerCluster) ending() []client.Object {
	deployments := c.from.deployments(plainInputs)
	for _, deployment := range deployments {
		deployment.SetDeletionTimestamp(&metav1.Time{Time: c.Clock.Now()})
	}
	return deployments
}

// reconcile does what an installation does about where the agent ran before.
func (c formerCluster) reconcile(t *testing.T, connection *metav1.Condition, deployments []client.Object) former {
	t.Helper()
	l := layoutOf(c.klusterlet)
	f, err := c.formerOf(t.Context(), l, deployments, connection)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.leave(t.Context(), l, f); err != nil {
		t.Fatal(err)
	}
	return f
}

// expect compares the objects in the namespace where the agent ran before.
func (c formerCluster) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	var got []string
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}, &coordinationv1.LeaseList{}} {
		if err := c.api.List(t.Context(), list, client.InNamespace(c.from.agents)); err != nil {
			t.Fatal(err)
		}
		switch list := list.(type) {
		case *corev1.SecretList:
			for _, object := range list.Items {
				got = append(got, object.Name)
			}
		case *corev1.ConfigMapList:
			for _, object := range list.Items {
				got = append(got, object.Name)
			}
		case *coordinationv1.LeaseList:
			for _, object := range list.Items {
				got = append(got, object.Name)
			}
		}
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("%s, the namespace %s has %v, want %v", when, c.from.agents, got, want)
	}
}

func keepsNamespace(f former, name string) bool {
	return slices.ContainsFunc(f.unpruned(), func(o client.Object) bool {
		_, isNamespace := o.(*corev1.Namespace)
		return isNamespace && o.GetName() == name
	})
}

// KL-02 to KL-05, KL-28: what an agent has made where it ran before goes when its pods there have ended and it has a credential where it
// runs now, and not before; what users and add-ons have there stays. A change of the mode that moves no agent changes nothing.
func TestAgentLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	const (
		unhosted, singleton     = operatorv1.InstallModeDefault, operatorv1.InstallModeSingleton
		hosted, singletonHosted = operatorv1.InstallModeHosted, operatorv1.InstallModeSingletonHosted
	)
	all := slices.Concat(madeByAgent, madeByOthers)
	for _, test := range []struct {
		from, to operatorv1.InstallMode
		moves    bool
	}{
		{unhosted, singleton, false},
		{unhosted, hosted, true},
		{unhosted, singletonHosted, true},
		{singleton, unhosted, false},
		{singleton, hosted, true},
		{singleton, singletonHosted, true},
		{hosted, unhosted, true},
		{hosted, singleton, true},
		{hosted, singletonHosted, false},
		{singletonHosted, unhosted, true},
		{singletonHosted, singleton, true},
		{singletonHosted, hosted, false},
	} {
		t.Run(string(test.from)+" to "+string(test.to), func(t *testing.T) {
			t.Parallel()
			c := newFormerCluster(t, test.from, test.to, "klusterlet", nil)
			if !test.moves {
				f := c.reconcile(t, works, c.from.deployments(plainInputs))
				c.expect(t, "after a change that moves no agent", all...)
				if len(f.unpruned()) > 0 {
					t.Errorf("not pruned: %v", f.unpruned())
				}
				return
			}
			for when, state := range map[string]struct {
				connection  *metav1.Condition
				deployments []client.Object
			}{
				"while nothing is known of the new agent": {nil, nil},
				"while the new agent joins":               {joins, nil},
				"while the old agent ends, too":           {joins, c.ending()},
			} {
				if f := c.reconcile(t, state.connection, state.deployments); !keepsNamespace(f, c.from.agents) {
					t.Errorf("%s, the namespace is pruned", when)
				}
				c.expect(t, when, all...)
			}
			if f := c.reconcile(t, works, c.ending()); len(f.unpruned()) != len(c.ending()) || keepsNamespace(f, c.from.agents) {
				t.Errorf("while the old agent ends, not pruned: %v", f.unpruned())
			}
			c.expect(t, "while the old agent ends", all...)
			c.reconcile(t, works, nil)
			c.expect(t, "when the agent has moved", madeByOthers...)

			stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.from.agents, Name: fleet.SecretHubKubeconfig}}
			if err := c.api.Create(t.Context(), stored); err != nil {
				t.Fatal(err)
			}
			c.reconcile(t, works, nil)
			c.expect(t, "when a user has stored a credential there since", append(slices.Clone(madeByOthers), stored.Name)...)
		})
	}
}

// KL-28: who removes a Klusterlet without its operator finds the former namespace in the status while that stays for its credential.
func TestFormerNamespaceIsReported(t *testing.T) {
	t.Parallel()
	for needed, want := range map[bool][]operatorv1.RelatedResourceMeta{
		true: {{Version: "v1", Resource: "namespaces", Name: fleet.NamespaceAgent}}, false: nil,
	} {
		k := klusterletWith(operatorv1.InstallModeHosted)
		if err := newReport(k).applied(Scheme(), plan{}, former{namespace: fleet.NamespaceAgent, needed: needed}); err != nil {
			t.Fatal(err)
		}
		if got := k.Status.RelatedResources; !slices.Equal(got, want) {
			t.Errorf("needed %t: %v", needed, got)
		}
	}
}

// KL-28: the first namespace of an agent is recorded, so that a change is noticed. Nothing is deleted.
func TestFirstNamespace(t *testing.T) {
	t.Parallel()
	c := newFormerCluster(t, operatorv1.InstallModeDefault, operatorv1.InstallModeDefault, "klusterlet", nil)
	c.klusterlet.Annotations = nil
	c.reconcile(t, works, c.from.deployments(plainInputs))
	c.expect(t, "after the first installation", slices.Concat(madeByAgent, madeByOthers)...)
	if got := c.klusterlet.Annotations[annotationAgentNamespace]; got != fleet.NamespaceAgent {
		t.Errorf("the agent is said to run in %q", got)
	}
}

// KL-28: where the agent of a Klusterlet from before the annotation ran, its Deployments tell. That is recorded before anything ends there.
func TestFormerNamespaceOfDeployments(t *testing.T) {
	t.Parallel()
	recorded := func(c formerCluster) string {
		live := &operatorv1.Klusterlet{}
		if err := c.api.Get(t.Context(), client.ObjectKeyFromObject(c.klusterlet), live); err != nil {
			t.Error(err)
		}
		return live.Annotations[annotationAgentNamespace]
	}
	var c formerCluster
	c = newFormerCluster(t, operatorv1.InstallModeDefault, operatorv1.InstallModeHosted, "klusterlet", func(object client.Object) error {
		if got := recorded(c); got != fleet.NamespaceAgent {
			t.Errorf("when %s is deleted, the agent is said to have run in %q", object.GetName(), got)
		}
		return nil
	})
	if err := frame.Annotate(t.Context(), c.api, c.klusterlet, annotationAgentNamespace, ""); err != nil {
		t.Fatal(err)
	}
	for _, deployments := range [][]client.Object{c.from.deployments(plainInputs), nil} {
		if f := c.reconcile(t, joins, deployments); !keepsNamespace(f, c.from.agents) {
			t.Errorf("with %d Deployments, the namespace is pruned", len(deployments))
		}
		c.expect(t, "while the new agent joins", slices.Concat(madeByAgent, madeByOthers)...)
	}
	c.reconcile(t, works, nil)
	c.expect(t, "when the agent has moved", madeByOthers...)
	if got := recorded(c); got != "klusterlet" {
		t.Errorf("in the end, the agent is said to run in %q", got)
	}
}

// KL-28: pods on a node that is lost never end, and nobody tells. The Klusterlet is reconciled once they are no longer waited for.
func TestFormerPodsAreWaitedFor(t *testing.T) {
	t.Parallel()
	c := newFormerCluster(t, operatorv1.InstallModeDefault, operatorv1.InstallModeHosted, "klusterlet", nil)
	l := layoutOf(c.klusterlet)
	longAgo := c.ending()
	for _, deployment := range longAgo {
		deployment.SetDeletionTimestamp(&metav1.Time{Time: c.Clock.Now().Add(-2 * podsTimeout)})
	}
	for when, test := range map[string]struct {
		deployments []client.Object
		want        time.Duration
	}{
		"when they are deleted":    {c.from.deployments(plainInputs), podsTimeout},
		"while they end":           {c.ending(), podsTimeout},
		"when they have not ended": {longAgo, 0},
		"when they have ended":     {nil, 0},
	} {
		due, err := c.leave(t.Context(), l, former{namespace: c.from.agents, deployments: test.deployments})
		if err != nil || due != test.want {
			t.Errorf("%s, the next reconcile is due in %s (%v), want %s", when, due, err, test.want)
		}
	}
}

// KL-28: an agent without a credential where it ran before needs nothing there, so nothing is waited for.
func TestFormerNamespaceWithoutCredential(t *testing.T) {
	t.Parallel()
	c := newFormerCluster(t, operatorv1.InstallModeHosted, operatorv1.InstallModeDefault, "klusterlet", nil)
	c.Secrets = frame.NewSecrets(t.Context(), clientset.NewClientset().CoreV1(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil)
	if f := c.reconcile(t, joins, nil); f.needed || keepsNamespace(f, c.from.agents) {
		t.Errorf("the namespace is kept: %+v", f)
	}
}

// KL-28, KL-36: the credential in a namespace that another Klusterlet has taken is that of the other agent.
func TestFormerNamespaceIsOfAnother(t *testing.T) {
	t.Parallel()
	c := newFormerCluster(t, operatorv1.InstallModeDefault, operatorv1.InstallModeHosted, "other", nil)
	c.reconcile(t, works, nil)
	c.expect(t, "after the move", slices.Concat(madeByAgent, madeByOthers)...)
	if got := c.klusterlet.Annotations[annotationAgentNamespace]; got != "klusterlet" {
		t.Errorf("the agent is said to run in %s", got)
	}
}

// HC-06: an operator without the right to delete Leases deletes the rest, and is not kept from its task.
func TestFormerLeasesMayStay(t *testing.T) {
	t.Parallel()
	c := newFormerCluster(t, operatorv1.InstallModeDefault, operatorv1.InstallModeHosted, "klusterlet", func(object client.Object) error {
		if object.GetObjectKind().GroupVersionKind().Kind != "Lease" {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, object.GetName(),
			errors.New(`User "operator" cannot delete resource "leases"`))
	})
	c.reconcile(t, works, nil)
	c.expect(t, "after the move",
		append(slices.Clone(madeByOthers), fleet.LeaseRegistrationAgent, fleet.LeaseWorkAgent, fleet.LeaseKlusterletAgent)...)
}

// KL-28, KL-30: the condition names the Secrets that a user may copy, and those that nothing uses.
func TestAdviceOnSecrets(t *testing.T) {
	t.Parallel()
	const agents = fleet.NamespaceAgent
	for name, test := range map[string]struct {
		mode      operatorv1.InstallMode
		former    former
		stored    []string
		elsewhere bool
		want      []string // empty for no advice
	}{
		"runs where the Secrets are": {mode: operatorv1.InstallModeDefault, stored: []string{fleet.SecretBootstrapHubKubeconfig}},
		"nothing is left":            {mode: operatorv1.InstallModeHosted},
		"has not joined": {mode: operatorv1.InstallModeHosted, former: former{namespace: agents, needed: true},
			want: []string{"its namespace was " + agents, "in the namespace klusterlet", "hub-kubeconfig-secret, bootstrap-hub-kubeconfig"}},
		"is leaving": {mode: operatorv1.InstallModeHosted, former: former{namespace: agents}, stored: []string{fleet.SecretHubKubeconfig}},
		"has left": {mode: operatorv1.InstallModeSingletonHosted, stored: []string{fleet.SecretBootstrapHubKubeconfig},
			want: []string{"in the mode SingletonHosted nothing uses Secret " + agents + "/bootstrap-hub-kubeconfig: delete it"}},
		"has left, and may come back": {mode: operatorv1.InstallModeHosted,
			stored: []string{fleet.SecretBootstrapHubKubeconfig, fleet.SecretHubKubeconfig},
			want:   []string{"Secret " + agents + "/bootstrap-hub-kubeconfig, Secret " + agents + "/hub-kubeconfig-secret: "}},
		"of another agent in the operator's cluster": {mode: operatorv1.InstallModeHosted, elsewhere: true,
			stored: []string{fleet.SecretBootstrapHubKubeconfig}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secrets := clientset.NewClientset()
			for _, stored := range test.stored {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agents, Name: stored}}
				if err := secrets.Tracker().Add(secret); err != nil {
					t.Fatal(err)
				}
			}
			c := &Controller{Operator: &frame.Operator{Management: &apply.Cluster{},
				Secrets: frame.NewSecrets(t.Context(), secrets.CoreV1(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil)}}
			managed := managedCluster{here: !test.elsewhere}
			got, err := c.advice(t.Context(), layoutOf(klusterletWith(test.mode)), test.former, managed)
			if err != nil || (got == "") != (len(test.want) == 0) {
				t.Errorf("%q, %v", got, err)
			}
			for _, part := range test.want {
				if !strings.Contains(got, part) {
					t.Errorf("the advice lacks %q: %s", part, got)
				}
			}
		})
	}
}
