// Package pki keeps the keys and certificates of a control plane in a folder: made once, found again at every start,
// renewed before they expire while the server runs.
//
// A root CA signs one CA for each purpose, and those sign the certificates. Every CA has a bundle of the certificates
// that are to be trusted for its purpose; whoever verifies reads the bundle and reloads it when it changes. A CA is
// renewed with a new key in two steps, so that nobody meets a certificate he does not trust yet: the next certificate
// goes into the bundle first, and signs only after it has had time to spread, into backups, too.
//
// Several servers of one control plane share all of this but the certificate that each serves with: they keep it in a Storage, of which the
// folder is a copy.
package pki

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Authority is the name of a CA and of its files.
type Authority string

// The CAs of a control plane.
const (
	// RootCA signs the other CAs. Clients of the API server trust its bundle.
	RootCA Authority = "root-ca"
	// ServerCA signs the serving certificate of the API server.
	ServerCA Authority = "server-ca"
	// ClientCA signs client certificates, among them those of certificate signing requests.
	ClientCA Authority = "client-ca"
	// RequestHeaderCA signs the certificate with which the API server proxies to aggregated APIs.
	RequestHeaderCA Authority = "request-header-ca"
	// EtcdCA signs what etcd and its clients show each other.
	EtcdCA Authority = "etcd-ca"
	// ServiceAccounts signs service account tokens, not certificates. Its key is RSA; its own certificate carries
	// the public key and how long tokens of that key are accepted.
	ServiceAccounts Authority = "kube-serviceaccount"
)

// authorities are all of them.
var authorities = []Authority{RootCA, ServerCA, ClientCA, RequestHeaderCA, EtcdCA, ServiceAccounts}

// ServiceAccountTokenLifetime is the longest a service account token may be valid: for that long a key verifies after
// it has signed its last token.
const ServiceAccountTokenLifetime = year

// Leaf is the name of a certificate that is no CA, and of its files.
type Leaf string

// AdminUser is the name of the administrator of a control plane.
const AdminUser = "system:admin"

// The certificates of a control plane.
const (
	// APIServer is what the API server serves with; its file also holds the certificate of ServerCA.
	APIServer Leaf = "kube-apiserver"
	// Admin is AdminUser in group system:masters.
	Admin Leaf = "admin"
	// AuthProxy is user system:auth-proxy, as whom the API server proxies to aggregated APIs.
	AuthProxy Leaf = "auth-proxy"
	// EtcdServer is what etcd serves with, to clients and to peers.
	EtcdServer Leaf = "etcd-server"
	// EtcdClient is what a client of etcd shows.
	EtcdClient Leaf = "etcd-client"
)

const (
	// retryInterval is the pause after a renewal that failed, for instance because the disk was full.
	retryInterval = time.Minute

	// clockInterval is how often the clock is looked at: a timer counts neither the time for which a machine was suspended, nor by how much
	// its clock was set, as at its start.
	clockInterval = time.Minute

	// longestPause is the longest between two renewals, also if nothing is due.
	longestPause = 24 * time.Hour
)

// Options say where the folder is and what the certificates are for.
type Options struct {
	// Dir is the folder. Created with mode 0700; keys in it have mode 0600.
	Dir string
	// CAFile and CAKeyFile name a root CA supplied by the user instead of one of our own; both or neither. It is never
	// renewed by us.
	CAFile, CAKeyFile string
	// ServerNames are the host names and IP addresses in the serving certificate. Changing them makes a new one.
	ServerNames []string
	// Storage has what several stores share; nil means that the folder is the only place.
	Storage Storage
	// Clock is the source of time; nil means the machine's.
	Clock clock.Clock
}

// Store is an open folder of keys and certificates.
type Store struct {
	options Options
	folder  folder
	clock   clock.Clock

	mu sync.Mutex
	// renewed is when the last renewal was, and early whether it has replaced what began later. next is when there is something to do again.
	renewed, next time.Time
	early         bool
	// version is of what the Storage had at the last renewal.
	version Version
}

