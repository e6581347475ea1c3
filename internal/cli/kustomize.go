package cli

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// readKustomization builds what "kubectl kustomize DIR" prints. It reads files outside of the folder only where the
// kustomization names another one, and runs no plugins.
func readKustomization(dir string) ([]document, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("-k: %s cannot be built: %w", dir, err)
	}
	documents := make([]document, 0, built.Size())
	for _, resource := range built.Resources() {
		content, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("-k: %s: %s: %w", dir, resource.CurId(), err)
		}
		where := fmt.Sprintf("%s: %s", dir, resource.CurId())
		documents = append(documents, flatten(document{where, runtime.RawExtension{Raw: content}})...)
	}
	return documents, nil
}
