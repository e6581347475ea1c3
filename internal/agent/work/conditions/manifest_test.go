package conditions

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/ignore"
)

var (
	errBroken = errors.New("broken")
	configMap = workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "default", Name: "a"}
)

// WK-20 to WK-23: what the conditions say of each way in which a manifest may end.
func TestConditionsOfResults(t *testing.T) {
	t.Parallel()
	unresolved := configMap
	unresolved.Resource = ""
	const (
		applied, failed = "True AppliedManifestComplete: Apply manifest complete",
			"False AppliedManifestFailed: Failed to apply manifest: broken"
		workApplied, workFailed = "True AppliedManifestWorkComplete: Apply manifest work complete",
			"False AppliedManifestWorkFailed: 1 of 1 manifests failed to apply: broken"
		present, absent = "True ResourceAvailable: Resource is available", "False ResourceNotAvailable: Resource is not available"
		unfetched       = "Unknown FetchingResourceFailed: It could not be found out whether the resource exists"
		allPresent      = "True ResourcesAvailable: All resources are available"
		notPresent      = "False ResourcesNotAvailable: 1 of 1 resources are not available"
		unknown         = "Unknown ResourcesStatusUnknown: 1 of 1 resources have unknown status"
		ignoring        = "a: updateStrategy.serverSideApply.ignoreFields: broken"
	)
	for name, test := range map[string]struct {
		result                       Result
		applied, available           string
		workApplied, workIsAvailable string
	}{
		"applied": {Result{Manifest: configMap, Presence: Present}, applied, present, workApplied, allPresent},
		"applied without an owner": {
			Result{Manifest: configMap, Presence: Present, MissingOwners: []string{"ConfigMap gone with uid 1"}},
			applied + ", without the owners in metadata.ownerReferences that do not exist on this cluster: ConfigMap gone with uid 1", present,
			workApplied, allPresent,
		},
		"failed, absent":   {Result{Manifest: configMap, Presence: Absent, Err: errBroken}, failed, absent, workFailed, notPresent},
		"failed, present":  {Result{Manifest: configMap, Presence: Present, Err: errBroken}, failed, present, workFailed, allPresent},
		"failed, unknown":  {Result{Manifest: configMap, Err: errBroken}, failed, unfetched, workFailed, unknown},
		"discovery failed": {Result{Manifest: unresolved, Err: errBroken}, failed, unfetched, workFailed, unknown},
		"fields to ignore": {
			Result{Manifest: configMap, Presence: Present, Err: fmt.Errorf("a: %w", &ignore.Error{Err: errBroken})},
			"False AppliedManifestSSAIgnoreFieldError: Failed to apply manifest: " + ignoring, present,
			"False AppliedManifestWorkFailed: 1 of 1 manifests failed to apply: " + ignoring, allPresent,
		},
		"unreadable": {
			Result{Err: errBroken}, failed, "Unknown IncompleteResourceMeta: The manifest does not say which resource it is about", workFailed,
			unknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			if !Update(work, []Result{test.result}, time.Unix(1000, 0)) {
				t.Error("the first result changes nothing")
			}
			if Update(work, []Result{test.result}, time.Unix(2000, 0)) {
				t.Error("the same result changes something")
			}
			manifest := work.Status.ResourceStatus.Manifests[0].Conditions
			expect(t, manifest, "Applied", test.applied)
			expect(t, manifest, "Available", test.available)
			expect(t, manifest, "StatusFeedbackSynced", "True NoStatusFeedbackSynced: There are no feedback rules")
			expect(t, work.Status.Conditions, "Applied", test.workApplied)
			expect(t, work.Status.Conditions, "Available", test.workIsAvailable)
		})
	}
}

// expect fails unless the condition has the status, reason and message, of generation 3.
func expect(t *testing.T, conditions []metav1.Condition, kind, want string) {
	t.Helper()
	cond := meta.FindStatusCondition(conditions, kind)
	if cond == nil || fmt.Sprintf("%s %s: %s", cond.Status, cond.Reason, cond.Message) != want || cond.ObservedGeneration != 3 {
		t.Errorf("%s is %+v, want %s", kind, cond, want)
	}
}

// WK-24: rules that may be about a manifest whose resource is not known are not met.
func TestFeedbackOfUnknownResource(t *testing.T) {
	t.Parallel()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web"},
		FeedbackRules:      []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}},
	}}
	r := Result{Presence: Absent, Err: errors.New("no such kind"), Manifest: workv1.ManifestResourceMeta{
		Group: "apps", Version: "v1", Kind: "Unknown", Namespace: "default", Name: "web",
	}}
	Update(work, []Result{r}, time.Unix(1000, 0))
	expect(t, work.Status.ResourceStatus.Manifests[0].Conditions, "StatusFeedbackSynced", "False StatusFeedbackSyncFailed: "+
		"Failed to read the object as its rules ask for: the cluster does not tell which resource the manifest is about")
	r.Manifest.Name = "other"
	Update(work, []Result{r}, time.Unix(1000, 0))
	expect(t, work.Status.ResourceStatus.Manifests[0].Conditions, "StatusFeedbackSynced",
		"True NoStatusFeedbackSynced: There are no feedback rules")
}

// The work of another cluster of the hub holds the AppliedManifestWork: nothing is known of the manifests.
func TestRefuse(t *testing.T) {
	t.Parallel()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	Update(work, []Result{{Manifest: configMap, Presence: Present}}, time.Unix(1000, 0))
	claimed := &ClaimedError{Applied: "hash-web", Work: "web", Cluster: "here", Owner: "there", Doubt: errBroken}
	if !Refuse(work, claimed, time.Unix(2000, 0)) || Refuse(work, claimed, time.Unix(3000, 0)) {
		t.Error("the first refusal changes the status, and no other")
	}
	expect(t, work.Status.Conditions, "Applied", "False AppliedManifestWorkFailed: this cluster has joined the hub as there as well, "+
		"whose ManifestWork web holds AppliedManifestWork hash-web here: give one of the two works another name, or let one of the "+
		"clusters leave. ManifestWork web of here takes over what was applied when there is not on the hub any more; broken. "+
		"It does so at once if you run on the managed cluster: kubectl annotate appliedmanifestwork hash-web capstan.io/cluster-name-")
	expect(t, work.Status.Conditions, "Available", "Unknown ResourcesStatusUnknown: The work is not applied")
	if n := len(work.Status.ResourceStatus.Manifests); n > 0 {
		t.Errorf("%d manifests", n)
	}
}

// WK-21: a message is never longer than a condition can hold, nor half a letter.
func TestLongErrors(t *testing.T) {
	t.Parallel()
	r := Result{Err: errors.New(strings.Repeat("ä", 40000))}
	for _, message := range []string{r.applied().Message, appliedOfWork([]Result{r, r, r, r}, nil).Message} {
		if len(message) > 4096 || !utf8.ValidString(message) || !strings.Contains(message, "ää ...") {
			t.Errorf("a message of %d bytes: %.200s", len(message), message)
		}
	}
}
