package hub

import (
	"net/http"
	"reflect"
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

// What made a controller fail may pass without an event: each tries again within a minute.
func TestEveryControllerTriesAgainSoon(t *testing.T) {
	t.Parallel()
	chosen := Options{AutoApprovedUsers: []string{"somebody"}, ClusterProfiles: true}
	options := ManagerOptions(chosen)
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
	if err := Register(all, chosen); err != nil {
		t.Fatal(err)
	}
	controllers := 0
	for _, runnable := range all.added {
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
