package frame

import (
	"crypto/tls"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// defaultMinTLS is used unless the ConfigMap names another version.
const defaultMinTLS = "VersionTLS12"

// TLSFlags are the arguments that give a component the settings of the ConfigMap ocm-tls-profile; none, if there is no ConfigMap. Cipher
// suites that do not exist are left out.
func TLSFlags(profile *corev1.ConfigMap) []string {
	if profile == nil {
		return nil
	}
	version := strings.TrimSpace(profile.Data[fleet.KeyTLSProfileMinVersion])
	if _, err := cliflag.TLSVersion(version); err != nil || version == "" {
		version = defaultMinTLS
	}
	flags := []string{"--tls-min-version=" + version}
	if suites := suites(profile.Data[fleet.KeyTLSProfileCipherSuites]); len(suites) > 0 {
		flags = append(flags, "--tls-cipher-suites="+strings.Join(suites, ","))
	}
	return flags
}

func suites(list string) (known []string) {
	all := slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites())
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if slices.ContainsFunc(all, func(s *tls.CipherSuite) bool { return s.Name == name }) {
			known = append(known, name)
		}
	}
	return known
}
