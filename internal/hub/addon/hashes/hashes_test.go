package hashes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/addon/hashes"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
)

func configOf(group, resource, name string) addonv1beta1.AddOnConfig {
	return addonv1beta1.AddOnConfig{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: group, Resource: resource},
		ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: "ns", Name: name},
	}
}

func object(group, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(3)}}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	o.SetNamespace("ns")
	o.SetName(name)
	return o
}

// AM-06, AM-08: of what the hub cannot read, or must not, it says so, and of the rest it knows the hash.
func TestOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		served := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}
		lists := map[schema.GroupVersionResource]string{}
		for _, kind := range []schema.GroupVersionKind{{Group: "example.com", Version: "v1", Kind: "Thing"},
			{Group: "closed.io", Version: "v1", Kind: "Thing"}, {Version: "v1", Kind: "Secret"}} {
			served.Resources = append(served.Resources, resources(kind))
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			lists[resource] = kind.Kind + "List"
		}
		thing := object("example.com", "Thing", "one")
		c := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, thing, object("", "Secret", "one"))
		c.PrependReactor("list", "things", func(a clienttesting.Action) (bool, runtime.Object, error) {
			closed := a.GetResource().Group == "closed.io"
			return closed, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("no"))
		})
		h := hashes.New(c, served, clock.RealClock{})
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer queue.ShutDown()
		defer stop()
		if err := h.Source().Start(ctx, queue); err != nil {
			t.Fatal(err)
		}
		known := configOf("example.com", "things", "one")
		problems := map[addonv1beta1.AddOnConfig]string{
			configOf("example.com", "things", "two"): "things.example.com ns/two does not exist: create it",
			configOf("closed.io", "things", "one"):   "the hub may not read things.closed.io: grant its controllers",
			configOf("absent.io", "things", "one"):   "the hub serves no things.absent.io: install",
			configOf("example", "things", "one"):     "the hub serves no things.example: install",
			configOf("", "secrets", "one"):           "a Secret cannot be a configuration",
			configOf("", "secret", "one"):            "a Secret cannot be a configuration",
		}
		wanted := map[addonv1beta1.AddOnConfig]bool{known: true}
		for config := range problems {
			wanted[config] = true
		}
		h.Require("hello", wanted)
		for config := range wanted {
			_, _ = h.Of(config) // it starts to watch
		}
		synctest.Wait()
		want, err := config.Hash(thing)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.Of(known); err != nil || got.Hash != want {
			t.Errorf("got %+v, %v, want the hash %s", got, err, want)
		}
		for config, text := range problems {
			if got, err := h.Of(config); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v: got %+v, %v, want %q", config, got, err, text)
			}
		}
		if queue.Len() != 1 {
			t.Errorf("%d add-ons are looked at again when the configurations are known", queue.Len())
		}
		for _, action := range c.Actions() {
			if action.GetResource().Resource == "secrets" {
				t.Errorf("the hub has read Secrets: %v", action)
			}
		}
	})
}
