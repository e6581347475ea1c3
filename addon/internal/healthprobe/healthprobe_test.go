package healthprobe

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// work with conditions, such as "Applied", "True".
func work(name string, conditions ...string) workv1.ManifestWork {
	w := workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, Generation: 2}}
	for i := 0; i < len(conditions); i += 2 {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: conditions[i], Status: metav1.ConditionStatus(conditions[i+1]), Message: "so it is", ObservedGeneration: 1,
		})
	}
	return w
}

const deploy = "addon-hello-deploy-0"

func applied(manifests ...workv1.ManifestCondition) workv1.ManifestWork {
	w := work(deploy, "Applied", "True", "Available", "True")
	w.Status.ResourceStatus.Manifests = manifests
	return w
}

// object with values, in JSON.
func object(kind, name, values string) workv1.ManifestCondition {
	m := workv1.ManifestCondition{ResourceMeta: workv1.ManifestResourceMeta{Group: "apps", Kind: kind, Resource: strings.ToLower(kind) + "s",
		Namespace: "ns", Name: name}}
	var numbers map[string]int64
	if err := json.Unmarshal([]byte(values), &numbers); err != nil {
		panic(err)
	}
	for name, value := range numbers {
		m.StatusFeedbacks.Values = append(m.StatusFeedbacks.Values,
			workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.Integer, Integer: &value}})
	}
	return m
}

func input(mode addon.HealthMode, works ...workv1.ManifestWork) Input {
	return Input{
		Options: addon.Options{Name: "hello", Health: addon.Health{Mode: mode}},
		Installation: addon.Installation{
			Cluster: &clusterv1.ManagedCluster{},
			AddOn:   &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}},
		},
		Works: works,
	}
}

