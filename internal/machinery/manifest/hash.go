package manifest

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// Hash is a fingerprint of the whole content of an object, in lower-case hex. Objects of equal content have equal hashes,
// whatever the order of their fields was.
func Hash(object *unstructured.Unstructured) string {
	content, err := json.Marshal(object.Object)
	if err != nil {
		panic(err) // What was decoded from JSON can be encoded as JSON.
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
