package secureserving

import (
	"crypto/tls"
	"fmt"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// TLSFlags bound how a program talks TLS where it serves.
type TLSFlags struct {
	minVersion   string
	cipherSuites []string
}

// Add adds --tls-min-version and --tls-cipher-suites.
func (f *TLSFlags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.minVersion, "tls-min-version", f.minVersion,
		"Least version of TLS that is served, such as VersionTLS12 or VersionTLS13 (default VersionTLS12).")
	flags.StringSliceVar(&f.cipherSuites, "tls-cipher-suites", f.cipherSuites,
		"Cipher suites that are served up to TLS 1.2, by their IANA names (default: those of Go).")
}

// Apply returns what makes a TLS configuration be as the flags say. It fails if they name what Go does not have.
func (f *TLSFlags) Apply() (func(*tls.Config), error) {
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
