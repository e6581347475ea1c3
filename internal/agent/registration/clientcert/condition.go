package clientcert

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Condition says how long the certificate of a credential is valid.
func Condition(c *hubkubeconfig.Credential) (metav1.Condition, error) {
	notBefore, notAfter, err := c.Lifetime()
	if err != nil {
		return metav1.Condition{}, err
	}
	return Updated(notBefore, notAfter), nil
}

// Updated says how long a certificate is valid.
func Updated(notBefore, notAfter time.Time) metav1.Condition {
	return metav1.Condition{
		Type: fleet.ConditionCertificateRotated, Status: metav1.ConditionTrue, Reason: fleet.ReasonClientCertificateUpdated,
		Message: fmt.Sprintf("The client certificate is valid from %s to %s", notBefore.UTC().Format(time.RFC3339),
			notAfter.UTC().Format(time.RFC3339)),
	}
}

func updateFailed(err error, notAfter time.Time) metav1.Condition {
	return metav1.Condition{
		Type: fleet.ConditionCertificateRotated, Status: metav1.ConditionFalse, Reason: fleet.ReasonClientCertificateUpdateFailed,
		Message: fmt.Sprintf("The client certificate expires on %s and could not be renewed: %v", notAfter.UTC().Format(time.RFC3339), err),
	}
}
