package etcdkeys

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/capstan-io/capstan/internal/controlplane/etcd"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
)

const key = "/registry/capstan.io/hub-keys"

// newClient is of an etcd of the test.
func newClient(t *testing.T) *clientv3.Client {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true, Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func load(t *testing.T, s *Storage, want string) pki.Version {
	t.Helper()
	content, version, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if string(content) != want {
		t.Fatalf("loaded %q, want %q", content, want)
	}
	return version
}

func replace(t *testing.T, s *Storage, content string, version pki.Version) (pki.Version, bool) {
	t.Helper()
	next, replaced, err := s.Replace(t.Context(), []byte(content), version)
	if err != nil {
		t.Fatal(err)
	}
	return next, replaced
}

// awaiting is closed when Await returns.
func awaiting(ctx context.Context, s *Storage, version pki.Version) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Await(ctx, version)
	}()
	return done
}

// SC-11 SC-24: of two servers that store something at the same time, one does, and the other fails. Hubs with other prefixes have keys of
// their own.
func TestFirstOneStores(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	one, other := New(client, "/registry", Encryption{}), New(client, "/registry", Encryption{})
	nothing := load(t, one, "")
	version, replaced := replace(t, one, "first", nothing)
	if !replaced {
		t.Fatal("there was nothing, and nothing is stored")
	}
	if _, replaced := replace(t, other, "second", nothing); replaced {
		t.Fatal("it was replaced by one who did not know it")
	}
	if now := load(t, other, "first"); now.Content != version.Content {
		t.Errorf("version %v, want %v", now, version)
	}
	if _, replaced := replace(t, other, "second", version); !replaced {
		t.Fatal("it was not replaced by one who knew it")
	}
	load(t, one, "second")
	load(t, New(client, "/another", Encryption{}), "")
	stored(t, client)
}

// SC-24: a server waits until another one has stored something, even if that was before it began to wait, and history is forgotten.
func TestAwait(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	s := New(client, "/registry", Encryption{})
	version := load(t, s, "")
	before := awaiting(t.Context(), s, version)
	if _, err := client.Put(t.Context(), key+"-of-another", ""); err != nil {
		t.Fatal(err)
	}
	next, _ := replace(t, s, "first", version)
	<-before
	<-awaiting(t.Context(), s, version) // it was stored before
	if _, err := client.Put(t.Context(), "/registry/others", ""); err != nil {
		t.Fatal(err)
	}
	answer, err := client.Get(t.Context(), "/registry/others")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), answer.Header.Revision); err != nil {
		t.Fatal(err)
	}
	<-awaiting(t.Context(), s, version) // what was stored is not known any more
	version = load(t, s, "first")
	if version.Content != next.Content {
		t.Errorf("version %v, want that of %v", version, next)
	}
	// Nothing has changed since: it waits as long as it may.
	ctx, stop := context.WithCancel(t.Context())
	done := awaiting(ctx, s, version)
	stop()
	<-done
}

func encryption(t *testing.T, providers string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	encryptBy(t, file, providers)
	return file
}

func encryptBy(t *testing.T, file, providers string) {
	t.Helper()
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [" + providers + "]\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Providers, and how what they have encrypted begins.
const (
	first    = "{aescbc: {keys: [{name: first, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}}"
	second   = "{aescbc: {keys: [{name: second, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}]}}"
	byFirst  = "k8s:enc:aescbc:v1:first:"
	bySecond = "k8s:enc:aescbc:v1:second:"
)

// stored is what the etcd has for the hub.
func stored(t *testing.T, client *clientv3.Client) *mvccpb.KeyValue {
	t.Helper()
	answer, err := client.Get(t.Context(), key)
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("%s has %v, %v", key, answer, err)
	}
	return answer.Kvs[0]
}

// SC-02 SC-24: where Secrets are encrypted at rest, the keys are, too: those that were stored before, as well, and again when Secrets are
// encrypted with another key.
func TestEncryption(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	plain := New(client, "/registry", Encryption{})
	version, _ := replace(t, plain, "the keys", load(t, plain, ""))
	for _, step := range []struct{ providers, want string }{
		{first + ", {identity: {}}", byFirst},
		{second + ", " + first, bySecond},
		{second, bySecond},
	} {
		now := load(t, New(client, "/registry", Encryption{File: encryption(t, step.providers)}), "the keys")
		kept := stored(t, client)
		if value := kept.Value; !bytes.HasPrefix(value, []byte(step.want)) || bytes.Contains(value, []byte("the keys")) {
			t.Errorf("with %s, etcd has %q", step.providers, value)
		}
		if now.Content < version.Content || now.Content != kept.ModRevision {
			t.Errorf("version %v of what is stored at %d", now, kept.ModRevision)
		}
		version = now
	}
	for _, file := range []string{"", encryption(t, first)} {
		_, _, err := New(client, "/registry", Encryption{File: file}).Load(t.Context())
		if err == nil || !strings.Contains(err.Error(), "--encryption-provider-config") {
			t.Errorf("with another encryption, the error is %v", err)
		}
	}
}

// SC-02 SC-24: servers that encrypt with keys in different orders, as while they are restarted one after the other, do not store in turns.
func TestServersEncryptDifferently(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	older := New(client, "/registry", Encryption{File: encryption(t, first+", "+second)})
	newer := New(client, "/registry", Encryption{File: encryption(t, second+", "+first)})
	version, _ := replace(t, older, "the keys", load(t, older, ""))
	seen := map[*Storage]int64{older: version.Content, newer: 0}
	follow := func() {
		for range 3 {
			for _, s := range []*Storage{newer, older} {
				if stored(t, client).ModRevision != seen[s] { // as Await would tell
					seen[s] = load(t, s, "the keys").Content
				}
			}
		}
	}
	expect := func(by string, stores int64) {
		t.Helper()
		if now := stored(t, client); !bytes.HasPrefix(now.Value, []byte(by)) || now.Version != stores {
			t.Errorf("stored is %q for the %dth time, want %s and %d", now.Value, now.Version, by, stores)
		}
	}
	follow()
	expect(bySecond, 2) // by the one that has started with another order
	// Once a day, they look though nobody has stored anything.
	seen[older] = load(t, older, "the keys").Content
	expect(byFirst, 3)
	follow()
	expect(byFirst, 3)
	// The last one starts with the new order.
	older = New(client, "/registry", Encryption{File: encryption(t, second+", "+first)})
	follow()
	expect(bySecond, 4)
}

// SC-02 SC-24: a server that reloads how Secrets are encrypted encrypts the keys in that way, too.
func TestEncryptionIsReloaded(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	file := encryption(t, first)
	s := New(client, "/registry", Encryption{File: file, Reload: true})
	version, _ := replace(t, s, "the keys", load(t, s, ""))
	before := awaiting(t.Context(), s, version)
	encryptBy(t, file, second+", "+first)
	<-before
	version = load(t, s, "the keys")
	if now := stored(t, client); !bytes.HasPrefix(now.Value, []byte(bySecond)) {
		t.Errorf("stored is %q", now.Value)
	}
	encryptBy(t, file, second)
	<-awaiting(t.Context(), s, version) // it was changed before
	load(t, s, "the keys")
}
