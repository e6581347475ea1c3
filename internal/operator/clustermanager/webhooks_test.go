package clustermanager

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// CM-21, CM-23: while Deployments roll, webhooks that exist get new authorities and nothing else, and others are not made.
func TestTrust(t *testing.T) {
	t.Parallel()
	configuration := func(name, bundle string, webhooks ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		made := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, webhook := range webhooks {
			made.Webhooks = append(made.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: webhook,
				ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: []byte(bundle)}})
		}
		return made
	}
	hub := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(configuration("there", "old", "a", "b")).Build()
	for _, desired := range []client.Object{configuration("there", "new", "b", "c"), configuration("missing", "new", "a")} {
		if err := trust(t.Context(), hub, desired); err != nil {
			t.Fatal(err)
		}
	}
	all := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if err := hub.List(t.Context(), all); err != nil || len(all.Items) != 1 {
		t.Fatalf("%v, %v", all.Items, err)
	}
	got := ""
	for _, webhook := range all.Items[0].Webhooks {
		got += webhook.Name + "=" + string(webhook.ClientConfig.CABundle) + " "
	}
	if got != "a=old b=new " {
		t.Errorf("got %s", got)
	}
}
