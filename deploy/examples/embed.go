// Package examples holds the examples of the documentation that programs need, too.
package examples

import (
	_ "embed"

	"sigs.k8s.io/yaml"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

//go:embed manifestwork-nginx.yaml
var nginx []byte

// Nginx is the ManifestWork of manifestwork-nginx.yaml for a managed cluster.
func Nginx(cluster string) (*workv1.ManifestWork, error) {
	work := &workv1.ManifestWork{}
	if err := yaml.UnmarshalStrict(nginx, work); err != nil {
		return nil, err
	}
	work.Namespace = cluster
	return work, nil
}
