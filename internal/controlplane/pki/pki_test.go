package pki

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/atomicfile"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, dir string, at time.Time, change func(*Options)) *Store {
	t.Helper()
	o := Options{Dir: dir, ServerNames: []string{"hub.example.com", "127.0.0.1"}, Clock: testclock.NewFakeClock(at)}
	if change != nil {
		change(&o)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func leaf(t *testing.T, s *Store, l Leaf) []*x509.Certificate {
	t.Helper()
	file, _ := s.Certificate(l)
	certs, err := certutil.CertsFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

func ca(t *testing.T, s *Store, a Authority) *x509.Certificate {
	t.Helper()
	file, _ := s.CA(a)
	certs, err := certutil.CertsFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

func caKey(t *testing.T, s *Store, a Authority) any {
	t.Helper()
	_, file := s.CA(a)
	key, err := keyutil.PrivateKeyFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func testKey(t *testing.T, a Authority) crypto.Signer {
	t.Helper()
	key, err := newKey(a)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func encode(t *testing.T, c *x509.Certificate) []byte {
	t.Helper()
	content, err := certutil.EncodeCertificates(c)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// trusts reports whether a client that has only the given bundle accepts the certificate.
func trusts(t *testing.T, bundle []byte, chain []*x509.Certificate, at time.Time, usage x509.ExtKeyUsage) error {
	t.Helper()
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("empty bundle")
	}
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func renew(t *testing.T, s *Store) {
	t.Helper()
	if _, err := s.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[path] = string(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// SC-06, SC-08: a restart finds everything and changes nothing; keys are for the owner alone.
func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cert")
	open(t, dir, start, nil)
	before := snapshot(t, dir)
	open(t, dir, start.Add(time.Hour), nil)
	after := snapshot(t, dir)
	if len(before) != len(after) {
		t.Errorf("a restart left %d files of %d", len(after), len(before))
	}
	keys := 0
	for file, content := range before {
		if after[file] != content {
			t.Errorf("%s changed at the restart", file)
		}
		if strings.HasSuffix(file, ".key") {
			keys++
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %o, want 600", file, info.Mode().Perm())
			}
		}
	}
	if want := 5 + 5 + 1; keys != want {
		t.Errorf("found %d keys, want %d", keys, want)
	}
}

// SC-06: who each certificate is for, and who trusts it.
func TestCertificates(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), start, nil)
	for _, c := range []struct {
		leaf   Leaf
		bundle Authority
		usage  x509.ExtKeyUsage
		user   string
	}{
		// Clients know the root alone: the server sends the CA in between.
		{APIServer, RootCA, x509.ExtKeyUsageServerAuth, "kube-apiserver"},
		{Admin, ClientCA, x509.ExtKeyUsageClientAuth, "system:admin"},
		{AuthProxy, RequestHeaderCA, x509.ExtKeyUsageClientAuth, "system:auth-proxy"},
		{EtcdServer, EtcdCA, x509.ExtKeyUsageServerAuth, "etcd-server"},
		{EtcdServer, EtcdCA, x509.ExtKeyUsageClientAuth, "etcd-server"},
		{EtcdClient, EtcdCA, x509.ExtKeyUsageClientAuth, "etcd-client"},
	} {
		chain := leaf(t, s, c.leaf)
		if err := trusts(t, read(t, s.Bundle(c.bundle)), chain, start, c.usage); err != nil {
			t.Errorf("%s: the bundle of %s does not trust it: %v", c.leaf, c.bundle, err)
		}
		if got := chain[0].Subject.CommonName; got != c.user {
			t.Errorf("%s: user %q, want %q", c.leaf, got, c.user)
		}
		if got, want := chain[0].NotAfter, start.Add(365*24*time.Hour); !got.Equal(want) {
			t.Errorf("%s: expires %s, want %s", c.leaf, got, want)
		}
	}
	if groups := leaf(t, s, Admin)[0].Subject.Organization; len(groups) != 1 || groups[0] != "system:masters" {
		t.Errorf("admin is in groups %v", groups)
	}
	if err := trusts(t, read(t, s.Bundle(RequestHeaderCA)), leaf(t, s, Admin), start, x509.ExtKeyUsageClientAuth); err == nil {
		t.Error("the admin certificate passes for a proxy's")
	}
	if got, want := ca(t, s, RootCA).NotAfter, start.Add(5*365*24*time.Hour); !got.Equal(want) {
		t.Errorf("the root expires %s, want %s", got, want)
	}
}

// SC-07: other names make another serving certificate, and nothing else.
func TestServerNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := open(t, dir, start, nil)
	admin := leaf(t, first, Admin)[0]
	second := open(t, dir, start, func(o *Options) { o.ServerNames = []string{"other.example.com", "10.0.0.1"} })
	cert := leaf(t, second, APIServer)[0]
	if err := cert.VerifyHostname("other.example.com"); err != nil {
		t.Error(err)
	}
	if err := cert.VerifyHostname("10.0.0.1"); err != nil {
		t.Error(err)
	}
	if err := cert.VerifyHostname("hub.example.com"); err == nil {
		t.Error("the old name is still valid")
	}
	if !leaf(t, second, Admin)[0].Equal(admin) {
		t.Error("the admin certificate changed with the server's names")
	}
}

// SC-06: over six years of running, a client with what it was given at some point is never locked out before its own
// certificate expires, and the files on disk are never expired or about to be.
func TestRotationIsSeamless(t *testing.T) {
	t.Parallel()
	clock := testclock.NewFakeClock(start)
	s, err := Open(t.Context(), Options{Dir: t.TempDir(), ServerNames: []string{"127.0.0.1"}, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	firstRoot := ca(t, s, RootCA)
	lastBundle, lastAdmin := read(t, s.Bundle(RootCA)), leaf(t, s, Admin)
	lastClientCA := ca(t, s, ClientCA)
	rotations := 0
	for clock.Now().Before(start.Add(6 * 365 * 24 * time.Hour)) {
		clock.SetTime(s.NextRenewal())
		now := clock.Now()
		// A client with the bundle of the moment before must trust the server of the moment after, and the other way
		// round.
		if _, err := s.Renew(t.Context()); err != nil {
			t.Fatalf("at %s: %v", now, err)
		}
		if !s.NextRenewal().After(now) {
			t.Fatalf("at %s: the next renewal is at %s: a busy loop", now, s.NextRenewal())
		}
		if err := trusts(t, lastBundle, leaf(t, s, APIServer), now, x509.ExtKeyUsageServerAuth); err != nil {
			t.Fatalf("at %s: the previous root bundle rejects the server: %v", now, err)
		}
		if err := trusts(t, read(t, s.Bundle(ClientCA)), lastAdmin, now, x509.ExtKeyUsageClientAuth); err != nil {
			t.Fatalf("at %s: the client bundle rejects the previous admin: %v", now, err)
		}
		if left := leaf(t, s, APIServer)[0].NotAfter.Sub(now); left < 90*24*time.Hour {
			t.Fatalf("at %s: the serving certificate has %s left", now, left)
		}
		if left := ca(t, s, ClientCA).NotAfter.Sub(now); left < 180*24*time.Hour {
			t.Fatalf("at %s: the client CA has %s left to sign with", now, left)
		}
		if c := ca(t, s, ClientCA); !c.Equal(lastClientCA) {
			rotations++
			lastClientCA = c
		}
		lastBundle, lastAdmin = read(t, s.Bundle(RootCA)), leaf(t, s, Admin)
	}
	if rotations < 10 {
		t.Errorf("the client CA was renewed %d times in six years", rotations)
	}
	if ca(t, s, RootCA).Equal(firstRoot) {
		t.Error("the root is still the first one after six years")
	}
	if strings.Count(string(lastBundle), "BEGIN") > 2 {
		t.Error("expired roots stay in the bundle")
	}
}

// SC-06 SC-08: a CA that is new to its verifiers does not sign until it has been in the bundle for a month, and in backups: a server that
// is restored from one of these trusts what was signed since, and signs with the same CA.
func TestNextCASignsOnlyAfterItSpread(t *testing.T) {
	t.Parallel()
	for authority, life := range map[Authority]lifetime{
		RootCA: rootLife, ServerCA: caLife, ClientCA: caLife, RequestHeaderCA: caLife, ServiceAccounts: serviceAccountLife,
	} {
		t.Run(string(authority), func(t *testing.T) {
			t.Parallel()
			clock, dir, backup := testclock.NewFakeClock(start), t.TempDir(), t.TempDir()
			s := open(t, dir, start, func(o *Options) { o.Clock = clock })
			old := ca(t, s, authority)
			clock.SetTime(life.due(old))
			renew(t, s)
			if n := strings.Count(string(read(t, s.Bundle(authority))), "BEGIN"); n != 2 {
				t.Errorf("the bundle holds %d certificates, want the old and the next", n)
			}
			if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			clock.Step(30*day - time.Minute)
			renew(t, s)
			if !ca(t, s, authority).Equal(old) {
				t.Error("the next CA signs before it has spread for a month")
			}
			clock.Step(time.Minute)
			renew(t, s)
			now := ca(t, s, authority)
			if now.Equal(old) {
				t.Error("the next CA does not sign after it has spread")
			}
			if restored := open(t, backup, clock.Now(), nil); !ca(t, restored, authority).Equal(now) {
				t.Error("a server restored from a backup of a month ago has another CA")
			}
		})
	}
}

// SC-06 SC-08: after a server was off, the next CA signs earlier than after a month if what the old one signs would have an early end.
func TestNextCASignsBeforeTheOldOneEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		authority Authority
		// left is what is left of the old one when the next is made, and after is how long after that this one signs.
		left, after time.Duration
	}{
		"there is time":                         {ClientCA, 150 * day, 30 * day},
		"certificates would have an early end":  {ClientCA, 100 * day, 10 * day},
		"it ends soon":                          {ClientCA, 20 * day, time.Hour},
		"CAs would have an early end":           {RootCA, year + 10*day, 10 * day},
		"tokens would not verify to their end":  {ServiceAccounts, year + day, day},
		"tokens do not verify to their end now": {ServiceAccounts, year - day, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := testclock.NewFakeClock(start)
			s := open(t, t.TempDir(), start, func(o *Options) { o.Clock = clock })
			old := ca(t, s, test.authority)
			clock.SetTime(old.NotAfter.Add(-test.left))
			renew(t, s)
			clock.Step(test.after - time.Minute)
			renew(t, s)
			if !ca(t, s, test.authority).Equal(old) {
				t.Error("the next CA signs earlier")
			}
			if next := s.NextRenewal(); next.After(clock.Now().Add(time.Minute)) {
				t.Errorf("the next renewal is at %s, now is %s", next, clock.Now())
			}
			clock.Step(time.Minute)
			renew(t, s)
			if ca(t, s, test.authority).Equal(old) {
				t.Error("the next CA does not sign")
			}
		})
	}
}

// SC-06, O8: Run renews without a request and reports that it did.
func TestRunRenews(t *testing.T) {
	t.Parallel()
	clock := testclock.NewFakeClock(start)
	s, err := Open(t.Context(), Options{Dir: t.TempDir(), Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	old := leaf(t, s, Admin)[0]
	changed := make(chan struct{}, 1)
	stopped := make(chan struct{})
	t.Cleanup(func() { <-stopped })
	go func() {
		defer close(stopped)
		s.Run(t.Context(), func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	deadline := time.After(time.Minute)
	clock.SetTime(leafLife.due(old).Add(caLife.spread))
	for leaf(t, s, Admin)[0].Equal(old) {
		select {
		case <-changed:
		case <-deadline:
			t.Fatal("the admin certificate was not renewed")
		default:
			clock.Step(time.Hour)
		}
	}
}

// settable is the clock of a machine that is set while timers run.
type settable struct {
	clock.RealClock
	ahead atomic.Int64
}

func (c *settable) Now() time.Time { return c.RealClock.Now().Add(time.Duration(c.ahead.Load())) }

// SC-06: what was made before the clock was set, as at the first start of a machine, is renewed soon after that.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		machine := &settable{}
		ctx, stop := context.WithCancel(t.Context())
		s, err := Open(ctx, Options{Dir: t.TempDir(), Clock: machine})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx, func() {})
		}()
		synctest.Wait()
		machine.ahead.Store(int64(2 * year))
		<-time.After(clockInterval)
		synctest.Wait()
		if serving := leaf(t, s, APIServer)[0]; !machine.Now().Before(serving.NotAfter) {
			t.Errorf("at %s, it serves with a certificate that has ended at %s", machine.Now(), serving.NotAfter)
		}
		stop()
		<-ended
	})
}

// SC-08: the key of service account tokens rotates. It is known before it signs, and every token is verified until it
// expires, but no longer.
func TestTokenKeyRotation(t *testing.T) {
	t.Parallel()
	clock := testclock.NewFakeClock(start)
	s := open(t, t.TempDir(), start, func(o *Options) { o.Clock = clock })
	signedUntil := map[string]time.Time{}
	for clock.Now().Before(start.Add(5 * year)) {
		previous := read(t, s.Bundle(ServiceAccounts))
		clock.SetTime(s.NextRenewal())
		signedUntil[string(encode(t, ca(t, s, ServiceAccounts)))] = clock.Now()
		renew(t, s)
		signer := string(encode(t, ca(t, s, ServiceAccounts)))
		signedUntil[signer] = clock.Now()
		bundle := string(read(t, s.Bundle(ServiceAccounts)))
		if !strings.Contains(string(previous), signer) {
			t.Fatalf("at %s: the key that signs was not known before", clock.Now())
		}
		for key, last := range signedUntil {
			verifies := strings.Contains(bundle, key)
			if due := clock.Now().Before(last.Add(ServiceAccountTokenLifetime)); due && !verifies {
				t.Fatalf("at %s: tokens signed until %s are refused", clock.Now(), last)
			}
		}
		if n := strings.Count(bundle, "BEGIN"); n > 3 {
			t.Fatalf("at %s: %d keys verify tokens", clock.Now(), n)
		}
	}
	if len(signedUntil) < 4 {
		t.Errorf("%d keys signed in five years", len(signedUntil))
	}
	if key, ok := caKey(t, s, ServiceAccounts).(*rsa.PrivateKey); !ok || key.N.BitLen() != 2048 {
		t.Errorf("the key is a %T", key)
	}
	if ca(t, s, ServiceAccounts).IsCA {
		t.Error("the key of tokens may sign certificates")
	}
}

// SC-06: what was made before the clock was set back begins now, soon after that.
func TestClockIsSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		machine := &settable{}
		ctx, stop := context.WithCancel(t.Context())
		s, err := Open(ctx, Options{Dir: t.TempDir(), Clock: machine})
		if err != nil {
			t.Fatal(err)
		}
		before := authoritiesIn(common(t, s))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx, func() {})
		}()
		synctest.Wait()
		for _, ahead := range []time.Duration{200 * day, 0} {
			machine.ahead.Store(int64(ahead))
			<-time.After(clockInterval)
			synctest.Wait()
			for _, l := range []Leaf{APIServer, Admin} {
				cert := leaf(t, s, l)[0]
				if now := machine.Now(); cert.NotBefore.After(now) || !now.Before(leafLife.due(cert)) {
					t.Errorf("%s ahead: at %s, %s is valid from %s to %s", ahead, now, l, cert.NotBefore, cert.NotAfter)
				}
			}
		}
		if !maps.Equal(before, authoritiesIn(common(t, s))) {
			t.Error("other CAs sign")
		}
		stop()
		<-ended
	})
}

