package awsaccess

import (
	"errors"
	"testing"
)

// RG-52: the same failure is said in the same words each time, so that it is written once.
func TestStable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"operation error IAM: GetRole, https response error StatusCode: 403, RequestID: 5f0c, api error AccessDenied: no": "operation error IAM: " +
			"GetRole, https response error StatusCode: 403, api error AccessDenied: no",
		"User: arn:aws:sts::123456789012:assumed-role/hub1_managed-cluster-identity-creator/1759300000000000000 is not authorized": "User: " +
			"arn:aws:sts::123456789012:assumed-role/hub1_managed-cluster-identity-creator is not authorized",
		"read tcp 10.0.0.1:41234->52.94.0.1:443: connection reset by peer": "read tcp: connection reset by peer",
	} {
		if got := stable(errors.New(text)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
