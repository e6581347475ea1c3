package controlplane

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/controlplane/backup"
	"github.com/capstan-io/capstan/internal/controlplane/direct"
	"github.com/capstan-io/capstan/internal/controlplane/etcd"
	"github.com/capstan-io/capstan/internal/controlplane/etcdkeys"
	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
	"github.com/capstan-io/capstan/internal/program"
)

const (
	// probeTimeout is how long an external etcd may take to answer at the start.
	probeTimeout = 3 * time.Second
	// findTimeout is how long it may take to say what it has of the hub.
	findTimeout = 10 * time.Second

	// A server of an external etcd that does not answer for so long is left for another.
	keepAliveTime    = 30 * time.Second
	keepAliveTimeout = 10 * time.Second
)

// storage is where the hub's objects are.
type storage struct {
	transport storagebackend.TransportConfig
	// embedded calls the embedded etcd; it is nil if there is none.
	embedded *clientv3.Client
	// snapshot is the database of the embedded etcd as it is now; nil if there is none.
	snapshot func() backup.Snapshot
	// inReserve reports whether an embedded etcd has hardly any room left; nil if there is none.
	inReserve func() bool
	// keepSpace maintains the size of an embedded etcd until the context ends.
	keepSpace func(ctx context.Context)
	// fails returns an error when the hub cannot go on with the etcd, and nil when ctx ends.
	fails func(ctx context.Context) error
	close func()
}

// openEmbedded starts the embedded etcd. keys returns when the keys exist; only an etcd with TCP ports has to wait for them.
func (o *Options) openEmbedded(ctx context.Context, keys func() (*pki.Store, error)) (*storage, error) {
	options := o.etcdOptions(ctx)
	options.ClientPort, options.PeerPort = o.Etcd.ClientPort, o.Etcd.PeerPort
	if err := o.findMember(options.Dir); err != nil {
		return nil, err
	}
	if options.ClientPort != 0 || options.PeerPort != 0 {
		store, err := keys()
		if err != nil {
			return nil, err
		}
		options.TLS.CAFile = store.Bundle(pki.EtcdCA)
		options.TLS.CertFile, options.TLS.KeyFile = store.Certificate(pki.EtcdServer)
	}
	server, err := etcd.Start(ctx, options)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w; set another --embedded-etcd-client-port or --embedded-etcd-peer-port", err)
	}
	if err != nil {
		return nil, err
	}
	client := server.Client()
	if _, err := o.findObjects(ctx, client); err != nil {
		server.Close()
		return nil, err
	}
	return &storage{
		transport: storagebackend.TransportConfig{ServerList: []string{server.Endpoint()}},
		embedded:  client,
		snapshot:  func() backup.Snapshot { return server.Snapshot() },
		inReserve: server.InReserve,
		keepSpace: func(ctx context.Context) { server.KeepSpace(ctx, clock.RealClock{}) },
		fails:     endOf(server),
		close:     server.Close,
	}, nil
}

// endOf waits for the end of an embedded etcd that nobody requested.
func endOf(server *etcd.Server) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case err := <-server.Err():
			return fmt.Errorf("the embedded etcd stopped: %w", orUnexpected(err))
		case <-ctx.Done():
			return nil
		}
	}
}

// etcdOptions are those of an embedded etcd without ports.
func (o *Options) etcdOptions(ctx context.Context) etcd.Options {
	return etcd.Options{
		Dir:           EtcdDirectory(o.Config.DataDirectory, o.Etcd.Directory),
		NoFsync:       o.Etcd.NoFsync,
		SnapshotCount: o.Etcd.SnapshotCount,
		WALSizeBytes:  o.Etcd.WALSizeBytes,
		QuotaBytes:    o.Etcd.QuotaBytes,
		Logger:        klog.FromContext(ctx),
	}
}

// findMember fails if the hub has had a storage, as its kubeconfig says, and that is not in the folder: the same hub to its agents, without
// its objects it would have them remove their works. A first start that was killed has left keys, but no kubeconfig.
func (o *Options) findMember(dir string) error {
	data := o.Config.DataDirectory
	if _, err := os.Stat(AdminKubeconfig(data)); err != nil {
		return nil //nolint:nilerr // it had none
	}
	found, err := hasMember(dir)
	if err != nil || found {
		return err
	}
	return fmt.Errorf("the hub in %s has no storage: %s is missing or empty; mount its disk, or name the folder that it is in by %s; if it "+
		"is lost, move %s away, and restore a backup or start a new hub", data, etcd.MemberDir(dir), backup.EtcdDirectoryFlag, certDir(data))
}

