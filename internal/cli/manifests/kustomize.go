package manifests

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// readKustomization builds what "kubectl kustomize" prints of the folder. It reads files outside of the folder only where the
// kustomization names another one, and runs no plugins.
func (m Files) readKustomization() ([]workv1.Manifest, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), m.kustomization)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be built: %w", m.kustomization, err)
	}
	documents := make([]Document, 0, built.Size())
	for _, resource := range built.Resources() {
		where := fmt.Sprintf("%s: %s", m.kustomization, resource.CurId())
		content, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		documents = append(documents, flatten(Document{where, runtime.RawExtension{Raw: content}})...)
	}
	if len(documents) == 0 {
		return nil, fmt.Errorf("no Kubernetes object in %s", m.kustomization)
	}
	return m.toManifests(documents)
}
