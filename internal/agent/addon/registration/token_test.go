package registration

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// RG-53: an event reports when there is a new token, and only then.
func TestTokenRefreshed(t *testing.T) {
	t.Parallel()
	var refused error
	hub := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, _ string, _, sub client.Object, _ ...client.SubResourceCreateOption) error {
			if refused != nil {
				return refused
			}
			request, ok := sub.(*authenticationv1.TokenRequest)
			if !ok {
				return fmt.Errorf("asked for %T", sub)
			}
			request.Status.Token = token(start, start.Add(time.Hour))
			return nil
		},
	})
	var events []string
	c := newController(addonv1beta1.KubeClientDriverToken)
	c.Uncached, c.clusters = hub, map[string]*agentCluster{"managed": {name: "managed", client: fake.NewClientBuilder().Build()}}
	c.Record = func(eventType, reason, _, _ string, _ ...any) { events = append(events, eventType+" "+reason) }
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "hello"}}
	addOn.Status.Conditions = []metav1.Condition{{Type: "TokenInfrastructureReady", Status: metav1.ConditionTrue,
		Message: "ServiceAccount c1/hello-agent (UID: 123) is ready"}}
	w := &desiredSecret{addOn: "hello", cluster: "managed", secret: client.ObjectKey{Namespace: "ns", Name: "hello-hub-kubeconfig"}}
	refused = errors.New("no luck")
	if got := c.reconcileToken(t.Context(), addOn, w, &corev1.Secret{}); got.err == nil || len(events) > 0 {
		t.Errorf("%+v, events %q", got, events)
	}
	refused = nil
	if got := c.reconcileToken(t.Context(), addOn, w, &corev1.Secret{}); got.err != nil {
		t.Fatal(got.err)
	}
	kept := &corev1.Secret{Data: map[string][]byte{"token": []byte(token(start, start.Add(time.Hour)))}}
	if got := c.reconcileToken(t.Context(), addOn, w, kept); got.err != nil {
		t.Fatal(got.err)
	}
	if want := []string{"Normal AddonTokenRefreshed"}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
}

// token is of the service account with UID 123.
func token(from, to time.Time) string {
	part := func(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }
	return part(`{"alg":"RS256"}`) + "." +
		part(fmt.Sprintf(`{"iat":%d,"exp":%d,"kubernetes.io":{"serviceaccount":{"uid":"123"}}}`, from.Unix(), to.Unix())) + "." +
		part("signature")
}