// authoritiesIn are the pairs of CAs that sign.
func authoritiesIn(files sharedFiles) sharedFiles {
	pairs := sharedFiles{}
	for _, a := range authorities {
		for _, extension := range []string{certExtension, keyExtension} {
			pairs[string(a)+extension] = files[string(a)+extension]
		}
	}
	return pairs
}

// restoreEnded copies what a folder keeps of CAs that were replaced to their place.
func restoreEnded(t *testing.T, dir string) {
	t.Helper()
	kept := filepath.Join(dir, endedDir)
	for file, content := range snapshot(t, kept) {
		write(t, dir+strings.TrimPrefix(file, kept), []byte(content))
	}
}

// SC-06: a server that starts with a clock far ahead makes new CAs, or has the next ones sign, and keeps the old ones. Once the clock is
// right, it says so, and goes on with the old ones when they are back in their place.
func TestClockFarAhead(t *testing.T) {
	t.Parallel()
	right := start.Add(day)
	for name, starts := range map[string][]time.Duration{
		"CAs have ended":      {380 * day, 381 * day},
		"the next CAs sign":   {300 * day, 300*day + 2*time.Hour},
		"and were started on": {300 * day, 300*day + 2*time.Hour, 301 * day},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "cert")
			s := open(t, dir, start, nil)
			before, agent := authoritiesIn(common(t, s)), leaf(t, s, Admin)
			for _, ahead := range starts {
				s = open(t, dir, start.Add(ahead), nil)
			}
			if maps.Equal(before, authoritiesIn(common(t, s))) {
				t.Fatal("there are no new CAs")
			}
			_, err := Open(t.Context(), Options{Dir: dir, Clock: testclock.NewFakeClock(right)})
			for _, want := range []string{filepath.Join(dir, endedDir), "server-ca, client-ca, request-header-ca"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Fatalf("error %v does not say %s", err, want)
				}
			}
			restoreEnded(t, dir)
			s = open(t, dir, right, nil)
			if !maps.Equal(before, authoritiesIn(common(t, s))) {
				t.Error("the server has other CAs than before")
			}
			if err := trusts(t, read(t, s.Bundle(RootCA)), leaf(t, s, APIServer), right, x509.ExtKeyUsageServerAuth); err != nil {
				t.Errorf("clients do not trust it: %v", err)
			}
			if err := trusts(t, read(t, s.Bundle(ClientCA)), agent, right, x509.ExtKeyUsageClientAuth); err != nil {
				t.Errorf("a certificate from before is refused: %v", err)
			}
		})
	}
}

