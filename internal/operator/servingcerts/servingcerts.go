// Package servingcerts makes the serving certificates of an installation, and renews them in time: a certificate authority of its own,
// a bundle of the authorities that clients have to trust meanwhile, and a certificate for each server. It knows no cluster: callers pass
// what is stored, and store what it returns.
package servingcerts

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// How long what is made is valid. It is renewed when a fifth of that is left.
const (
	authorityValidity = 365 * 24 * time.Hour
	servingValidity   = 30 * 24 * time.Hour
	// backdate is by how much the clocks of clients may be behind.
	backdate = 5 * time.Minute
)

// keyOfAuthority in a Secret with a certificate of a user is the authority that clients have to trust.
const keyOfAuthority = "ca.crt"

// Server is a server that needs a certificate.
type Server struct {
	// Secret is the name of the Secret with the certificate.
	Secret string
	// Hosts are the DNS names and IP addresses by which clients reach the server. The first one is the common name.
	Hosts []string
}

// Stored is what the namespace of an installation has; nil means that it does not exist.
type Stored struct {
	Authority *corev1.Secret
	Bundle    *corev1.ConfigMap
	// Serving has the Secrets with serving certificates, by their names.
	Serving map[string]*corev1.Secret
	// Own reports whether a Secret was made by this package. Another one is from a user: it is used and never changed.
	Own func(*corev1.Secret) bool
	// KeepAuthority keeps the authority until it expires: clients cannot be told to trust another one.
	KeepAuthority bool
}

// authorityDue is when the authority is replaced.
func (s Stored) authorityDue(authority *x509.Certificate) time.Time {
	if s.KeepAuthority {
		return authority.NotAfter
	}
	return renewal(authority)
}

// Certificates is what there should be.
type Certificates struct {
	Authority *corev1.Secret
	Bundle    *corev1.ConfigMap
	// Serving are the Secrets with serving certificates, except those of users. They have the resource versions of those that they replace.
	Serving []*corev1.Secret
	// Trusted has for each Secret with a serving certificate, by its name, the authorities in PEM that clients verify it with.
	Trusted map[string][]byte
	// Due is when something has to be renewed, or a certificate of a user begins to be valid, or expires.
	Due time.Time
	// Problems say which Secrets of users clients cannot verify a server with, and what to do.
	Problems []string
}

// Renew returns what there should be in the namespace at that time. What is stored and still good stays. authority is the prefix of the
// common name of the certificate authority. A Secret of a user that cannot be used is one of
// the problems, and keeps nothing else from being renewed.
func Renew(now time.Time, namespace, authority string, servers []Server, stored Stored) (*Certificates, error) {
	ca, err := currentAuthority(now, authority, stored)
	if err != nil {
		return nil, err
	}
	bundle := ca.bundle(now, stored.Bundle)
	result := &Certificates{
		Authority: tlsSecret(namespace, fleet.SecretSigner, ca.pair),
		Bundle: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fleet.ConfigMapCABundle},
			Data: map[string]string{fleet.KeyCABundle: string(bundle)}},
		Trusted: map[string][]byte{},
		Due:     stored.authorityDue(ca.certificate),
	}
	for _, server := range servers {
		secret := stored.Serving[server.Secret]
		if secret != nil && !stored.Own(secret) {
			if err := checkOfUser(now, secret, server); err != nil {
				result.Problems = append(result.Problems, fmt.Sprintf("Secret %s/%s: %s", namespace, server.Secret, err))
			}
			result.Trusted[server.Secret] = trustedOfUser(secret, bundle)
			for _, change := range changesOf(secret) {
				if now.Before(change) {
					result.Due = earliest(result.Due, change)
				}
			}
			continue
		}
		pair, err := ca.serving(now, server, secret)
		if err != nil {
			return nil, err
		}
		made := tlsSecret(namespace, server.Secret, pair)
		if secret != nil { // a user may be storing another certificate
			made.ResourceVersion = secret.ResourceVersion
		}
		result.Serving = append(result.Serving, made)
		result.Trusted[server.Secret] = bundle
		result.Due = earliest(result.Due, renewal(pair.certificate))
	}
	return result, nil
}

// HostsOf are those that the certificate in a Secret is for; none if it has no usable one.
func HostsOf(secret *corev1.Secret) []string {
	p, err := pairOf(secret)
	if err != nil {
		return nil
	}
	hosts := slices.Clone(p.certificate.DNSNames)
	for _, ip := range p.certificate.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// changesOf are the times from and until when the certificate in a Secret is valid; none if it has no usable one.
func changesOf(secret *corev1.Secret) []time.Time {
	p, err := pairOf(secret)
	if err != nil {
		return nil
	}
	return []time.Time{p.certificate.NotBefore, p.certificate.NotAfter}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// renewal is when a fifth of the validity is left.
func renewal(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 5)
}

func tlsSecret(namespace, name string, p pair) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: p.chain, corev1.TLSPrivateKeyKey: p.keyPEM}}
}

// authorityPair is a certificate authority with its key.
type authorityPair struct {
	pair
	// cross is its certificate by the authority before it, in PEM, while that is valid: clients that trust that one alone verify with it. Its
	// chain has it, too.
	cross []byte
}

