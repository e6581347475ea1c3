package hubapi

import (
	"encoding/pem"
	"fmt"
	"regexp"
	"slices"
	"strings"

	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/apiclient"
)

// pinForm is the form that kubeadm gives the hash of a certificate authority.
var pinForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func checkPins(pins []string) error {
	for _, pin := range pins {
		if !pinForm.MatchString(strings.ToLower(pin)) {
			return fmt.Errorf("--ca-cert-hash: %q is not sha256: and 64 hexadecimal digits: \"capstan get token\" on the hub prints it", pin)
		}
	}
	return nil
}

// keepPinned returns the certificates of a bundle that have one of the pins. The others are left out: a server that sends a pinned
// certificate, which is no secret, must not get one of its own trusted next to it.
func keepPinned(bundle []byte, pins []string) ([]byte, error) {
	certificates, err := certutil.ParseCertsPEM(bundle)
	if err != nil {
		return nil, fmt.Errorf("%w: it publishes no certificate authority to compare with --ca-cert-hash\n"+
			"Name a file with the hub's: --ca-file FILE.", ErrUntrusted)
	}
	var kept []byte
	for _, certificate := range certificates {
		if slices.ContainsFunc(pins, func(pin string) bool { return strings.EqualFold(pin, apiclient.PinOf(certificate)) }) {
			kept = append(kept, pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: certificate.Raw})...)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("%w: it shows the certificate authority %s, which is not that of --ca-cert-hash; it may be an impostor, or its "+
			"certificate authority was replaced\nCheck --hub-apiserver, and run \"capstan get token\" on the hub again.",
			ErrUntrusted, strings.Join(apiclient.PinsOf(bundle), ", "))
	}
	return kept, nil
}
