package hub

import (
	"net/http"
	"reflect"
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
		for _, runnable := range register(t, Options{Gates: set(t, value)}) {
			of := reflect.Indirect(reflect.ValueOf(runnable))
			if of.Kind() == reflect.Struct && of.FieldByName("RateLimiter").IsValid() {
				found = append(found, of.FieldByName("Name").String())
			}
		}
		return found
	}
	standard := names("")
	for value, want := range map[string][]string{
		"DefaultClusterSet=false":            {"defaultset"},
		"ManifestWorkReplicaSet=false":       {"manifestworkreplicaset"},
		"CleanUpCompletedManifestWork=false": {"manifestwork-ttl"},
		"ClusterProfile=true":                {"clusterprofile"},
		// What sees to deleted clusters sees to their finalizers, too, while it is off.
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
		if strings.Contains(name, "addon") || name == "install" {
			t.Errorf("%s runs without AddonManagement", name)
		}
	}
	if without, with := len(names("AddonManagement=false")), len(standard); with-without < 6 {
		t.Errorf("%d controllers run with add-ons, %d without", with, without)
	}
}

// What made a controller fail may pass without an event: each tries again within a minute.
func TestEveryControllerTriesAgainSoon(t *testing.T) {
	t.Parallel()
	added := register(t, Options{AutoApprovedUsers: []string{"somebody"}, Gates: set(t, "ClusterProfile=true")})
	controllers := 0
	for _, runnable := range added {
		of := reflect.Indirect(reflect.ValueOf(runnable))
		if of.Kind() != reflect.Struct || !of.FieldByName("RateLimiter").IsValid() {
			continue
		}
		controllers++
		limiter, ok := of.FieldByName("RateLimiter").Interface().(workqueue.TypedRateLimiter[reconcile.Request])
		if !ok {
			t.Fatalf("the limiter of %v is a %v", of.FieldByName("Name"), of.FieldByName("RateLimiter").Type())
		}
		var wait time.Duration
		for range 30 {
			wait = limiter.When(reconcile.Request{})
		}
		if wait > time.Minute {
			t.Errorf("%v waits for %v before it tries again", of.FieldByName("Name"), wait)
		}
	}
	if controllers < 20 {
		t.Errorf("only %d controllers are known", controllers)
	}
}
