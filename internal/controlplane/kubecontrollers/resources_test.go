package kubecontrollers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/metadata/metadatainformer"
)

// SC-16: a kind that was added between the first look at what is served and the first list is noticed, too.
func TestKindsThatAreThereAtTheStart(t *testing.T) {
	t.Parallel()
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	crd := &metav1.PartialObjectMetadata{}
	crd.APIVersion, crd.Kind, crd.Name = "apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com"
	objects := metadatainformer.NewSharedInformerFactory(fake.NewSimpleMetadataClient(scheme, crd), 0)
	changes := newResourceChanges()
	if err := changes.watch(objects); err != nil {
		t.Fatal(err)
	}
	objects.Start(t.Context().Done())
	select {
	case <-changes.events:
	case <-time.After(time.Minute):
		t.Error("it is not noticed")
	}
}
