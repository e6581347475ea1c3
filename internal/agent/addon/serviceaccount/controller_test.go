package serviceaccount

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/tokenaccounts"
	"github.com/capstan-io/capstan/internal/tokenaccounts/controllerclient"
)

// cached reads from a client.
type cached struct {
	cache.Cache
	from client.Reader
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return c.from.Get(ctx, key, into, options...)
}

func (c cached) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return c.from.List(ctx, into, options...)
}

// agentOf is an agent of cluster c1 for a hub.
func agentOf(managed client.Client, hub, agent string) *Controller {
	return &Controller{Options: Options{Cluster: "c1", HubHash: hub, Agent: agent}, managed: managed}
}

// place is a namespace for accounts, which the add-on has instead of the usual one.
const place = "accounts"

// ensureFor has the account ci in a namespace for a ManagedServiceAccount.
func ensureFor(ctx context.Context, c *Controller, namespace string, owner types.UID) error {
	_, err := c.ensureAccount(ctx, namespace, &authenticationv1beta1.ManagedServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "ci", UID: owner}})
	return err
}

// What an agent does about the account ci when its hub has a ManagedServiceAccount of the name, has none, and has no add-on.
func ensure(ctx context.Context, c *Controller) error {
	return ensureFor(ctx, c, place, "of-"+types.UID(c.HubHash))
}

func remove(ctx context.Context, c *Controller) error {
	return c.removeAccount(ctx, &session{namespace: place, managed: cached{from: c.managed}}, "ci")
}

func removeAll(ctx context.Context, c *Controller) error { return c.removeAll(ctx, place) }

// isGone reports whether there is no account ci in a namespace.
func isGone(t *testing.T, managed client.Client, namespace string) bool {
	t.Helper()
	err := managed.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ci"}, &corev1.ServiceAccount{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return apierrors.IsNotFound(err)
}

// MS-02 MS-04 KL-36: an agent leaves the accounts of another one alone, for another hub, on which the cluster may have the same name. Its
// own are those of its hub, and those that it has made itself.
func TestAccountsOfTwoHubs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hub, agent string
		do         func(context.Context, *Controller) error
		fails      string
		gone       bool
	}{
		"another hub has one of the name":  {"two", "b", ensure, "of another hub: choose another name", false},
		"another hub has none of the name": {"two", "b", remove, "", false},
		"another hub has no add-on":        {"two", "b", removeAll, "", false},
		"the hub has one of the name":      {"one", "a", ensure, "", false},
		"the hub has none of the name":     {"one", "a", remove, "", true},
		"the hub has no add-on":            {"one", "a", removeAll, "", true},
		"a hub that the agent has now":     {"two", "a", ensure, "", false},
		"which has none of the name":       {"two", "a", remove, "", true},
		"which has no add-on":              {"two", "a", removeAll, "", true},
		"another agent for the hub":        {"one", "b", remove, "", true},
		"hub and agent are called otherwise": {"two", "b", func(ctx context.Context, c *Controller) error {
			return errors.Join(ensureFor(ctx, c, place, "of-one"), remove(ctx, c))
		}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			managed := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
			if err := ensure(t.Context(), agentOf(managed, "one", "a")); err != nil {
				t.Fatal(err)
			}
			err := test.do(t.Context(), agentOf(managed, test.hub, test.agent))
			if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("it fails with %v, want %q", err, test.fails)
			}
			if gone := isGone(t, managed, place); gone != test.gone {
				t.Errorf("the account is gone: %t, want %t", gone, test.gone)
			}
		})
	}
}

// MS-02 MS-04 KL-36: an account that nobody has marked belongs to the agent that takes it over, and goes with the ManagedServiceAccount or
// the add-on of that one. Until then, no agent removes it.
func TestUnmarkedAccount(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		takenOver  bool
		hub, agent string
		do         func(context.Context, *Controller) error
		fails      string
		gone       bool
	}{
		"not taken over, none of the name": {false, "one", "a", remove, "", false},
		"not taken over, no add-on":        {false, "one", "a", removeAll, "", false},
		"again":                            {true, "one", "a", ensure, "", false},
		"none of the name":                 {true, "one", "a", remove, "", true},
		"no add-on":                        {true, "one", "a", removeAll, "", true},
		"another hub has one of the name":  {true, "two", "b", ensure, "of another hub: choose another name", false},
		"another hub has none of the name": {true, "two", "b", remove, "", false},
		"another hub has no add-on":        {true, "two", "b", removeAll, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			managed := unmarkedAccount()
			if test.takenOver {
				if err := ensure(t.Context(), agentOf(managed, "one", "a")); err != nil {
					t.Fatal(err)
				}
			}
			err := test.do(t.Context(), agentOf(managed, test.hub, test.agent))
			if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("it fails with %v, want %q", err, test.fails)
			}
			if gone := isGone(t, managed, place); gone != test.gone {
				t.Errorf("the account is gone: %t, want %t", gone, test.gone)
			}
		})
	}
}

