package hubkubeconfig

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"

	"github.com/capstan-io/capstan/internal/fleet"
)

// pendingKey is the file with the key of a certificate that has been asked for and is not there yet. It may take an
// administrator days to grant it, and a request whose key was lost is of no use to anybody.
const pendingKey = ".pending.key"

// PendingKey returns the key to ask for the next certificate with, and its PEM: the one of an earlier run that did not come
// to its certificate, or else a new one. Save forgets it.
func (s *Store) PendingKey() (*ecdsa.PrivateKey, []byte, error) {
	path := filepath.Join(s.Dir, pendingKey)
	encoded, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("read the key of a pending request: %w", err)
	}
	// After a crash within Save the pending key is the one in use: a new certificate gets a new one.
	if inUse, err := os.ReadFile(filepath.Join(s.Dir, fleet.KeyTLSKey)); err != nil || !bytes.Equal(encoded, inUse) {
		if parsed, err := keyutil.ParsePrivateKeyPEM(encoded); err == nil {
			if key, ok := parsed.(*ecdsa.PrivateKey); ok {
				return key, encoded, nil
			}
		}
	}
	key, encoded, err := NewKey()
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("create the hub kubeconfig folder: %w", err)
	}
	if err := replaceFile(path, encoded); err != nil {
		return nil, nil, fmt.Errorf("keep the key of a request: %w", err)
	}
	return key, encoded, nil
}

// NewKey makes a key as a cluster's agent has it (RG-06), and its PEM.
func NewKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a private key: %w", err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the private key: %w", err)
	}
	return key, encoded, nil
}

// forgetPendingKey removes the pending key if it is the given one, which has its certificate.
func (s *Store) forgetPendingKey(granted []byte) error {
	path := filepath.Join(s.Dir, pendingKey)
	if pending, err := os.ReadFile(path); err == nil && !bytes.Equal(pending, granted) {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the key of a request that was granted: %w", err)
	}
	return nil
}