// AF-07, AF-08: what the condition Available is in every mode.
func TestCondition(t *testing.T) {
	t.Parallel()
	const none, manifests, deployments, workloads = addon.HealthNone, addon.HealthManifests, addon.HealthDeployments, addon.HealthWorkloads
	gone := applied()
	gone.DeletionTimestamp = &metav1.Time{}
	gone.DeletionTimestamp = new(metav1.Now())
	for name, test := range map[string]struct {
		in           Input
		status, want string // want is the reason, and what the message says; nothing if the condition is not set
	}{
		"lease":   {input(addon.HealthLease, applied()), "", ""},
		"none":    {input(none, applied()), "", ""},
		"no work": {input(manifests), "Unknown", "WorkNotFound: ManifestApplied tells why"},
		"only hooks": {input(manifests, work("addon-hello-pre-delete"), work("addon-hello-pre-delete-hosting-c1")), "Unknown",
			"WorkNotFound: "},
		"work goes": {input(manifests, gone), "Unknown", "WorkNotFound: "},
		"not reported": {input(manifests, work(deploy)), "Unknown",
			"WorkNotApplied: agent of cluster c1 has not reported on ManifestWork c1/addon-hello-deploy-0"},
		"not available": {input(manifests, work(deploy, "Applied", "True", "Available", "False")), "False",
			"WorkNotApplied: so it is"},
		"unknown": {input(manifests, work(deploy, "Applied", "True", "Available", "Unknown")), "Unknown",
			"WorkNotApplied: so it is"},
		"not applied": {input(manifests, work(deploy, "Applied", "False", "Available", "True")), "False",
			"WorkApplyFailed: so it is"},
		"applied": {input(manifests, applied()), "True", "WorkApplied: Addon manifestWork is applied"},
		"the worst counts": {input(manifests, work(deploy), work("addon-hello-deploy-1", "Available", "False"), applied()), "False",
			"WorkNotApplied: addon-hello-deploy-1"},
		"works come first": {input(deployments, work(deploy, "Available", "False"),
			applied(object("Deployment", "a", `{"ReadyReplicas":1}`))), "False", "WorkNotApplied: "},
		"nothing to look at": {input(workloads, applied()), "True", "ProbeAvailable: hello add-on is available."},
		"ready": {input(deployments, applied(object("Deployment", "a", `{"ReadyReplicas":1,"DesiredReplicas":3}`))), "True",
			"ProbeAvailable: hello add-on is available."},
		"none ready": {input(deployments, applied(object("Deployment", "a", `{"Replicas":2,"DesiredReplicas":2}`))), "False",
			"ProbeUnavailable: Deployment ns/a on cluster c1: none of 2 replicas is ready"},
		"zero ready": {input(deployments, applied(object("Deployment", "a", `{"ReadyReplicas":0,"DesiredReplicas":1}`))), "False",
			"ProbeUnavailable: none of 1 replica is ready"},
		"scaled to none":           {input(deployments, applied(object("Deployment", "a", `{"DesiredReplicas":0}`))), "True", "ProbeAvailable: "},
		"scaled to none, original": {input(deployments, applied(object("Deployment", "a", `{"Replicas":0}`))), "True", "ProbeAvailable: "},
		"silent": {input(deployments,
			applied(object("Deployment", "a", `{}`), object("Deployment", "b", `{"ReadyReplicas":1}`))), "Unknown",
			"NoProbeResult: Probe results are not returned: nothing is reported yet of Deployment ns/a on cluster c1"},
		"wrong beats silent": {input(deployments,
			applied(object("Deployment", "a", `{}`), object("Deployment", "b", `{"DesiredReplicas":1}`))), "False", "ProbeUnavailable: ns/b"},
		"first few": {input(deployments, applied(object("Deployment", "d", `{"DesiredReplicas":1}`),
			object("Deployment", "c", `{"DesiredReplicas":1}`), object("Deployment", "b", `{"DesiredReplicas":1}`),
			object("Deployment", "a", `{"DesiredReplicas":1}`))), "False",
			"ProbeUnavailable: Deployment ns/c on cluster c1: none of 1 replica is ready and 1 more"},
		"daemon sets do not count": {input(deployments, applied(object("DaemonSet", "a", `{}`))), "True", "ProbeAvailable: "},
		"daemon set": {input(workloads,
			applied(object("DaemonSet", "a", `{"ObservedGeneration":1,"NumberReady":3,"DesiredNumberScheduled":3}`))), "True", "ProbeAvailable: "},
		"daemon set nowhere": {input(workloads,
			applied(object("DaemonSet", "a", `{"ObservedGeneration":1,"NumberReady":0,"DesiredNumberScheduled":0}`))), "True", "ProbeAvailable: "},
		"daemon set not ready": {input(workloads,
			applied(object("DaemonSet", "a", `{"ObservedGeneration":1,"NumberReady":2,"DesiredNumberScheduled":3}`))), "False",
			"ProbeUnavailable: DaemonSet ns/a on cluster c1: 2 of 3 pods are ready"},
		"daemon set not seen": {input(workloads, applied(object("DaemonSet", "a", `{"NumberReady":0,"DesiredNumberScheduled":0}`))), "False",
			"ProbeUnavailable: its controller has not seen it yet"},
		"workloads: deployment": {input(workloads, applied(object("Deployment", "a", `{"DesiredReplicas":1}`))), "False",
			"ProbeUnavailable: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			condition, mode := Condition(test.in)
			if lease := test.in.Options.Health.Mode == addon.HealthLease; lease != (mode == addonv1beta1.HealthCheckModeLease) {
				t.Errorf("mode %s", mode)
			}
			if condition == nil {
				if test.want != "" {
					t.Errorf("no condition, want %s", test.want)
				}
				return
			}
			reason, text, _ := strings.Cut(test.want, ": ")
			if condition.Type != fleet.ConditionAvailable || string(condition.Status) != test.status || condition.Reason != reason ||
				!strings.Contains(condition.Message, text) {
				t.Errorf("%+v, want %s %s", condition, test.status, test.want)
			}
		})
	}
}

// RG-30: while a cluster sends no heartbeats, that is what its add-ons say.
func TestUnknownCluster(t *testing.T) {
	t.Parallel()
	in := input(addon.HealthManifests, applied())
	in.Installation.Cluster.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionClusterAvailable, Status: metav1.ConditionUnknown}}
	if condition, mode := Condition(in); condition != nil || mode != addonv1beta1.HealthCheckModeCustomized {
		t.Errorf("%+v, %s", condition, mode)
	}
	in.Installation.Cluster.Status.Conditions[0].Status = metav1.ConditionTrue
	if condition, _ := Condition(in); condition == nil {
		t.Error("no condition though the cluster is back")
	}
}

// AF-16: the works on the hosting cluster count, and no others elsewhere, whatever their labels say.
func TestHostingCluster(t *testing.T) {
	t.Parallel()
	elsewhere := work("addon-hello-deploy-hosting-c1-0", "Applied", "False")
	elsewhere.Namespace = "c2"
	in := input(addon.HealthManifests, applied(), elsewhere)
	if condition, _ := Condition(in); condition.Status != metav1.ConditionTrue {
		t.Errorf("a work on a cluster of another counts: %+v", condition)
	}
	in.Installation.HostingCluster = "c2"
	if condition, _ := Condition(in); condition.Status != metav1.ConditionFalse {
		t.Errorf("the work on the hosting cluster does not count: %+v", condition)
	}
}

