package servingcerts_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/servingcerts"
)

const (
	namespace = "hub"
	day       = 24 * time.Hour
)

var (
	start   = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	servers = []servingcerts.Server{{Secret: "a-cert", Hosts: []string{"a.hub.svc"}},
		{Secret: "b-cert", Hosts: []string{"b.hub.svc", "192.0.2.1"}}}
)

// store is what a namespace holds after a renewal.
func store(c *servingcerts.Certificates) servingcerts.Stored {
	stored := servingcerts.Stored{Authority: c.Authority, Bundle: c.Bundle, Serving: map[string]*corev1.Secret{},
		Own: func(s *corev1.Secret) bool { return s.Annotations["user"] == "" }}
	for _, secret := range c.Serving {
		stored.Serving[secret.Name] = secret
	}
	return stored
}

func renew(t *testing.T, now time.Time, servers []servingcerts.Server, stored servingcerts.Stored) *servingcerts.Certificates {
	t.Helper()
	c, err := servingcerts.Renew(now, namespace, "authority", servers, stored)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func leaf(t *testing.T, secret *corev1.Secret) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func verify(c *servingcerts.Certificates, certificate *x509.Certificate, secret, host string, at time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Trusted[secret])
	_, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: at})
	return err
}

// CM-23, SD-02: what is made verifies, for how long, and stays as it is while it is good.
func TestCertificates(t *testing.T) {
	t.Parallel()
	c := renew(t, start, servers, servingcerts.Stored{})
	authority := leaf(t, c.Authority)
	if !strings.HasPrefix(authority.Subject.CommonName, "authority@") || authority.NotAfter != start.Add(365*day) ||
		c.Authority.Name != fleet.SecretSigner || c.Bundle.Name != fleet.ConfigMapCABundle {
		t.Errorf("authority %v until %v", authority.Subject, authority.NotAfter)
	}
	for i, server := range servers {
		certificate := leaf(t, c.Serving[i])
		if certificate.NotAfter != start.Add(30*day) {
			t.Errorf("%s until %v", server.Secret, certificate.NotAfter)
		}
		for _, host := range server.Hosts {
			if err := verify(c, certificate, server.Secret, host, start); err != nil {
				t.Error(err)
			}
		}
	}
	again := renew(t, start.Add(23*day), servers, store(c))
	if !bytes.Equal(again.Serving[0].Data[corev1.TLSCertKey], c.Serving[0].Data[corev1.TLSCertKey]) || again.Due != c.Due {
		t.Error("what was good has changed")
	}
}

// A fifth of the validity before its end, a certificate is renewed, and the authority, too; what the one before has signed stays
// verifiable.
func TestRenewal(t *testing.T) {
	t.Parallel()
	c := renew(t, start, servers, servingcerts.Stored{})
	if c.Due.After(start.Add(24*day)) || c.Due.Before(start.Add(23*day)) {
		t.Fatalf("due at %v", c.Due)
	}
	later := renew(t, c.Due, servers, store(c))
	if leaf(t, later.Serving[0]).NotAfter != c.Due.Add(30*day) || !leaf(t, later.Authority).Equal(leaf(t, c.Authority)) {
		t.Error("the serving certificate alone has to be renewed")
	}
	at := start.Add(300 * day)
	old := renew(t, at.Add(-10*day), servers, store(c))
	fresh := renew(t, at, servers, store(old))
	if leaf(t, fresh.Authority).Equal(leaf(t, c.Authority)) {
		t.Fatal("the authority was not renewed")
	}
	for _, certificate := range []*x509.Certificate{leaf(t, old.Serving[0]), leaf(t, fresh.Serving[0])} {
		if err := verify(fresh, certificate, "a-cert", "a.hub.svc", at); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(fresh.Bundle.Data[fleet.KeyCABundle], "BEGIN"); n != 2 {
		t.Errorf("%d authorities in the bundle", n)
	}
	after := renew(t, start.Add(366*day), servers, store(fresh))
	if n := strings.Count(after.Bundle.Data[fleet.KeyCABundle], "BEGIN"); n != 1 {
		t.Errorf("%d authorities in the bundle after the old one has expired", n)
	}
}

// CM-23, RG-51: clients that trust only the authority as of when they joined, such as agents by gRPC, reach servers until that expires.
func TestClientsOfTheAuthorityBefore(t *testing.T) {
	t.Parallel()
	first := renew(t, start, servers, servingcerts.Stored{})
	expiry := leaf(t, first.Authority).NotAfter
	old, now := x509.NewCertPool(), x509.NewCertPool()
	old.AddCert(leaf(t, first.Authority))
	stored, at := store(first), start.Add(365*day*4/5+time.Hour)
	for range 5 { // renewals of what the authority signs
		c := renew(t, at, servers, stored)
		if leaf(t, c.Authority).Equal(leaf(t, first.Authority)) {
			t.Fatalf("at %s, the authority is the same", at)
		}
		now.AddCert(leaf(t, c.Authority))
		if n := strings.Count(c.Bundle.Data[fleet.KeyCABundle], "BEGIN"); n != 2 && at.Before(expiry) {
			t.Errorf("at %s, the bundle has %d authorities", at, n)
		}
		for i, server := range servers {
			chain, err := certutil.ParseCertsPEM(c.Serving[i].Data[corev1.TLSCertKey])
			if err != nil {
				t.Fatal(err)
			}
			behind := x509.NewCertPool()
			for _, certificate := range chain[1:] {
				behind.AddCert(certificate)
			}
			for roots, want := range map[*x509.CertPool]bool{now: true, old: at.Before(expiry)} {
				_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: behind, DNSName: server.Hosts[0], CurrentTime: at})
				if (err == nil) != want {
					t.Errorf("at %s, by a client of the old authority: %t, want %t: %v", at, roots == old, want, err)
				}
			}
			if at.After(expiry) && len(chain) > 1 {
				t.Errorf("at %s, %s has %d certificates", at, server.Secret, len(chain))
			}
		}
		stored, at = store(c), at.Add(20*day)
	}
}

