package hub

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/cloudevents/mqtt"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/hub/work/delivery"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/accessprovider"
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
		mapper := meta.NewDefaultRESTMapper(options.Scheme.PrioritizedVersionsAllGroups())
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
		for _, c := range controllers(register(t, Options{Gates: set(t, value), Access: newAccess()})) {
			found = append(found, c.FieldByName("Name").String())
		}
		return found
	}
	standard := names("")
	for value, want := range map[string][]string{
		"DefaultClusterSet=false":                     {"registration-managedclusterset-default"},
		"ManifestWorkReplicaSet=false":                {"work-manifestworkreplicaset-deploy", "work-manifestworkreplicaset-release"},
		"CleanUpCompletedManifestWork=false":          {"work-manifestwork-expire"},
		"ClusterProfile=true":                         {"registration-clusterprofile-sync", "registration-clusterprofile-access"},
		"GitOpsCluster=true":                          {"addon-gitopscluster-register", "addon-application-pull", "addon-applicationset-report"},
		"SIGPlacementDecision=true":                   {"placement-sigdecision-sync"},
		"ManagedServiceAccountEphemeralIdentity=true": {"addon-managedserviceaccount-expire"},
		// The controller that cleans up after deleted clusters also removes their finalizers, so it runs without cleaning up.
		"ResourceCleanup=false": nil,
		"ClusterImporter=true":  {"registration-managedcluster-import"},
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
	// RG-29, RG-30: the add-ons of others have labels, and are lost with their clusters.
	if !slices.Contains(names("AddonManagement=false"), "registration-managedcluster-addons") {
		t.Error("without AddonManagement, nobody says how add-ons are")
	}
	if without, with := len(names("AddonManagement=false")), len(standard); with-without < 6 {
		t.Errorf("%d controllers run with add-ons, %d without", with, without)
	}
}

func newAccess() *accessprovider.Options {
	return &accessprovider.Options{Address: accessprovider.NewAddress()}
}

// newGRPC has an authority of its own.
func newGRPC(t *testing.T) *GRPCOptions {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "test"}, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := cert.EncodeCertificates(authority)
	if err != nil {
		t.Fatal(err)
	}
	o := &GRPCOptions{CAFile: filepath.Join(t.TempDir(), "ca.crt"), KeyFile: filepath.Join(t.TempDir(), "ca.key"), LongestValidity: time.Hour}
	if err := cert.WriteCert(o.CAFile, certificate); err != nil {
		t.Fatal(err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := keyutil.WriteKey(o.KeyFile, encoded); err != nil {
		t.Fatal(err)
	}
	return o
}

// allControllers are all that the hub can run.
func allControllers(t *testing.T) []reflect.Value {
	t.Helper()
	all := controllers(register(t, Options{AutoApprovedUsers: []string{"user"}, PendingClusterExpiry: time.Hour,
		GRPC: newGRPC(t), WorkTransport: delivery.NewMQTT(&mqtt.Config{}, "hub"), GatewayNamespace: "credentials",
		BuiltInAddOns: []string{fleet.AddOnManagedServiceAccount}, Access: newAccess(),
		Gates: set(t, "ClusterImporter=true,ClusterProfile=true,GitOpsCluster=true,ManagedServiceAccountEphemeralIdentity=true,"+
			"SIGPlacementDecision=true")}))
	want := 2 // in the group addon, one entry registers three controllers, and two register two; there and in registration, one indexes only
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

// What other writers are in the way of is tried again by the same rule everywhere: that of retry.Conflicts, which makes a function of a
// reconciler.
func TestEveryControllerExpectsOtherWriters(t *testing.T) {
	t.Parallel()
	for _, c := range allControllers(t) {
		if _, is := c.FieldByName("Do").Interface().(reconcile.Func); !is {
			t.Errorf("the reconciler of %v is not one of retry.Conflicts", c.FieldByName("Name"))
		}
	}
}

// MS-06 MS-07: where a process of its own has the controllers of managed service accounts, it has all of them, under the same names, and
// the controllers of add-ons leave that add-on to it.
func TestServiceAccountsElsewhere(t *testing.T) {
	t.Parallel()
	var names []string
	for _, c := range controllers(register(t, Options{Groups: []string{GroupServiceAccounts},
		Gates: set(t, "ManagedServiceAccountEphemeralIdentity=true,ClusterProfile=true")})) {
		names = append(names, c.FieldByName("Name").String())
	}
	slices.Sort(names)
	want := []string{"addon-clusterpermission-apply", "addon-managedclusteraddon-builtin", "addon-managedserviceaccount-expire",
		"addon-managedserviceaccount-profile", "addon-managedserviceaccount-report"}
	if !slices.Equal(names, want) {
		t.Errorf("the process has %v, want %v", names, want)
	}
	if slices.Contains(Groups(), GroupServiceAccounts) {
		t.Error("a hub with all groups has them twice")
	}
	with, without := Options{}.servedBuiltIn(), Options{ServiceAccountsElsewhere: true}.servedBuiltIn()
	if !slices.Contains(with, fleet.AddOnManagedServiceAccount) || slices.Contains(without, fleet.AddOnManagedServiceAccount) ||
		len(without) != len(with)-1 {
		t.Errorf("the controllers of add-ons serve %v, and %v if it is elsewhere", with, without)
	}
}
