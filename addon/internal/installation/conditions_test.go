package installation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	addonconfig "github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const isTrue, isFalse, isUnknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown

// earlier is when conditions got the status that they had before, as a client of another time zone reads it.
var earlier = metav1.NewTime(now.Add(-time.Hour).Local())

// clusterWith is a cluster whose agent is there, or sends no heartbeats.
func clusterWith(name string, status metav1.ConditionStatus) *clusterv1.ManagedCluster {
	c := cluster(name)
	c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: fleet.ConditionClusterAvailable, Status: status})
	return c
}

// report has the agent of a cluster say this of a work, and of what is in it: "+Applied -Available ?Available".
func (h *hub) report(t *testing.T, namespace, name, said string, manifests ...workv1.ManifestCondition) {
	t.Helper()
	work := &workv1.ManifestWork{}
	if err := h.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, work); err != nil {
		t.Fatal(err)
	}
	work.Status.ResourceStatus.Manifests = manifests
	for _, text := range strings.Fields(said) {
		status := map[byte]metav1.ConditionStatus{'+': isTrue, '-': isFalse, '?': isUnknown}[text[0]]
		meta.SetStatusCondition(&work.Status.Conditions, metav1.Condition{Type: text[1:], Status: status, Message: "so it is"})
	}
	if err := h.Status().Update(t.Context(), work); err != nil {
		t.Fatal(err)
	}
}

// had has the add-on have had a condition for an hour.
func (h *hub) had(t *testing.T, kind string, status metav1.ConditionStatus) {
	t.Helper()
	h.change(t, func(a *addonv1beta1.ManagedClusterAddOn) {
		meta.RemoveStatusCondition(&a.Status.Conditions, kind)
		if status != "" {
			meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "Before",
				LastTransitionTime: earlier})
		}
	})
}

// pass reconciles once, whether or not that fails.
func (h *hub) pass(t *testing.T) {
	t.Helper()
	_, _ = h.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
}

// expect checks a condition: its time is that at which its status changed. An empty status stands for none.
func (h *hub) expect(t *testing.T, kind string, before, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	got := h.condition(t, kind)
	if status == "" {
		if got.Type != "" {
			t.Errorf("it says %+v", got)
		}
		return
	}
	at := now
	if status == before {
		at = earlier.Time
	}
	if got.Status != status || got.Reason != reason || !strings.Contains(got.Message, message) || !got.LastTransitionTime.Time.Equal(at) {
		t.Errorf("got %+v, want %s %s %q at %s", got, status, reason, message, at)
	}
	if reason != "Before" && got.ObservedGeneration != 5 {
		t.Errorf("it is of generation %d", got.ObservedGeneration)
	}
}

func generation5(addOn *addonv1beta1.ManagedClusterAddOn) { addOn.Generation = 5 }

