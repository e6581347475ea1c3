// Package etcdkeys keeps what the servers of one hub have in common, their keys and CAs, in the etcd that they share.
package etcdkeys

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/controlplane/pki"
	"github.com/capstan-io/capstan/internal/machinery/filewatch"
)

const (
	// keyBelowPrefix is where the keys are. No object of the API is there: those of this group would be one level below.
	keyBelowPrefix = "capstan.io/hub-keys"

	requestTimeout = 10 * time.Second

	// retryInterval is the pause after a watch that failed.
	retryInterval = 5 * time.Second
)

// Storage implements pki.Storage.
type Storage struct {
	client     *clientv3.Client
	key        string
	encryption Encryption

	mu sync.Mutex
	// last is what was found or stored last.
	last look
}

// Encryption is that of Secrets.
type Encryption struct {
	// File is that of --encryption-provider-config, or empty if they are not encrypted.
	File string
	// Reload says that the file counts as soon as it changes.
	Reload bool
}

// look is what a server finds in etcd, or stores there.
type look struct {
	// version is when that was stored.
	version int64
	// encryption is the hash of the file by which it was read or encrypted.
	encryption string
}

// New keeps the keys below the prefix of the hub's objects, encrypted as Secrets are.
func New(client *clientv3.Client, prefix string, encryption Encryption) *Storage {
	return &Storage{client: client, key: path.Join(prefix, keyBelowPrefix), encryption: encryption}
}

// Exists reports whether keys are stored.
func (s *Storage) Exists(ctx context.Context) (bool, error) {
	answer, err := s.client.Get(ctx, s.key, clientv3.WithCountOnly())
	if err != nil {
		return false, fmt.Errorf("look for the keys of the hub at %s in etcd: %w", s.key, err)
	}
	return answer.Count > 0, nil
}

// Read fails unless a majority of the etcd answers.
func (s *Storage) Read(ctx context.Context) error {
	_, err := s.Exists(ctx)
	return err
}

// Load implements pki.Storage. What is not encrypted as new Secrets are is stored again, unless another server has just stored it.
func (s *Storage) Load(ctx context.Context) ([]byte, pki.Version, error) {
	for {
		content, outdated, version, err := s.load(ctx)
		if err != nil {
			return nil, version, fmt.Errorf("load the keys of the hub from %s in etcd: %w", s.key, err)
		}
		if !outdated {
			return content, version, nil
		}
		version, replaced, err := s.Replace(ctx, content, version)
		if replaced {
			klog.FromContext(ctx).Info("Stored the keys again, encrypted as Secrets are now", "key", s.key)
		}
		if err != nil || replaced {
			return content, version, err
		}
	}
}

func (s *Storage) load(ctx context.Context) (content []byte, outdated bool, version pki.Version, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := s.client.Get(ctx, s.key)
	if err != nil {
		return nil, false, version, err
	}
	version.Seen = answer.Header.Revision
	if len(answer.Kvs) == 0 {
		return nil, false, version, nil
	}
	version.Content = answer.Kvs[0].ModRevision
	transformer, hash, err := s.encryption.load(ctx)
	if err != nil {
		return nil, false, version, err
	}
	content, stale, err := transformer.TransformFromStorage(ctx, answer.Kvs[0].Value, value.DefaultContext(s.key))
	if err != nil {
		return nil, false, version, fmt.Errorf("decrypt them: %w; start all servers of the hub with the same --encryption-provider-config", err)
	}
	now := look{version: version.Content, encryption: hash}
	return content, stale && !now.isOfAnother(s.replaceLast(now)), version, nil
}

// isOfAnother reports whether another server has stored that since the last look by the same encryption. It may encrypt in another way, as
// while servers are restarted one after the other: if each stored again what the other has stored, that would have no end. What nobody has
// stored since is stored again, because the key of a KMS plugin changes without the file.
func (l look) isOfAnother(last look) bool {
	return l.encryption == last.encryption && l.version != last.version
}

func (s *Storage) replaceLast(now look) (last look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, s.last = s.last, now
	return last
}

// Replace implements pki.Storage.
func (s *Storage) Replace(ctx context.Context, content []byte, version pki.Version) (pki.Version, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	next, replaced, err := s.replace(ctx, content, version)
	if err != nil {
		err = fmt.Errorf("store the keys of the hub at %s in etcd: %w", s.key, err)
	}
	return next, replaced, err
}

func (s *Storage) replace(ctx context.Context, content []byte, version pki.Version) (next pki.Version, replaced bool, err error) {
	transformer, hash, err := s.encryption.load(ctx)
	if err != nil {
		return next, false, err
	}
	stored, err := transformer.TransformToStorage(ctx, content, value.DefaultContext(s.key))
	if err != nil {
		return next, false, fmt.Errorf("encrypt them: %w", err)
	}
	// The version of a key that does not exist is 0.
	answer, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(s.key), "=", version.Content)).
		Then(clientv3.OpPut(s.key, string(stored))).
		Commit()
	if err != nil || !answer.Succeeded {
		return next, false, err
	}
	s.replaceLast(look{version: answer.Header.Revision, encryption: hash})
	return pki.Version{Content: answer.Header.Revision, Seen: answer.Header.Revision}, true, nil
}

// load returns it with the hash of its file. It is needed so rarely that the file is read each time.
func (e Encryption) load(ctx context.Context) (transformer value.Transformer, hash string, err error) {
	if e.File == "" {
		return identity.NewEncryptCheckTransformer(), "", nil
	}
	config, err := encryptionconfig.LoadEncryptionConfig(ctx, e.File, false, "")
	if err != nil {
		return nil, "", fmt.Errorf("--encryption-provider-config: %w", err)
	}
	secrets := encryptionconfig.StaticTransformers(config.Transformers).TransformerForResource(schema.GroupResource{Resource: "secrets"})
	return secrets, config.EncryptionFileContentHash, nil
}

// Await implements pki.Storage. With Reload, it also returns when what is stored may have to be encrypted in another way.
func (s *Storage) Await(ctx context.Context, version pki.Version) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.encryption.Reload {
		go s.awaitEncryption(ctx, cancel)
	}
	for change := range s.client.Watch(clientv3.WithRequireLeader(ctx), s.key, clientv3.WithRev(version.Seen+1)) {
		err := change.Err()
		if err == nil && len(change.Events) == 0 {
			continue
		}
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			break
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	klog.FromContext(ctx).Info("The keys in etcd cannot be watched; looking at them again", "key", s.key, "after", retryInterval)
	select {
	case <-ctx.Done():
	case <-time.After(retryInterval):
	}
}

// awaitEncryption calls changed when Secrets are encrypted in another way than at the last look, unless ctx ends first.
func (s *Storage) awaitEncryption(ctx context.Context, changed func()) {
	changes := filewatch.New(func() []string { return []string{s.encryption.File} })
	if hash, err := encryptionconfig.GetEncryptionConfigHash(s.encryption.File); err == nil && hash != s.lastEncryption() {
		changed()
		return
	}
	changes.Run(ctx, changed)
}

func (s *Storage) lastEncryption() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.encryption
}
