// Package etcdkeys keeps what the servers of one hub have in common, their keys and CAs, in the etcd that they share.
package etcdkeys

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/controlplane/pki"
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
	client *clientv3.Client
	key    string
	// encryptionFile says how Secrets are encrypted, or is empty.
	encryptionFile string
	// last is what was found or stored last.
	last look
}

// look is what a server finds in etcd, or stores there.
type look struct {
	// version is when that was stored.
	version int64
	// encryption is the hash of the file by which it was read or encrypted.
	encryption string
}

// New keeps the keys below the prefix of the hub's objects, encrypted as Secrets are by the file of --encryption-provider-config; an
// empty one stands for none.
func New(client *clientv3.Client, prefix, encryptionFile string) *Storage {
	return &Storage{client: client, key: path.Join(prefix, keyBelowPrefix), encryptionFile: encryptionFile}
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
	encryption, hash, err := s.encryption(ctx)
	if err != nil {
		return nil, false, version, err
	}
	content, stale, err := encryption.TransformFromStorage(ctx, answer.Kvs[0].Value, value.DefaultContext(s.key))
	if err != nil {
		return nil, false, version, fmt.Errorf("decrypt them: %w; start all servers of the hub with the same --encryption-provider-config", err)
	}
	now := look{version: version.Content, encryption: hash}
	outdated = stale && !s.storedByAnother(now)
	s.last = now
	return content, outdated, version, nil
}

// storedByAnother reports whether another server has stored what is there now since the last look by the same encryption. It may encrypt in
// another way, as while servers are restarted one after the other: if each stored again what the other has stored, that would have no end.
// What nobody has stored since is stored again, because the key of a KMS plugin changes without the file.
func (s *Storage) storedByAnother(now look) bool {
	return now.encryption == s.last.encryption && now.version != s.last.version
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
	encryption, hash, err := s.encryption(ctx)
	if err != nil {
		return next, false, err
	}
	stored, err := encryption.TransformToStorage(ctx, content, value.DefaultContext(s.key))
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
	s.last = look{version: answer.Header.Revision, encryption: hash}
	return pki.Version{Content: answer.Header.Revision, Seen: answer.Header.Revision}, true, nil
}

// encryption is that of Secrets, with the hash of its file. It is needed so rarely that the file is read each time.
func (s *Storage) encryption(ctx context.Context) (transformer value.Transformer, hash string, err error) {
	if s.encryptionFile == "" {
		return identity.NewEncryptCheckTransformer(), "", nil
	}
	config, err := encryptionconfig.LoadEncryptionConfig(ctx, s.encryptionFile, false, "")
	if err != nil {
		return nil, "", fmt.Errorf("--encryption-provider-config: %w", err)
	}
	secrets := encryptionconfig.StaticTransformers(config.Transformers).TransformerForResource(schema.GroupResource{Resource: "secrets"})
	return secrets, config.EncryptionFileContentHash, nil
}

// Await implements pki.Storage.
func (s *Storage) Await(ctx context.Context, version pki.Version) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
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
