package hubapi

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"regexp"
	"slices"
	"strings"

	certutil "k8s.io/client-go/util/cert"
)

// pinForm is the form that kubeadm gives the hash of a certificate authority.
var pinForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// pinOf names a certificate by the hash of its public key: it stays when the certificate is renewed with the same key.
func pinOf(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// pinsOf are the pins of all certificates of a PEM bundle.
func pinsOf(bundle []byte) []string {
	certificates, err := certutil.ParseCertsPEM(bundle)
	if err != nil {
		return nil
	}
	pins := make([]string, len(certificates))
	for i, certificate := range certificates {
		pins[i] = pinOf(certificate)
	}
	return slices.Compact(pins)
}

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
		if slices.ContainsFunc(pins, func(pin string) bool { return strings.EqualFold(pin, pinOf(certificate)) }) {
			kept = append(kept, pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: certificate.Raw})...)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("%w: it shows the certificate authority %s, which is not that of --ca-cert-hash; it may be an impostor, or its "+
			"certificate authority was replaced\nCheck --hub-apiserver, and run \"capstan get token\" on the hub again.",
			ErrUntrusted, strings.Join(pinsOf(bundle), ", "))
	}
	return kept, nil
}
