package pki

import (
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/atomicfile"
)

// memory is a Storage in memory.
type memory struct {
	mu      sync.Mutex
	content []byte
	version int64
	changed chan struct{}
	// failing is what happens to those who read.
	failing error
	// before is called by a Load once it has its answer.
	before func()
}

func newMemory() *memory { return &memory{changed: make(chan struct{})} }

func (m *memory) Load(context.Context) ([]byte, Version, error) {
	m.mu.Lock()
	content, version, before, err := m.content, Version{Content: m.version, Seen: m.version}, m.before, m.failing
	m.before = nil
	m.mu.Unlock()
	if before != nil {
		before()
	}
	return content, version, err
}

func (m *memory) Replace(_ context.Context, content []byte, version Version) (Version, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if version.Content != m.version {
		return Version{}, false, nil
	}
	m.content = content
	m.version++
	close(m.changed)
	m.changed = make(chan struct{})
	return Version{Content: m.version, Seen: m.version}, true, nil
}

func (m *memory) Await(ctx context.Context, version Version) {
	m.mu.Lock()
	changed, now := m.changed, m.version
	m.mu.Unlock()
	if now != version.Content {
		return
	}
	select {
	case <-ctx.Done():
	case <-changed:
	}
}

// storeAgain stores what is there once more, as a server does that encrypts it in another way.
func (m *memory) storeAgain(t *testing.T) {
	t.Helper()
	version := Version{Content: m.stores()}
	if _, replaced, err := m.Replace(t.Context(), m.content, version); err != nil || !replaced {
		t.Fatalf("stored: %t, %v", replaced, err)
	}
}

func (m *memory) stores() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.version
}

// rarelyRead is a Storage that ends who reads it too often.
type rarelyRead struct {
	*memory
	loads, most int
	tooOften    func()
}

func (r *rarelyRead) Load(ctx context.Context) ([]byte, Version, error) {
	r.mu.Lock()
	r.loads++
	often := r.loads > r.most
	r.mu.Unlock()
	if often {
		r.tooOften()
	}
	return r.memory.Load(ctx)
}

// sharing opens a store in a folder of its own.
func sharing(t *testing.T, storage Storage, clock *testclock.FakeClock, server string) *Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cert")
	s, err := Open(t.Context(), Options{Dir: dir, ServerNames: []string{server}, Storage: storage, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func common(t *testing.T, s *Store) sharedFiles {
	t.Helper()
	files, err := s.folder.shared()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 2*(len(authorities)+len(commonLeaves)) {
		t.Errorf("%s has %d files", s.options.Dir, len(files))
	}
	return files
}

func sameKeys(t *testing.T, stores ...*Store) {
	t.Helper()
	first := common(t, stores[0])
	for _, s := range stores[1:] {
		files := common(t, s)
		for _, name := range slices.Sorted(maps.Keys(first)) {
			if files[name] != first[name] {
				t.Errorf("%s has another %s than %s", s.options.Dir, name, stores[0].options.Dir)
			}
		}
		if len(files) != len(first) {
			t.Errorf("%s has %d files, and %s %d", s.options.Dir, len(files), stores[0].options.Dir, len(first))
		}
	}
}

// SC-06 SC-24: servers that start at the same time with empty folders have the same keys, and each its own serving certificate.
func TestServersStartTogether(t *testing.T) {
	t.Parallel()
	storage, clock := newMemory(), testclock.NewFakeClock(start)
	names := []string{"one.example.com", "two.example.com", "three.example.com"}
	stores := make([]*Store, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { stores[i] = sharing(t, storage, clock, name) })
	}
	all.Wait()
	sameKeys(t, stores...)
	if n := storage.stores(); n != 1 {
		t.Errorf("the keys were stored %d times", n)
	}
	bundle := read(t, stores[0].Bundle(RootCA))
	for i, s := range stores {
		chain := leaf(t, s, APIServer)
		if err := chain[0].VerifyHostname(names[i]); err != nil {
			t.Error(err)
		}
		if err := trusts(t, bundle, chain, start, x509.ExtKeyUsageServerAuth); err != nil {
			t.Errorf("clients do not trust %s: %v", names[i], err)
		}
		if left, _ := filepath.Glob(filepath.Join(s.options.Dir, atomicfile.TemporaryPrefix+"*")); len(left) > 0 {
			t.Errorf("left is %v", left)
		}
	}
}

// SC-06 SC-24: a hub that had its keys in its folder goes on with them when it shares them, and so do those who join it.
func TestKeysMoveToTheStorage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	alone := open(t, dir, start, nil)
	before := common(t, alone)
	storage, clock := newMemory(), testclock.NewFakeClock(start.Add(time.Hour))
	first := open(t, dir, start.Add(time.Hour), func(o *Options) { o.Storage = storage })
	second := sharing(t, storage, clock, "second.example.com")
	if !maps.Equal(before, common(t, first)) {
		t.Error("the hub has other keys than before")
	}
	sameKeys(t, first, second)
}