// AF-07, AF-08, RG-30: Available, with each reason that is a manager's to give. That of an add-on whose agent has a
// lease, or whose cluster sends no heartbeats, is another's.
func TestAvailable(t *testing.T) {
	t.Parallel()
	replicas := func(values ...workv1.FeedbackValue) []workv1.ManifestCondition {
		return []workv1.ManifestCondition{{
			ResourceMeta:    workv1.ManifestResourceMeta{Group: "apps", Kind: "Deployment", Resource: "deployments", Namespace: "ns", Name: "agent"},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: values},
		}}
	}
	count := func(name string, n int64) workv1.FeedbackValue {
		return workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.Integer, Integer: &n}}
	}
	const lease, none, manifests, deployments = addon.HealthLease, addon.HealthNone, addon.HealthManifests, addon.HealthDeployments
	for name, test := range map[string]struct {
		mode      addon.HealthMode
		cluster   metav1.ConditionStatus
		said      string // of the work; - for that there is none
		manifests []workv1.ManifestCondition
		status    metav1.ConditionStatus // empty if it stays as it is
		reason    string
		message   string
	}{
		"by lease":   {lease, isTrue, "+Applied +Available", nil, "", "", ""},
		"not at all": {none, isTrue, "+Applied +Available", nil, "", "", ""},
		"no work":    {manifests, isTrue, "-", nil, isUnknown, "WorkNotFound", "There is no ManifestWork of the add-on"},
		"not reported": {manifests, isTrue, "", nil, isUnknown, "WorkNotApplied",
			"agent of cluster c1 has not reported on ManifestWork c1/addon-hello-deploy-0"},
		"not known":     {manifests, isTrue, "+Applied ?Available", nil, isUnknown, "WorkNotApplied", "so it is"},
		"applied":       {manifests, isTrue, "+Applied +Available", nil, isTrue, "WorkApplied", "Addon manifestWork is applied"},
		"not applied":   {manifests, isTrue, "-Applied +Available", nil, isFalse, "WorkApplyFailed", "so it is"},
		"not available": {manifests, isTrue, "+Applied -Available", nil, isFalse, "WorkNotApplied", "so it is"},
		"probes": {deployments, isTrue, "+Applied +Available", replicas(count("ReadyReplicas", 1), count("DesiredReplicas", 1)),
			isTrue, "ProbeAvailable", "hello add-on is available."},
		"probes fail": {deployments, isTrue, "+Applied +Available", replicas(count("DesiredReplicas", 1)), isFalse, "ProbeUnavailable",
			"Deployment ns/agent"},
		"probes say nothing": {deployments, isTrue, "+Applied +Available", replicas(), isUnknown, "NoProbeResult",
			"Probe results are not returned"},
		"probes, not applied": {deployments, isTrue, "-Applied +Available", replicas(count("ReadyReplicas", 1)), isFalse, "WorkApplyFailed",
			"so it is"},
		"cluster is lost": {manifests, isUnknown, "-Applied", nil, "", "", ""},
	} {
		for _, before := range []metav1.ConditionStatus{"", isTrue, isFalse, isUnknown} {
			t.Run(name+"/"+string(before), func(t *testing.T) {
				t.Parallel()
				h := newHub(t, clusterWith("c1", test.cluster), installed(generation5))
				h.agent.options.Health.Mode = test.mode
				if test.said == "-" {
					h.agent.workload = &addon.Workload{}
				}
				h.reconcile(t)
				if test.said != "-" {
					h.report(t, "c1", "addon-hello-deploy-0", test.said, test.manifests...)
				}
				h.had(t, "Available", before)
				h.reconcile(t)
				if test.status == "" {
					h.expect(t, "Available", before, before, "Before", "")
				} else {
					h.expect(t, "Available", before, test.status, test.reason, test.message)
				}
				mode := addonv1beta1.HealthCheckModeCustomized
				if test.mode == lease {
					mode = addonv1beta1.HealthCheckModeLease
				}
				if got := h.addOn(t).Status.HealthCheck.Mode; got != mode {
					t.Errorf("mode %q", got)
				}
			})
		}
	}
}

