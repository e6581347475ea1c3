// Package merge tries the merging of manifests on a real API server.
package merge

import (
	"embed"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/test/env"
)

// The folder has objects as people write them: one file a kind, each with one object or, to update it, several versions.
//
//go:embed testdata
var mergeManifests embed.FS

// WK-05: on a real API server, with its defaults, admission and controllers, an applied manifest needs no further write,
// and a changed one exactly one.
func TestMergeSettles(t *testing.T) {
	t.Parallel()
	cluster := env.StartSandbox(t).Client(t)
	files, err := mergeManifests.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := mergeManifests.ReadFile("testdata/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(file.Name(), ".yaml"), func(t *testing.T) {
			t.Parallel()
			versions := decodeVersions(t, string(content))
			live := manifest.ForCreate(versions[0])
			if err := cluster.Create(t.Context(), live); err != nil {
				t.Fatal(err)
			}
			expectSettled(t, cluster, versions[0])
			for i, required := range versions[1:] {
				update(t, cluster, required, versions[i])
				expectSettled(t, cluster, required)
			}
		})
	}
}

// decodeVersions reads a file of YAML documents the way the work agent reads manifests.
func decodeVersions(t *testing.T, content string) []*unstructured.Unstructured {
	t.Helper()
	var manifests []workv1.Manifest
	for document := range strings.SplitSeq(content, "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		manifests = append(manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: raw}})
	}
	var versions []*unstructured.Unstructured
	for _, decoded := range manifest.Decode(manifests) {
		if decoded.Err != nil {
			t.Fatal(decoded.Err)
		}
		versions = append(versions, decoded.Object)
	}
	return versions
}

func get(t *testing.T, cluster client.Client, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(object.GroupVersionKind())
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(object), live); err != nil {
		t.Fatal(err)
	}
	return live
}

// patient is for objects whose controllers write their status many times in a row.
var patient = wait.Backoff{Steps: 100, Duration: 10 * time.Millisecond, Factor: 1.1, Cap: time.Second}

// update writes the merged object, again when a controller wrote it in between.
func update(t *testing.T, cluster client.Client, required, lastApplied *unstructured.Unstructured) {
	t.Helper()
	err := retry.RetryOnConflict(patient, func() error {
		live := get(t, cluster, required)
		merged, changed := manifest.Merge(required, live, lastApplied)
		if !changed {
			t.Fatal("a changed manifest is no change")
		}
		err := cluster.Update(t.Context(), merged)
		if err != nil && !apierrors.IsConflict(err) {
			t.Logf("written (-live +merged):\n%s", cmp.Diff(live.Object, merged.Object))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// expectSettled fails when the manifest that was just written would be written again, by the agent that wrote it or, which
// does not remember that, after a restart.
func expectSettled(t *testing.T, cluster client.Client, required *unstructured.Unstructured) {
	t.Helper()
	live := get(t, cluster, required)
	for _, lastApplied := range []*unstructured.Unstructured{required, nil} {
		if merged, changed := manifest.Merge(required, live, lastApplied); changed {
			t.Errorf("it would be written again (-live +merged):\n%s", cmp.Diff(live.Object, merged.Object))
		}
	}
}