// SC-06 SC-24: a folder with keys of another hub is left as it is.
func TestKeysOfAnotherHub(t *testing.T) {
	t.Parallel()
	storage := newMemory()
	sharing(t, storage, testclock.NewFakeClock(start), "hub.example.com")
	dir := t.TempDir()
	before := common(t, open(t, dir, start, nil))
	_, err := Open(t.Context(), Options{Dir: dir, Storage: storage, Clock: testclock.NewFakeClock(start)})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "etcd.prefix") {
		t.Errorf("error %v", err)
	}
	if !maps.Equal(before, common(t, open(t, dir, start, nil))) {
		t.Error("its keys changed")
	}
	// When they are worth nothing any more, they may go.
	late := start.Add(2 * year)
	if _, err := Open(t.Context(), Options{Dir: dir, Storage: storage, Clock: testclock.NewFakeClock(late)}); err != nil {
		t.Error(err)
	}
}

// SC-06 SC-24: of two servers that renew at the same time one does, and the other takes over what it has made.
func TestOneRenews(t *testing.T) {
	t.Parallel()
	storage, clock := newMemory(), testclock.NewFakeClock(start)
	first, second := sharing(t, storage, clock, "one.example.com"), sharing(t, storage, clock, "two.example.com")
	clock.SetTime(first.NextRenewal())
	storage.before = func() {
		if changed, err := second.Renew(t.Context()); err != nil || !changed {
			t.Errorf("the second server changed anything: %t, %v", changed, err)
		}
	}
	if changed, err := first.Renew(t.Context()); err != nil || !changed {
		t.Errorf("the first server changed anything: %t, %v", changed, err)
	}
	sameKeys(t, first, second)
	if n := storage.stores(); n != 2 {
		t.Errorf("the keys were stored %d times, want 2", n)
	}
	if !first.NextRenewal().After(clock.Now()) {
		t.Error("there is still something to renew")
	}
}

// SC-06 SC-24: what one server renews reaches the others without a restart.
func TestOthersFollow(t *testing.T) {
	t.Parallel()
	storage, clock, behind := newMemory(), testclock.NewFakeClock(start), testclock.NewFakeClock(start)
	one, other := sharing(t, storage, clock, "one.example.com"), sharing(t, storage, behind, "two.example.com")
	ctx, stop := context.WithCancel(t.Context())
	seen, ended := make(chan struct{}, 10), make(chan struct{})
	go func() {
		defer close(ended)
		other.Run(ctx, func() { seen <- struct{}{} })
	}()
	before := ca(t, one, ClientCA)
	for range 2 { // its successor is made, and then signs
		clock.SetTime(one.NextRenewal())
		behind.SetTime(clock.Now().Add(-backdate / 2)) // by which nothing is due
		if _, err := one.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-seen
	}
	stop()
	<-ended
	sameKeys(t, one, other)
	if ca(t, other, ClientCA).Equal(before) {
		t.Error("the CA of clients is the old one")
	}
}

// SC-06 SC-24: a server that cannot take over what another one has stored has pauses between its attempts, and takes it over once it can.
func TestFailuresHavePauses(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(t *testing.T, storage *memory, dir string) (mend func()){
		"it cannot read it": func(_ *testing.T, storage *memory, _ string) func() {
			storage.failing = errors.New("encrypted in another way")
			return func() { storage.failing = nil }
		},
		"it cannot write to its folder": func(t *testing.T, _ *memory, dir string) func() {
			t.Helper()
			rename := func(from, to string) {
				if err := os.Rename(from, to); err != nil {
					t.Fatal(err)
				}
			}
			rename(dir, dir+".away")
			return func() { rename(dir+".away", dir) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const attempts = 10
				ctx, stop := context.WithCancel(t.Context())
				storage := &rarelyRead{memory: newMemory(), most: 2 * attempts, tooOften: stop}
				s, err := Open(ctx, Options{Dir: filepath.Join(t.TempDir(), "cert"), Storage: storage})
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					s.Run(ctx, func() {})
				}()
				synctest.Wait()
				mend := fail(t, storage.memory, s.options.Dir)
				before := storage.loads
				storage.storeAgain(t)
				<-time.After(attempts * retryInterval)
				synctest.Wait()
				if tried := storage.loads - before; tried < attempts || tried > attempts+1 {
					t.Errorf("%d attempts in %d minutes", tried, attempts)
				}
				mend()
				<-time.After(retryInterval)
				synctest.Wait()
				if s.version.Content != storage.stores() {
					t.Errorf("it has version %d, and stored is %d", s.version.Content, storage.stores())
				}
				stop()
				<-ended
			})
		})
	}
}

