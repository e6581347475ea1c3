package replicaset

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// inNamespace moves objects to another namespace.
func inNamespace(namespace string, objects ...client.Object) []client.Object {
	for _, o := range objects {
		o.SetNamespace(namespace)
	}
	return objects
}

// dear are overrides that take thousands of steps for each cluster.
var dear = "- set: [" + strings.Repeat("{path: /data/cluster, clusterName: true}, ", 900) + "]"

func (h *hub) reconcileSet(t *testing.T, namespace string) ctrl.Result {
	t.Helper()
	result, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "web"}})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// "One namespace's expensive sets must not hold up those of others": who has had his share waits, others do not, and nor do his own sets
// without overrides.
func TestExpensiveOverridesWait(t *testing.T) {
	t.Parallel()
	var clusters []string
	for i := range 40 {
		clusters = append(clusters, fmt.Sprintf("c%d", i))
	}
	attacker, other, plain := webSet(ref("p")), webSet(ref("p")), webSet(ref("p"))
	attacker.Annotations = map[string]string{fleet.AnnotationOverrides: dear}
	for i := range 20 {
		raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a%d","namespace":"default"}}`, i)
		attacker.Spec.ManifestWorkTemplate.Workload.Manifests = append(attacker.Spec.ManifestWorkTemplate.Workload.Manifests,
			workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(raw)}})
	}
	other.Annotations = map[string]string{fleet.AnnotationOverrides: "- set: [{path: /data/cluster, clusterName: true}]"}
	plain.Name = "plain"
	all := append(objects(attacker, decidedPlacement("p", clusters...)), plain)
	all = append(all, inNamespace("other", objects(other, decidedPlacement("p", "c0"))...)...)
	h := newHub(t, all...)
	h.reconcileSet(t, "ns")
	if works := h.works(t); len(works) != len(clusters) {
		t.Fatalf("works on %d clusters, want %d", len(works), len(clusters))
	}
	h.writes.Store(0)
	h.change(t, func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Spec.ManifestWorkTemplate.Workload.Manifests = set.Spec.ManifestWorkTemplate.Workload.Manifests[1:]
	})
	result := h.reconcileSet(t, "ns")
	if result.RequeueAfter <= time.Second || h.writes.Load() > 0 {
		t.Errorf("it is looked at again after %s, and %d objects were written", result.RequeueAfter, h.writes.Load())
	}
	h.reconcileSet(t, "other")
	if written := h.works(t)["c0"]; len(written) != 2 {
		t.Errorf("the set of another namespace has written %d works", len(written)-1)
	}
	if _, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "plain"}}); err != nil {
		t.Fatal(err)
	}
	if written := h.works(t)["c0"]; len(written) != 3 {
		t.Errorf("the set without overrides has written %d works", len(written)-2)
	}
	h.clock.Step(result.RequeueAfter)
	h.writes.Store(0)
	if h.reconcileSet(t, "ns"); h.writes.Load() == 0 {
		t.Error("it has its turn and does nothing")
	}
}

// There are workers for others while passes are long, and a pass that is not long never waits for them.
func TestLongPasses(t *testing.T) {
	t.Parallel()
	s := &shares{}
	begin := func(namespace string, steps int) (*pass, error) {
		p, err := s.start(namespace, noon)
		if err != nil {
			t.Fatal(err)
		}
		return p, p.charge(steps)
	}
	first, err := begin("a", shortPass+1)
	if err != nil {
		t.Fatal(err)
	}
	expectPostponed := func(what, namespace string) {
		p, err := begin(namespace, shortPass+1)
		if postponed := (*postponedError)(nil); !errors.As(err, &postponed) || p.startWriting() == nil {
			t.Errorf("%s goes on: %v", what, err)
		}
		p.end(noon)
	}
	expectPostponed("a second long pass of a namespace", "a")
	second, err := begin("b", shortPass+1)
	if err != nil {
		t.Error(err)
	}
	expectPostponed("a third long pass", "c")
	if short, err := begin("d", shortPass); err != nil {
		t.Error(err)
	} else {
		short.end(noon)
	}
	first.end(noon)
	if third, err := begin("c", shortPass+1); err != nil {
		t.Error(err)
	} else {
		third.end(noon)
	}
	second.end(noon)
	// Who has written something writes the rest.
	writing, err := begin("e", 1)
	if err != nil || writing.startWriting() != nil || writing.charge(10*stepBurst) != nil {
		t.Error("a pass stops in the middle of its writes")
	}
	writing.end(noon)
	if _, err := s.start("e", noon.Add(30*time.Second)); err == nil {
		t.Error("it does not count what was spent while writing")
	}
	if _, err := s.start("f", noon.Add(time.Hour)); err != nil || len(s.namespaces) != 1 {
		t.Errorf("%d namespaces are remembered: %v", len(s.namespaces), err)
	}
}

// Clusters that get the same share it, and not all that differs is in memory at once.
func TestVariantsAreShared(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	spec := template("1")
	spec.Workload.Manifests[0].Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"` +
		strings.Repeat("a", size) + `"}}`)
	pass, err := (&shares{}).start("ns", noon)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRenderer("- {set: [{path: /data/b, label: b}]}", &spec, pass)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i),
			Labels: map[string]string{"b": fmt.Sprint(i / 2)}}}
		r.addCluster(c)
	}
	for i := 0; i < 60; i += 2 {
		before := pass.spent
		one, err := r.clusterSpec(fmt.Sprintf("c%d", i))
		if err != nil {
			t.Fatal(err)
		}
		took := pass.spent - before
		same, err := r.clusterSpec(fmt.Sprintf("c%d", i+1))
		if err != nil || same != one {
			t.Fatalf("the same is made twice: %v", err)
		}
		if again := pass.spent - before - took; again > took/10 {
			t.Errorf("the first takes %d steps, the second %d", took, again)
		}
		if r.cacheSize > maxCacheSize || len(r.cache) > maxCacheSize/size {
			t.Fatalf("%d bytes of %d variants are kept", r.cacheSize, len(r.cache))
		}
	}
}
