package progress

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var things = addonv1beta1.ConfigGroupResource{Group: "example.com", Resource: "things"}

func referent(name string) addonv1beta1.ConfigReferent {
	return addonv1beta1.ConfigReferent{Namespace: "ns", Name: name}
}

// installed is an add-on that has been deployed with one configuration.
func installed(edits ...func(*addonv1beta1.ManagedClusterAddOn)) *addonv1beta1.ManagedClusterAddOn {
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c", Name: "a", Annotations: map[string]string{}}}
	addOn.Status.ConfigReferences = []addonv1beta1.ConfigReference{{
		ConfigGroupResource: things, DesiredConfig: &addonv1beta1.ConfigSpecHash{ConfigReferent: referent("one"), SpecHash: "h"},
	}}
	says(addOn, fleet.ConditionManifestApplied)
	for _, edit := range edits {
		edit(addOn)
	}
	return addOn
}

func says(addOn *addonv1beta1.ManagedClusterAddOn, condition string) {
	addOn.Status.Conditions = append(addOn.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionFalse})
}

// made is a work of a configuration in the state of the hash, of which the agent says this: "+Applied -Available".
func made(hash string, generation int64, conditions ...string) workv1.ManifestWork {
	work := workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: "c", Name: "addon-a-deploy-0", Generation: 2,
		Annotations: map[string]string{fleet.AnnotationConfigSpecHash: `{"things.example.com/ns/one":"` + hash + `"}`},
	}}
	for _, text := range conditions {
		status := metav1.ConditionTrue
		if text[0] == '-' {
			status = metav1.ConditionFalse
		}
		work.Status.Conditions = append(work.Status.Conditions, metav1.Condition{Type: text[1:], Status: status, ObservedGeneration: generation})
	}
	return work
}

