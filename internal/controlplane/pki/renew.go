package pki

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

const (
	bundleDir = "ca-bundle"

	day  = 24 * time.Hour
	year = 365 * day

	// backdate makes a new certificate valid on machines whose clock is behind.
	backdate = time.Hour
)

// lifetime is how long certificates of a kind live, and at which part of its life one is renewed: yearly
// certificates with seven months left, and those of five years with eighteen.
type lifetime struct {
	total time.Duration
	// left/of is the part of the life that remains when the certificate is renewed.
	left, of time.Duration
	// spread is how long the next certificate of a CA is in the bundle before it signs.
	spread time.Duration
}

var (
	rootLife   = lifetime{total: 5 * year, left: 18, of: 60, spread: 30 * day}
	caLife     = lifetime{total: year, left: 7, of: 12, spread: time.Hour}
	leafLife   = lifetime{total: year, left: 7, of: 12}
	etcdCALife = lifetime{total: 5 * year, left: 18, of: 60, spread: time.Hour}

	// A key signs tokens for a year, and then verifies them until the last has expired.
	serviceAccountLife = lifetime{total: year + ServiceAccountTokenLifetime + 2*time.Hour, left: 1, of: 2, spread: time.Hour}
)

// subordinates are the CAs below the root. A running etcd reads its trusted CA once, so that one lives long.
var subordinates = []struct {
	name Authority
	life lifetime
}{
	{ServerCA, caLife}, {ClientCA, caLife}, {RequestHeaderCA, caLife}, {EtcdCA, etcdCALife},
}

// due is when a certificate is to be renewed. A certificate that its signer cut short is renewed at the same part of
// the life it got.
func (l lifetime) due(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / l.of * l.left)
}

// renewal is one pass over all files.
type renewal struct {
	store   *Store
	now     time.Time
	next    time.Time
	changed bool
}

func (r *renewal) run() error {
	root, err := r.root()
	if err != nil {
		return err
	}
	signers := map[Authority]*keyPair{}
	for _, sub := range subordinates {
		if signers[sub.name], err = r.authority(sub.name, sub.life, root); err != nil {
			return err
		}
	}
	for _, leaf := range r.leaves() {
		if err := r.leaf(leaf, signers[leaf.signer]); err != nil {
			return err
		}
	}
	return nil
}

func (r *renewal) serviceAccounts() error {
	_, err := r.authority(ServiceAccounts, serviceAccountLife, nil)
	return err
}

// root is our own root CA, or the user's, which only he can renew.
func (r *renewal) root() (*keyPair, error) {
	o := r.store.options
	if o.CAFile == "" {
		return r.authority(RootCA, rootLife, nil)
	}
	pair, err := loadUserCA(o.CAFile, o.CAKeyFile, r.now)
	if err != nil {
		return nil, err
	}
	r.schedule(pair.cert.NotAfter)
	return pair, r.bundle(RootCA, pair.chain)
}

// authority returns the pair a CA signs with now. parent signs it; nil means itself.
func (r *renewal) authority(name Authority, life lifetime, parent *keyPair) (*keyPair, error) {
	current, err := r.store.pair(string(name)).load()
	if err != nil {
		return nil, err
	}
	if current == nil || !current.validAt(r.now) || !r.trusted(current, parent) {
		if current, err = r.issueCA(r.store.pair(string(name)), name, life, parent); err != nil {
			return nil, err
		}
	}
	next, err := r.successor(current, name, life, parent)
	if err != nil {
		return nil, err
	}
	if next != nil && !r.now.Before(next.cert.NotBefore.Add(backdate+life.spread)) {
		if err := r.promote(name, next); err != nil {
			return nil, err
		}
		current, next = next, nil
	}
	trusted := []*x509.Certificate{current.cert}
	if next != nil {
		trusted = append(trusted, next.cert)
		r.schedule(next.cert.NotBefore.Add(backdate + life.spread))
	} else {
		r.schedule(life.due(current.cert))
	}
	return current, r.bundle(name, trusted)
}