// AF-14: ManifestApplied and HostingManifestApplied, each about its own cluster.
func TestManifestsApplied(t *testing.T) {
	t.Parallel()
	noLuck := errors.New("no luck")
	sides := []struct{ kind, location, namespace, work, other string }{
		{"ManifestApplied", "managed", "c1", "addon-hello-deploy-0", "HostingManifestApplied"},
		{"HostingManifestApplied", "hosting", "host", "addon-hello-deploy-hosting-c1-0", "ManifestApplied"},
	}
	for name, test := range map[string]struct {
		agent   metav1.ConditionStatus // whether that of the cluster is there
		said    string                 // of the work
		refused error                  // the work
		broken  error                  // the manifests
		before  metav1.ConditionStatus
		status  metav1.ConditionStatus // empty if it stays as it is
		reason  string
		message string
	}{
		"applied": {isTrue, "+Applied", nil, nil, "", isTrue, "AddonManifestApplied",
			"manifests of addon are applied successfully"},
		"applied again":                    {isTrue, "+Applied", nil, nil, isFalse, isTrue, "AddonManifestApplied", ""},
		"applied still":                    {isTrue, "+Applied", nil, nil, isTrue, isTrue, "AddonManifestApplied", ""},
		"not applied":                      {isTrue, "-Applied", nil, nil, isTrue, isFalse, "AddonManifestAppliedFailed", "so it is"},
		"still not applied":                {isTrue, "-Applied", nil, nil, isFalse, isFalse, "AddonManifestAppliedFailed", "so it is"},
		"not yet":                          {isTrue, "", nil, nil, "", isFalse, "AddonManifestAppliedFailed", "has not applied ManifestWork"},
		"changed":                          {isTrue, "", nil, nil, isTrue, "", "", ""},
		"nobody there to apply it":         {isUnknown, "", nil, nil, isTrue, isFalse, "AddonManifestAppliedFailed", "is not available"},
		"the hub refuses the work":         {isTrue, "", noLuck, nil, "", isFalse, "ManifestWorkApplyFailed", "no luck"},
		"the hub refuses it after a while": {isTrue, "", noLuck, nil, isTrue, isFalse, "ManifestWorkApplyFailed", "no luck"},
		"the add-on cannot make it":        {isTrue, "", nil, noLuck, isTrue, isFalse, "ManifestWorkApplyFailed", "no luck"},
	} {
		for _, side := range sides {
			t.Run(name+"/"+side.location, func(t *testing.T) {
				t.Parallel()
				h := newHub(t, clusterWith("c1", test.agent), clusterWith("host", test.agent),
					installed(generation5, func(a *addonv1beta1.ManagedClusterAddOn) {
						a.Annotations = map[string]string{fleet.AnnotationHostingClusterName: "host"}
					}))
				h.agent.options.HostingCluster = addon.AnnotatedHostingCluster
				h.agent.workload.Objects[0].SetAnnotations(map[string]string{fleet.AnnotationHostedManifestLocation: side.location})
				h.refuseWorks, h.agent.err = map[string]error{side.namespace: test.refused}, test.broken
				h.pass(t)
				if test.said != "" {
					h.report(t, side.namespace, side.work, test.said)
				}
				h.had(t, side.kind, test.before)
				h.had(t, side.other, "")
				h.pass(t)
				if test.status == "" {
					h.expect(t, side.kind, test.before, test.before, "Before", "")
				} else {
					h.expect(t, side.kind, test.before, test.status, test.reason, test.message)
				}
				if test.broken != nil { // which neither cluster gets
					h.expect(t, side.other, "", isFalse, "ManifestWorkApplyFailed", "no luck")
				} else { // which has nothing that could fail
					h.expect(t, side.other, "", isTrue, "AddonManifestApplied", "")
				}
			})
		}
	}
}

// AF-16: HostingClusterValidity is there while another cluster is to host the agent.
func TestHostingClusterValidity(t *testing.T) {
	t.Parallel()
	going := clusterWith("host", isTrue)
	going.Finalizers, going.DeletionTimestamp = []string{"example.com/stay"}, &metav1.Time{Time: now}
	elsewhere := map[string]string{fleet.AnnotationHostingClusterName: "host"}
	for name, test := range map[string]struct {
		host        client.Object // nil for none
		annotations map[string]string
		status      metav1.ConditionStatus // empty for none
		reason      string
		message     string
	}{
		"hosted":              {clusterWith("host", isTrue), elsewhere, isTrue, "HostingClusterValid", "ManagedCluster host hosts the agent"},
		"its agent is silent": {clusterWith("host", isUnknown), elsewhere, isTrue, "HostingClusterValid", ""},
		"no such cluster":     {nil, elsewhere, isFalse, "HostingClusterInvalid", "There is no ManagedCluster host to host the agent: import it"},
		"one that goes":       {going, elsewhere, isFalse, "HostingClusterInvalid", "is being deleted: name another one"},
		"not hosted":          {clusterWith("host", isTrue), nil, "", "", ""},
	} {
		for _, before := range []metav1.ConditionStatus{"", isTrue, isFalse} {
			t.Run(name+"/"+string(before), func(t *testing.T) {
				t.Parallel()
				objects := []client.Object{clusterWith("c1", isTrue),
					installed(generation5, func(a *addonv1beta1.ManagedClusterAddOn) { a.Annotations = test.annotations })}
				if test.host != nil {
					objects = append(objects, test.host)
				}
				h := newHub(t, objects...)
				h.agent.options.HostingCluster = addon.AnnotatedHostingCluster
				h.had(t, "HostingClusterValidity", before)
				h.reconcile(t)
				h.expect(t, "HostingClusterValidity", before, test.status, test.reason, test.message)
			})
		}
	}
}