// AM-09, and AM-03 for the annotation of hosting clusters. A8: what is not supported hides neither a failure nor an illness.
func TestEvaluate(t *testing.T) {
	t.Parallel()
	undeployed := func(addOn *addonv1beta1.ManagedClusterAddOn) { addOn.Status.Conditions = nil }
	hosted := func(addOn *addonv1beta1.ManagedClusterAddOn) {
		addOn.Annotations[fleet.AnnotationHostingClusterName] = "other"
	}
	knowsHosts := func(addOn *addonv1beta1.ManagedClusterAddOn) { says(addOn, fleet.ConditionHostingClusterValidity) }
	applied := func(addOn *addonv1beta1.ManagedClusterAddOn) {
		addOn.Status.ConfigReferences[0].LastAppliedConfig = addOn.Status.ConfigReferences[0].DesiredConfig
	}
	none := func(addOn *addonv1beta1.ManagedClusterAddOn) { addOn.Status.ConfigReferences = nil }
	deployedThere := func(addOn *addonv1beta1.ManagedClusterAddOn) { says(addOn, fleet.ConditionHostingManifestApplied) }
	unhashed := func(addOn *addonv1beta1.ManagedClusterAddOn) {
		addOn.Status.ConfigReferences[0].DesiredConfig.SpecHash = ""
	}
	configured := func(addOn *addonv1beta1.ManagedClusterAddOn) {
		addOn.Spec.Configs = []addonv1beta1.AddOnConfig{{ConfigGroupResource: things, ConfigReferent: referent("one")}}
	}
	supportsNothing := func(addOn *addonv1beta1.ManagedClusterAddOn) { says(addOn, fleet.ConditionRegistrationApplied) }
	supportsOthers := func(addOn *addonv1beta1.ManagedClusterAddOn) {
		addOn.Status.SupportedConfigs = []addonv1beta1.ConfigGroupResource{{Group: "example.com", Resource: "others"}}
	}
	supports := func(addOn *addonv1beta1.ManagedClusterAddOn) {
		addOn.Status.SupportedConfigs = []addonv1beta1.ConfigGroupResource{things}
	}
	nothingOf := func(hash string) func(*addonv1beta1.ManagedClusterAddOn) {
		return func(addOn *addonv1beta1.ManagedClusterAddOn) {
			addOn.Status.Conditions[0] = metav1.Condition{Type: fleet.ConditionManifestApplied, Status: metav1.ConditionTrue,
				Reason: fleet.ReasonAddOnNothingToApply, Message: config.NothingMessage(`{"things.example.com/ns/one":"` + hash + `"}`)}
		}
	}
	ready := made("h", 2, "+Applied", "+Available")
	for name, test := range map[string]struct {
		addOn   *addonv1beta1.ManagedClusterAddOn
		works   []workv1.ManifestWork
		status  metav1.ConditionStatus
		reason  string
		text    string
		applied bool
	}{
		"not deployed": {installed(undeployed), []workv1.ManifestWork{ready}, "False", "WaitingForManifestApplied", "ManifestApplied",
			false},
		"not deployed there": {installed(hosted, knowsHosts), []workv1.ManifestWork{ready}, "False", "WaitingForHostingManifestApplied", "",
			false},
		"deployed there":          {installed(hosted, knowsHosts, deployedThere), []workv1.ManifestWork{ready}, "False", "Completed", "", true},
		"knows no hosting":        {installed(hosted), []workv1.ManifestWork{ready}, "False", "Completed", "", true},
		"hosted before":           {installed(knowsHosts), []workv1.ManifestWork{ready}, "False", "Completed", "", true},
		"no works":                {installed(), nil, "True", "Progressing", "no addon works", false},
		"nothing is to be there":  {installed(nothingOf("h")), nil, "False", "Completed", "is to have nothing", true},
		"nothing was to be there": {installed(nothingOf("g")), nil, "True", "Progressing", "no addon works", false},
		"nothing is to be there, but still is": {installed(nothingOf("h")), []workv1.ManifestWork{made("g", 2, "+Applied", "+Available")},
			"True", "Progressing", "mismatch", false},
		"nothing is to be there, not known of the host": {installed(nothingOf("h"), hosted, knowsHosts), nil, "False",
			"WaitingForHostingManifestApplied", "", false},
		"ready": {installed(), []workv1.ManifestWork{ready}, "False", "Completed", "completed", true},
		"another state": {installed(), []workv1.ManifestWork{made("g", 2, "+Applied", "+Available")}, "True", "Progressing",
			"mca and work configs mismatch", false},
		"one of two": {installed(), []workv1.ManifestWork{ready, made("g", 2, "+Applied", "+Available")}, "True", "Progressing",
			"mismatch", false},
		"not hashed": {installed(unhashed), []workv1.ManifestWork{made("", 2, "+Applied", "+Available")}, "True", "Progressing",
			"mismatch", false},
		"not applied yet": {installed(), []workv1.ManifestWork{made("h", 2)}, "True", "Progressing", "work is not ready", false},
		"applied before": {installed(), []workv1.ManifestWork{made("h", 1, "+Applied", "+Available")}, "True", "Progressing",
			"work is not ready", false},
		"not available": {installed(), []workv1.ManifestWork{ready, made("h", 2, "+Applied", "-Available")}, "True", "Progressing",
			"work is not ready", false},
		"not to be applied": {installed(), []workv1.ManifestWork{ready, made("h", 2, "-Applied")}, "False", "Failed",
			"ManifestWork c/addon-a-deploy-0 could not be applied", false},
		"not applied before": {installed(), []workv1.ManifestWork{made("h", 1, "-Applied")}, "True", "Progressing", "work is not ready", false},
		"degraded": {installed(), []workv1.ManifestWork{made("h", 2, "+Applied", "+Available", "+Degraded")}, "False", "Failed",
			"is degraded", false},
		"not degraded": {installed(), []workv1.ManifestWork{made("h", 2, "+Applied", "+Available", "-Degraded")}, "False", "Completed",
			"", true},
		"nobody says what is": {installed(configured), []workv1.ManifestWork{ready}, "False", "Completed", "", true},
		"supported":           {installed(configured, supports), []workv1.ManifestWork{ready}, "False", "Completed", "", true},
		"nothing is supported": {installed(configured, supportsNothing), []workv1.ManifestWork{ready}, "False", "ConfigurationUnsupported",
			"supports no configurations", true},
		"others are supported": {installed(configured, supportsOthers), []workv1.ManifestWork{ready}, "False", "ConfigurationUnsupported",
			"remove one from spec.configs; status.supportedConfigs lists [others.example.com]", true},
		"unsupported, and failed": {
			installed(configured, supportsOthers), []workv1.ManifestWork{made("h", 2, "-Applied")}, "False", "Failed",
			"could not be applied, its status says why; Configuration with gvr example.com/things is not supported", false,
		},
		"unsupported, and ill": {
			installed(configured, supportsOthers, applied), []workv1.ManifestWork{made("h", 2, "+Applied", "-Available")}, "True", "Progressing",
			"work is not ready; Configuration with gvr example.com/things is not supported", false,
		},
		"nothing is left": {installed(configured, supportsOthers, none), nil, "False", "ConfigurationUnsupported", "", false},
		"unsupported, and unmade": {installed(configured, supportsOthers), nil, "False", "ConfigurationUnsupported",
			"gvr example.com/things is not supported", false},
	} {
		got, applied := Evaluate(test.addOn, test.works)
		if got.Type != "Progressing" || got.Status != test.status || got.Reason != test.reason || !strings.Contains(got.Message, test.text) ||
			applied != test.applied {
			t.Errorf("%s: %+v, applied: %t", name, got, applied)
		}
	}
}
