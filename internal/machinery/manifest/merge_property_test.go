package manifest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// kindsWithRules has every kind that Merge treats in its own way, and one it does not know.
var kindsWithRules = []string{
	"v1 ConfigMap", "v1 Secret", "v1 ServiceAccount", "v1 Pod", "v1 Service", "v1 LimitRange", "apps/v1 Deployment",
	"autoscaling/v2 HorizontalPodAutoscaler", "networking.k8s.io/v1 NetworkPolicy", "policy/v1 PodDisruptionBudget",
	"rbac.authorization.k8s.io/v1 ClusterRole", "apiextensions.k8s.io/v1 CustomResourceDefinition", "example.com/v1 Widget",
}

// fieldsWithRules has the fields that Merge treats in their own way, and some it does not know.
var fieldsWithRules = []string{
	"a", "b", "name", "number", "type", "value", "valueFrom", "exec", "httpGet", "fieldRef", "secretKeyRef", "service", "url",
	"containers", "env", "ports", "port", "protocol", "containerPort", "nodePort", "clusterIP", "volumes", "emptyDir",
	"imagePullSecrets", "secrets", "versions", "schema", "default", "nullable", "rules", "aggregationRule", "ingress", "selector",
	"matchLabels", "podSelector", "nodeSelector", "labels", "annotations", "strategy", "conversion", "status", "limits", "hard",
	"minAvailable", "maxUnavailable", "paused", "minReadySeconds",
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func randomValue(r *rand.Rand, depth int) any {
	kinds := 9
	if depth == 0 {
		kinds = 6
	}
	switch r.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2:
		return int64(r.IntN(3))
	case 3:
		return float64(r.IntN(3)) / 2
	case 4, 5:
		return pick(r, []string{"", "a", "b", "1", "1000m", "TCP", "RollingUpdate", "YQ=="})
	case 6:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = randomValue(r, depth-1)
		}
		return list
	default:
		return randomObject(r, depth-1)
	}
}

func randomObject(r *rand.Rand, depth int) map[string]any {
	object := map[string]any{}
	for range r.IntN(5) {
		object[pick(r, fieldsWithRules)] = randomValue(r, max(depth, 0))
	}
	return object
}

// vary returns a copy with some fields changed, so that the objects of a merge have something in common.
func vary(r *rand.Rand, value any, depth int) any {
	if r.IntN(8) == 0 {
		return randomValue(r, depth)
	}
	switch value := value.(type) {
	case map[string]any:
		varied := map[string]any{}
		for field, inner := range value {
			if r.IntN(8) > 0 {
				varied[field] = vary(r, inner, depth-1)
			}
		}
		if r.IntN(4) == 0 {
			varied[pick(r, fieldsWithRules)] = randomValue(r, max(depth, 0))
		}
		return varied
	case []any:
		varied := make([]any, len(value))
		for i, inner := range value {
			varied[i] = vary(r, inner, depth-1)
		}
		r.Shuffle(len(varied), func(i, j int) { varied[i], varied[j] = varied[j], varied[i] })
		return varied
	default:
		return value
	}
}

func randomManifest(r *rand.Rand, kind string, content map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range content {
		object.Object[field] = value
	}
	var apiVersion, name string
	if _, err := fmt.Sscan(kind, &apiVersion, &name); err != nil {
		panic(err)
	}
	texts := func() map[string]string {
		texts := map[string]string{}
		for range r.IntN(3) {
			texts[pick(r, []string{"a", "b", "c", "a-", "b-"})] = pick(r, []string{"", "1", "2"})
		}
		return texts
	}
	delete(object.Object, "metadata")
	object.SetAPIVersion(apiVersion)
	object.SetKind(name)
	object.SetName("one")
	object.SetLabels(texts())
	object.SetAnnotations(texts())
	var owners []any
	for range r.IntN(3) {
		owners = append(owners, map[string]any{
			"apiVersion": "v1", "kind": "Owner", "name": pick(r, []string{"o", "p"}), "uid": pick(r, []string{"u", "v", "u-", "v-"}),
		})
	}
	if owners != nil {
		_ = unstructured.SetNestedSlice(object.Object, owners, "metadata", "ownerReferences")
	}
	return object
}