// MS-04 KL-36: the account that an agent has made goes when the agent leaves that has come after it for the same hub.
func TestAccountOfPredecessor(t *testing.T) {
	t.Parallel()
	managed := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	for _, agent := range []string{"a", "b"} {
		if err := ensure(t.Context(), agentOf(managed, "one", agent)); err != nil {
			t.Fatal(err)
		}
	}
	for _, leaves := range []struct {
		agent string
		gone  bool
	}{{"a", false}, {"b", true}} {
		if err := tokenaccounts.RemoveOf(t.Context(), controllerclient.On(managed), leaves.agent); err != nil {
			t.Fatal(err)
		}
		if gone := isGone(t, managed, place); gone != leaves.gone {
			t.Errorf("when agent %s leaves, the account is gone: %t, want %t", leaves.agent, gone, leaves.gone)
		}
	}
}

// unmarkedAccount is a managed cluster with the account ci, as the agent of Open Cluster Management makes it.
func unmarkedAccount() client.WithWatch {
	return fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: place, Name: "ci", Labels: map[string]string{fleet.LabelManagedServiceAccount: fleet.LabelTrue}}}).Build()
}

// MS-02 KL-36: of two agents that take an account over at once, one has it.
func TestTakenOverAtOnce(t *testing.T) {
	t.Parallel()
	managed := unmarkedAccount()
	first := agentOf(managed, "one", "a")
	second := agentOf(interceptor.NewClient(managed, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, change client.Patch, options ...client.PatchOption) error {
			if _, account := o.(*corev1.ServiceAccount); account {
				if err := ensureFor(ctx, first, place, "first"); err != nil {
					return err
				}
			}
			return c.Patch(ctx, o, change, options...)
		},
	}), "two", "b")
	if err := ensureFor(t.Context(), second, place, "second"); !retryable(err) {
		t.Errorf("the second one has %v, want a conflict", err)
	}
	if err := ensureFor(t.Context(), first, place, "first"); err != nil {
		t.Errorf("the first one does not have it: %v", err)
	}
}

// MS-04 KL-36: a process of the agent that finds the add-on disabled, or in another namespace, removes what an earlier process has made, in
// whichever namespace. Then the mark of the namespace has gone, too.
func TestAccountsOfEarlierProcess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		namespace, hub, agent, inUse string
		gone                         bool
	}{
		"disabled":                              {place, "one", "a", "", true},
		"disabled, in the usual namespace":      {fleet.NamespaceAgentAddOn, "one", "a", "", true},
		"in another namespace":                  {place, "one", "a", "other", true},
		"in another one than the usual":         {fleet.NamespaceAgentAddOn, "one", "a", "other", true},
		"in the usual one now":                  {place, "one", "a", fleet.NamespaceAgentAddOn, true},
		"still there":                           {place, "one", "a", place, false},
		"the hub has another address":           {place, "two", "a", "", true},
		"another agent for the hub":             {place, "one", "b", "", true},
		"an agent for another hub":              {place, "two", "b", "", false},
		"an agent for another hub, usual place": {fleet.NamespaceAgentAddOn, "two", "b", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			managed := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.NamespaceAgentAddOn}},
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: place}}).Build()
			before, now := agentOf(managed, "one", "a"), agentOf(managed, test.hub, test.agent)
			if err := errors.Join(ensureFor(t.Context(), before, test.namespace, "ci"), now.clear(t.Context(), test.inUse)); err != nil {
				t.Fatal(err)
			}
			if gone := isGone(t, managed, test.namespace); gone != test.gone {
				t.Errorf("the account is gone: %t, want %t", gone, test.gone)
			}
			reader := before
			if test.gone {
				reader = now
			}
			want := sets.New[string]()
			if !test.gone {
				want.Insert(test.namespace).Delete(fleet.NamespaceAgentAddOn)
			}
			if marked, err := reader.markedNamespaces(t.Context()); err != nil || !marked.Equal(want) {
				t.Errorf("marked are %v, %v, want %v", marked, err, want)
			}
		})
	}
}

