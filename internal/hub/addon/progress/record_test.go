package progress

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AM-09, AM-20, AM-21: the time of the condition is when the add-on was done, or was not any more, whatever its status says.
func TestTimeOfProgress(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	deploy := func(addOn *addonv1beta1.ManagedClusterAddOn) { says(addOn, fleet.ConditionManifestApplied) }
	supportsOthers := func(addOn *addonv1beta1.ManagedClusterAddOn) {
		addOn.Spec.Configs = []addonv1beta1.AddOnConfig{{ConfigGroupResource: things, ConfigReferent: referent("one")}}
		addOn.Status.SupportedConfigs = []addonv1beta1.ConfigGroupResource{{Group: "example.com", Resource: "others"}}
	}
	ready, sick, failed := made("h", 2, "+Applied", "+Available"), made("h", 2, "+Applied", "-Available"), made("h", 2, "-Applied")
	type step struct {
		edit   func(*addonv1beta1.ManagedClusterAddOn)
		work   workv1.ManifestWork
		reason string
		since  int // the step at which that began
	}
	for name, steps := range map[string][]step{
		"failed meanwhile": {{deploy, ready, "Completed", 0}, {nil, ready, "Completed", 0}, {nil, failed, "Failed", 2},
			{nil, failed, "Failed", 2}, {nil, ready, "Completed", 4}},
		"sick meanwhile": {{deploy, ready, "Completed", 0}, {nil, sick, "Progressing", 1}, {nil, failed, "Failed", 1},
			{nil, ready, "Completed", 3}},
		"never done": {{deploy, sick, "Progressing", 0}, {nil, failed, "Failed", 0}, {nil, sick, "Progressing", 0},
			{nil, failed, "Failed", 0}, {nil, ready, "Completed", 4}},
		"deployed late": {{nil, sick, "WaitingForManifestApplied", 0}, {deploy, sick, "Progressing", 0}, {nil, failed, "Failed", 0}},
		"waited first": {{nil, ready, "WaitingForManifestApplied", 0}, {nil, ready, "WaitingForManifestApplied", 0},
			{deploy, ready, "Completed", 2}},
		"unsupported": {
			{supportsOthers, ready, "ConfigurationUnsupported", 0}, {deploy, sick, "ConfigurationUnsupported", 0},
			{nil, ready, "ConfigurationUnsupported", 2},
			{nil, failed, "Failed", 3}, {nil, ready, "ConfigurationUnsupported", 4}, {nil, sick, "Progressing", 5},
			{nil, ready, "ConfigurationUnsupported", 6},
		},
		"unsupported later": {{deploy, ready, "Completed", 0}, {supportsOthers, ready, "ConfigurationUnsupported", 0}},
	} {
		addOn := installed(func(addOn *addonv1beta1.ManagedClusterAddOn) { addOn.Status.Conditions = nil })
		for i, step := range steps {
			if step.edit != nil {
				step.edit(addOn)
			}
			Record(addOn, []workv1.ManifestWork{step.work}, noon.Add(time.Duration(i)*time.Minute))
			got := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionProgressing)
			if since := metav1.NewTime(noon.Add(time.Duration(step.since) * time.Minute)); got.Reason != step.reason ||
				!got.LastTransitionTime.Equal(&since) {
				t.Errorf("%s, step %d: %+v, want %s since step %d", name, i, got, step.reason, step.since)
			}
		}
	}
}