// SC-06 SC-24: servers whose clocks are months apart do not renew in turns without a pause. What they made is valid once both are right.
func TestClocksAreApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const minutes = 10
		ctx, stop := context.WithCancel(t.Context())
		storage := &rarelyRead{memory: newMemory(), most: 20 * minutes, tooOften: stop}
		ahead := &settable{}
		ahead.ahead.Store(int64(200 * day))
		var stores []*Store
		var running sync.WaitGroup
		for _, machine := range []*settable{{}, ahead} {
			s, err := Open(ctx, Options{Dir: filepath.Join(t.TempDir(), "cert"), Storage: storage, Clock: machine})
			if err != nil {
				t.Fatal(err)
			}
			stores = append(stores, s)
			running.Go(func() { s.Run(ctx, func() {}) })
			synctest.Wait()
		}
		<-time.After(minutes * time.Minute)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Errorf("they have renewed %d times in %d minutes", storage.loads, minutes)
		}
		ahead.ahead.Store(0)
		<-time.After(minutes * time.Minute)
		synctest.Wait()
		for _, s := range stores {
			for _, l := range []Leaf{APIServer, Admin} {
				if cert := leaf(t, s, l)[0]; cert.NotBefore.After(time.Now()) {
					t.Errorf("at %s, %s begins at %s", time.Now(), l, cert.NotBefore)
				}
			}
		}
		stop()
		running.Wait()
		sameKeys(t, stores...)
	})
}

// SC-06 SC-24: servers that share their keys and have replaced their CAs while the clock was ahead say so, and go on with the old ones once
// these are back.
func TestSharedCAsOfAClockAhead(t *testing.T) {
	t.Parallel()
	storage, clock := newMemory(), testclock.NewFakeClock(start)
	s := sharing(t, storage, clock, "hub.example.com")
	before, dir := authoritiesIn(common(t, s)), s.options.Dir
	clock.SetTime(start.Add(380 * day))
	renew(t, s)
	clock.SetTime(start.Add(day))
	_, err := s.Renew(t.Context())
	for _, want := range []string{"remove their keys from the storage", string(s.folder.ended())} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	restoreEnded(t, dir)
	s = open(t, dir, start.Add(day), func(o *Options) { o.Storage = newMemory() })
	if !maps.Equal(before, authoritiesIn(common(t, s))) {
		t.Error("the server has other CAs than before")
	}
}

// SC-06 SC-24: a server whose copies of the shared CAs are damaged has them again from the storage.
func TestDamagedCopiesAreRepaired(t *testing.T) {
	t.Parallel()
	dir, storage := t.TempDir(), newMemory()
	share := func(o *Options) { o.Storage = storage }
	s := open(t, dir, start, share)
	before := common(t, s)
	for _, a := range authorities {
		write(t, s.folder.pair(string(a)).certFile(), []byte("broken"))
	}
	if after := common(t, open(t, dir, start, share)); !maps.Equal(before, after) {
		t.Error("the server has other keys than before")
	}
}

// SC-06 SC-24: users who give their servers a new CA one after the other do not make these write the bundle in turns.
func TestServersWithDifferentUserCAs(t *testing.T) {
	t.Parallel()
	storage := newMemory()
	var stores []*Store
	for range 2 {
		cert, key := userCA(t, nil)
		stores = append(stores, open(t, t.TempDir(), start, func(o *Options) {
			o.Storage, o.CAFile, o.CAKeyFile = storage, cert, key
		}))
	}
	had := storage.stores()
	for range 3 {
		for _, s := range stores {
			if _, err := s.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	sameKeys(t, stores...)
	if more := storage.stores() - had; more > 0 {
		t.Errorf("the keys were stored %d times more", more)
	}
}

// SC-06 SC-24: a server that cannot reach the storage does not start with keys of its own.
func TestStorageFails(t *testing.T) {
	t.Parallel()
	storage := newMemory()
	storage.failing = errors.New("no route")
	dir := t.TempDir()
	if _, err := Open(t.Context(), Options{Dir: dir, Storage: storage}); !errors.Is(err, storage.failing) {
		t.Errorf("error %v", err)
	}
	if files := snapshot(t, dir); len(files) > 0 {
		t.Errorf("it made %d files", len(files))
	}
	storage.failing, storage.content, storage.version = nil, []byte("broken"), 1
	if _, err := Open(t.Context(), Options{Dir: dir, Storage: storage}); err == nil || !strings.Contains(err.Error(), "restore the storage") {
		t.Errorf("error %v", err)
	}
}
