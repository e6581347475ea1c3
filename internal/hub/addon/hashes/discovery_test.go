package hashes_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/addon/hashes"
)

// bare is a hub that serves no kinds of configurations.
type bare struct {
	discovery.DiscoveryInterfaceWithContext
	*hashes.Hashes
	clock *clocktesting.FakePassiveClock
	// required is how often discovery was read, meanwhile what happens then, and err what it answers.
	required  int
	meanwhile func()
	err       error
}

func (b *bare) ServerGroupsAndResourcesWithContext(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	b.required++
	if b.meanwhile != nil {
		b.meanwhile()
	}
	return []*metav1.APIGroup{}, []*metav1.APIResourceList{}, b.err
}

// newBare has an add-on that wants a thing for each of many clusters.
func newBare(t *testing.T) (*bare, []addonv1beta1.AddOnConfig) {
	t.Helper()
	b := &bare{clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))}
	b.Hashes = hashes.New(fake.NewSimpleDynamicClient(runtime.NewScheme()), b, b.clock)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	if err := b.Source().Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	var things []addonv1beta1.AddOnConfig
	wanted := map[addonv1beta1.AddOnConfig]bool{}
	for cluster := range 100 {
		thing := configOf("example.com", "things", strconv.Itoa(cluster))
		things, wanted[thing] = append(things, thing), true
	}
	b.Require("hello", wanted)
	return b, things
}

// require expects of each configuration that its kind has the problem, and returns how much discovery that took.
func (b *bare) require(t *testing.T, problem string, of ...addonv1beta1.AddOnConfig) int {
	t.Helper()
	before := b.required
	for _, config := range of {
		if _, err := b.Of(config); err == nil || !strings.Contains(err.Error(), problem) {
			t.Fatalf("%s: %v, want %q", config.Name, err, problem)
		}
	}
	return b.required - before
}

// AM-06: what the hub serves is read once for a kind that it does not serve, and not for each configuration of that kind; and again when
// its definition changes, or after a while.
func TestDiscoveryOfAKind(t *testing.T) {
	t.Parallel()
	const notServed = "the hub serves no things.example.com: install"
	b, things := newBare(t)
	if b.require(t, notServed, things...) != 1 {
		t.Error("discovered more or less than once")
	}
	for what, happens := range map[string]func(){
		"after a while":            func() { b.clock.SetTime(b.clock.Now().Add(9 * time.Second)) }, // before the add-on is looked at again
		"its definition changes":   func() { b.DefinitionChanged("things.example.com") },
		"nobody wanted it between": func() { b.Require("hello", nil) },
	} {
		if happens(); b.require(t, notServed, things...) != 1 {
			t.Errorf("%s: discovered more or less than once", what)
		}
	}
	if b.DefinitionChanged("others.example.com"); b.require(t, notServed, things...) != 0 {
		t.Error("another definition matters")
	}
	b.DefinitionChanged("things.example.com")
	b.meanwhile = func() { b.DefinitionChanged("things.example.com") }
	if b.require(t, notServed, things[:2]...) != 2 {
		t.Error("what was found out of a definition before its change is used after it")
	}
}

// AM-06: whoever else is looked at does not wait until it is known what the hub serves.
func TestDiscoveryTakesLong(t *testing.T) {
	t.Parallel()
	b, things := newBare(t)
	b.meanwhile = func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.Require("other", map[addonv1beta1.AddOnConfig]bool{things[0]: true})
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("other add-ons wait for discovery")
		}
	}
	b.require(t, "the hub serves no things.example.com", things[0])
}

// AM-06: of a kind whose API does not answer, no message says to install its definition.
func TestDiscoveryFails(t *testing.T) {
	t.Parallel()
	failed := func(group string) error {
		return &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: group, Version: "v1"}: errors.New("it is down")}}
	}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"its API": {failed("example.com"),
			"look up things.example.com: what serves example.com/v1 does not answer, get its APIService to be available: it is down"},
		"another API":  {failed("metrics.k8s.io"), "the hub serves no things.example.com: install"},
		"all together": {errors.New("the hub is down"), "look up things.example.com: the hub is down"},
	} {
		b, things := newBare(t)
		if b.err = test.err; b.require(t, test.want, things...) != 1 {
			t.Errorf("%s: discovered more or less than once", name)
		}
	}
}
