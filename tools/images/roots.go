package main

import (
	"bytes"
	"encoding/pem"
	"errors"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// rootCertificates are the certificate authorities that Mozilla trusts, in PEM. Those that it trusts only with a constraint, such as for
// certificates from before a day, are left out: a file cannot say so. They come from a module and not from this machine, so that the
// same commit has the same ones everywhere.
func rootCertificates() ([]byte, error) {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	if all.Len() == 0 {
		return nil, errors.New("the bundle of certificate authorities is empty")
	}
	return all.Bytes(), nil
}
