package manifest_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

func raw(texts ...string) []workv1.Manifest {
	manifests := make([]workv1.Manifest, len(texts))
	for i, text := range texts {
		manifests[i] = workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(text)}}
	}
	return manifests
}

func TestDecodeKeepsOrdinalsAndIdentity(t *testing.T) {
	t.Parallel()
	decoded := manifest.Decode(raw(
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":3}}`,
		`{"apiVersion":"v1"}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`,
	))
	if len(decoded) != 3 {
		t.Fatalf("got %d manifests, want 3", len(decoded))
	}
	for i, want := range []string{"apps/v1 Deployment shop/web", "", "v1 Namespace shop"} {
		if decoded[i].Ordinal != i {
			t.Errorf("manifest %d has ordinal %d", i, decoded[i].Ordinal)
		}
		if (decoded[i].Err != nil) != (want == "") || (decoded[i].Object == nil) != (want == "") {
			t.Errorf("manifest %d: object %v, error %v", i, decoded[i].Object, decoded[i].Err)
		}
		if want != "" && manifest.Identify(decoded[i].Object).String() != want {
			t.Errorf("manifest %d is %s, want %s", i, manifest.Identify(decoded[i].Object), want)
		}
	}
	if replicas := decoded[0].Object.Object["spec"].(map[string]any)["replicas"]; replicas != int64(3) {
		t.Errorf("replicas are %T(%v), want int64(3)", replicas, replicas)
	}
}

// WK-04: an exported object can be applied to another cluster.
func TestDecodeDropsServerMetadata(t *testing.T) {
	t.Parallel()
	decoded := manifest.Decode(raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"x":"y"},"uid":"u",
		"resourceVersion":"7","generation":2,"creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[],"selfLink":"/"}}`))
	if decoded[0].Err != nil {
		t.Fatal(decoded[0].Err)
	}
	metadata := decoded[0].Object.Object["metadata"].(map[string]any)
	if len(metadata) != 2 || metadata["name"] != "a" || metadata["labels"] == nil {
		t.Errorf("metadata is %v, want name and labels", metadata)
	}
}

func TestDecodeErrorsSayWhichAndWhy(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, raw, want string }{
		{"empty", ``, "manifest 0 is empty"},
		{"null", `null`, "manifest 0: apiVersion is missing"},
		{"no JSON", `{`, "manifest 0 is not a Kubernetes object"},
		{"list", `[]`, "manifest 0 is not a Kubernetes object"},
		{"no apiVersion", `{"kind":"Secret","metadata":{"name":"s"}}`, `manifest 0 (Secret "s"): apiVersion is missing`},
		{"apiVersion a number", `{"apiVersion":1,"kind":"Secret","metadata":{"name":"s"}}`, "apiVersion is missing"},
		{"apiVersion with two slashes", `{"apiVersion":"a/b/c","kind":"Secret","metadata":{"name":"s"}}`, `"a/b/c"`},
		{"apiVersion without version", `{"apiVersion":"apps/","kind":"Secret","metadata":{"name":"s"}}`, `"apps/"`},
		{"no kind", `{"apiVersion":"v1","metadata":{"name":"s"}}`, `manifest 0 ("s"): kind is missing`},
		{"no metadata", `{"apiVersion":"v1","kind":"Secret"}`, `manifest 0 (Secret): metadata is missing`},
		{"metadata a text", `{"apiVersion":"v1","kind":"Secret","metadata":"x"}`, `metadata is missing or no object`},
		{"no name", `{"apiVersion":"v1","kind":"Secret","metadata":{"generateName":"s-"}}`, `manifest 0 (Secret): metadata.name is missing`},
		{"name a number", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":5}}`, "metadata.name is missing"},
		{"namespace a number", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":5}}`, "metadata.namespace"},
		{"label a boolean", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","labels":{"a":true}}}`,
			"put numbers and booleans in quotes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := manifest.Decode(raw(test.raw))[0].Err
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"x":"y"},"annotations":null}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{}],"metadata":{"name":"a","ownerReferences":[1],"namespace":null}}`))
	f.Add([]byte(`{"apiVersion":"/","kind":"0","metadata":{"name":"0"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, content []byte) {
		one := manifest.Decode(raw(string(content)))[0]
		if (one.Err == nil) == (one.Object == nil) {
			t.Fatalf("object %v, error %v: want exactly one", one.Object, one.Err)
		}
		if one.Err != nil {
			return
		}
		id := manifest.Identify(one.Object)
		if id.Name == "" || id.Kind == "" || id.Version == "" {
			t.Fatalf("%q was decoded without identity: %v", content, id)
		}
		if one.Object.GetUID() != "" || one.Object.GetResourceVersion() != "" {
			t.Fatalf("%q kept metadata of a server", content)
		}
		if manifest.Hash(one.Object) != manifest.Hash(one.Object.DeepCopy()) {
			t.Fatalf("%q has two hashes", content)
		}
	})
}