func hasMember(dir string) (bool, error) {
	files, err := os.ReadDir(etcd.MemberDir(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look for the storage of the hub: %w", err)
	}
	return len(files) > 0, nil
}

// newKeysFile is what has a hub with objects and without keys make new ones, in its data directory, once.
func newKeysFile(dataDirectory string) string { return filepath.Join(dataDirectory, "new-keys") }

// findKeys fails if the embedded etcd has the objects of the hub, and the hub has no keys: with new ones, none of its agents would trust
// it. A first start that was killed may have left a storage, but has no objects there. The etcd looked at has no ports, and needs no keys.
func (o *Options) findKeys(ctx context.Context) error {
	data, options := o.Config.DataDirectory, o.etcdOptions(ctx)
	if pki.HasKeys(certDir(data)) {
		return nil
	}
	if _, err := os.Stat(newKeysFile(data)); err == nil {
		return nil
	}
	if found, err := hasMember(options.Dir); err != nil || !found {
		return err
	}
	server, err := etcd.Start(ctx, options)
	if err != nil {
		return err
	}
	defer server.Close()
	if found, err := o.findObjects(ctx, server.Client()); err != nil || !found {
		return err
	}
	return fmt.Errorf("the storage %s has the objects of a hub, and %s has none of its keys; mount the disk of the keys, or correct "+
		"dataDirectory in %s; if they are lost, move the storage away and restore a backup, or create the file %s to go on with new keys, "+
		"which no agent trusts until its cluster joins again", etcd.MemberDir(options.Dir), certDir(data), o.Config.File, newKeysFile(data))
}

// findShared fails if an external etcd has the objects of the hub without its keys, or nothing of a hub that has run before. Another server
// that starts for the first time stores keys before objects.
func (o *Options) findShared(ctx context.Context, client *clientv3.Client, keys *etcdkeys.Storage) error {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	objects, err := o.hasObjects(ctx, client)
	if err != nil {
		return err
	}
	stored, err := keys.Exists(ctx)
	switch {
	case err != nil || stored:
		return err
	case objects:
		return o.findSharedKeys()
	default:
		return o.findSharedObjects()
	}
}

// findSharedKeys fails if the data directory has no keys for the objects in an external etcd that has none.
func (o *Options) findSharedKeys() error {
	data := o.Config.DataDirectory
	if pki.HasKeys(certDir(data)) {
		return nil
	}
	if _, err := os.Stat(newKeysFile(data)); err == nil {
		return nil
	}
	return fmt.Errorf("the external etcd has the objects of a hub below %s, and neither that nor %s has its keys; correct etcd.prefix or "+
		"dataDirectory in %s; if the keys are lost, restore the etcd from a backup, or create the file %s to go on with new keys, which no "+
		"agent trusts until its cluster joins again", o.Config.Etcd.Prefix, certDir(data), o.Config.File, newKeysFile(data))
}

// findSharedObjects fails if the hub has run, as its kubeconfig says, and an external etcd has nothing of it: as without a storage, the hub
// would be without its objects. Keys that were moved here have no kubeconfig.
func (o *Options) findSharedObjects() error {
	data := o.Config.DataDirectory
	if _, err := os.Stat(AdminKubeconfig(data)); err != nil {
		return nil //nolint:nilerr // it has not run
	}
	return fmt.Errorf("the hub in %s has run, and the external etcd has nothing of it below %s; correct etcd.servers or etcd.prefix in %s, "+
		"or copy its objects there first; if they are lost, restore the etcd from a backup, or move %s away to start a new hub", data,
		o.Config.Etcd.Prefix, o.Config.File, certDir(data))
}

// findObjects reports whether an embedded etcd has objects of the hub. It fails if there are objects, and none below the prefix: as without
// a storage, the hub would be without them.
func (o *Options) findObjects(ctx context.Context, client *clientv3.Client) (bool, error) {
	if own, err := o.hasObjects(ctx, client); err != nil || own {
		return own, err
	}
	all, err := client.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return false, fmt.Errorf("look for the objects of the hub: %w", err)
	}
	for _, kv := range all.Kvs {
		if prefix, isOfHub := strings.CutSuffix(string(kv.Key), everyHubHas); isOfHub {
			return false, fmt.Errorf("etcd.prefix in %s is %s, but the storage of this hub has its objects below %s; set etcd.prefix to %[3]s, or "+
				"start another hub in another dataDirectory", o.Config.File, o.Config.Etcd.Prefix, prefix)
		}
	}
	return false, nil
}

// hasObjects reports whether an etcd has objects of the hub below its prefix.
func (o *Options) hasObjects(ctx context.Context, client *clientv3.Client) (bool, error) {
	own, err := client.Get(ctx, o.Config.Etcd.Prefix+everyHubHas, clientv3.WithCountOnly())
	if err != nil {
		return false, fmt.Errorf("look for the objects of the hub: %w", err)
	}
	return own.Count > 0, nil
}

// everyHubHas is the end of a key that the storage of each hub has from its first start on.
const everyHubHas = "/namespaces/" + metav1.NamespaceSystem

// EtcdDirectory is where the embedded etcd has its data: the folder of EtcdOptions.Directory, or else one in the data directory.
func EtcdDirectory(dataDirectory, directory string) string {
	return cmp.Or(directory, filepath.Join(dataDirectory, "etcd"))
}

