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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/capstan-io/capstan/internal/agent/hubaccess"
	"github.com/capstan-io/capstan/internal/atomicfile"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Store keeps a credential as files in a folder, which is where clients read it, and, in a cluster, in a Secret, which
// outlives the pod.
type Store struct {
	// Dir holds the files.
	Dir string
	// Secret names the Secret; without a name there is none.
	Secret client.ObjectKey
	// Access is the transport to the hub that the credential is for; nil stands for that to the API server.
	Access *hubaccess.Access
	// Client reaches the cluster that holds the Secret. It is not used without one.
	Client client.Client
	// Record takes an event about the Secret; nil drops it.
	Record func(eventType, reason, action, note string, args ...any)

	// updates is held while Secret and files are read and written, or concurrent changes would be lost.
	updates sync.Mutex
}

// HubFile is the path of the file that says where the hub is, the hub kubeconfig.
func (s *Store) HubFile() string { return filepath.Join(s.Dir, s.access().Key) }

func (s *Store) access() *hubaccess.Access {
	if s.Access == nil {
		return hubaccess.API
	}
	return s.Access
}

// Connect returns how clients reach the hub with the files in the store, which they read again when they change. They work until the
// context ends.
func (s *Store) Connect(ctx context.Context, cluster string) (*rest.Config, error) {
	content, err := os.ReadFile(s.HubFile())
	if err != nil {
		return nil, err
	}
	kubeconfig, err := s.access().Decode(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.HubFile(), err)
	}
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.HubFile(), err)
	}
	for _, hub := range config.Clusters {
		hub.LocationOfOrigin = s.HubFile()
	}
	for _, user := range config.AuthInfos {
		user.LocationOfOrigin = s.HubFile()
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, fmt.Errorf("%s: %w", s.HubFile(), err)
	}
	return s.access().Connect(ctx, config, cluster)
}

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
	if found, err := s.read(s.access().Key, &c.Kubeconfig); err != nil || !found {
		return nil, err
	}
	var err error
	if c.Kubeconfig, err = s.access().Decode(c.Kubeconfig); err != nil {
		return nil, fmt.Errorf("read the hub credential: %s: %w", s.HubFile(), err)
	}
	if c.Command() != nil {
		return c, nil // there may be a certificate from before
	}
	for key, into := range map[string]*[]byte{fleet.KeyTLSCert: &c.Certificate, fleet.KeyTLSKey: &c.Key} {
		if found, err := s.read(key, into); err != nil || !found {
			return nil, err
		}
	}
	return c, nil
}

func (s *Store) read(key string, into *[]byte) (found bool, err error) {
	*into, err = os.ReadFile(filepath.Join(s.Dir, key))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the hub credential: %w", err)
	}
	return true, nil
}

// Save stores the credential of an agent that has registered, in the Secret first: what clients use must not be lost with the pod. What the
// one before it, expired perhaps, knows of the same hub stays.
func (s *Store) Save(ctx context.Context, c *Credential) error {
	s.updates.Lock()
	defer s.updates.Unlock()
	if earlier, err := s.Load(); err == nil && earlier != nil {
		if c, err = c.succeeding(earlier); err != nil {
			return err
		}
	}
	return s.save(ctx, c)
}

func (s *Store) save(ctx context.Context, c *Credential) error {
	data, err := s.data(c)
	if err != nil {
		return err
	}
	if err := s.saveSecret(ctx, data); err != nil {
		return err
	}
	if err := s.writeFiles(data); err != nil {
		return err
	}
	return s.pending().Forget(c.Key)
}

// Update changes parts of the credential. Of several at a time, each sees what the one before it made.
func (s *Store) Update(ctx context.Context, change func(Credential) (*Credential, error)) error {
	s.updates.Lock()
	defer s.updates.Unlock()
	c, err := s.loadIdentified()
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
	c, err := s.loadIdentified()
	if err != nil {
		return err
	}
	data, err := s.data(c)
	if err != nil {
		return err
	}
	return s.saveSecret(ctx, data)
}

// loadIdentified is the credential, with its identity.
func (s *Store) loadIdentified() (*Credential, error) {
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

func (s *Store) saveSecret(ctx context.Context, data map[string][]byte) error {
	if s.Secret.Name == "" {
		return nil
	}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = s.Secret.Namespace, s.Secret.Name
	result, err := controllerutil.CreateOrUpdate(ctx, s.Client, secret, func() error {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		delete(secret.Data, fleet.KeyTLSCert)
		delete(secret.Data, fleet.KeyTLSKey)
		maps.Copy(secret.Data, data)
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
func (s *Store) data(c *Credential) (map[string][]byte, error) {
	hub, err := s.access().Encode(c.Kubeconfig, s.Dir)
	if err != nil {
		return nil, fmt.Errorf("encode the hub credential: %w", err)
	}
	data := map[string][]byte{
		fleet.KeyClusterName: []byte(c.Identity.Cluster),
		fleet.KeyAgentName:   []byte(c.Identity.Agent),
		s.access().Key:       hub,
	}
	if len(c.Certificate) > 0 {
		data[fleet.KeyTLSCert], data[fleet.KeyTLSKey] = c.Certificate, c.Key
	}
	return data, nil
}

// journal holds a credential while its files are being replaced one by one: a key and a certificate of two generations
// could not be used, and the bootstrap credential that could replace them may be long gone.
const journal = ".credential"

func (s *Store) writeFiles(data map[string][]byte) error {
	if s.isUpToDate(data) {
		return nil
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("create the hub kubeconfig folder: %w", err)
	}
	entry, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode the hub credential: %w", err)
	}
	if err := atomicfile.WriteSecret(filepath.Join(s.Dir, journal), entry); err != nil {
		return fmt.Errorf("write the hub credential: %w", err)
	}
	return s.replayJournal()
}

// isUpToDate reports whether the files say the same already.
func (s *Store) isUpToDate(data map[string][]byte) bool {
	for _, key := range s.files() {
		content, ok := data[key]
		if now, err := os.ReadFile(filepath.Join(s.Dir, key)); ok && (err != nil || !bytes.Equal(now, content)) {
			return false
		}
	}
	return true
}

// files are the names of the files, in the order in which they are replaced: the one by which readers start comes last.
func (s *Store) files() []string {
	return []string{fleet.KeyClusterName, fleet.KeyAgentName, fleet.KeyTLSKey, fleet.KeyTLSCert, s.access().Key}
}

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
	for _, key := range s.files() {
		content, ok := data[key]
		if !ok {
			continue
		}
		if err := atomicfile.WriteSecret(filepath.Join(s.Dir, key), content); err != nil {
			return fmt.Errorf("write the hub credential: %w", err)
		}
	}
	// Another process may have completed it as well.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write the hub credential: %w", err)
	}
	return nil
}
