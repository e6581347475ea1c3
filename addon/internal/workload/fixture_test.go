package workload

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// hub stands for the API of a hub with one add-on, "hello" on cluster1, and for the engine that writes plans to it.
type hub struct {
	*testing.T
	Input
	// writes since the last look.
	writes []string
	plan   Plan
	uids   int
}

func newHub(t *testing.T, objects ...client.Object) *hub {
	return &hub{T: t, Input: Input{
		Options: addon.Options{Name: "hello", Health: addon.Health{Mode: addon.HealthNone}},
		Installation: addon.Installation{
			Cluster: cluster("cluster1", metav1.ConditionTrue),
			AddOn:   &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "hello", UID: "addon-uid"}},
		},
		Workload: &addon.Workload{Objects: objects},
		Now:      noon,
	}}
}

func cluster(name string, available metav1.ConditionStatus) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
		Status: clusterv1.ManagedClusterStatus{
			Conditions: []metav1.Condition{
				{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-2 * time.Hour))},
				{Type: fleet.ConditionClusterAvailable, Status: available, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))},
			},
		}}
}

func yamlObject(text string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	return u
}

// configMap of about so many bytes.
func configMap(name string, bytes int) *unstructured.Unstructured {
	u := yamlObject(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: ` + name + `}}`)
	u.Object["data"] = map[string]any{"k": strings.Repeat("x", bytes)}
	return u
}

// annotated is the object with annotations.
func annotated(o *unstructured.Unstructured, pairs ...string) *unstructured.Unstructured {
	o = o.DeepCopy()
	annotations := o.GetAnnotations()
	for i := 0; i < len(pairs); i += 2 {
		set(&annotations, pairs[i], pairs[i+1])
	}
	o.SetAnnotations(annotations)
	return o
}

// hosted moves the agent to cluster "host".
func (h *hub) hosted() *hub {
	h.Installation.HostingCluster = "host"
	h.Hosting = cluster("host", metav1.ConditionTrue)
	return h
}

// reconcile plans and writes, once.
func (h *hub) reconcile() {
	h.Helper()
	plan, err := New(h.Input)
	if err != nil {
		h.Fatal(err)
	}
	h.plan = plan
	h.writes = nil
	addOn := h.Installation.AddOn
	for _, f := range plan.Finalizers {
		if !slices.Contains(addOn.Finalizers, f) {
			if addOn.DeletionTimestamp != nil {
				h.Fatalf("finalizer %s is added to an add-on that is being deleted", f)
			}
			addOn.Finalizers = append(addOn.Finalizers, f)
		}
	}
	for _, w := range plan.Create {
		h.write("create", w)
		if slices.ContainsFunc(h.Existing, func(e workv1.ManifestWork) bool { return e.Namespace == w.Namespace && e.Name == w.Name }) {
			h.Fatalf("%s exists", w.Name)
		}
		created := w.DeepCopy()
		h.uids++
		created.UID, created.Generation, created.Finalizers = types.UID(fmt.Sprint("work-", h.uids)), 1,
			[]string{fleet.FinalizerManifestWorkCleanup}
		h.Existing = append(h.Existing, *created)
	}
	for _, w := range plan.Update {
		h.write("update", w)
		existing := h.work(w.Namespace, w.Name)
		status, generation := existing.Status, existing.Generation
		w.DeepCopyInto(existing)
		existing.Status, existing.Generation = status, generation+1
	}
	for _, w := range plan.Delete {
		h.write("delete", w)
		h.work(w.Namespace, w.Name).DeletionTimestamp = new(metav1.NewTime(h.Now))
	}
	addOn.Finalizers = slices.DeleteFunc(addOn.Finalizers, func(f string) bool {
		return slices.ContainsFunc(finalizers, func(known finalizer) bool { return f == known.name || f == known.deprecated }) &&
			!slices.Contains(plan.Finalizers, f)
	})
	for _, c := range plan.Conditions {
		meta.SetStatusCondition(&addOn.Status.Conditions, c)
	}
	for _, kind := range plan.RemoveConditions {
		meta.RemoveStatusCondition(&addOn.Status.Conditions, kind)
	}
}

func (h *hub) write(verb string, w *workv1.ManifestWork) {
	h.writes = append(h.writes, verb+" "+w.Namespace+"/"+w.Name)
}

func (h *hub) work(namespace, name string) *workv1.ManifestWork {
	h.Helper()
	for i := range h.Existing {
		if w := &h.Existing[i]; w.Namespace == namespace && w.Name == name {
			return w
		}
	}
	h.Fatalf("there is no ManifestWork %s/%s", namespace, name)
	return nil
}

// agents do what the agents of all clusters have to do; values are reported of the object of the kind.
func (h *hub) agents(values map[string]map[string]string) {
	h.Existing = slices.DeleteFunc(h.Existing, func(w workv1.ManifestWork) bool { return w.DeletionTimestamp != nil })
	for i := range h.Existing {
		w := &h.Existing[i]
		w.Status.ResourceStatus.Manifests = nil
		for _, m := range manifest.Decode(w.Spec.Workload.Manifests) {
			o := manifest.Identify(m.Object)
			reported := workv1.ManifestCondition{
				ResourceMeta: workv1.ManifestResourceMeta{
					Ordinal: int32(m.Ordinal), Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
				},
				Conditions: []metav1.Condition{{Type: fleet.ConditionApplied, Status: metav1.ConditionTrue}},
			}
			for name, value := range values[o.Kind] {
				reported.StatusFeedbacks.Values = append(reported.StatusFeedbacks.Values, workv1.FeedbackValue{
					Name: name, Value: workv1.FieldValue{Type: workv1.String, String: &value},
				})
			}
			w.Status.ResourceStatus.Manifests = append(w.Status.ResourceStatus.Manifests, reported)
		}
		for _, kind := range []string{fleet.ConditionApplied, fleet.ConditionAvailable} {
			meta.SetStatusCondition(&w.Status.Conditions,
				metav1.Condition{Type: kind, Status: metav1.ConditionTrue, ObservedGeneration: w.Generation})
		}
	}
}

// removed requests the deletion of the add-on.
func (h *hub) removed() {
	h.Installation.AddOn.DeletionTimestamp = new(metav1.NewTime(h.Now))
}

func (h *hub) expectWrites(want ...string) {
	h.Helper()
	if !slices.Equal(h.writes, want) {
		h.Errorf("writes %q, want %q", h.writes, want)
	}
}

func (h *hub) expectFinalizers(want ...string) {
	h.Helper()
	if got := h.Installation.AddOn.Finalizers; !slices.Equal(got, want) {
		h.Errorf("finalizers %q, want %q", got, want)
	}
}

// expectCondition returns the message.
func (h *hub) expectCondition(kind string, status metav1.ConditionStatus, reason string, says ...string) {
	h.Helper()
	c := meta.FindStatusCondition(h.Installation.AddOn.Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason {
		h.Errorf("condition %+v, want %s %s %s", c, kind, status, reason)
		return
	}
	for _, text := range says {
		if !strings.Contains(c.Message, text) {
			h.Errorf("message %q, want %q in it", c.Message, text)
		}
	}
}

func (h *hub) expectNoCondition(kind string) {
	h.Helper()
	if c := meta.FindStatusCondition(h.Installation.AddOn.Status.Conditions, kind); c != nil {
		h.Errorf("condition %+v, want none", c)
	}
}

// objects of a work, by kind and name.
func (h *hub) objects(namespace, name string) (all []string) {
	h.Helper()
	for _, m := range manifest.Decode(h.work(namespace, name).Spec.Workload.Manifests) {
		all = append(all, m.Object.GetKind()+" "+m.Object.GetName())
	}
	return all
}

func (h *hub) expectObjects(namespace, name string, want ...string) {
	h.Helper()
	if got := h.objects(namespace, name); !slices.Equal(got, want) {
		h.Errorf("%s/%s has %q, want %q", namespace, name, got, want)
	}
}