// backupSource is what a backup of the hub is made of; nil if its objects are not its own.
func (h *hub) backupSource() *backup.Source {
	if h.storage.snapshot == nil {
		return nil
	}
	return &backup.Source{
		Hub: h.address.url(), Version: program.Version(), Prefix: h.Config.Etcd.Prefix, EtcdDirectory: absolute(h.Etcd.Directory),
		KeysDir: certDir(h.Config.DataDirectory), Supplied: h.suppliedFiles(), Snapshot: h.storage.snapshot, Clock: h.Clock,
	}
}

// suppliedFiles are those without which a hub cannot read its objects, or is not the one that agents trust.
func (h *hub) suppliedFiles() (files []backup.File) {
	for _, file := range []backup.File{
		{Setting: backup.EncryptionFlag, Path: h.store.EncryptionProviderConfigFilepath},
		{Setting: "apiserver.caFile", Path: h.Config.APIServer.CAFile},
		{Setting: "apiserver.caKeyFile", Path: h.Config.APIServer.CAKeyFile},
	} {
		if file.Path == "" {
			continue
		}
		file.Path = absolute(file.Path)
		files = append(files, file)
	}
	return files
}

// absolute is the same path for who reads it elsewhere; empty stays empty.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil && path != "" {
		return whole
	}
	return path
}

// direct is the embedded etcd for an API server with these options, or nil.
func (s *storage) direct(options *genericoptions.EtcdOptions) (*direct.Storage, error) {
	if s.embedded == nil || !options.EnableWatchCache {
		return nil, nil
	}
	d, err := direct.New(s.embedded, s.transport.ServerList[0], *options, s.inReserve)
	if err != nil {
		return nil, err
	}
	end := s.close
	s.close = func() {
		d.Stop()
		end()
	}
	return d, nil
}

// openExternal probes every server of an external etcd, so that a wrong address, certificate or firewall is
// reported at once and by name. One that answers is enough: etcd itself copes with members that are down.
func openExternal(ctx context.Context, e ocmconfig.Etcd, file string) (*storage, error) {
	tlsConfig, err := clientTLS(e)
	if err != nil {
		return nil, err
	}
	failures := make([]error, len(e.Servers))
	var probes sync.WaitGroup
	for i, server := range e.Servers {
		probes.Go(func() { failures[i] = probe(ctx, server, tlsConfig) })
	}
	probes.Wait()
	if !slices.Contains(failures, nil) {
		return nil, fmt.Errorf("no server of the external etcd answers: %s; start etcd, or correct etcd.servers in %s", inOneLine(failures), file)
	}
	for i, failure := range failures {
		if failure != nil {
			klog.FromContext(ctx).Error(failure, "A server of the external etcd does not answer", "server", e.Servers[i])
		}
	}
	return &storage{
		transport: storagebackend.TransportConfig{ServerList: e.Servers, TrustedCAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile},
		keepSpace: func(context.Context) {},
		close:     func() {},
	}, nil
}

// newClient is a client of an external etcd that lives as long as the context.
func newClient(ctx context.Context, e ocmconfig.Etcd) (*clientv3.Client, error) {
	config := clientv3.Config{
		Endpoints: e.Servers, Context: ctx, Logger: zap.NewNop(), DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(reconnecting())},
	}
	if slices.ContainsFunc(e.Servers, func(server string) bool { return strings.HasPrefix(server, "https://") }) {
		var err error
		if config.TLS, err = clientTLS(e); err != nil {
			return nil, err
		}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the external etcd: %w", err)
	}
	return client, nil
}

// reconnecting has a server that is back be connected to soon, however long it was away: gRPC waits for up to two minutes otherwise.
func reconnecting() grpc.ConnectParams {
	params := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: keepAliveTimeout}
	params.Backoff.MaxDelay = lossInterval
	return params
}

func inOneLine(errs []error) string {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

func clientTLS(e ocmconfig.Etcd) (*tls.Config, error) {
	info := transport.TLSInfo{TrustedCAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile}
	config, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the certificates of etcd.caFile, etcd.certFile and etcd.keyFile: %w", err)
	}
	return config, nil
}

// probe connects step by step, because the client of etcd itself reports nothing but that time ran out.
func probe(ctx context.Context, server string, tlsConfig *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	target, err := url.Parse(server)
	if err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	if err := dial(ctx, target, tlsConfig); err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	config := clientv3.Config{Endpoints: []string{server}, Context: ctx, Logger: zap.NewNop()}
	if target.Scheme == "https" {
		config.TLS = tlsConfig
	}
	client, err := clientv3.New(config)
	if err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Status(ctx, server); err != nil {
		return fmt.Errorf("%s: asked for its status: %w", server, err)
	}
	return nil
}

func dial(ctx context.Context, target *url.URL, tlsConfig *tls.Config) error {
	network, host := "tcp", target.Host
	if target.Scheme == "unix" {
		network, host = "unix", strings.TrimPrefix(target.String(), "unix://")
	}
	var conn net.Conn
	var err error
	if target.Scheme == "https" {
		conn, err = (&tls.Dialer{Config: tlsConfig}).DialContext(ctx, network, host)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, host)
	}
	if err != nil {
		return err
	}
	return conn.Close()
}
