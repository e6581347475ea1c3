package manifest

import (
	"bytes"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/json"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// SameSpec reports whether two specs are the same to the API server, however their manifests are spelt. It compares the bytes of manifests
// first, because there may be a megabyte of them in each of a thousand works, and the API server writes the same object in the same way.
func SameSpec(a, b *workv1.ManifestWorkSpec) bool {
	return SameManifests(a.Workload.Manifests, b.Workload.Manifests) &&
		equality.Semantic.DeepEqual(a.DeleteOption, b.DeleteOption) &&
		equality.Semantic.DeepEqual(a.ManifestConfigs, b.ManifestConfigs) &&
		equality.Semantic.DeepEqual(a.Executor, b.Executor)
}

// SameManifests is SameSpec for the manifests of works.
func SameManifests(a, b []workv1.Manifest) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i].Raw, b[i].Raw) && !sameJSON(a[i].Raw, b[i].Raw) {
			return false
		}
	}
	return true
}

func sameJSON(a, b []byte) bool {
	left, right := asStored(a), asStored(b)
	return left != nil && right != nil && equality.Semantic.DeepEqual(left, right)
}

// asStored returns a manifest without the nulls among its metadata; nil if it is no JSON object. The API server reads the metadata of a
// manifest by their types, so that these nulls mean nothing: it drops them, or adds one. All others it keeps, and they are as good as other
// values.
func asStored(raw []byte) map[string]any {
	var object map[string]any
	if json.Unmarshal(raw, &object) != nil {
		return nil
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		maps.DeleteFunc(metadata, func(_ string, value any) bool { return value == nil })
	}
	return object
}
