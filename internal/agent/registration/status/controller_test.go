package status

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	aboutv1alpha1 "github.com/capstan-io/capstan/api/about/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

// reporter is a controller between a hub and a managed cluster.
type reporter struct {
	*Controller
	hub, managed client.Client
	events       chan string
}

func newReporter(t *testing.T, o Options, managed ...client.Object) *reporter {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, clusterv1alpha1.AddToScheme, aboutv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	recorder := events.NewFakeRecorder(100)
	r := &reporter{
		hub:     fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(mc).WithObjects(mc).Build(),
		managed: fake.NewClientBuilder().WithScheme(scheme).WithObjects(managed...).Build(),
		events:  recorder.Events,
	}
	o.Recorder = recorder
	r.Controller = New(r.hub, r.managed, o)
	return r
}

// report reconciles once and returns what the hub then knows, and the events since the last time.
func (r *reporter) report(t *testing.T) (mc *clusterv1.ManagedCluster, recorded []string) {
	t.Helper()
	key := client.ObjectKey{Name: "cluster1"}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	mc = &clusterv1.ManagedCluster{}
	if err := r.hub.Get(t.Context(), key, mc); err != nil {
		t.Fatal(err)
	}
	for len(r.events) > 0 {
		recorded = append(recorded, <-r.events)
	}
	return mc, recorded
}

func claim(name string) *clusterv1alpha1.ClusterClaim {
	return &clusterv1alpha1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1alpha1.ClusterClaimSpec{Value: "value"}}
}

// RG-27 R15 KL-20: reserved claims come first and are never dropped; the others are up to the limit, and dropping some is no
// secret.
func TestClaimsBeyondTheLimit(t *testing.T) {
	t.Parallel()
	prober, clk := newTestProber(t, newAPIServer(t))
	hidden := claim("hidden")
	hidden.Labels = map[string]string{"open-cluster-management.io/spoke-only": ""}
	r := newReporter(t, Options{Cluster: "cluster1", Prober: prober, Certificate: &Notice{}, Claims: true, MaxCustomClaims: 2,
		ReservedClaimSuffixes: []string{".reserved.io"}, Clock: clk},
		claim("id.k8s.io"), claim("zone.reserved.io"), hidden, claim("d"), claim("c"), claim("b"), claim("a"))
	names := func(mc *clusterv1.ManagedCluster) (names []string) {
		for _, c := range mc.Status.ClusterClaims {
			names = append(names, c.Name)
		}
		return names
	}
	mc, recorded := r.report(t)
	if want := []string{"id.k8s.io", "zone.reserved.io", "a", "b"}; !slices.Equal(names(mc), want) {
		t.Errorf("claims %v, want %v", names(mc), want)
	}
	cond := meta.FindStatusCondition(mc.Status.Conditions, "capstan.io/ClusterClaimsReported")
	if cond == nil || cond.Status != metav1.ConditionFalse || cond.Reason != "CustomClusterClaimsTruncated" ||
		!strings.Contains(cond.Message, "2 of 4 custom claims") {
		t.Errorf("condition %+v", cond)
	}
	if n := count(recorded, "CustomClusterClaimsTruncated"); n != 1 {
		t.Errorf("%d events of dropped claims: %v", n, recorded)
	}
	if _, recorded := r.report(t); len(recorded) > 0 {
		t.Errorf("told again: %v", recorded)
	}
	for _, name := range []string{"c", "d"} {
		if err := r.managed.Delete(t.Context(), claim(name)); err != nil {
			t.Fatal(err)
		}
	}
	mc, _ = r.report(t)
	if cond := meta.FindStatusCondition(mc.Status.Conditions, "capstan.io/ClusterClaimsReported"); cond == nil ||
		cond.Status != metav1.ConditionTrue {
		t.Errorf("with no more claims than the limit: %+v", cond)
	}
}

