package frame_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capstan-io/capstan/internal/operator/frame"
)

// CM-30, SD-01
func TestTLSFlags(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		profile *corev1.ConfigMap
		want    []string
	}{
		"none":    {nil, nil},
		"empty":   {&corev1.ConfigMap{}, []string{"--tls-min-version=VersionTLS12"}},
		"version": {&corev1.ConfigMap{Data: map[string]string{"minTLSVersion": "VersionTLS13"}}, []string{"--tls-min-version=VersionTLS13"}},
		"unknown": {&corev1.ConfigMap{Data: map[string]string{"minTLSVersion": "TLS9", "cipherSuites": "NONE"}},
			[]string{"--tls-min-version=VersionTLS12"}},
		"suites": {&corev1.ConfigMap{
			Data: map[string]string{"cipherSuites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, NONE,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}},
			[]string{"--tls-min-version=VersionTLS12",
				"--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}},
	} {
		if got := frame.TLSFlags(test.profile); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
