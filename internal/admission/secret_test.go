package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MS-06: an agent writes the Secrets of ManagedServiceAccounts, and no others.
func TestSecretsOfAgents(t *testing.T) {
	t.Parallel()
	const label = "authentication.open-cluster-management.io/is-managed-serviceaccount"
	owner := metav1.OwnerReference{APIVersion: "authentication.open-cluster-management.io/v1beta1", Kind: "ManagedServiceAccount", Name: "ci"}
	good := func(change ...func(*corev1.Secret)) *corev1.Secret {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "ci", Labels: map[string]string{label: "true", "more": "x"},
				OwnerReferences: []metav1.OwnerReference{owner}},
			Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"token": []byte("t"), "ca.crt": []byte("c")},
		}
		for _, one := range change {
			one(secret)
		}
		return secret
	}
	agent := Sender{Name: "agent", Clusters: []string{"c1"}}
	for name, test := range map[string]struct {
		secret, old *corev1.Secret
		sender      Sender
		refused     string
	}{
		"a token":     {good(), nil, agent, ""},
		"a new token": {good(), good(), agent, ""},
		"no type":     {good(func(s *corev1.Secret) { s.Type = "" }), nil, agent, ""},
		"an older owner": {good(func(s *corev1.Secret) {
			s.OwnerReferences[0].APIVersion = "authentication.open-cluster-management.io/v1alpha1"
		}), nil, agent, ""},
		"a finalizer": {good(func(s *corev1.Secret) { s.Finalizers = []string{"x.io/stay"} }), nil, agent, "metadata.finalizers"},
		"a finalizer on what was there": {good(func(s *corev1.Secret) { s.Finalizers = []string{"x.io/stay"} }), good(), agent,
			"metadata.finalizers"},
		"a finalizer of others": {good(func(s *corev1.Secret) { s.Finalizers = []string{"x.io/stay"} }),
			good(func(s *corev1.Secret) { s.Finalizers = []string{"x.io/stay"} }), agent, ""},
		"another user":   {good(func(s *corev1.Secret) { s.Labels = nil }), nil, Sender{Name: "ann"}, ""},
		"no label":       {good(func(s *corev1.Secret) { s.Labels = nil }), nil, agent, "metadata.labels"},
		"label of false": {good(func(s *corev1.Secret) { s.Labels[label] = "false" }), nil, agent, "metadata.labels"},
		"no owner":       {good(func(s *corev1.Secret) { s.OwnerReferences = nil }), nil, agent, "metadata.ownerReferences"},
		"more owners": {good(func(s *corev1.Secret) { s.OwnerReferences = append(s.OwnerReferences, owner) }), nil, agent,
			"metadata.ownerReferences"},
		"owner of another name": {good(func(s *corev1.Secret) { s.OwnerReferences[0].Name = "cd" }), nil, agent, "metadata.ownerReferences"},
		"owner of another kind": {good(func(s *corev1.Secret) { s.OwnerReferences[0].APIVersion = "example.com/v1" }), nil, agent,
			"metadata.ownerReferences"},
		"a token of the hub": {good(func(s *corev1.Secret) { s.Type = corev1.SecretTypeServiceAccountToken }), nil, agent, "type: it is"},
		"another key":        {good(func(s *corev1.Secret) { s.Data["kubeconfig"] = []byte("k") }), nil, agent, `"kubeconfig"`},
		"taken over":         {good(), good(func(s *corev1.Secret) { s.Labels = nil }), agent, "it is not of a ManagedServiceAccount"},
		"given away":         {good(func(s *corev1.Secret) { s.Labels = nil }), good(), agent, "metadata.labels"},
	} {
		err := ValidateSecret(test.secret, test.old, test.sender)
		if test.refused == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: %v, want %q", name, err, test.refused)
		}
	}
	large := good(func(s *corev1.Secret) { s.Data["token"] = make([]byte, 64<<10) })
	if err := ValidateSecret(large, nil, agent); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("64 KiB: %v", err)
	}
}