// RG-27: a cluster within the limit has no condition about it.
func TestClaimsWithinTheLimit(t *testing.T) {
	t.Parallel()
	prober, clk := newTestProber(t, newAPIServer(t))
	r := newReporter(t, Options{Cluster: "cluster1", Prober: prober, Certificate: &Notice{}, Claims: true, MaxCustomClaims: 2, Clock: clk},
		claim("a"), claim("b"))
	mc, recorded := r.report(t)
	if cond := meta.FindStatusCondition(mc.Status.Conditions, "capstan.io/ClusterClaimsReported"); cond != nil ||
		len(mc.Status.ClusterClaims) != 2 {
		t.Errorf("condition %+v, claims %v", cond, mc.Status.ClusterClaims)
	}
	if count(recorded, "Truncated") > 0 {
		t.Errorf("events %v", recorded)
	}
}

// RG-25: events report when the API server of the cluster comes and goes, once each time.
func TestAvailabilityEvents(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	prober, clk := newTestProber(t, server)
	r := newReporter(t, Options{Cluster: "cluster1", Prober: prober, Certificate: &Notice{}, Clock: clk})
	if _, recorded := r.report(t); count(recorded, "Normal Available ") != 1 || len(recorded) != 1 {
		t.Errorf("a cluster that has come: %v", recorded)
	}
	server.livez.Store(500)
	prober.probe(t.Context())
	clk.Step(failureMustLast + time.Second)
	prober.probe(t.Context())
	if _, recorded := r.report(t); count(recorded, "Warning Unavailable ") != 1 || len(recorded) != 1 {
		t.Errorf("a cluster that has gone: %v", recorded)
	}
	if _, recorded := r.report(t); len(recorded) > 0 {
		t.Errorf("told again: %v", recorded)
	}
}