// SC-06: a server that was off until its CAs had ended goes on with new ones, also after its clock was behind for a while.
func TestCAsHaveEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, dir, start, nil)
	late := start.Add(380 * day)
	ended := authoritiesIn(common(t, open(t, dir, late, nil)))
	for _, at := range []time.Time{late.Add(day), start.Add(-2 * year), late.Add(-2 * time.Hour)} {
		if !maps.Equal(ended, authoritiesIn(common(t, open(t, dir, at, nil)))) {
			t.Errorf("at %s, there are other CAs", at)
		}
	}
}

// A kill between the two renames of a pair leaves neither a broken pair nor a lost one.
func TestInterruptedSwapIsFinished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, start, nil)
	file := s.folder.pair(string(ClientCA))
	other, err := issue(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: start, NotAfter: start.Add(200 * 24 * time.Hour)}, testKey(t, ClientCA), nil)
	if err != nil {
		t.Fatal(err)
	}
	staging := pairFile(filepath.Join(t.TempDir(), "pair"))
	if err := staging.save(other); err != nil {
		t.Fatal(err)
	}
	// The key is in place, the certificate is not.
	if err := os.Rename(staging.keyFile(), file.keyFile()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(staging.certFile(), file.incoming().certFile()); err != nil {
		t.Fatal(err)
	}
	got, err := file.load()
	if err != nil {
		t.Fatal(err)
	}
	if !got.cert.Equal(other.cert) {
		t.Error("the old certificate is still in place")
	}
}

