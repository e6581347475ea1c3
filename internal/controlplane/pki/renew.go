package pki

import (
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/atomicfile"
)

const (
	bundleDir = "ca-bundle"

	day  = 24 * time.Hour
	year = 365 * day

	// backdate makes a new certificate valid on machines whose clock is behind.
	backdate = time.Hour

	// publication is for how long those who verify may keep a bundle that they have read.
	publication = time.Hour

	// backupAge is how old the backup may be that a server is restored from, so that it has the CAs that have signed since.
	backupAge = 30 * day
)

// lifetime is how long certificates of a kind live, and at which part of its life one is renewed: yearly
// certificates with seven months left, and those of five years with eighteen.
type lifetime struct {
	total time.Duration
	// left/of is the part of the life that remains when the certificate is renewed.
	left, of time.Duration
	// spread is how long the next certificate of a CA is in the bundle before it signs.
	spread time.Duration
	// reserve is for how long what a CA signs last can be valid. If it would be less, because the server was off when the next certificate
	// was due, that one signs earlier, but not before it is published.
	reserve time.Duration
}

var (
	rootLife   = lifetime{total: 5 * year, left: 18, of: 60, spread: backupAge, reserve: year}
	caLife     = lifetime{total: year, left: 7, of: 12, spread: backupAge, reserve: 90 * day}
	leafLife   = lifetime{total: year, left: 7, of: 12}
	etcdCALife = lifetime{total: 5 * year, left: 18, of: 60, spread: publication}

	// A key signs tokens until the next one does, a month into the second half of its life, and verifies them until the last has expired.
	serviceAccountLife = lifetime{total: 2 * (ServiceAccountTokenLifetime + backupAge + time.Hour), left: 1, of: 2, spread: backupAge,
		reserve: ServiceAccountTokenLifetime}
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

// signs is when the next certificate of a CA signs in the place of the current one.
func (l lifetime) signs(next, current *x509.Certificate) time.Time {
	made := next.NotBefore.Add(backdate)
	at, latest, earliest := made.Add(l.spread), current.NotAfter.Add(-l.reserve), made.Add(publication)
	if latest.Before(at) {
		at = latest
	}
	if at.Before(earliest) {
		at = earliest
	}
	return at
}

// renewal is one pass over the files of a folder.
type renewal struct {
	folder  folder
	options *Options
	logger  logr.Logger
	now     time.Time
	next    time.Time
	changed bool
	// early says that it has replaced what begins later.
	early bool
}

// include adds the outcome of another pass.
func (r *renewal) include(other *renewal) {
	r.changed = r.changed || other.changed
	r.early = r.early || other.early
	if !other.next.IsZero() {
		r.schedule(other.next)
	}
}

// common renews what all servers of a control plane have in common.
func (r *renewal) common() error {
	tokenKeys := &renewal{folder: r.folder, options: r.options, logger: r.logger, now: r.now}
	// Making an RSA key takes longer than all the rest.
	var both errgroup.Group
	both.Go(r.certificates)
	both.Go(tokenKeys.serviceAccounts)
	err := both.Wait()
	r.include(tokenKeys)
	return err
}

// serving renews what a server serves with.
func (r *renewal) serving() error {
	signer, err := r.folder.pair(string(ServerCA)).load()
	if err != nil {
		return err
	}
	return r.leaf(leafSpec{name: APIServer, signer: ServerCA, user: "kube-apiserver", usages: serverUsage, names: r.options.ServerNames,
		withSignerCert: true}, signer)
}

func (r *renewal) certificates() error {
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
	for _, leaf := range commonLeaves {
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
	o := r.options
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
	current, err := r.folder.pair(string(name)).load()
	if err != nil {
		return nil, err
	}
	if current == nil || current.endedAt(r.now) || !r.trusted(current, parent) {
		if err := r.folder.keep(name); err != nil {
			return nil, err
		}
		if current, err = r.issueCA(r.folder.pair(string(name)), name, life, parent); err != nil {
			return nil, err
		}
	}
	next, err := r.successor(current, name, life, parent)
	if err != nil {
		return nil, err
	}
	if next != nil && !r.now.Before(life.signs(next.cert, current.cert)) {
		if err := r.promote(name, next); err != nil {
			return nil, err
		}
		current, next = next, nil
	}
	trusted := []*x509.Certificate{current.cert}
	if next != nil {
		trusted = append(trusted, next.cert)
		r.schedule(life.signs(next.cert, current.cert))
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
	at := r.now
	if ca.cert.NotBefore.After(at) { // of a server whose clock is ahead
		at = ca.cert.NotBefore
	}
	_, err := ca.cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

// successor is the pair that will replace a CA which is due: the one found on disk, or a new one.
func (r *renewal) successor(current *keyPair, name Authority, life lifetime, parent *keyPair) (*keyPair, error) {
	staged := r.folder.staged(name)
	next, err := staged.load()
	if err == nil && next != nil && !next.endedAt(r.now) && !next.cert.Equal(current.cert) && r.trusted(next, parent) {
		return next, nil
	}
	// What is left of a promotion that a crash interrupted, or of a root that was replaced, has signed nothing.
	if err := staged.remove(); err != nil {
		return nil, err
	}
	if r.now.Before(life.due(current.cert)) {
		return nil, nil
	}
	return r.issueCA(staged, name, life, parent)
}

func (r *renewal) promote(name Authority, next *keyPair) error {
	if err := r.folder.keep(name); err != nil {
		return err
	}
	r.changed = true
	if err := r.folder.pair(string(name)).save(next); err != nil {
		return err
	}
	return r.folder.staged(name).remove()
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
	had := r.readBundle(name)
	for _, old := range had {
		if r.now.Before(old.NotAfter) && !slices.ContainsFunc(certs, old.Equal) {
			certs = append(certs, old)
		}
	}
	// Their order means nothing: servers with different CAs of a user would change it for ever.
	if sameCertificates(had, certs) {
		return nil
	}
	content, err := certutil.EncodeCertificates(certs...)
	if err != nil {
		return err
	}
	r.changed = true
	return atomicfile.Write(r.folder.bundle(name), content, 0o644)
}

func sameCertificates(some, others []*x509.Certificate) bool {
	return len(some) == len(others) &&
		!slices.ContainsFunc(some, func(c *x509.Certificate) bool { return !slices.ContainsFunc(others, c.Equal) })
}

// readBundle returns nothing for a bundle that is missing or broken: it is then written again.
func (r *renewal) readBundle(name Authority) []*x509.Certificate {
	certs, err := certutil.CertsFromFile(r.folder.bundle(name))
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

var (
	clientUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	serverUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
)

// commonLeaves are all but the one that a server serves with, whose names are the server's.
var commonLeaves = []leafSpec{
	{name: Admin, signer: ClientCA, user: AdminUser, groups: []string{"system:masters"}, usages: clientUsage},
	{name: AuthProxy, signer: RequestHeaderCA, user: "system:auth-proxy", usages: clientUsage},
	{name: EtcdServer, signer: EtcdCA, user: "etcd-server", usages: slices.Concat(serverUsage, clientUsage),
		names: []string{"localhost", "127.0.0.1", "::1"}},
	{name: EtcdClient, signer: EtcdCA, user: "etcd-client", usages: clientUsage},
}

func (r *renewal) leaf(spec leafSpec, signer *keyPair) error {
	file := r.folder.pair(string(spec.name))
	pair, err := file.load()
	if err != nil {
		return err
	}
	early := pair != nil && pair.cert.NotBefore.After(r.now)
	if early {
		r.early = true
		r.logger.Info("A certificate is made again, as it begins later than now: the clock was ahead, or is behind", "certificate", spec.name,
			"begins", pair.cert.NotBefore)
	}
	if pair == nil || early || !r.now.Before(leafLife.due(pair.cert)) || !spec.matches(pair.cert) ||
		!r.signedByTrusted(spec.signer, pair.cert) {
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
