package main

import (
	"crypto/tls"
	"fmt"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// tlsFlags bound how a program talks TLS where it serves.
type tlsFlags struct {
	minVersion   string
	cipherSuites []string
}

func (f *tlsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.minVersion, "tls-min-version", f.minVersion,
		"Least version of TLS that is served, such as VersionTLS12 or VersionTLS13 (default VersionTLS12).")
	flags.StringSliceVar(&f.cipherSuites, "tls-cipher-suites", f.cipherSuites,
		"Cipher suites that are served up to TLS 1.2, by their IANA names (default: those of Go).")
}

// apply returns what makes a TLS configuration be as the flags say.
func (f *tlsFlags) apply() (func(*tls.Config), error) {
	version, err := cliflag.TLSVersion(f.minVersion)
	if err != nil {
		return nil, fmt.Errorf("--tls-min-version %s: %w", f.minVersion, err)
	}
	suites, err := cliflag.TLSCipherSuites(f.cipherSuites)
	if err != nil {
		return nil, fmt.Errorf("--tls-cipher-suites: %w", err)
	}
	return func(c *tls.Config) { c.MinVersion, c.CipherSuites = version, suites }, nil
}
