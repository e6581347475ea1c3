package controlplane

import (
	"errors"
	"fmt"
	"strings"

	cliflag "k8s.io/component-base/cli/flag"
)

// validate names every flag that cannot be what it is.
func (o *Options) validate() error {
	var mistakes []error
	reject := func(flag, format string, args ...any) {
		mistakes = append(mistakes, fmt.Errorf("--"+flag+": "+format, args...))
	}
	for flag, port := range map[string]int{"embedded-etcd-client-port": o.Etcd.ClientPort, "embedded-etcd-peer-port": o.Etcd.PeerPort} {
		if port < 0 || port > 65535 {
			reject(flag, "%d is no port; use 1 to 65535, or 0 for none", port)
		}
	}
	if o.Etcd.QuotaBytes < 0 {
		reject("embedded-etcd-quota-bytes", "%d is no size; use a number of bytes such as 8589934592, or 0 for the default", o.Etcd.QuotaBytes)
	}
	if o.Etcd.WALSizeBytes < 0 {
		reject("embedded-etcd-wal-size-bytes", "%d is no size; use a number of bytes such as 64000000, or 0 for the default", o.Etcd.WALSizeBytes)
	}
	if _, err := cliflag.TLSVersion(o.serving.MinTLSVersion); err != nil {
		reject("tls-min-version", "%w; use one of %s", err, strings.Join(cliflag.TLSPossibleVersions(), ", "))
	}
	if _, err := cliflag.TLSCipherSuites(o.serving.CipherSuites); err != nil {
		reject("tls-cipher-suites", "%w; use some of %s", err, strings.Join(cliflag.PreferredTLSCipherNames(), ", "))
	}
	mistakes = append(mistakes, o.oidc.Validate()...)
	return errors.Join(mistakes...)
}
