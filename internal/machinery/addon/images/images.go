// Package images knows the containers of add-ons: from which registries their images are pulled, and which of them an identifier means.
package images

import (
	"encoding/json"
	"fmt"
	"strings"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Override returns where to pull an image from instead. Of the mirrors that match the image, the last one wins; if none does,
// the image stays as it is. A source matches whole parts of the name only: quay.io/acme matches quay.io/acme/agent:v1
// and quay.io/acme:v1, but not quay.io/acme-labs/agent:v1.
func Override(mirrors []addonv1beta1.ImageMirror, image string) string {
	if image == "" {
		return ""
	}
	replaced := image
	for _, mirror := range mirrors {
		if other, ok := replace(mirror, image); ok {
			replaced = other
		}
	}
	return replaced
}

func replace(mirror addonv1beta1.ImageMirror, image string) (string, bool) {
	source, target := strings.TrimSuffix(mirror.Source, "/"), strings.TrimSuffix(mirror.Mirror, "/")
	rest := "/" + image[strings.LastIndexByte(image, '/')+1:]
	if source != "" {
		var ok bool
		if rest, ok = strings.CutPrefix(image, source); !ok || rest != "" && !strings.ContainsRune("/:@", rune(rest[0])) {
			return "", false
		}
	}
	if target == "" {
		return strings.TrimPrefix(rest, "/"), true
	}
	return target + rest, true
}

// OfCluster are the mirrors that the annotation open-cluster-management.io/image-registries of a cluster names. Those of an
// AddOnDeploymentConfig come after them, and so win.
func OfCluster(cluster *clusterv1.ManagedCluster) ([]addonv1beta1.ImageMirror, error) {
	text := cluster.Annotations[fleet.AnnotationImageRegistries]
	if text == "" {
		return nil, nil
	}
	var registries struct {
		Registries []addonv1beta1.ImageMirror `json:"registries"`
	}
	if err := json.Unmarshal([]byte(text), &registries); err != nil {
		return nil, fmt.Errorf("the annotation %s of ManagedCluster %q is not of the form "+
			`{"registries":[{"source":"quay.io/acme","mirror":"mirror.example.com/acme"}]}: %w`,
			fleet.AnnotationImageRegistries, cluster.Name, err)
	}
	return registries.Registries, nil
}