// AF-15: HookManifestCompleted, of an add-on that leaves and has hooks.
func TestHookManifestCompleted(t *testing.T) {
	t.Parallel()
	hooks := func(values ...string) []workv1.ManifestCondition {
		hook := workv1.ManifestCondition{ResourceMeta: workv1.ManifestResourceMeta{Group: "batch", Kind: "Job", Resource: "jobs",
			Namespace: "default", Name: "last"}}
		for _, name := range values {
			hook.StatusFeedbacks.Values = append(hook.StatusFeedbacks.Values,
				workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.String, String: new("True")}})
		}
		return []workv1.ManifestCondition{hook}
	}
	for name, test := range map[string]struct {
		leaves  bool
		said    string // of the work with the hooks
		hooks   []workv1.ManifestCondition
		refused error
		status  metav1.ConditionStatus // empty for none
		reason  string
		message string
	}{
		"it does not leave": {false, "", nil, nil, "", "", ""},
		"it begins to":      {true, "", nil, nil, isFalse, "HookManifestIsNotCompleted", "default/last"},
		"its hooks run":     {true, "+Applied +Available", hooks(), nil, isFalse, "HookManifestIsNotCompleted", "not done yet"},
		"its hooks have failed": {true, "+Applied +Available", hooks("JobFailed"), nil, isFalse, "HookManifestIsNotCompleted",
			"the Job has failed"},
		"its hooks are done":       {true, "+Applied +Available", hooks("JobComplete"), nil, isTrue, "HookManifestIsCompleted", "are done"},
		"the hub refuses the work": {true, "", nil, errors.New("no luck"), isFalse, "HookManifestIsNotCompleted", "no luck"},
	} {
		for _, before := range []metav1.ConditionStatus{"", isTrue, isFalse} {
			t.Run(name+"/"+string(before), func(t *testing.T) {
				t.Parallel()
				changes := []func(*addonv1beta1.ManagedClusterAddOn){generation5}
				if test.leaves {
					changes = append(changes, leaving,
						func(a *addonv1beta1.ManagedClusterAddOn) { a.Finalizers = append(a.Finalizers, "example.com/stay") })
				}
				h := newHub(t, clusterWith("c1", isTrue), installed(changes...))
				h.agent.workload.Objects = []client.Object{&batchv1.Job{ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: "last", Annotations: map[string]string{fleet.AnnotationAddOnPreDelete: ""}}}}
				h.refuseWorks = map[string]error{"c1": test.refused}
				h.pass(t)
				if test.said != "" {
					h.report(t, "c1", "addon-hello-pre-delete", test.said, test.hooks...)
				}
				h.had(t, "HookManifestCompleted", before)
				h.pass(t)
				h.expect(t, "HookManifestCompleted", before, test.status, test.reason, test.message)
				if kept := slices.Contains(h.addOn(t).Finalizers, fleet.FinalizerAddOnPreDelete); kept != (test.status != isTrue) {
					t.Errorf("held by its hooks: %t", kept)
				}
				if c := h.condition(t, "ManifestApplied"); c.Reason == "ManifestWorkApplyFailed" {
					t.Errorf("its hooks are taken for its manifests: %+v", c)
				}
			})
		}
	}
}

// Degraded is the add-on's own to set, and Progressing and Configured are the hub's: a manager leaves them as they are.
func TestConditionsOfOthers(t *testing.T) {
	t.Parallel()
	h := newHub(t, clusterWith("c1", isTrue), installed(generation5))
	kinds := []string{"Degraded", "Progressing", "Configured", "ClusterCertificateRotated", "TokenInfrastructureReady", "example.com/Mine"}
	for _, kind := range kinds {
		h.had(t, kind, isTrue)
	}
	h.agent.options.Health.Mode = addon.HealthManifests
	h.reconcile(t)
	h.report(t, "c1", "addon-hello-deploy-0", "+Applied +Available")
	h.reconcile(t)
	for _, kind := range kinds {
		h.expect(t, kind, isTrue, isTrue, "Before", "")
	}
	var order []string
	for _, c := range h.addOn(t).Status.Conditions {
		order = append(order, c.Type)
	}
	if want := slices.Concat(kinds, []string{"RegistrationApplied", "ManifestApplied", "Available"}); !slices.Equal(order, want) {
		t.Errorf("in the order %q, want %q", order, want)
	}
}