// AF-07, AF-08, AF-16: an add-on of which nothing is on its hosting cluster runs nowhere, whatever its own cluster reports.
func TestLacksHost(t *testing.T) {
	t.Parallel()
	const isTrue, isFalse, isUnknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	hosted := applied()
	hosted.Namespace, hosted.Name = "c2", "addon-hello-deploy-hosting-c1-0"
	failed := work(deploy, "Applied", "False")
	for name, test := range map[string]struct {
		host  string
		said  metav1.ConditionStatus // of HostingManifestApplied; empty for nothing
		works []workv1.ManifestWork
		want  metav1.ConditionStatus
		why   string // the condition that the message names
	}{
		"nothing is there":            {"c2", "", []workv1.ManifestWork{applied()}, isUnknown, "HostingClusterValidity"},
		"the hub refuses the work":    {"c2", isFalse, []workv1.ManifestWork{applied()}, isUnknown, "HostingManifestApplied"},
		"it is unknown what is there": {"c2", isUnknown, []workv1.ManifestWork{applied()}, isUnknown, "HostingClusterValidity"},
		"something is there":          {"c2", isTrue, []workv1.ManifestWork{applied(), hosted}, isTrue, ""},
		"a change of it is refused":   {"c2", isFalse, []workv1.ManifestWork{applied(), hosted}, isTrue, ""},
		"nothing is to be there":      {"c2", isTrue, []workv1.ManifestWork{applied()}, isTrue, ""},
		"its own work fails":          {"c2", "", []workv1.ManifestWork{failed}, isFalse, ""},
		"not hosted":                  {"", "", []workv1.ManifestWork{applied()}, isTrue, ""},
	} {
		for _, mode := range []addon.HealthMode{addon.HealthManifests, addon.HealthDeployments, addon.HealthWorkloads} {
			in := input(mode, test.works...)
			in.Installation.HostingCluster = test.host
			if test.said != "" {
				in.Installation.AddOn.Status.Conditions = []metav1.Condition{{Type: "HostingManifestApplied", Status: test.said}}
			}
			c, _ := Condition(in)
			if c.Status != test.want || c.Status == isUnknown && (c.Reason != "WorkNotFound" ||
				!strings.Contains(c.Message, "hosting cluster c2: the condition "+test.why+" tells why")) {
				t.Errorf("%s, %v: %+v", name, mode, c)
			}
		}
	}
}

// AF-07: the author's own probes, of objects with wildcards.
func TestProbes(t *testing.T) {
	t.Parallel()
	in := input(addon.HealthProbes, applied(object("Deployment", "a", `{"x":1}`), object("Deployment", "other", `{"x":7}`)))
	var probed []string
	in.Options.Health.Probes = []addon.Probe{{
		Resource: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "*", Name: "a*"},
		Feedback: []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}},
		Healthy: func(o workv1.ManifestResourceMeta, reported workv1.StatusFeedbackResult) error {
			probed = append(probed, o.Name)
			if *reported.Values[0].Value.Integer != 2 {
				return errors.New("x is not 2")
			}
			return nil
		},
	}}
	if c, _ := Condition(in); c.Status != metav1.ConditionFalse || c.Message != "Deployment ns/a on cluster c1: x is not 2" ||
		len(probed) != 1 {
		t.Errorf("%+v, asked of %v", c, probed)
	}
	in.Works[0].Status.ResourceStatus.Manifests[0] = object("Deployment", "a", `{"x":2}`)
	if c, _ := Condition(in); c.Status != metav1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	in.Works[0].Status.ResourceStatus.Manifests[0] = object("Deployment", "a", `{}`)
	if c, _ := Condition(in); c.Reason != fleet.ReasonNoProbeResult {
		t.Errorf("%+v", c)
	}
}

// AF-08: probes that read nothing report nothing, and which ones they are.
func TestIdleProbes(t *testing.T) {
	t.Parallel()
	in := input(addon.HealthProbes, applied(object("Deployment", "agent", `{"ReadyReplicas":1,"DesiredReplicas":1}`)))
	for what, test := range map[string]struct {
		probes []addon.Probe
		want   string
	}{
		"none":  {nil, "Unknown NoProbeResult: no Probes"},
		"right": {[]addon.Probe{addon.DeploymentProbe("ns", "agent")}, "True ProbeAvailable: hello"},
		"wrong name": {[]addon.Probe{addon.DeploymentProbe("ns", "agent"), addon.DeploymentProbe("ns", "agnet")},
			"Unknown NoProbeResult: the probe of deployments.apps ns/agnet"},
		"wrong resource": {[]addon.Probe{{Resource: workv1.ResourceIdentifier{Resource: "deployment", Name: "*"}}},
			"Unknown NoProbeResult: the probe of deployment *"},
	} {
		in.Options.Health.Probes = test.probes
		c, _ := Condition(in)
		state, text, _ := strings.Cut(test.want, ": ")
		if string(c.Status)+" "+c.Reason != state || !strings.Contains(c.Message, text) {
			t.Errorf("%s: %+v, want %s", what, c, test.want)
		}
	}
}