// What a crash leaves of a file that was being written is removed at the next start.
func TestUnfinishedFilesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, dir, start, nil)
	want := snapshot(t, dir)
	for _, name := range []string{".new-admin.key-123", "ca-bundle/.new-root-ca-bundle.crt-456"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir, start, nil)
	if got := snapshot(t, dir); !maps.Equal(got, want) {
		t.Errorf("files %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// A broken or half-missing CA is never silently replaced: everything it signed would be worthless.
func TestBrokenFilesAreNamed(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, s *Store) string{
		"key missing": func(t *testing.T, s *Store) string {
			_, key := s.CA(RootCA)
			remove(t, key)
			return key
		},
		"key of another": func(t *testing.T, s *Store) string {
			_, key := s.CA(RootCA)
			_, other := s.CA(ClientCA)
			write(t, key, read(t, other))
			return key
		},
		"certificate garbled": func(t *testing.T, s *Store) string {
			cert, _ := s.CA(ServerCA)
			write(t, cert, []byte("garbage"))
			return cert
		},
		"service account key garbled": func(t *testing.T, s *Store) string {
			_, key := s.CA(ServiceAccounts)
			write(t, key, []byte("garbage"))
			return key
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := damage(t, open(t, dir, start, nil))
			_, err := Open(t.Context(), Options{Dir: dir, Clock: testclock.NewFakeClock(start)})
			if err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("error %v does not name %s", err, file)
			}
		})
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// userCA writes a self-signed CA as a user would supply it.
func userCA(t *testing.T, change func(*x509.Certificate)) (certFile, keyFile string) {
	t.Helper()
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, MaxPathLen: -1,
		NotBefore: start.Add(-time.Hour), NotAfter: start.Add(10 * 365 * 24 * time.Hour)}
	template.Subject.CommonName = "corporate"
	if change != nil {
		change(template)
	}
	pair, err := issue(template, testKey(t, RootCA), nil)
	if err != nil {
		t.Fatal(err)
	}
	file := pairFile(filepath.Join(t.TempDir(), "user"))
	if err := file.save(pair); err != nil {
		t.Fatal(err)
	}
	return file.certFile(), file.keyFile()
}

