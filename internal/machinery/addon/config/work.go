package config

import (
	"encoding/json"
	"fmt"
	"strings"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Key names a configuration in the annotation that says what a ManifestWork was made of:
// <resource>.<group>/<namespace>/<name>.
func Key(kind addonv1beta1.ConfigGroupResource, config addonv1beta1.ConfigReferent) string {
	return kind.Resource + "." + kind.Group + "/" + config.Namespace + "/" + config.Name
}

// Annotation is the value of the annotation open-cluster-management.io/config-spec-hash for a ManifestWork made of the
// desired configurations: a JSON map from their keys to their hashes. It is empty if there are none.
func Annotation(references []addonv1beta1.ConfigReference) (string, error) {
	hashes := map[string]string{}
	for _, reference := range references {
		if reference.DesiredConfig != nil {
			hashes[Key(reference.ConfigGroupResource, reference.DesiredConfig.ConfigReferent)] = reference.DesiredConfig.SpecHash
		}
	}
	if len(hashes) == 0 {
		return "", nil
	}
	encoded, err := json.Marshal(hashes)
	if err != nil {
		return "", fmt.Errorf("encode the hashes of configurations: %w", err)
	}
	return string(encoded), nil
}

// MadeOf reports whether a ManifestWork with the annotations was made of the desired configurations, all of them in their
// desired state.
func MadeOf(annotations map[string]string, references []addonv1beta1.ConfigReference) bool {
	hashes := map[string]string{}
	if text := annotations[fleet.AnnotationConfigSpecHash]; text != "" && json.Unmarshal([]byte(text), &hashes) != nil {
		return false
	}
	for _, reference := range references {
		desired := reference.DesiredConfig
		if desired == nil || desired.SpecHash == "" ||
			recorded(hashes, reference.ConfigGroupResource, desired.ConfigReferent) != desired.SpecHash {
			return false
		}
	}
	return true
}

// madeOf is followed by the annotation in the message of an add-on without works.
const madeOf = " with the configurations "

// NothingMessage is the message of the condition ManifestApplied with the reason AddonNothingToApply. It has the annotation that works of
// the add-on would have: the hub learns from it for which configurations there are none.
func NothingMessage(annotation string) string {
	const message = "the cluster is to have nothing of the add-on"
	if annotation == "" {
		return message
	}
	return message + madeOf + annotation
}

// NothingMadeOf reports whether it was of the desired configurations, all of them in their desired state, that the condition with the
// message says that there is nothing to apply.
func NothingMadeOf(message string, references []addonv1beta1.ConfigReference) bool {
	_, annotation, _ := strings.Cut(message, madeOf)
	return MadeOf(map[string]string{fleet.AnnotationConfigSpecHash: annotation}, references)
}

// recorded also takes keys without the parts that are empty: of the core group, or without a namespace.
func recorded(hashes map[string]string, kind addonv1beta1.ConfigGroupResource, config addonv1beta1.ConfigReferent) string {
	groups, namespaces := []string{"." + kind.Group}, []string{config.Namespace + "/"}
	if kind.Group == "" {
		groups = append(groups, "")
	}
	if config.Namespace == "" {
		namespaces = append(namespaces, "")
	}
	for _, group := range groups {
		for _, namespace := range namespaces {
			if hash := hashes[kind.Resource+group+"/"+namespace+config.Name]; hash != "" {
				return hash
			}
		}
	}
	return ""
}
