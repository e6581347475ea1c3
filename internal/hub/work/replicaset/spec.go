package replicaset

import (
	"bytes"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/json"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// sameSpec compares the specs of works. It compares the bytes of manifests first, because there may be a megabyte of them in each of a
// thousand works, and the API server writes the same object in the same way.
func sameSpec(a, b *workv1.ManifestWorkSpec) bool {
	return sameManifests(a.Workload.Manifests, b.Workload.Manifests) &&
		equality.Semantic.DeepEqual(a.DeleteOption, b.DeleteOption) &&
		equality.Semantic.DeepEqual(a.ManifestConfigs, b.ManifestConfigs) &&
		equality.Semantic.DeepEqual(a.Executor, b.Executor)
}

func sameManifests(a, b []workv1.Manifest) bool {
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
	var left, right any
	return json.Unmarshal(a, &left) == nil && json.Unmarshal(b, &right) == nil && equality.Semantic.DeepEqual(left, right)
}