// MS-02 MS-04: a namespace that the agent makes for accounts is marked from its beginning.
func TestNamespaceIsMade(t *testing.T) {
	t.Parallel()
	managed := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	c := agentOf(managed, "one", "a")
	if err := ensureFor(t.Context(), c, place, "ci"); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{}
	if err := managed.Get(t.Context(), client.ObjectKey{Name: place}, namespace); err != nil {
		t.Fatal(err)
	}
	for _, label := range append(c.marks(place), fleet.LabelAddOnAgentNamespace) {
		if namespace.Labels[label] != fleet.LabelTrue {
			t.Errorf("the namespace has no label %s: %v", label, namespace.Labels)
		}
	}
}

// MS-02: a namespace that is gone, with the rights that the agent had there, is not made again.
func TestNamespaceIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	managed := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if _, account := o.(*corev1.ServiceAccount); account {
				return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), key.Name, nil)
			}
			return c.Get(ctx, key, o, options...)
		},
	}).Build()
	if err := ensureFor(t.Context(), agentOf(managed, "one", "a"), place, "ci"); !apierrors.IsForbidden(err) {
		t.Errorf("without rights: %v", err)
	}
	if err := managed.Get(t.Context(), client.ObjectKey{Name: place}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is there: %v", err)
	}
}

// MS-02: of an add-on that is another manager's now, the agent says nothing any more. What others say of it stays.
func TestReportIsTakenBack(t *testing.T) {
	t.Parallel()
	for reason, stays := range map[string]bool{fleet.ReasonBuiltInRunning: false, fleet.ReasonBuiltInFailed: false,
		fleet.ReasonBuiltInStarting: false, fleet.ReasonAddOnLeaseUpdated: true} {
		addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: fleet.AddOnManagedServiceAccount}}
		addOn.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionAvailable, Status: metav1.ConditionTrue, Reason: reason}}
		hub := fake.NewClientBuilder().WithScheme(hubclient.Scheme()).WithObjects(addOn).WithStatusSubresource(addOn).Build()
		c := agentOf(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), "one", "a")
		c.hub, c.Uncached = hub, hub
		if err := c.reconcileAddOn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(addOn), addOn); err != nil {
			t.Fatal(err)
		}
		if got := len(addOn.Status.Conditions) > 0; got != stays {
			t.Errorf("%s: the condition stays: %t", reason, got)
		}
	}
}

// MS-02: an account that the agent may not mark is used, and nobody removes it.
func TestAccountThatMayNotBeMarked(t *testing.T) {
	t.Parallel()
	managed := interceptor.NewClient(unmarkedAccount(), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, change client.Patch, options ...client.PatchOption) error {
			if _, account := o.(*corev1.ServiceAccount); account {
				return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), o.GetName(), nil)
			}
			return c.Patch(ctx, o, change, options...)
		},
	})
	agent := agentOf(managed, "one", "a")
	if err := errors.Join(ensure(t.Context(), agent), removeAll(t.Context(), agent)); err != nil {
		t.Error(err)
	}
	if isGone(t, managed, place) {
		t.Error("the account is gone")
	}
}

// MS-04: what an agent may not remove any more is reported, and removed once it may. Where it may not list accounts and has made none,
// nothing is to be removed.
func TestRightsAreTakenAway(t *testing.T) {
	t.Parallel()
	forbidden := true
	managed := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, accounts := list.(*corev1.ServiceAccountList); accounts && forbidden {
				return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "", nil)
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
	if err := agentOf(managed, "one", "a").clear(t.Context(), ""); err != nil {
		t.Errorf("nothing is there: %v", err)
	}
	if err := ensureFor(t.Context(), agentOf(managed, "one", "a"), place, "ci"); err != nil {
		t.Fatal(err)
	}
	c, known := agentOf(managed, "one", "a"), make(chan struct{})
	close(known)
	err := c.clear(t.Context(), "other")
	condition := availability(&session{namespace: "other", known: known}, err)
	if condition.Status != metav1.ConditionFalse || !strings.Contains(condition.Message, "namespace accounts") ||
		!strings.Contains(condition.Message, "give it the rights") {
		t.Errorf("the add-on has %+v", condition)
	}
	forbidden = false
	if err := c.clear(t.Context(), "other"); err != nil || !isGone(t, managed, place) {
		t.Errorf("with the rights, the account stays: %v", err)
	}
	if condition := availability(&session{namespace: "other", known: known}, nil); condition.Status != metav1.ConditionTrue {
		t.Errorf("then the add-on has %+v", condition)
	}
}