// currentAuthority is the stored authority, or a new one when that is due or cannot be used.
func currentAuthority(now time.Time, name string, stored Stored) (authorityPair, error) {
	before, err := pairOf(stored.Authority)
	usable := err == nil && before.certificate.IsCA
	if usable && now.Before(stored.authorityDue(before.certificate)) && (stored.KeepAuthority || begun(now, before.certificate)) {
		return authorityOf(before, crossOf(now, before)), nil
	}
	next, err := newAuthority(now, fmt.Sprintf("%s@%d", name, now.Unix()))
	if err != nil || !usable || !isValid(now, before.certificate) {
		return authorityOf(next, nil), err
	}
	cross, err := next.signedBy(before)
	return authorityOf(next, cross), err
}

func authorityOf(p pair, cross []byte) authorityPair {
	p.chain = slices.Concat(encode(p.certificate), cross)
	return authorityPair{p, cross}
}

// crossOf is the certificate of an authority by the one before it, as stored behind its own; empty once that is not valid.
func crossOf(now time.Time, authority pair) []byte {
	for _, certificate := range parse(authority.chain) {
		if !certificate.Equal(authority.certificate) && isValid(now, certificate) {
			return encode(certificate)
		}
	}
	return nil
}

// begun reports whether a certificate is valid already: one may be from a clock that was ahead.
func begun(now time.Time, certificate *x509.Certificate) bool {
	return !now.Before(certificate.NotBefore)
}

func isValid(now time.Time, certificate *x509.Certificate) bool {
	return begun(now, certificate) && now.Before(certificate.NotAfter)
}

// bundle is the authority and those before it that are still valid: servers may still show certificates that these have signed.
func (a authorityPair) bundle(now time.Time, stored *corev1.ConfigMap) []byte {
	bundle := encode(a.certificate)
	if stored == nil {
		return bundle
	}
	for _, certificate := range parse([]byte(stored.Data[fleet.KeyCABundle])) {
		if isValid(now, certificate) && !certificate.Equal(a.certificate) {
			bundle = append(bundle, encode(certificate)...)
		}
	}
	return bundle
}

// serving is the stored certificate of the server, or a new one when that is due, from another authority or for other hosts. Behind it is
// what leads to the authority before.
func (a authorityPair) serving(now time.Time, server Server, stored *corev1.Secret) (pair, error) {
	p, err := pairOf(stored)
	if err != nil || !begun(now, p.certificate) || !now.Before(renewal(p.certificate)) || !sameHosts(p.certificate, server.Hosts) ||
		p.certificate.CheckSignatureFrom(a.certificate) != nil {
		if p, err = newServing(now, server.Hosts, a.pair); err != nil {
			return pair{}, err
		}
	}
	p.chain = slices.Concat(encode(p.certificate), a.cross)
	return p, nil
}

func sameHosts(certificate *x509.Certificate, hosts []string) bool {
	has := map[string]bool{}
	for _, name := range certificate.DNSNames {
		has[name] = true
	}
	for _, ip := range certificate.IPAddresses {
		has[ip.String()] = true
	}
	want := map[string]bool{}
	for _, host := range hosts {
		want[normal(host)] = true
	}
	return maps.Equal(has, want)
}

// checkOfUser is an error if clients cannot verify the server with the certificate that a user has stored.
func checkOfUser(now time.Time, secret *corev1.Secret, server Server) error {
	p, err := pairOf(secret)
	if err != nil {
		return fmt.Errorf("it is not one of this operator, and has no usable certificate: %w; correct it, or delete it to get one", err)
	}
	if !now.Before(p.certificate.NotAfter) {
		return fmt.Errorf("its certificate expired at %s; renew it, or delete the Secret to get one from the operator",
			p.certificate.NotAfter.Format(time.RFC3339))
	}
	if !begun(now, p.certificate) {
		return fmt.Errorf("its certificate is not valid before %s; correct the clock of who makes it, or delete the Secret to get one from the "+
			"operator", p.certificate.NotBefore.Format(time.RFC3339))
	}
	for _, host := range server.Hosts {
		if err := p.certificate.VerifyHostname(host); err != nil {
			return fmt.Errorf("its certificate is not valid for %s: %w; make one for %s", host, err, strings.Join(server.Hosts, ", "))
		}
	}
	return nil
}

// trustedOfUser are the authorities of a certificate that a user has stored: those in ca.crt, else the certificate itself; of a Secret that
// has neither, those of the operator, so that an API server accepts what refers to them.
func trustedOfUser(secret *corev1.Secret, own []byte) []byte {
	for _, key := range []string{keyOfAuthority, corev1.TLSCertKey} {
		if len(parse(secret.Data[key])) > 0 {
			return bytes.Clone(secret.Data[key])
		}
	}
	return own
}

func pairOf(secret *corev1.Secret) (pair, error) {
	if secret == nil {
		return pair{}, errors.New("there is no Secret")
	}
	return parsePair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
}

func parse(bundle []byte) (certificates []*x509.Certificate) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			certificates = append(certificates, certificate)
		}
	}
	return certificates
}
