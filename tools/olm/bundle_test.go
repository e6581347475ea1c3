// Package olm checks the bundles in deploy/olm with the library of the Operator Framework. It has a link to them, because Go runs a test
// again only if what changed is in the folder of its module.
package olm

import (
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
)

// HC-13: the Operator Lifecycle Manager accepts the bundles, and the catalog of operators has nothing to say against them.
func TestBundles(t *testing.T) {
	t.Parallel()
	for _, operator := range []string{"cluster-manager", "klusterlet"} {
		bundle, err := manifests.GetBundleFromDir("bundles/" + operator)
		if err != nil {
			t.Fatal(err)
		}
		if bundle.Name == "" || bundle.CSV == nil || len(bundle.V1CRDs) != 1 {
			t.Fatalf("%s is no bundle: %+v", operator, bundle)
		}
		checks := validation.BundleValidator.WithValidators(validation.ClusterServiceVersionValidator,
			validation.CustomResourceDefinitionValidator, validation.OperatorHubV2Validator, validation.StandardCapabilitiesValidator,
			validation.StandardCategoriesValidator)
		for _, result := range checks.Validate(objectsOf(bundle)...) {
			for _, problem := range append(result.Errors, result.Warnings...) {
				// The check takes every version of a kind that permissions name for the one that Kubernetes 1.25 removed.
				if !strings.Contains(problem.Error(), "ClusterPermissions[0].Rules") {
					t.Errorf("%s: %v", operator, problem)
				}
			}
		}
	}
}

func objectsOf(bundle *manifests.Bundle) []any {
	objects := []any{bundle, bundle.CSV}
	for _, crd := range bundle.V1CRDs {
		objects = append(objects, crd)
	}
	return objects
}
