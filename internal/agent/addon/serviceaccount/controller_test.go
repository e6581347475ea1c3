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
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
)

// cached reads from a client.
type cached struct {
	cache.Cache
	from client.Reader
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return c.from.Get(ctx, key, into, options...)
}

// MS-02 MS-04 KL-36: an agent leaves the accounts of another one alone, for another hub, on which the cluster may have the same name. Its
// own are those of its hub, and those that it has made itself.
func TestAccountsOfTwoHubs(t *testing.T) {
	t.Parallel()
	const namespace = "accounts"
	ensureFor := func(c *Controller, owner types.UID) error {
		_, err := c.ensureAccount(t.Context(), namespace, &authenticationv1beta1.ManagedServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "ci", UID: owner}})
		return err
	}
	ensure := func(c *Controller) error { return ensureFor(c, "of-"+types.UID(c.HubHash)) }
	remove := func(c *Controller) error {
		return c.removeAccount(t.Context(), &session{namespace: namespace, managed: cached{from: c.managed}}, "ci")
	}
	removeAll := func(c *Controller) error { return c.removeAll(t.Context(), namespace) }
	for name, test := range map[string]struct {
		hub, agent string
		do         func(*Controller) error
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
		"hub and agent are called otherwise": {"two", "b", func(c *Controller) error {
			return errors.Join(ensureFor(c, "of-one"), remove(c))
		}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			managed := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
			agentFor := func(hub, agent string) *Controller {
				return &Controller{Options: Options{Cluster: "c1", HubHash: hub, Agent: agent}, managed: managed}
			}
			if err := ensure(agentFor("one", "a")); err != nil {
				t.Fatal(err)
			}
			err := test.do(agentFor(test.hub, test.agent))
			if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("it fails with %v, want %q", err, test.fails)
			}
			there := &corev1.ServiceAccount{}
			err = managed.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ci"}, there)
			if client.IgnoreNotFound(err) != nil || apierrors.IsNotFound(err) != test.gone {
				t.Errorf("the account: %v, want it gone: %t", err, test.gone)
			}
		})
	}
}