// CM-23: what a clock that was ahead has made is replaced, as clients take it for not valid yet.
func TestMadeByAClockAhead(t *testing.T) {
	t.Parallel()
	ahead := renew(t, start.Add(6*time.Hour), servers, servingcerts.Stored{})
	c := renew(t, start, servers, store(ahead))
	for i, server := range servers {
		if err := verify(c, leaf(t, c.Serving[i]), server.Secret, server.Hosts[0], start); err != nil {
			t.Errorf("%s: %v", server.Secret, err)
		}
	}
	if n := strings.Count(c.Bundle.Data[fleet.KeyCABundle], "BEGIN"); n != 1 {
		t.Errorf("%d authorities in the bundle", n)
	}
	again := renew(t, start.Add(time.Minute), servers, store(c))
	if !leaf(t, again.Authority).Equal(leaf(t, c.Authority)) || !leaf(t, again.Serving[0]).Equal(leaf(t, c.Serving[0])) {
		t.Error("what is good is replaced")
	}
}

// What does not fit is replaced: other hosts, a broken key, a lost authority.
func TestReplaced(t *testing.T) {
	t.Parallel()
	c := renew(t, start, servers, servingcerts.Stored{})
	for name, change := range map[string]func(*servingcerts.Stored, []servingcerts.Server){
		"hosts": func(_ *servingcerts.Stored, s []servingcerts.Server) { s[0].Hosts = []string{"other.hub.svc"} },
		"key": func(s *servingcerts.Stored, _ []servingcerts.Server) {
			s.Serving["a-cert"].Data[corev1.TLSPrivateKeyKey] = []byte("x")
		},
		"authority": func(s *servingcerts.Stored, _ []servingcerts.Server) { s.Authority = nil },
		"missing":   func(s *servingcerts.Stored, _ []servingcerts.Server) { delete(s.Serving, "a-cert") },
	} {
		stored, desired := store(c), append([]servingcerts.Server(nil), servers...)
		stored.Serving["a-cert"] = stored.Serving["a-cert"].DeepCopy()
		stored.Serving["a-cert"].ResourceVersion = "7"
		change(&stored, desired)
		now := renew(t, start.Add(time.Hour), desired, stored)
		if leaf(t, now.Serving[0]).Equal(leaf(t, c.Serving[0])) {
			t.Errorf("%s: the certificate is the same", name)
		}
		if stored.Serving["a-cert"] != nil && now.Serving[0].ResourceVersion != "7" {
			t.Errorf("%s: it replaces version %q", name, now.Serving[0].ResourceVersion)
		}
		if err := verify(now, leaf(t, now.Serving[0]), "a-cert", desired[0].Hosts[0], start.Add(time.Hour)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// CM-23, O4: a Secret of a user is used and left alone. What is wrong with it is said with what to do, and keeps nothing else from being
// renewed.
func TestCertificateOfUser(t *testing.T) {
	t.Parallel()
	certificate, key, err := certutil.GenerateSelfSignedCertKey("a.hub.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	of := func(data map[string][]byte) servingcerts.Stored {
		secret := &corev1.Secret{Data: data}
		secret.Annotations = map[string]string{"user": "true"}
		return servingcerts.Stored{Serving: map[string]*corev1.Secret{"a-cert": secret},
			Own: func(s *corev1.Secret) bool { return s.Annotations["user"] == "" }}
	}
	pair := map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
	c := renew(t, time.Now(), servers, of(pair))
	if len(c.Serving) != 1 || c.Serving[0].Name != "b-cert" || !bytes.Equal(c.Trusted["a-cert"], certificate) || len(c.Problems) > 0 {
		t.Errorf("%d Secrets are written", len(c.Serving))
	}
	parsed, err := certutil.ParseCertsPEM(certificate)
	if err != nil {
		t.Fatal(err)
	}
	for until, want := range map[time.Duration]bool{time.Hour: true, 0: false, 200 * day: false} {
		at := parsed[0].NotAfter.Add(-until)
		if c := renew(t, at, servers, of(pair)); c.Due.Equal(parsed[0].NotAfter) != want {
			t.Errorf("%s before it expires, %v is due", until, c.Due)
		}
	}
	pair["ca.crt"] = []byte(c.Bundle.Data[fleet.KeyCABundle])
	if c := renew(t, time.Now(), servers, of(pair)); !bytes.Equal(c.Trusted["a-cert"], pair["ca.crt"]) {
		t.Error("ca.crt is not what clients verify with")
	}
	for name, test := range map[string]struct {
		data map[string][]byte
		host string
		at   time.Time
		want string
	}{
		"empty":         {nil, "a.hub.svc", time.Now(), "has no usable certificate"},
		"another host":  {pair, "c.hub.svc", time.Now(), "not valid for c.hub.svc"},
		"expired, long": {pair, "a.hub.svc", time.Now().Add(100 * 365 * day), "expired at"},
		"not valid yet": {pair, "a.hub.svc", time.Now().Add(-2 * day), "not valid before"},
	} {
		c := renew(t, test.at, []servingcerts.Server{{Secret: "a-cert", Hosts: []string{test.host}}, servers[1]}, of(test.data))
		if len(c.Problems) != 1 || !strings.Contains(c.Problems[0], test.want) || !strings.Contains(c.Problems[0], "hub/a-cert") {
			t.Errorf("%s: problems %q", name, c.Problems)
		}
		if len(c.Serving) != 1 || c.Serving[0].Name != "b-cert" || len(c.Trusted["a-cert"]) == 0 {
			t.Errorf("%s: the other certificate was not made, or there is nothing to trust", name)
		}
	}
}

// CM-23: an authority that clients cannot be told to replace stays while it is valid, and signs meanwhile. What it signed says for which
// hosts.
func TestKeptAuthority(t *testing.T) {
	t.Parallel()
	first := renew(t, start, servers, servingcerts.Stored{})
	for days, kept := range map[int]bool{300: true, 360: true, 366: false} {
		stored := store(first)
		stored.KeepAuthority = true
		now := start.Add(time.Duration(days) * day)
		c := renew(t, now, servers, stored)
		if leaf(t, c.Authority).Equal(leaf(t, first.Authority)) != kept {
			t.Errorf("after %d days, the authority is another one: %t", days, kept)
		}
		if !c.Due.After(now) {
			t.Errorf("after %d days, something is due at %s", days, c.Due)
		}
		for i, server := range servers {
			if err := verify(c, leaf(t, c.Serving[i]), server.Secret, server.Hosts[0], now); err != nil {
				t.Errorf("after %d days: %v", days, err)
			}
			if hosts := servingcerts.HostsOf(c.Serving[i]); !slices.Equal(hosts, server.Hosts) {
				t.Errorf("%s is for %v", server.Secret, hosts)
			}
		}
	}
	if hosts := servingcerts.HostsOf(&corev1.Secret{}); len(hosts) > 0 {
		t.Errorf("a Secret without a certificate is for %v", hosts)
	}
}