// Open creates what is missing in the folder and renews what is due. It fails when a file is broken or does not fit its
// partner; it never replaces such a file, because what was signed with it would become worthless. With a Storage, the first store to open
// puts what its folder has there, and what it creates, and others get it from there.
func Open(ctx context.Context, options Options) (*Store, error) {
	s := &Store{options: options, folder: folder(options.Dir), clock: options.Clock}
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	if (options.CAFile == "") != (options.CAKeyFile == "") {
		return nil, fmt.Errorf("a CA of your own needs both its certificate and its key, got certificate %q and key %q", options.CAFile,
			options.CAKeyFile)
	}
	if err := s.folder.create(); err != nil {
		return nil, fmt.Errorf("create the certificate folder: %w", err)
	}
	for _, of := range []folder{s.folder, s.folder.ended()} {
		if err := errors.Join(removeTemporary(string(of)), removeTemporary(filepath.Join(string(of), bundleDir))); err != nil {
			return nil, err
		}
	}
	if _, err := s.Renew(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Renew brings all certificates up to date and reports whether a file changed.
func (s *Store) Renew(ctx context.Context) (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	common := s.renewal(ctx, s.folder)
	if s.options.Storage == nil {
		err = s.alone(common)
	} else {
		err = s.share(ctx, common)
	}
	own := s.renewal(ctx, s.folder)
	if err == nil {
		err = own.serving()
	}
	common.include(own)
	if err == nil {
		s.next, s.renewed, s.early = common.next, common.now, common.early
	}
	return common.changed, err
}

// alone brings up to date what the store shares with no other one.
func (s *Store) alone(r *renewal) error {
	if err := s.checkEnded(); err != nil {
		return err
	}
	return r.common()
}

func (s *Store) renewal(ctx context.Context, of folder) *renewal {
	now := s.clock.Now().Round(0) // without the monotonic clock, which nobody sets
	return &renewal{folder: of, options: &s.options, logger: klog.FromContext(ctx).WithName("pki"), now: now}
}

// NextRenewal is when Renew will have something to do.
func (s *Store) NextRenewal() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// Run renews what becomes due, and takes over what another store has renewed, until ctx ends. It calls changed after files changed.
func (s *Store) Run(ctx context.Context, changed func()) {
	logger := klog.FromContext(ctx).WithName("pki")
	for s.awaitRenewal(ctx); ctx.Err() == nil; {
		renewed, err := s.Renew(ctx)
		if renewed {
			logger.Info("Renewed certificates", "folder", s.options.Dir)
			changed()
		}
		if err != nil {
			logger.Error(err, "Cannot renew the certificates; trying again", "folder", s.options.Dir, "after", retryInterval)
			s.await(ctx, retryInterval, nil) // what others have stored is still there: to await that would be no pause
			continue
		}
		if s.hasReplacedEarly() { // what a store makes whose clock is months ahead of another's, the two would replace in turns
			s.await(ctx, clockInterval, nil)
		}
		s.awaitRenewal(ctx)
	}
}

// awaitRenewal returns when something is due, the clock was set back, the Storage may have something else than at the last renewal, or ctx
// ends. What a CA of the user signs shortly before it ends is due at once, and renewed after clockInterval.
func (s *Store) awaitRenewal(ctx context.Context) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	others := s.othersRenew(waiting)
	for range longestPause / clockInterval {
		if !s.await(ctx, clockInterval, others) || s.isDue() {
			return
		}
	}
}

func (s *Store) isDue() bool {
	now, next := s.clock.Now(), s.NextRenewal()
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.renewed) || !now.Before(next)
}

func (s *Store) hasReplacedEarly() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.early
}

// await returns after a pause, or earlier, with false, if others renew or ctx ends.
func (s *Store) await(ctx context.Context, pause time.Duration, others <-chan struct{}) (passed bool) {
	timer := s.clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-others:
		return false
	case <-timer.C():
		return true
	}
}

// Bundle is the file of the certificates to trust for an authority, in PEM.
func (s *Store) Bundle(a Authority) string { return s.folder.bundle(a) }

// CA names the files of the certificate and the key that an authority signs with now.
func (s *Store) CA(a Authority) (certFile, keyFile string) {
	if a == RootCA && s.options.CAFile != "" {
		return s.options.CAFile, s.options.CAKeyFile
	}
	p := s.folder.pair(string(a))
	return p.certFile(), p.keyFile()
}

// ServiceAccountKeys names the file of the key that signs service account tokens now and the file of the certificates
// of all keys that verify them.
func (s *Store) ServiceAccountKeys() (keyFile, bundleFile string) {
	_, keyFile = s.CA(ServiceAccounts)
	return keyFile, s.Bundle(ServiceAccounts)
}

// Certificate names the files of a certificate and its key.
func (s *Store) Certificate(l Leaf) (certFile, keyFile string) {
	p := s.folder.pair(string(l))
	return p.certFile(), p.keyFile()
}
