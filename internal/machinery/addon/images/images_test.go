package images_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/images"
)

// AF-20
func TestOverride(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, image, want string
		mirrors           []addonv1beta1.ImageMirror
	}{
		{name: "no mirror", image: "quay.io/acme/agent:v1", want: "quay.io/acme/agent:v1"},
		{name: "no image", image: "", want: "", mirrors: []addonv1beta1.ImageMirror{{Mirror: "m"}}},
		{name: "registry", image: "quay.io/acme/agent:v1", want: "mirror.example.com/acme/agent:v1",
			mirrors: []addonv1beta1.ImageMirror{{Source: "quay.io", Mirror: "mirror.example.com"}}},
		{name: "path", image: "quay.io/acme/agent:v1", want: "mirror.example.com/a/agent:v1",
			mirrors: []addonv1beta1.ImageMirror{{Source: "quay.io/acme/", Mirror: "mirror.example.com/a/"}}},
		{name: "whole image", image: "quay.io/acme/agent:v1", want: "mirror.example.com/agent:v1",
			mirrors: []addonv1beta1.ImageMirror{{Source: "quay.io/acme/agent", Mirror: "mirror.example.com/agent"}}},
		{name: "image and tag", image: "quay.io/acme/agent:v1", want: "mirror.example.com/agent:v2",
			mirrors: []addonv1beta1.ImageMirror{{Source: "quay.io/acme/agent:v1", Mirror: "mirror.example.com/agent:v2"}}},
		{name: "digest", image: "quay.io/acme/agent@sha256:1234", want: "m/agent@sha256:1234",
			mirrors: []addonv1beta1.ImageMirror{{Source: "quay.io/acme/agent", Mirror: "m/agent"}}},
		{name: "any source keeps the last part", image: "quay.io/acme/agent:v1", want: "mirror.example.com/all/agent:v1",
			mirrors: []addonv1beta1.ImageMirror{{Mirror: "mirror.example.com/all"}}},
		{name: "any source, image without registry", image: "agent:v1", want: "mirror.example.com/agent:v1",
			mirrors: []addonv1beta1.ImageMirror{{Mirror: "mirror.example.com"}}},
		{name: "no mirror for the source", image: "quay.io/acme/agent:v1", want: "acme/agent:v1",
			mirrors: []addonv1beta1.ImageMirror{{Source: "quay.io"}}},
		{name: "part of a name", image: "quay.io/acme-labs/agent:v1", want: "quay.io/acme-labs/agent:v1",
			mirrors: []addonv1beta1.ImageMirror{{Source: "quay.io/acme", Mirror: "m"}}},
		{name: "other registry", image: "ghcr.io/acme/agent:v1", want: "ghcr.io/acme/agent:v1",
			mirrors: []addonv1beta1.ImageMirror{{Source: "quay.io", Mirror: "m"}}},
		{name: "the last match wins", image: "quay.io/acme/agent:v1", want: "second/agent:v1",
			mirrors: []addonv1beta1.ImageMirror{{Source: "quay.io/acme", Mirror: "first"}, {Source: "quay.io/acme", Mirror: "second"},
				{Source: "ghcr.io", Mirror: "third"}}},
		{name: "each sees the image as it was", image: "quay.io/acme/agent:v1", want: "first/agent:v1",
			mirrors: []addonv1beta1.ImageMirror{{Source: "quay.io/acme", Mirror: "first"}, {Source: "first", Mirror: "second"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := images.Override(test.mirrors, test.image); got != test.want {
				t.Errorf("%s is pulled from %s, want %s", test.image, got, test.want)
			}
		})
	}
}

// AM-37
func TestOfCluster(t *testing.T) {
	t.Parallel()
	cluster := func(annotation string) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1",
			Annotations: map[string]string{"open-cluster-management.io/image-registries": annotation}}}
	}
	got, err := images.OfCluster(cluster(`{"pullSecret":"ns.secret","registries":[{"source":"a","mirror":"b"},{"mirror":"c"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]addonv1beta1.ImageMirror{{Source: "a", Mirror: "b"}, {Mirror: "c"}}, got); diff != "" {
		t.Error(diff)
	}
	if got, err := images.OfCluster(&clusterv1.ManagedCluster{}); err != nil || got != nil {
		t.Errorf("a cluster without the annotation has mirrors %v, error %v", got, err)
	}
	_, err = images.OfCluster(cluster(`quay.io`))
	if err == nil || !strings.Contains(err.Error(), `image-registries of ManagedCluster "c1" is not of the form`) {
		t.Errorf("the annotation is no JSON, and the error is %v", err)
	}
}

// AM-32: an identifier is a regular expression, in which a * alone stands for anything.
func TestContainerPattern(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		id, container string
		want          bool
	}{
		{"*:*:*", "deployments:hello:agent", true},
		{"**:*:*", "deployments:hello:agent", true},
		{"deployments:*:agent", "deployments:hello:agent", true},
		{"deployments:*:agent", "daemonsets:hello:agent", false},
		{"deployments:hello-*:agent", "deployments:hello-agent:agent", true},
		{"deployments:hello-*:agent", "deployments:hello-:agent", false},
		{"deployments:hello.*:.*", "deployments:hello:a", true},
		{"deployments:hello.*:.*", "deployments:hello-agent:agent", true},
		{"deployments:hello.*:.*", "deployments:other:agent", false},
		{"deployments:hello[a-z]*:(agent|proxy)*", "deployments:hello:agent", true},
		{"deployments:hello[a-z]*:(agent|proxy)*", "deployments:hello1:agent", false},
		{"deployments:hello:agent", "deployments:hello:agent2", false},
		{"deployments:(hello|*-agent):*", "deployments:my-agent:x", true},
		{"(*|x):*:*", "deployments:hello:agent", true},
	} {
		pattern, err := images.ContainerPattern(test.id)
		if err != nil {
			t.Fatal(err)
		}
		if got := pattern.MatchString(test.container); got != test.want {
			t.Errorf("%s matches %s: %t", test.id, test.container, got)
		}
	}
}
