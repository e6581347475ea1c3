package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/capstan-io/capstan/internal/atomicfile"
	"github.com/capstan-io/capstan/internal/controlplane/datadir"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// serviceAccountKeyBits is the size that clients of the published keys expect.
const serviceAccountKeyBits = 2048

// keyPair is a certificate with its private key. chain is what the certificate file holds, the certificate first.
type keyPair struct {
	cert  *x509.Certificate
	chain []*x509.Certificate
	key   crypto.Signer
}

// endedAt is false for a certificate that is not valid yet: the clock of this machine is behind that of another.
func (p *keyPair) endedAt(now time.Time) bool { return !now.Before(p.cert.NotAfter) }

// newKey makes the kind of key that an authority or certificate of that name has.
func newKey[Name Authority | Leaf](name Name) (crypto.Signer, error) {
	if string(name) == string(ServiceAccounts) {
		return rsa.GenerateKey(rand.Reader, serviceAccountKeyBits)
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// issue makes a certificate for a key. parent signs; nil means the key itself. A certificate never outlives its signer.
func issue(template *x509.Certificate, key crypto.Signer, parent *keyPair) (*keyPair, error) {
	if parent == nil {
		parent = &keyPair{key: key}
	}
	cert, err := signingrequest.Sign(*template, key.Public(), parent.cert, parent.key)
	if err != nil {
		return nil, err
	}
	return &keyPair{cert: cert, chain: []*x509.Certificate{cert}, key: key}, nil
}

// folder is a folder of keys, certificates and bundles.
type folder string

// create makes the folder, if there is none.
func (f folder) create() error { return os.MkdirAll(filepath.Join(string(f), bundleDir), 0o700) }

func (f folder) pair(name string) pairFile { return pairFile(filepath.Join(string(f), name)) }

// staged is where the next pair of an authority is until it signs.
func (f folder) staged(a Authority) pairFile { return f.pair(string(a) + stagedSuffix) }

func (f folder) bundle(a Authority) string { return filepath.Join(string(f), bundleFile(a)) }

// bundleFile is the bundle of an authority below its folder.
func bundleFile(a Authority) string { return filepath.Join(bundleDir, string(a)+"-bundle.crt") }

const (
	stagedSuffix  = ".next"
	certExtension = ".crt"
	keyExtension  = ".key"
)

// pairFile is the path of a pair without its extension: .crt holds the certificate, .key the private key.
type pairFile string

func (f pairFile) certFile() string { return string(f) + certExtension }
func (f pairFile) keyFile() string  { return string(f) + keyExtension }

// incoming is where a new pair waits complete on disk, so that after a crash between the two renames the second can be made.
func (f pairFile) incoming() pairFile { return f + ".new" }

// load returns nil when there is no such pair.
func (f pairFile) load() (*keyPair, error) {
	if err := f.complete(); err != nil {
		return nil, err
	}
	pair, err := loadPair(f.certFile(), f.keyFile())
	switch {
	case err == nil:
		return pair, nil
	case f.absent():
		return nil, nil
	default:
		return nil, fmt.Errorf("%w; restore %s and %s from a backup, or remove both to have new ones made: what the old ones signed is then refused", err,
			f.certFile(), f.keyFile())
	}
}

func (f pairFile) absent() bool { return !exists(f.certFile()) && !exists(f.keyFile()) }

func (f pairFile) save(p *keyPair) error {
	key, err := keyutil.MarshalPrivateKeyToPEM(p.key)
	if err != nil {
		return err
	}
	certs, err := certutil.EncodeCertificates(p.chain...)
	if err != nil {
		return err
	}
	return f.write(certs, key)
}

func (f pairFile) write(certs, key []byte) error {
	// The certificate is written last: with it the incoming pair is complete.
	in := f.incoming()
	if err := atomicfile.Write(in.keyFile(), key, 0o600); err != nil {
		return err
	}
	if err := atomicfile.Write(in.certFile(), certs, 0o644); err != nil {
		return err
	}
	return f.complete()
}

// complete puts a complete incoming pair in place. The certificate goes last: while it is there, the swap is unfinished.
func (f pairFile) complete() error {
	in := f.incoming()
	if !exists(in.certFile()) {
		return nil
	}
	if exists(in.keyFile()) {
		if err := os.Rename(in.keyFile(), f.keyFile()); err != nil {
			return err
		}
	}
	if err := os.Rename(in.certFile(), f.certFile()); err != nil {
		return err
	}
	return datadir.Sync(filepath.Dir(string(f)))
}

// remove deletes a pair that is no longer needed.
func (f pairFile) remove() error {
	for _, file := range []string{f.certFile(), f.keyFile()} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// loadUserCA reads a CA the user supplied and refuses one that cannot do the work.
func loadUserCA(certFile, keyFile string, now time.Time) (*keyPair, error) {
	pair, err := loadPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	switch c := pair.cert; {
	case !c.IsCA:
		return nil, fmt.Errorf("%s holds a certificate that is no CA (basic constraint CA:TRUE is missing)", certFile)
	case c.MaxPathLen == 0 && c.MaxPathLenZero:
		return nil, fmt.Errorf("%s may not sign other CAs (path length 0), which the control plane needs; supply one with path length 1 or more",
			certFile)
	case now.Before(c.NotBefore) || pair.endedAt(now):
		return nil, fmt.Errorf("%s is valid from %s to %s, not now; supply a current CA", certFile, c.NotBefore.Format(time.RFC3339),
			c.NotAfter.Format(time.RFC3339))
	}
	return pair, nil
}

func loadPair(certFile, keyFile string) (*keyPair, error) {
	certs, err := certutil.CertsFromFile(certFile)
	if err != nil {
		return nil, err
	}
	parsed, err := keyutil.PrivateKeyFromFile(keyFile)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("key %s: a %T cannot sign", keyFile, parsed)
	}
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(certs[0].PublicKey) {
		return nil, fmt.Errorf("key %s does not belong to certificate %s", keyFile, certFile)
	}
	return &keyPair{cert: certs[0], chain: certs, key: key}, nil
}

// HasKeys reports whether a folder has the key or the certificate of any authority.
func HasKeys(dir string) bool {
	return slices.ContainsFunc(authorities, func(a Authority) bool { return !folder(dir).pair(string(a)).absent() })
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// removeTemporary removes what a crash left of files that were being written.
func removeTemporary(dir string) error {
	found, err := fs.Glob(os.DirFS(dir), atomicfile.TemporaryPrefix+"*")
	if err != nil {
		return err
	}
	for _, name := range found {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove what an earlier run left: %w", err)
		}
	}
	return nil
}
