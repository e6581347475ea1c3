package clientcert

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RG-11: what is said of a certificate.
func TestConditions(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("CET", 3600))
	for _, test := range []struct {
		got                     metav1.Condition
		status, reason, message string
	}{
		{Updated(start, start.Add(time.Hour)), "True", "ClientCertificateUpdated",
			"The client certificate is valid from 2026-11-21T11:00:00Z to 2026-11-21T12:00:00Z"},
		{updateFailed(errors.New("no luck"), start), "False", "ClientCertificateUpdateFailed",
			"The client certificate expires on 2026-11-21T11:00:00Z and could not be renewed: no luck"},
	} {
		if c := test.got; c.Type != "ClusterCertificateRotated" || string(c.Status) != test.status || c.Reason != test.reason ||
			c.Message != test.message {
			t.Errorf("%+v", c)
		}
	}
}