// SC-03, SC-06: a CA of the user's own signs the server, and moving to it keeps those who knew the old one.
func TestUserCA(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := open(t, dir, start, nil)
	oldBundle, agent := read(t, before.Bundle(RootCA)), leaf(t, before, Admin)

	cert, key := userCA(t, nil)
	s := open(t, dir, start.Add(time.Minute), func(o *Options) { o.CAFile, o.CAKeyFile = cert, key })
	if err := trusts(t, read(t, s.Bundle(RootCA)), leaf(t, s, APIServer), start, x509.ExtKeyUsageServerAuth); err != nil {
		t.Errorf("the new root bundle rejects the server: %v", err)
	}
	if err := trusts(t, oldBundle, leaf(t, s, APIServer), start, x509.ExtKeyUsageServerAuth); err != nil {
		t.Errorf("who trusted the old root is locked out: %v", err)
	}
	if err := trusts(t, read(t, s.Bundle(ClientCA)), agent, start, x509.ExtKeyUsageClientAuth); err != nil {
		t.Errorf("a certificate given out before is rejected: %v", err)
	}

	fresh := open(t, t.TempDir(), start, func(o *Options) { o.CAFile, o.CAKeyFile = cert, key })
	if err := trusts(t, read(t, cert), leaf(t, fresh, APIServer), start, x509.ExtKeyUsageServerAuth); err != nil {
		t.Errorf("the user's CA does not vouch for the server: %v", err)
	}
}