// AF-07, AF-22: one Deployment of several.
func TestDeploymentProbe(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		`{"ReadyReplicas":1,"DesiredReplicas":3}`: "ProbeAvailable", `{"DesiredReplicas":0}`: "ProbeAvailable",
		`{"DesiredReplicas":2}`: "ProbeUnavailable", `{}`: "NoProbeResult",
	} {
		in := input(addon.HealthProbes, applied(object("Deployment", "agent", values), object("Deployment", "other", `{"DesiredReplicas":2}`)))
		in.Options.Health.Probes = []addon.Probe{addon.DeploymentProbe("ns", "agent")}
		if c, _ := Condition(in); c.Reason != want {
			t.Errorf("%s: %+v", values, c)
		}
		object := workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "ns", Name: "agent"}
		if rules, ok := Feedback(in.Options.Health, deployment.WithVersion("v1"), object, nil); !ok || len(rules) != 2 {
			t.Errorf("it asks for %+v", rules)
		}
	}
}

// AF-07: what has to be reported, merged with what the author requests.
func TestFeedback(t *testing.T) {
	t.Parallel()
	paths := func(names ...string) workv1.FeedbackRule {
		rule := workv1.FeedbackRule{Type: workv1.JSONPathsType}
		for _, name := range names {
			rule.JSONPaths = append(rule.JSONPaths, workv1.JSONPath{Name: name, Path: ".x"})
		}
		return rule
	}
	known := workv1.FeedbackRule{Type: workv1.WellKnownStatusType}
	probes := addon.Health{Mode: addon.HealthProbes, Probes: []addon.Probe{
		{Resource: workv1.ResourceIdentifier{Group: "apps", Resource: "*", Name: "*", Namespace: "*"}},
		{Resource: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Name: "a", Namespace: "*"},
			Feedback: []workv1.FeedbackRule{paths("p", "q")}},
		{Resource: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Name: "a*", Namespace: "ns"},
			Feedback: []workv1.FeedbackRule{known, paths("q", "ReadyReplicas")}},
	}}
	for name, test := range map[string]struct {
		health   addon.Health
		kind     string
		authored []workv1.FeedbackRule
		want     string
	}{
		"lease":           {addon.Health{}, "Deployment", nil, ""},
		"deployment":      {addon.Health{Mode: addon.HealthDeployments}, "Deployment", nil, "* DesiredReplicas"},
		"daemon set":      {addon.Health{Mode: addon.HealthDeployments}, "DaemonSet", nil, ""},
		"daemon set, too": {addon.Health{Mode: addon.HealthWorkloads}, "DaemonSet", nil, "* ObservedGeneration"},
		"authored": {addon.Health{Mode: addon.HealthWorkloads}, "Deployment",
			[]workv1.FeedbackRule{known, paths("Mine", "Replicas", "DesiredReplicas")}, "* DesiredReplicas Mine"},
		"probes":              {probes, "Deployment", nil, "p q *"},
		"probes and authored": {probes, "Deployment", []workv1.FeedbackRule{paths("p", "r")}, "p q * r"},
		"probes of others":    {probes, "DaemonSet", []workv1.FeedbackRule{paths("r")}, ""},
	} {
		kind := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: test.kind}
		before, _ := json.Marshal(test.authored)
		rules, ok := Feedback(test.health, kind, workv1.ResourceIdentifier{Group: "apps", Resource: strings.ToLower(test.kind) + "s",
			Namespace: "ns", Name: "a"}, test.authored)
		var got []string
		for _, rule := range rules {
			if rule.Type == workv1.WellKnownStatusType {
				got = append(got, "*")
			}
			for _, path := range rule.JSONPaths {
				got = append(got, path.Name)
			}
		}
		if strings.Join(got, " ") != test.want || ok != (test.want != "") {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
		if after, _ := json.Marshal(test.authored); string(after) != string(before) {
			t.Errorf("%s: what the author asks for was changed", name)
		}
	}
}
