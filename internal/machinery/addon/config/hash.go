// Package config has the rules for configurations of add-ons: which apply on a cluster, and what distinguishes one state of a
// configuration from another. It is pure. The hub, the machinery of add-ons and the agents share it.
package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// notHashed are the fields that say nothing of what a configuration configures.
var notHashed = map[string]bool{"apiVersion": true, "kind": true, "metadata": true, "status": true}

// Hash is the specHash of a configuration of any kind: the SHA-256, in lower-case hexadecimal, of the
// JSON of all its fields but apiVersion, kind, metadata and status. Managers built on the add-on framework compute the
// same. It fails only on what is no JSON.
func Hash(object *unstructured.Unstructured) (string, error) {
	content := maps.Clone(object.Object)
	maps.DeleteFunc(content, func(field string, _ any) bool { return notHashed[field] })
	if content == nil {
		content = map[string]any{}
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("hash %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:]), nil
}