// trusted says whether a CA was signed by a root that clients still trust. It is not after the user replaced the root
// and removed the old one from the bundle.
func (r *renewal) trusted(ca, parent *keyPair) bool {
	if parent == nil {
		return true
	}
	roots := x509.NewCertPool()
	for _, c := range r.readBundle(RootCA) {
		roots.AddCert(c)
	}
	_, err := ca.cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: r.now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

// successor is the pair that will replace a CA which is due: the one found on disk, or a new one.
func (r *renewal) successor(current *keyPair, name Authority, life lifetime, parent *keyPair) (*keyPair, error) {
	staged := r.staged(name)
	next, err := staged.load()
	if err == nil && next != nil && next.validAt(r.now) && !next.cert.Equal(current.cert) {
		return next, nil
	}
	// What is left of a promotion that a crash interrupted has signed nothing.
	if err := staged.remove(); err != nil {
		return nil, err
	}
	if r.now.Before(life.due(current.cert)) {
		return nil, nil
	}
	return r.issueCA(staged, name, life, parent)
}

func (r *renewal) staged(name Authority) pairFile { return r.store.pair(string(name) + ".next") }

func (r *renewal) promote(name Authority, next *keyPair) error {
	r.changed = true
	if err := r.store.pair(string(name)).save(next); err != nil {
		return err
	}
	return r.staged(name).remove()
}

func (r *renewal) issueCA(to pairFile, name Authority, life lifetime, parent *keyPair) (*keyPair, error) {
	// Generations of a CA have different names, so that a verifier never confuses them.
	template := &x509.Certificate{
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		NotBefore: r.now.Add(-backdate), NotAfter: r.now.Add(life.total),
	}
	if name != ServiceAccounts {
		template.IsCA = true
		template.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	}
	template.Subject.CommonName = fmt.Sprintf("%s@%d", name, r.now.Unix())
	key, err := newKey(name)
	if err != nil {
		return nil, err
	}
	pair, err := issue(template, key, parent)
	if err != nil {
		return nil, fmt.Errorf("issue %s: %w", name, err)
	}
	r.changed = true
	return pair, to.save(pair)
}

// bundle makes the bundle of an authority hold the given certificates and, of the ones it held, those still valid: what
// they signed is still about.
func (r *renewal) bundle(name Authority, certs []*x509.Certificate) error {
	for _, old := range r.readBundle(name) {
		if r.now.Before(old.NotAfter) && !slices.ContainsFunc(certs, old.Equal) {
			certs = append(certs, old)
		}
	}
	content, err := certutil.EncodeCertificates(certs...)
	if err != nil {
		return err
	}
	file := r.store.Bundle(name)
	if had, err := os.ReadFile(file); err == nil && bytes.Equal(had, content) {
		return nil
	}
	r.changed = true
	return writeFile(file, content, 0o644)
}

// readBundle returns nothing for a bundle that is missing or broken: it is then written again.
func (r *renewal) readBundle(name Authority) []*x509.Certificate {
	certs, err := certutil.CertsFromFile(r.store.Bundle(name))
	if err != nil {
		return nil
	}
	return certs
}

// leafSpec is what a certificate is to say.
type leafSpec struct {
	name           Leaf
	signer         Authority
	user           string
	groups         []string
	usages         []x509.ExtKeyUsage
	names          []string
	withSignerCert bool
}

func (r *renewal) leaves() []leafSpec {
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	server := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return []leafSpec{
		{name: APIServer, signer: ServerCA, user: "kube-apiserver", usages: server, names: r.store.options.ServerNames, withSignerCert: true},
		{name: Admin, signer: ClientCA, user: "system:admin", groups: []string{"system:masters"}, usages: client},
		{name: AuthProxy, signer: RequestHeaderCA, user: "system:auth-proxy", usages: client},
		{name: EtcdServer, signer: EtcdCA, user: "etcd-server", usages: append(server, client...),
			names: []string{"localhost", "127.0.0.1", "::1"}},
		{name: EtcdClient, signer: EtcdCA, user: "etcd-client", usages: client},
	}
}

func (r *renewal) leaf(spec leafSpec, signer *keyPair) error {
	file := r.store.pair(string(spec.name))
	pair, err := file.load()
	if err != nil {
		return err
	}
	if pair == nil || !r.now.Before(leafLife.due(pair.cert)) || !spec.matches(pair.cert) || !r.signedByTrusted(spec.signer, pair.cert) {
		if pair, err = r.issueLeaf(file, spec, signer); err != nil {
			return err
		}
	}
	r.schedule(leafLife.due(pair.cert))
	return nil
}

func (r *renewal) signedByTrusted(name Authority, leaf *x509.Certificate) bool {
	return slices.ContainsFunc(r.readBundle(name), func(ca *x509.Certificate) bool { return leaf.CheckSignatureFrom(ca) == nil })
}

func (r *renewal) issueLeaf(to pairFile, spec leafSpec, signer *keyPair) (*keyPair, error) {
	template := &x509.Certificate{
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: spec.usages, BasicConstraintsValid: true,
		NotBefore: r.now.Add(-backdate), NotAfter: r.now.Add(leafLife.total),
	}
	template.Subject.CommonName, template.Subject.Organization = spec.user, spec.groups
	template.DNSNames, template.IPAddresses = splitNames(spec.names)
	key, err := newKey(spec.name)
	if err != nil {
		return nil, err
	}
	pair, err := issue(template, key, signer)
	if err != nil {
		return nil, fmt.Errorf("issue %s: %w", spec.name, err)
	}
	if spec.withSignerCert {
		pair.chain = append(pair.chain, signer.cert)
	}
	r.changed = true
	return pair, to.save(pair)
}

func (s leafSpec) matches(c *x509.Certificate) bool {
	dns, ips := splitNames(s.names)
	return c.Subject.CommonName == s.user &&
		slices.Equal(c.Subject.Organization, s.groups) &&
		slices.Equal(c.DNSNames, dns) &&
		slices.EqualFunc(c.IPAddresses, ips, net.IP.Equal)
}

func splitNames(names []string) (dns []string, ips []net.IP) {
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			ips = append(ips, ip)
		} else {
			dns = append(dns, name)
		}
	}
	return dns, ips
}

func (r *renewal) schedule(at time.Time) {
	if r.next.IsZero() || at.Before(r.next) {
		r.next = at
	}
}