// RG-21: a cluster that is being deleted becomes available again, for the hub to wait for its agent; its claims stay as they were.
func TestAvailabilityDuringDeletion(t *testing.T) {
	t.Parallel()
	prober, clk := newTestProber(t, newAPIServer(t))
	r := newReporter(t, Options{Cluster: "cluster1", Prober: prober, Certificate: &Notice{}, Claims: true, MaxCustomClaims: 2, Clock: clk},
		claim("a"))
	mc, _ := r.report(t)
	mc.Finalizers = []string{"cluster.open-cluster-management.io/api-resource-cleanup"}
	if err := r.hub.Update(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	meta.SetStatusCondition(&mc.Status.Conditions, metav1.Condition{
		Type: "ManagedClusterConditionAvailable", Status: metav1.ConditionUnknown, Reason: "ManagedClusterLeaseUpdateStopped"})
	if err := r.hub.Status().Update(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	if err := r.hub.Delete(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	if err := r.managed.Create(t.Context(), claim("b")); err != nil {
		t.Fatal(err)
	}
	mc, _ = r.report(t)
	if !meta.IsStatusConditionTrue(mc.Status.Conditions, "ManagedClusterConditionAvailable") {
		t.Errorf("the agent that is back: %+v", mc.Status.Conditions)
	}
	if len(mc.Status.ClusterClaims) != 1 {
		t.Errorf("claims %v", mc.Status.ClusterClaims)
	}
}

// RG-11: how the certificate stands goes out with the rest.
func TestCertificateNotice(t *testing.T) {
	t.Parallel()
	prober, clk := newTestProber(t, newAPIServer(t))
	notice := &Notice{}
	r := newReporter(t, Options{Cluster: "cluster1", Prober: prober, Certificate: notice, Clock: clk})
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} {
		notice.Set(metav1.Condition{Type: "ClusterCertificateRotated", Status: status, Reason: "Reason", Message: "message"})
		mc, _ := r.report(t)
		if !meta.IsStatusConditionPresentAndEqual(mc.Status.Conditions, "ClusterCertificateRotated", status) {
			t.Errorf("want %s: %+v", status, mc.Status.Conditions)
		}
	}
}

func count(recorded []string, what string) (n int) {
	for _, line := range recorded {
		if strings.Contains(line, what) {
			n++
		}
	}
	return n
}

func property(name, value string) *aboutv1alpha1.ClusterProperty {
	return &aboutv1alpha1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: aboutv1alpha1.ClusterPropertySpec{Value: value}}
}

// RG-27: what is reported with each setting of the feature gates ClusterClaim and ClusterProperty. A property goes before a claim
// of the same name, unless it is not for the hub.
func TestClaimsAndProperties(t *testing.T) {
	t.Parallel()
	hidden, shy := claim("hidden"), property("shy", "secret")
	hidden.Labels = map[string]string{"open-cluster-management.io/spoke-only": ""}
	shy.Labels = map[string]string{"open-cluster-management.io/spoke-only": "true"}
	objects := []client.Object{
		claim("id.k8s.io"), claim("both"), claim("mine"), claim("shy"), hidden,
		property("both", "property"), property("clusterset.k8s.io", "set"), property("platform.open-cluster-management.io", "there"), shy,
	}
	for name, test := range map[string]struct {
		claims, properties bool
		want               []string
	}{
		"both": {true, true, []string{"id.k8s.io=value", "platform.open-cluster-management.io=there", "both=property",
			"clusterset.k8s.io=set", "mine=value", "shy=value"}},
		"claims":     {true, false, []string{"id.k8s.io=value", "both=value", "mine=value", "shy=value"}},
		"properties": {false, true, []string{"platform.open-cluster-management.io=there", "both=property", "clusterset.k8s.io=set"}},
		"neither":    {false, false, []string{"of=another"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prober, clk := newTestProber(t, newAPIServer(t))
			r := newReporter(t, Options{Cluster: "cluster1", Prober: prober, Certificate: &Notice{}, Claims: test.claims,
				Properties: test.properties, MaxCustomClaims: 20, Clock: clk}, objects...)
			mc := &clusterv1.ManagedCluster{}
			if err := r.hub.Get(t.Context(), client.ObjectKey{Name: "cluster1"}, mc); err != nil {
				t.Fatal(err)
			}
			mc.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "of", Value: "another"}}
			if err := r.hub.Status().Update(t.Context(), mc); err != nil {
				t.Fatal(err)
			}
			mc, _ = r.report(t)
			var got []string
			for _, c := range mc.Status.ClusterClaims {
				got = append(got, c.Name+"="+c.Value)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// RG-27: a value that the hub would not take does not keep the rest of the status from it.
func TestUnfitValues(t *testing.T) {
	t.Parallel()
	prober, clk := newTestProber(t, newAPIServer(t))
	long, longest := property("long", strings.Repeat("ü", 1025)), property("longest", strings.Repeat("ü", 1024))
	empty := claim("empty")
	empty.Spec.Value = ""
	r := newReporter(t, Options{Cluster: "cluster1", Prober: prober, Certificate: &Notice{}, Claims: true, Properties: true,
		MaxCustomClaims: 20, Clock: clk}, long, longest, empty)
	mc, recorded := r.report(t)
	if len(mc.Status.ClusterClaims) != 1 || mc.Status.ClusterClaims[0].Name != "longest" {
		t.Errorf("claims %v", mc.Status.ClusterClaims)
	}
	cond := meta.FindStatusCondition(mc.Status.Conditions, "capstan.io/ClusterClaimsReported")
	if cond == nil || cond.Status != metav1.ConditionFalse || cond.Reason != "ClusterClaimsInvalid" ||
		!strings.Contains(cond.Message, "empty, long") && !strings.Contains(cond.Message, "empty and long") {
		t.Errorf("condition %+v", cond)
	}
	if count(recorded, "Warning ClusterClaimsInvalid ") != 1 {
		t.Errorf("events %v", recorded)
	}
}

// RG-27: claims that would make the status larger than the hub takes do not keep the rest of it from the hub: the first are reported, and
// reserved ones come first.
func TestClaimsOfMoreThanTheHubTakes(t *testing.T) {
	t.Parallel()
	const taken = 256 << 10
	for name, test := range map[string]struct {
		value string
		names []string // patterns of the names of claims; those of the last are reported
	}{
		"long":           {strings.Repeat("a", 1024), []string{"c%03d"}},
		"of many bytes":  {strings.Repeat("ü", 1024), []string{"c%03d"}},
		"escaped":        {strings.Repeat("<", 1024), []string{"c%03d"}},
		"reserved":       {strings.Repeat("a", 1024), []string{"c%03d.reserved.io"}},
		"reserved, more": {strings.Repeat("a", 1024), []string{"a%03d", "c%03d.reserved.io"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prober, clk := newTestProber(t, newAPIServer(t))
			var claims []client.Object
			for _, pattern := range test.names {
				for i := range 300 {
					one := claim(fmt.Sprintf(pattern, i))
					one.Spec.Value = test.value
					claims = append(claims, one)
				}
			}
			r := newReporter(t, Options{Cluster: "cluster1", Prober: prober, Certificate: &Notice{}, Claims: true, MaxCustomClaims: 1000,
				ReservedClaimSuffixes: []string{".reserved.io"}, Clock: clk}, claims...)
			mc, recorded := r.report(t)
			encoded, err := json.Marshal(mc.Status)
			if err != nil || len(encoded) > taken || len(encoded) < taken/2 {
				t.Errorf("a status of %d bytes, %v", len(encoded), err)
			}
			for i, reported := range mc.Status.ClusterClaims {
				if want := fmt.Sprintf(test.names[len(test.names)-1], i); reported.Name != want {
					t.Fatalf("claim %d is %s, want %s", i, reported.Name, want)
				}
			}
			cond := meta.FindStatusCondition(mc.Status.Conditions, "capstan.io/ClusterClaimsReported")
			left := fmt.Sprintf("%d claims are not reported", len(claims)-len(mc.Status.ClusterClaims))
			if cond == nil || cond.Status != metav1.ConditionFalse || cond.Reason != "CustomClusterClaimsTruncated" ||
				!strings.Contains(cond.Message, left) {
				t.Errorf("condition %+v, want %q", cond, left)
			}
			if count(recorded, "CustomClusterClaimsTruncated") != 1 {
				t.Errorf("events %v", recorded)
			}
			if !meta.IsStatusConditionTrue(mc.Status.Conditions, "ManagedClusterJoined") {
				t.Errorf("conditions %+v", mc.Status.Conditions)
			}
		})
	}
}

// What the hub reads of a cluster, with which event.
func TestReasons(t *testing.T) {
	t.Parallel()
	rotated := metav1.Condition{Type: "ClusterCertificateRotated", Status: metav1.ConditionFalse, Reason: "ClientCertificateUpdateFailed",
		Message: "no luck"}
	for name, test := range map[string]struct {
		livez            int32
		certificate      *metav1.Condition
		kind             string
		status           metav1.ConditionStatus
		reason, recorded string
	}{
		"joined":              {200, nil, "ManagedClusterJoined", metav1.ConditionTrue, "ManagedClusterJoined", ""},
		"joined, not healthy": {500, nil, "ManagedClusterJoined", metav1.ConditionTrue, "ManagedClusterJoined", ""},
		"available": {200, nil, "ManagedClusterConditionAvailable", metav1.ConditionTrue, "ManagedClusterAvailable",
			"Normal Available "},
		"unavailable": {500, nil, "ManagedClusterConditionAvailable", metav1.ConditionFalse, "ManagedClusterKubeAPIServerUnavailable",
			"Warning Unavailable "},
		"a certificate":         {200, &rotated, "ClusterCertificateRotated", metav1.ConditionFalse, "ClientCertificateUpdateFailed", ""},
		"nothing about a clock": {200, nil, "ManagedClusterConditionClockSynced", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(t)
			server.livez.Store(test.livez)
			prober, clk := newTestProber(t, server)
			notice := &Notice{}
			if test.certificate != nil {
				notice.Set(*test.certificate)
			}
			prober.Health(t.Context())
			clk.Step(20 * time.Second) // for as long as a failure has to last
			prober.probe(t.Context())
			r := newReporter(t, Options{Cluster: "cluster1", Prober: prober, Certificate: notice, Clock: clk})
			mc, recorded := r.report(t)
			cond := meta.FindStatusCondition(mc.Status.Conditions, test.kind)
			switch {
			case test.status == "":
				if cond != nil {
					t.Errorf("%+v is the hub's to say", cond)
				}
			case cond == nil || cond.Status != test.status || cond.Reason != test.reason || cond.Message == "" ||
				!cond.LastTransitionTime.Time.Equal(clk.Now()):
				t.Errorf("condition %+v, want %s=%s (%s)", cond, test.kind, test.status, test.reason)
			}
			if test.recorded != "" && count(recorded, test.recorded) != 1 {
				t.Errorf("events %q, want one of %q", recorded, test.recorded)
			}
		})
	}
}
