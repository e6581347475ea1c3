package hub

import (
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/featuregates"
)

// recorded is a manager that keeps what is added to it.
type recorded struct {
	ctrl.Manager
	added []manager.Runnable
}

func (m *recorded) Add(r manager.Runnable) error {
	m.added = append(m.added, r)
	return nil
}

// register returns what a manager runs with the options. It reaches no API server.
func register(t *testing.T, o Options) []manager.Runnable {
	t.Helper()
	options := ManagerOptions(o)
	options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		mapper := meta.NewDefaultRESTMapper(nil)
		for kind := range options.Scheme.AllKnownTypes() {
			mapper.Add(kind, meta.RESTScopeNamespace)
		}
		mapper.Add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, meta.RESTScopeRoot)
		return mapper, nil
	}
	options.Controller.SkipNameValidation = ptr.To(true)
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, options)
	if err != nil {
		t.Fatal(err)
	}
	all := &recorded{Manager: mgr}
	if err := Register(all, o); err != nil {
		t.Fatal(err)
	}
	return all.added
}

// controllers are the controllers among the runnables of a manager, as structs with the fields Name and RateLimiter.
func controllers(added []manager.Runnable) (found []reflect.Value) {
	for _, runnable := range added {
		c := reflect.Indirect(reflect.ValueOf(runnable))
		if c.Kind() == reflect.Struct && c.FieldByName("RateLimiter").IsValid() {
			found = append(found, c)
		}
	}
	return found
}

// set returns the feature gates of the hub with some of them set.
func set(t *testing.T, value string) *featuregates.Set {
	t.Helper()
	s := featuregates.Hub()
	if err := s.Set(value); value != "" && err != nil {
		t.Fatal(err)
	}
	return s
}

// SC-17, SC-23: what each feature gate switches off, or on.
func TestFeatureGates(t *testing.T) {
	t.Parallel()
	names := func(value string) (found []string) {
		for _, c := range controllers(register(t, Options{Gates: set(t, value)})) {
			found = append(found, c.FieldByName("Name").String())
		}
		return found
	}
	standard := names("")
	for value, want := range map[string][]string{
		"DefaultClusterSet=false":            {"registration-managedclusterset-default"},
		"ManifestWorkReplicaSet=false":       {"work-manifestworkreplicaset-deploy"},
		"CleanUpCompletedManifestWork=false": {"work-manifestwork-expire"},
		"ClusterProfile=true":                {"registration-clusterprofile-sync"},
		// The controller that cleans up after deleted clusters also removes their finalizers, so it runs without cleaning up.
		"ResourceCleanup=false": nil,
		"ClusterImporter=true":  nil,
	} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			got := names(value)
			var differ []string
			for _, name := range append(slices.Clone(standard), got...) {
				if slices.Contains(standard, name) != slices.Contains(got, name) && !slices.Contains(differ, name) {
					differ = append(differ, name)
				}
			}
			if !slices.Equal(differ, want) {
				t.Errorf("switches %q, want %q", differ, want)
			}
		})
	}
	for _, name := range names("AddonManagement=false") {
		if strings.HasPrefix(name, "addon-") {
			t.Errorf("%s runs without AddonManagement", name)
		}
	}
	if without, with := len(names("AddonManagement=false")), len(standard); with-without < 6 {
		t.Errorf("%d controllers run with add-ons, %d without", with, without)
	}
}

// allControllers are all that the hub can run.
func allControllers(t *testing.T) []reflect.Value {
	t.Helper()
	all := controllers(register(t, Options{AutoApprovedUsers: []string{"user"}, PendingClusterExpiry: time.Hour,
		Gates: set(t, "ClusterProfile=true")}))
	want := 1 // in the group addon, one entry registers three controllers, and another one indexes only
	for _, g := range groups {
		want += len(g.controllers)
	}
	if len(all) != want {
		t.Errorf("%d controllers run, want %d", len(all), want)
	}
	return all
}

// A controller's name is a label of metrics and a field of logs: <area>-<noun>-<duty>, and no two are the same.
func TestNamesOfControllers(t *testing.T) {
	t.Parallel()
	scheme := regexp.MustCompile("^(" + strings.Join(Groups(), "|") + ")-[a-z]+-[a-z]+$")
	seen := map[string]bool{}
	for _, c := range allControllers(t) {
		name := c.FieldByName("Name").String()
		if !scheme.MatchString(name) {
			t.Errorf("%q does not match %s", name, scheme)
		}
		if seen[name] {
			t.Errorf("two controllers have the name %q", name)
		}
		seen[name] = true
	}
}

// The cause of a failure may pass without an event: each controller tries again within a minute.
func TestEveryControllerTriesAgainSoon(t *testing.T) {
	t.Parallel()
	for _, c := range allControllers(t) {
		limiter, ok := c.FieldByName("RateLimiter").Interface().(workqueue.TypedRateLimiter[reconcile.Request])
		if !ok {
			t.Fatalf("the limiter of %v is a %v", c.FieldByName("Name"), c.FieldByName("RateLimiter").Type())
		}
		var wait time.Duration
		for range 30 {
			wait = limiter.When(reconcile.Request{})
		}
		if wait > time.Minute {
			t.Errorf("%v waits for %v before it tries again", c.FieldByName("Name"), wait)
		}
	}
}
