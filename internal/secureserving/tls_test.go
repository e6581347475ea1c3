package secureserving

import (
	"crypto/tls"
	"strings"
	"testing"
)

func TestTLSFlags(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags TLSFlags
		want  uint16
		fails string
	}{
		"default":    {TLSFlags{}, tls.VersionTLS12, ""},
		"version":    {TLSFlags{minVersion: "VersionTLS13"}, tls.VersionTLS13, ""},
		"no version": {TLSFlags{minVersion: "1.3"}, 0, "--tls-min-version 1.3"},
		"no suite":   {TLSFlags{cipherSuites: []string{"FOO"}}, 0, "--tls-cipher-suites"},
	} {
		bound, err := test.flags.Apply()
		if test.fails != "" {
			if err == nil || !strings.Contains(err.Error(), test.fails) {
				t.Errorf("%s: error %v", name, err)
			}
			continue
		}
		config := &tls.Config{}
		if bound(config); err != nil || config.MinVersion != test.want {
			t.Errorf("%s: version %x, %v", name, config.MinVersion, err)
		}
	}
}
