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

	"github.com/capstan-io/capstan/internal/atomicfile"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// pendingKey is the file with the key of the agent's own request.
const pendingKey = ".pending.key"

// PendingKey is the file with the key of a certificate that has been requested and not issued yet. It may take days until an
// administrator approves it, and the certificate of a request whose key was lost cannot be used.
type PendingKey struct {
	// File is the path. Its folder is made when it is needed.
	File string
	// InUse returns the key of the certificate that is in use, in PEM; nil if there is none.
	InUse func() []byte
}

// PendingKey returns the key to request the next certificate with, and its PEM: the one of an earlier request without a
// certificate, or else a new one. It is the same until Forget.
func (p PendingKey) PendingKey() (*ecdsa.PrivateKey, []byte, error) {
	encoded, err := os.ReadFile(p.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("read the key of a pending request: %w", err)
	}
	// After a crash before Forget the pending key is the one in use: a new certificate gets a new one.
	if inUse := p.InUse(); inUse == nil || !bytes.Equal(encoded, inUse) {
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
	if err := os.MkdirAll(filepath.Dir(p.File), 0o700); err != nil {
		return nil, nil, fmt.Errorf("create the folder for the key of a request: %w", err)
	}
	if err := atomicfile.WriteSecret(p.File, encoded); err != nil {
		return nil, nil, fmt.Errorf("keep the key of a request: %w", err)
	}
	return key, encoded, nil
}

// Forget removes the key if it is the given one, which has its certificate.
func (p PendingKey) Forget(granted []byte) error {
	if pending, err := os.ReadFile(p.File); err == nil && !bytes.Equal(pending, granted) {
		return nil
	}
	return p.Remove()
}

// Remove removes the key, whatever it is for.
func (p PendingKey) Remove() error {
	if err := os.Remove(p.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the key of a request that is over: %w", err)
	}
	return nil
}

// PendingKey is that of the agent's own certificate. Save forgets it.
func (s *Store) PendingKey() (*ecdsa.PrivateKey, []byte, error) { return s.pending().PendingKey() }

func (s *Store) pending() PendingKey {
	return PendingKey{File: filepath.Join(s.Dir, pendingKey), InUse: func() []byte {
		key, _ := os.ReadFile(filepath.Join(s.Dir, fleet.KeyTLSKey)) // none is as good as one that cannot be read
		return key
	}}
}

// NewKey makes a key as a cluster's agent has it, and its PEM.
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
