package kubecontrollers

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	clientfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/metadata/metadatainformer"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

// SC-16: a kind that cannot be listed holds up the quotas on others only for as long as the quota controller waits for it.
func TestQuotaBesideAKindThatCannotBeListed(t *testing.T) {
	t.Parallel()
	const counted corev1.ResourceName = "count/serviceaccounts"
	client := clientfake.NewClientset(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "limits"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("5")}},
	})
	objects := fake.NewSimpleMetadataClient(fake.NewTestScheme())
	objects.PrependReactor("list", "widgets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the conversion webhook does not answer")
	})
	served := func(groupVersion, name, kind string) *metav1.APIResourceList {
		return &metav1.APIResourceList{GroupVersion: groupVersion, APIResources: []metav1.APIResource{
			{Name: name, Kind: kind, Namespaced: true, Verbs: metav1.Verbs{"create", "list", "watch", "delete"}},
		}}
	}
	discover := func() ([]*metav1.APIResourceList, error) {
		return []*metav1.APIResourceList{
			served("v1", "serviceaccounts", "ServiceAccount"), served("example.com/v1", "widgets", "Widget"),
		}, nil
	}
	quotas, err := client.CoreV1().ResourceQuotas("apps").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer quotas.Stop()
	c := &Controllers{
		informers: informers.NewSharedInformerFactory(client, 0), metadata: metadatainformer.NewSharedInformerFactory(objects, 0),
		started: make(chan struct{}),
	}
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	controller, err := c.newResourceQuota(t.Context(), client, discover, now)
	if err != nil {
		t.Fatal(err)
	}
	close(c.started)
	now.SetTime(now.Now().Add(quotaPatience))
	go controller.Run(t.Context(), 1)
	timeout := time.After(time.Minute)
	for {
		select {
		case event := <-quotas.ResultChan():
			if quota, ok := event.Object.(*corev1.ResourceQuota); ok {
				if _, found := quota.Status.Used[counted]; found {
					return
				}
			}
		case <-timeout:
			t.Fatal("it is not counted")
		}
	}
}

// SC-16: the quota controller does wait for what can be listed, if late.
func TestQuotaWaitsForACache(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	kinds := quotaInformers{clock: now, objectInformers: objectInformers{
		metadata: metadatainformer.NewSharedInformerFactory(fake.NewSimpleMetadataClient(fake.NewTestScheme()), 0),
	}}
	informer, err := kinds.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	if err != nil {
		t.Fatal(err)
	}
	awaited := informer.Informer().GetController()
	now.SetTime(now.Now().Add(quotaPatience - 1))
	if awaited.HasSynced() {
		t.Error("it is not waited for")
	}
	now.SetTime(now.Now().Add(1))
	if !awaited.HasSynced() {
		t.Errorf("it is waited for longer than %s", quotaPatience)
	}
	if informer.Informer().HasSynced() {
		t.Error("what is not known counts as none")
	}
}
