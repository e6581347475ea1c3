package hubkubeconfig

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func pending(t *testing.T, s *Store) []byte {
	t.Helper()
	key, encoded, err := s.PendingKey()
	if err != nil || key == nil {
		t.Fatalf("pending key: %v", err)
	}
	return encoded
}

// The key of a request is kept until its certificate is saved, and never used for another one, even after a crash.
func TestPendingKey(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: filepath.Join(t.TempDir(), "made")}
	first := pending(t, s)
	if !bytes.Equal(first, pending(t, s)) {
		t.Error("a restart makes another key")
	}
	path := filepath.Join(s.Dir, pendingKey)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is readable by others: %v, %v", info, err)
	}
	saved := newCredential(t)
	saved.Key = first
	if err := s.Save(context.Background(), saved); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the key is kept: %v", err)
	}
	for name, left := range map[string][]byte{"the key in use": first, "half a key": first[:20]} {
		if err := os.WriteFile(path, left, 0o600); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(left, pending(t, s)) {
			t.Errorf("%s, left by a crash, is used again", name)
		}
	}
}

// RG-09: a Secret that is gone does not keep half-written files from being completed, and is made again.
func TestSecretIsGone(t *testing.T) {
	t.Parallel()
	c := fake.NewClientBuilder().Build()
	s := &Store{Dir: t.TempDir(), Client: c, Secret: client.ObjectKey{Namespace: "agent", Name: "hub-kubeconfig-secret"}}
	credential := newCredential(t)
	if err := s.Save(context.Background(), credential); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(s.Dir, "tls.key"), filepath.Join(s.Dir, "lost")); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	if restored, err := s.Load(); err != nil || restored == nil || restored.Valid(self, now) != nil {
		t.Errorf("restored from the Secret: %v, %v", restored, err)
	}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = s.Secret.Namespace, s.Secret.Name
	if err := c.Delete(context.Background(), secret); err != nil {
		t.Fatal(err)
	}
	next := newCredential(t)
	entry := []byte(`{"tls.key":"` + b64(next.Key) + `","tls.crt":"` + b64(next.Certificate) + `"}`)
	if err := os.WriteFile(filepath.Join(s.Dir, journal), entry, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	if restored, err := s.Load(); err != nil || !bytes.Equal(restored.Key, next.Key) || restored.Valid(self, now) != nil {
		t.Errorf("completed from the journal: %v, %v", restored, err)
	}
	if err := s.PutBack(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(context.Background(), s.Secret, secret); err != nil || !bytes.Equal(secret.Data["tls.crt"], next.Certificate) {
		t.Errorf("the Secret is not made again: %v", err)
	}
}

// RG-09 R4: what is written while the files are brought up to the Secret stays.
func TestUpdateDuringRestore(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: t.TempDir(), Secret: client.ObjectKey{Namespace: "agent", Name: "hub-kubeconfig-secret"}}
	updated := make(chan error, 1)
	update := func() {
		updated <- s.Update(t.Context(), func(c Credential) (*Credential, error) { return c.WithTrustBundle([]byte("next")) })
	}
	var restoring atomic.Bool
	s.Client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if restoring.CompareAndSwap(true, false) {
				if s.updates.TryLock() { // the update comes between what is read of the Secret and what is written to the files
					s.updates.Unlock()
					update()
				} else {
					go update()
				}
			}
			return err
		},
	})
	if err := s.Save(t.Context(), newCredential(t)); err != nil {
		t.Fatal(err)
	}
	restoring.Store(true)
	if err := s.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-updated, s.PutBack(t.Context())); err != nil {
		t.Fatal(err)
	}
	stored, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	if bundle, err := stored.TrustBundle(); err != nil || string(bundle) != "next" {
		t.Errorf("the files have %q, %v", bundle, err)
	}
	secret := &corev1.Secret{}
	if err := s.Client.Get(t.Context(), s.Secret, secret); err != nil || !bytes.Equal(secret.Data["kubeconfig"], stored.Kubeconfig) {
		t.Errorf("the Secret has another kubeconfig, %v", err)
	}
}
