package hubkubeconfig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Store keeps a credential as files in a folder, which is where clients read it, and, in a cluster, in a Secret, which
// outlives the pod.
type Store struct {
	// Dir holds the files.
	Dir string
	// Secret names the Secret; without a name there is none.
	Secret client.ObjectKey
	// Client reaches the cluster that holds the Secret. It is not used without one.
	Client client.Client
	// Record takes an event about the Secret; nil drops it.
	Record func(eventType, reason, action, note string, args ...any)

	// updates is held while Secret and files are read and written, or concurrent changes would be lost.
	updates sync.Mutex
}

// KubeconfigFile is the path of the hub kubeconfig.
func (s *Store) KubeconfigFile() string { return filepath.Join(s.Dir, fleet.KeyKubeconfig) }

// Restore completes what a crash left half-written and brings the files up to what the Secret holds.
func (s *Store) Restore(ctx context.Context) error {
	s.updates.Lock()
	defer s.updates.Unlock()
	if err := s.replayJournal(); err != nil || s.Secret.Name == "" {
		return err
	}
	secret := &corev1.Secret{}
	if err := s.Client.Get(ctx, s.Secret, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get Secret %s: %w", s.Secret, err)
	}
	return s.writeFiles(secret.Data)
}

// Load reads the credential; nil means that there is none yet.
func (s *Store) Load() (*Credential, error) {
	c := &Credential{}
	for key, into := range map[string]*[]byte{
		fleet.KeyKubeconfig: &c.Kubeconfig, fleet.KeyTLSCert: &c.Certificate, fleet.KeyTLSKey: &c.Key,
	} {
		data, err := os.ReadFile(filepath.Join(s.Dir, key))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the hub credential: %w", err)
		}
		*into = data
	}
	return c, nil
}

// Save stores the credential, in the Secret first: what clients use must not be lost with the pod.
func (s *Store) Save(ctx context.Context, c *Credential) error {
	s.updates.Lock()
	defer s.updates.Unlock()
	return s.save(ctx, c)
}

func (s *Store) save(ctx context.Context, c *Credential) error {
	if err := s.saveSecret(ctx, c); err != nil {
		return err
	}
	if err := s.writeFiles(c.data()); err != nil {
		return err
	}
	return s.pending().Forget(c.Key)
}

// Update changes parts of the credential. Of several at a time, each sees what the one before it made.
func (s *Store) Update(ctx context.Context, change func(Credential) (*Credential, error)) error {
	s.updates.Lock()
	defer s.updates.Unlock()
	c, err := s.held()
	if err != nil {
		return err
	}
	next, err := change(*c)
	if err != nil {
		return err
	}
	return s.save(ctx, next)
}

// PutBack makes the Secret, if there is one, hold what the files do. It writes nothing if it does.
func (s *Store) PutBack(ctx context.Context) error {
	s.updates.Lock()
	defer s.updates.Unlock()
	c, err := s.held()
	if err != nil {
		return err
	}
	return s.saveSecret(ctx, c)
}

// held is the credential, with its identity.
func (s *Store) held() (*Credential, error) {
	c, err := s.Load()
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, fmt.Errorf("the hub credential is gone from %s", s.Dir)
	}
	c.Identity, err = c.Holder()
	return c, err
}

func (s *Store) saveSecret(ctx context.Context, c *Credential) error {
	if s.Secret.Name == "" {
		return nil
	}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = s.Secret.Namespace, s.Secret.Name
	result, err := controllerutil.CreateOrUpdate(ctx, s.Client, secret, func() error {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		maps.Copy(secret.Data, c.data())
		return nil
	})
	if err != nil {
		return fmt.Errorf("save Secret %s: %w", s.Secret, err)
	}
	if s.Record != nil && result != controllerutil.OperationResultNone {
		s.Record(corev1.EventTypeNormal, fleet.EventSecretSave, "Save", "Secret %s holds the hub credential", s.Secret)
	}
	return nil
}

// data is the credential as the Secret and the files hold it.
func (c *Credential) data() map[string][]byte {
	return map[string][]byte{
		fleet.KeyTLSKey:      c.Key,
		fleet.KeyTLSCert:     c.Certificate,
		fleet.KeyClusterName: []byte(c.Identity.Cluster),
		fleet.KeyAgentName:   []byte(c.Identity.Agent),
		fleet.KeyKubeconfig:  c.Kubeconfig,
	}
}

// journal holds a credential while its files are being replaced one by one: a key and a certificate of two generations
// could not be used, and the bootstrap credential that could replace them may be long gone.
const journal = ".credential"

func (s *Store) writeFiles(data map[string][]byte) error {
	if s.holds(data) {
		return nil
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("create the hub kubeconfig folder: %w", err)
	}
	entry, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode the hub credential: %w", err)
	}
	if err := replaceFile(filepath.Join(s.Dir, journal), entry); err != nil {
		return fmt.Errorf("write the hub credential: %w", err)
	}
	return s.replayJournal()
}

// holds tells whether the files say the same already.
func (s *Store) holds(data map[string][]byte) bool {
	for _, key := range files {
		content, ok := data[key]
		if now, err := os.ReadFile(filepath.Join(s.Dir, key)); ok && (err != nil || !bytes.Equal(now, content)) {
			return false
		}
	}
	return true
}

// files are the names of the files, in the order in which they are replaced: the one by which readers begin comes last.
var files = []string{fleet.KeyClusterName, fleet.KeyAgentName, fleet.KeyTLSKey, fleet.KeyTLSCert, fleet.KeyKubeconfig}

func (s *Store) replayJournal() error {
	path := filepath.Join(s.Dir, journal)
	entry, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	data := map[string][]byte{}
	if err = errors.Join(err, json.Unmarshal(entry, &data)); err != nil {
		return fmt.Errorf("read the half-written hub credential %s: %w", path, err)
	}
	for _, key := range files {
		content, ok := data[key]
		if !ok {
			continue
		}
		if err := replaceFile(filepath.Join(s.Dir, key), content); err != nil {
			return fmt.Errorf("write the hub credential: %w", err)
		}
	}
	// Another process may have completed it as well.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write the hub credential: %w", err)
	}
	return nil
}

// replaceFile swaps a file for another in one step, so that no reader sees half of it. The file is readable by its owner
// only.
func replaceFile(path string, content []byte) error {
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, content) {
		return nil
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".next-*")
	if err != nil {
		return err
	}
	defer os.Remove(next.Name())
	_, err = next.Write(content)
	if err = errors.Join(err, next.Sync(), next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}
