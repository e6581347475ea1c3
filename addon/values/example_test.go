package values_test

import (
	"context"
	"fmt"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/addontest"
	"github.com/capstan-io/capstan/addon/values"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// Defaults come first, then what the AddOnDeploymentConfig says, and what is written on the add-on itself has the last word.
func ExampleCollect() {
	config := &addonv1beta1.AddOnDeploymentConfig{}
	config.Namespace, config.Name = "default", "hello"
	config.Spec.CustomizedVariables = []addonv1beta1.CustomizedVariable{{Name: "logLevel", Value: "4"}}
	config.Spec.Registries = []addonv1beta1.ImageMirror{{Source: "quay.io/acme", Mirror: "registry.example.com/acme"}}
	hub := addontest.Client(config) // in an add-on: the Client of its manager
	installation := addontest.Installation("cluster1", "hello", config)
	installation.AddOn.Annotations = map[string]string{values.Annotation: `{"replicas":2}`}

	collected, err := values.Collect(context.Background(), installation,
		func(context.Context, addon.Installation) (values.Values, error) {
			return values.Values{"replicas": 1, "logLevel": "2"}, nil
		},
		values.AgentImage(hub, "image", "quay.io/acme/hello:v1"),
		values.FromDeploymentConfig(hub, values.Variables, values.NodePlacement),
		values.FromAnnotation,
	)
	fmt.Println(collected, err)
	// Output: map[image:registry.example.com/acme/hello:v1 logLevel:4 replicas:2] <nil>
}

func ExampleMerge() {
	base := values.Values{"global": values.Values{"a": 1, "b": 2}, "list": []any{1, 2}}
	fmt.Println(values.Merge(base, values.Values{"global": values.Values{"b": 3}, "list": []any{4}}))
	// Output: map[global:map[a:1 b:3] list:[4]]
}