// SC-06: a CA that waits until it signs goes when the user replaces the root that has signed it.
func TestNextCAOfAReplacedRoot(t *testing.T) {
	t.Parallel()
	dir, clock := t.TempDir(), testclock.NewFakeClock(start)
	s := open(t, dir, start, func(o *Options) { o.Clock = clock })
	clock.SetTime(caLife.due(ca(t, s, ServerCA)))
	renew(t, s)
	cert, key := userCA(t, nil)
	s = open(t, dir, start, func(o *Options) { o.Clock, o.CAFile, o.CAKeyFile = clock, cert, key })
	write(t, s.Bundle(RootCA), read(t, cert)) // without the old one
	renew(t, s)
	clock.Step(caLife.spread)
	renew(t, s)
	if err := ca(t, s, ServerCA).CheckSignatureFrom(ca(t, s, RootCA)); err != nil {
		t.Errorf("the CA of servers is not of the user's: %v", err)
	}
}

// A CA that cannot do the work is refused with the reason.
func TestUnfitUserCA(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*x509.Certificate){
		"is no CA":            func(c *x509.Certificate) { c.IsCA = false },
		"path length 0":       func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 0, true },
		"supply a current CA": func(c *x509.Certificate) { c.NotAfter = start.Add(-time.Minute) },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			cert, key := userCA(t, change)
			_, err := Open(t.Context(), Options{Dir: t.TempDir(), CAFile: cert, CAKeyFile: key, Clock: testclock.NewFakeClock(start)})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
	cert, _ := userCA(t, nil)
	if _, err := Open(t.Context(), Options{Dir: t.TempDir(), CAFile: cert}); err == nil || !strings.Contains(err.Error(), "both") {
		t.Errorf("a certificate without its key: error %v", err)
	}
}

// SC-06: certificates that end soon, because the CA of the user does, are not issued again without a pause.
func TestUserCAThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := testclock.NewFakeClock(start)
		cert, key := userCA(t, func(c *x509.Certificate) { c.NotAfter = start.Add(time.Hour) })
		s := open(t, t.TempDir(), start, func(o *Options) { o.CAFile, o.CAKeyFile, o.Clock = cert, key, now })
		if s.NextRenewal().After(start) {
			t.Fatalf("the next renewal is at %s, not at once", s.NextRenewal())
		}
		awaited := make(chan struct{})
		go func() {
			defer close(awaited)
			s.awaitRenewal(t.Context())
		}()
		synctest.Wait()
		if !now.HasWaiters() {
			t.Error("there is no pause")
		}
		now.Step(clockInterval)
		<-awaited
	})
}

// What a crash left of files that were being written is removed, in any folder: its path is no pattern.
func TestTemporaryFilesAreRemoved(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cert", "my [test]", "a[b"} {
		dir := filepath.Join(t.TempDir(), name)
		open(t, dir, start, nil)
		left := []string{filepath.Join(dir, atomicfile.TemporaryPrefix+"admin.key-1"),
			filepath.Join(dir, bundleDir, atomicfile.TemporaryPrefix+"x.crt-1")}
		for _, file := range left {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		open(t, dir, start, nil)
		for _, file := range left {
			if _, err := os.Stat(file); !os.IsNotExist(err) {
				t.Errorf("%s is left: %v", file, err)
			}
		}
	}
}