// randomMerge returns three objects of one kind that resemble each other.
func randomMerge(r *rand.Rand) (required, live, last *unstructured.Unstructured) {
	kind := pick(r, kindsWithRules)
	base := randomObject(r, 4)
	base["spec"], base["data"] = randomObject(r, 4), randomObject(r, 1)
	varied := func() *unstructured.Unstructured {
		content, ok := vary(r, base, 4).(map[string]any)
		if !ok {
			content = map[string]any{}
		}
		return randomManifest(r, kind, content)
	}
	required, live = varied(), varied()
	live.SetUID("live")
	live.SetResourceVersion("7")
	live.SetFinalizers([]string{"f", "g"})
	if r.IntN(2) == 0 {
		last = varied()
		last.SetFinalizers([]string{pick(r, []string{"f", "h"})})
	}
	return required, live, last
}

// Merging what was merged changes nothing, the arguments are not modified, and neither status nor other metadata is.
func TestMergeProperties(t *testing.T) {
	t.Parallel()
	const merges = 3000
	for seed := range uint64(merges) {
		required, live, last := randomMerge(rand.New(rand.NewPCG(seed, 1)))
		checkMerge(t, fmt.Sprintf("seed %d", seed), required, live, last)
		if t.Failed() {
			return
		}
	}
}

func checkMerge(t *testing.T, name string, required, live, last *unstructured.Unstructured) {
	t.Helper()
	requiredBefore, liveBefore, lastBefore := required.DeepCopy(), live.DeepCopy(), last.DeepCopy()
	merged, changed := manifest.Merge(required, live, last)

	if diff := cmp.Diff(liveBefore.Object, merged.Object); (diff != "") != changed {
		t.Errorf("%s: changed is %t, the difference is:\n%s", name, changed, diff)
	}
	if again, changed := manifest.Merge(required, merged, last); changed {
		t.Errorf("%s: a second merge changes:\n%s\nrequired: %s\nlive: %s", name,
			cmp.Diff(merged.Object, again.Object), text(required), text(live))
	}
	if diff := cmp.Diff(liveBefore.Object["status"], merged.Object["status"]); diff != "" {
		t.Errorf("%s: status was touched:\n%s", name, diff)
	}
	if diff := cmp.Diff(otherMetadata(liveBefore), otherMetadata(merged)); diff != "" {
		t.Errorf("%s: metadata was touched:\n%s", name, diff)
	}
	if !cmp.Equal(requiredBefore, required) || !cmp.Equal(liveBefore, live) || !cmp.Equal(lastBefore, last) {
		t.Errorf("%s: an argument was modified", name)
	}
}

func otherMetadata(object *unstructured.Unstructured) any {
	metadata, _, _ := unstructured.NestedMap(object.Object, "metadata")
	for _, field := range []string{"labels", "annotations", "ownerReferences", "finalizers"} {
		delete(metadata, field)
	}
	return metadata
}

func text(object *unstructured.Unstructured) string {
	encoded, _ := json.Marshal(object.Object)
	return string(encoded)
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"strategy":{"type":{}}}}`),
		[]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"strategy":{"type":{},"b":1}}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"a"},{"name":{}}]}}`),
		[]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"b"},5]}}`))
	f.Fuzz(func(t *testing.T, required, live []byte) {
		decoded := manifest.Decode(raw(string(required), string(live)))
		if decoded[0].Err != nil || decoded[1].Err != nil {
			return
		}
		checkMerge(t, "fuzzed", decoded[0].Object, decoded[1].Object, nil)
		checkMerge(t, "fuzzed", decoded[0].Object, decoded[1].Object, decoded[1].Object)
	})
}
