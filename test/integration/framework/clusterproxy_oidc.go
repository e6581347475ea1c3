package framework

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/agent/addon/clusterproxy/oidc/oidctest"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Trust has the owner of the cluster trust the issuer, with more lines of its configuration.
func (p *Proxied) Trust(t *testing.T, issuer *oidctest.Issuer, more string) {
	t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Name, Name: fleet.ConfigMapHubAccess}, Data: map[string]string{
		"rules.yaml": "[{}]", "oidc.yaml": issuer.Config(more), "oidc-ca.crt": string(issuer.CA())}}
	c := Managed.Client(t)
	err := c.Create(t.Context(), o)
	if apierrors.IsAlreadyExists(err) {
		err = c.Update(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
}