// AF-10, AF-14, AF-15: what fails again in the same way is said in the same words, since each new message brings the add-on back at once.
// A long error leaves a status that the API takes.
func TestErrorsInConditions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind string
		fail func(*hub, error)
		// addOn is that which fails.
		addOn *addonv1beta1.ManagedClusterAddOn
	}{
		"its rights": {"RegistrationApplied", func(h *hub, err error) {
			h.agent.options.Registration = &addon.Registration{
				Configs: func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) { return nil, err },
			}
		}, installed()},
		"its manifests": {"ManifestApplied", func(h *hub, err error) { h.agent.err = err }, installed()},
		"its work":      {"ManifestApplied", func(h *hub, err error) { h.refuseWorks = map[string]error{"c1": err} }, installed()},
		"its hooks": {"HookManifestCompleted", func(h *hub, err error) { h.agent.err = err },
			installed(leaving, func(a *addonv1beta1.ManagedClusterAddOn) { a.Finalizers = append(a.Finalizers, "example.com/stay") })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, clusterWith("c1", isTrue), test.addOn)
			said := map[string]bool{}
			for port := range 3 {
				test.fail(h, fmt.Errorf("ask: %w", &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET,
					Source: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 40000 + port}, Addr: &net.TCPAddr{IP: net.IPv6loopback, Port: 6443}}))
				h.pass(t)
				said[h.condition(t, test.kind).Message] = true
			}
			message := h.condition(t, test.kind).Message
			if len(said) != 1 || !strings.Contains(message, "ask: read tcp: connection reset by peer") {
				t.Errorf("it says %q in turn, and %q last", slices.Sorted(maps.Keys(said)), message)
			}
			test.fail(h, errors.New(strings.Repeat("x", 64<<10)))
			h.pass(t)
			if message = h.condition(t, test.kind).Message; !strings.Contains(message, "xxx") || len(message) > 32<<10 {
				t.Errorf("it says %d bytes", len(message))
			}
		})
	}
}

// AM-09: the hub finds all configurations in the message of an add-on that has nothing to apply, however many there are.
func TestNothingToApplyIsSaidWhole(t *testing.T) {
	t.Parallel()
	var references []addonv1beta1.ConfigReference
	for i := range 100 {
		one := reference("r", strings.Repeat("f", 64))
		one.DesiredConfig.Name = fmt.Sprintf("configuration-%d", i)
		references = append(references, one)
	}
	h := newHub(t, clusterWith("c1", isTrue), installed(configured, func(a *addonv1beta1.ManagedClusterAddOn) {
		a.Status.ConfigReferences = references
	}))
	h.agent.options.Configs, h.agent.workload = someConfigs, &addon.Workload{}
	h.reconcile(t)
	if c := h.condition(t, "ManifestApplied"); c.Reason != "AddonNothingToApply" || !addonconfig.NothingMadeOf(c.Message, references) {
		t.Errorf("%s: %d bytes, which are not about all configurations", c.Reason, len(c.Message))
	}
}

// AF-07, AF-08, AF-16: what an add-on has on its own cluster does not make it available while no cluster hosts its agent.
func TestAvailableWithoutHost(t *testing.T) {
	t.Parallel()
	h := newHub(t, clusterWith("c1", isTrue), clusterWith("host", isTrue), installed(generation5, func(a *addonv1beta1.ManagedClusterAddOn) {
		a.Annotations = map[string]string{fleet.AnnotationHostingClusterName: "host"}
	}))
	h.agent.options.HostingCluster, h.agent.options.Health.Mode = addon.AnnotatedHostingCluster, addon.HealthDeployments
	hosted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hosted",
		Annotations: map[string]string{fleet.AnnotationHostedManifestLocation: "hosting"}}}
	h.agent.workload.Objects = append(h.agent.workload.Objects, hosted)
	h.reconcile(t)
	h.report(t, "c1", "addon-hello-deploy-0", "+Applied +Available")
	h.report(t, "host", "addon-hello-deploy-hosting-c1-0", "+Applied +Available")
	h.reconcile(t)
	h.expect(t, "Available", "", isTrue, "ProbeAvailable", "hello add-on is available.")
	if err := h.Delete(t.Context(), cluster("host")); err != nil {
		t.Fatal(err)
	}
	h.reconcile(t)
	h.expect(t, "Available", isTrue, isUnknown, "WorkNotFound", "on its hosting cluster host: the condition HostingClusterValidity tells why")
}
