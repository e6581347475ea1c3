package manifestbundle

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var now = time.Date(2026, 11, 25, 1, 2, 3, 0, time.UTC)

func newWork() *workv1.ManifestWork {
	manifest := workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(`{"kind":"ConfigMap"}`)}}
	work := &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w", UID: "uid-1", Generation: 7, ResourceVersion: "98765432100",
			Labels: map[string]string{"a": "b"}, Finalizers: []string{"f"}},
		Spec: workv1.ManifestWorkSpec{
			Workload:        workv1.ManifestsTemplate{Manifests: []workv1.Manifest{manifest}},
			DeleteOption:    &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan},
			ManifestConfigs: []workv1.ManifestConfigOption{{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: "n"}}},
			Executor: &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
				Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "x", Name: "y"}}},
		},
		Status: workv1.ManifestWorkStatus{
			Conditions: []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue}},
			ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{{
				ResourceMeta: workv1.ManifestResourceMeta{Ordinal: 1, Name: "n"}}}},
		},
	}
	work.SetGroupVersionKind(workv1.GroupVersion.WithKind("ManifestWork"))
	return work
}

// CE-02, CE-03: the spec of a work is a manifest bundle, and its metadata an extension; the other side gets the same work.
func TestSpec(t *testing.T) {
	t.Parallel()
	work := newWork()
	event, err := EncodeSpec("kube", cloudevents.Create, work, now)
	if err != nil {
		t.Fatal(err)
	}
	if event.Type != "io.open-cluster-management.works.v1alpha1.manifestbundles.spec.create_request" || event.Text("resourceid") != "uid-1" ||
		event.Text("clustername") != "c1" || event.Extensions["resourceversion"] != int32(7) {
		t.Errorf("event is %+v", event)
	}
	for _, key := range []string{`"manifests":[{"kind":"ConfigMap"}]`, `"deleteOption":{`, `"manifestConfigs":[`, `"executer":{`} {
		if !strings.Contains(string(event.Data), key) {
			t.Errorf("data %s has no %s", event.Data, key)
		}
	}
	got, err := DecodeSpec(event)
	want := work.DeepCopy()
	want.Status = workv1.ManifestWorkStatus{}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// CE-02: a work that is being deleted is sent with the time of that and without a spec, one that is gone as a deletion.
func TestDeletion(t *testing.T) {
	t.Parallel()
	work := newWork()
	deletedAt := metav1.NewTime(now.Add(-time.Minute))
	for name, test := range map[string]struct {
		action    cloudevents.Action
		deletedAt *metav1.Time
		want      time.Time
	}{
		"is being deleted": {cloudevents.Update, &deletedAt, deletedAt.Time},
		"is gone":          {cloudevents.Delete, nil, now},
	} {
		work := work.DeepCopy()
		work.DeletionTimestamp = test.deletedAt
		event, err := EncodeSpec("kube", test.action, work, now)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeSpec(event)
		if err != nil || len(event.Data) > 0 || got.Name != "w" || got.DeletionTimestamp == nil || !got.DeletionTimestamp.Time.Equal(test.want) {
			t.Errorf("%s: event %+v, work %+v, %v", name, event, got, err)
		}
	}
}

// CE-05 WK-14: a work is gone when its source says so in the words of a hub or of the SDK, and not while its agent has to finalize it.
func TestIsGone(t *testing.T) {
	t.Parallel()
	named := metav1.ObjectMeta{Name: "w"}
	finalized := metav1.ObjectMeta{Name: "w", Finalizers: []string{fleet.FinalizerManifestWorkCleanup}}
	for name, test := range map[string]struct {
		action  cloudevents.Action
		deleted bool
		work    metav1.ObjectMeta
		want    bool
	}{
		"is there":                                {cloudevents.Update, false, named, false},
		"is being deleted":                        {cloudevents.Update, true, named, false},
		"a deletion":                              {cloudevents.Delete, true, named, true},
		"a deletion without a time":               {cloudevents.Delete, false, finalized, true},
		"a deletion of a work to be finalized":    {cloudevents.Delete, true, finalized, false},
		"a deletion of what is unknown":           {cloudevents.Delete, false, metav1.ObjectMeta{}, true},
		"the answer of the SDK":                   {cloudevents.ResyncResponse, true, metav1.ObjectMeta{}, true},
		"the answer of the SDK of what it has":    {cloudevents.ResyncResponse, true, named, false},
		"the answer about a work to be finalized": {cloudevents.ResyncResponse, true, finalized, false},
	} {
		work := &workv1.ManifestWork{ObjectMeta: test.work}
		if test.deleted {
			work.DeletionTimestamp = &metav1.Time{Time: now}
		}
		if got := IsGone(test.action, work); got != test.want {
			t.Errorf("%s: gone: %t", name, got)
		}
	}
}

// CE-03, CE-06: the status goes back with the version that it is of, its hash and its place in the sequence.
func TestStatus(t *testing.T) {
	t.Parallel()
	work := newWork()
	event, err := EncodeStatus("c1-agent", cloudevents.Update, work, "123", now)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := cloudevents.HashStatus(&work.Status)
	if err != nil || event.Text("statushash") != hash || event.Text("sequenceid") != "123" || len(hash) != 64 {
		t.Errorf("event %+v, %v; want the hash %s", event, err, hash)
	}
	for _, key := range []string{`"conditions":[{`, `"resourceStatus":[{`} {
		if !strings.Contains(string(event.Data), key) {
			t.Errorf("data %s has no %s", event.Data, key)
		}
	}
	got, err := DecodeStatus(event)
	if err != nil || !reflect.DeepEqual(got.Status, work.Status) || got.UID != "uid-1" || got.Generation != 7 || got.Namespace != "c1" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// CE-02: extensions have the last word over the metadata that a sender adds, and what they have to tell is required.
func TestExtensionsDecide(t *testing.T) {
	t.Parallel()
	event, err := EncodeStatus("c1-agent", cloudevents.Update, newWork(), "1", now)
	if err != nil {
		t.Fatal(err)
	}
	event.Extensions["metadata"] = `{"namespace":"c2","uid":"uid-2","generation":99}`
	if got, err := DecodeStatus(event); err != nil || got.Namespace != "c1" || got.UID != "uid-1" || got.Generation != 7 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, extension := range []string{"resourceid", "clustername"} {
		broken := *event
		broken.Extensions = map[string]any{"resourceid": "uid-1", "clustername": "c1"}
		delete(broken.Extensions, extension)
		if _, err := DecodeStatus(&broken); err == nil || !strings.Contains(err.Error(), extension) {
			t.Errorf("without %s: %v", extension, err)
		}
	}
	if _, err := DecodeSpec(event); err == nil {
		t.Error("a status is read as a spec")
	}
}
