package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/controlplane/apimetrics"
	"github.com/capstan-io/capstan/internal/controlplane/backup"
	"github.com/capstan-io/capstan/internal/controlplane/datadir"
	"github.com/capstan-io/capstan/internal/controlplane/etcdkeys"
	"github.com/capstan-io/capstan/internal/controlplane/inmemory"
	"github.com/capstan-io/capstan/internal/controlplane/kubecontrollers"
	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
	"github.com/capstan-io/capstan/internal/controlplane/rbac"
	"github.com/capstan-io/capstan/internal/controlplane/serviceaccounttoken"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// Run serves a hub until ctx ends, and then stops it in order: controllers, API server, storage. It returns an error
// that says what to do when the hub cannot start, and when a part of it fails.
func Run(ctx context.Context, o *Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if err := o.validate(); err != nil {
		return err
	}
	if err := setFeatures(); err != nil {
		return err
	}
	lock, err := datadir.Acquire(o.Config.DataDirectory)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	h := &hub{Options: o, refusals: newRefusals()}
	if err := h.open(ctx); err != nil {
		return ignoreStop(ctx, err)
	}
	defer h.storage.close()
	return h.serve(ctx)
}

// hub is a standalone hub that runs.
type hub struct {
	*Options
	address  address
	listener net.Listener
	keys     *pki.Store
	// tokenKeys are those of service account tokens among the keys.
	tokenKeys *serviceaccounttoken.Keys
	storage   *storage
	services  *serviceResolver
	// hostingUsers are let in unless nil.
	hostingUsers *hostingUsers
	// refusals are of agents whom the API server does not let in any more.
	refusals refusals
	// What the hub shows to aggregated APIs.
	proxyCertFile, proxyKeyFile string
	server                      *aggregatorapiserver.APIAggregator
	// loopback reaches the API server in memory, with full privileges.
	loopback *rest.Config
	client   kubernetes.Interface
	// publishing is held by who publishes the address.
	publishing sync.Mutex
	tokens     *tokenKeeper
	// The parts that /readyz waits for in addition to those of the API server itself.
	bootstrapped, controlling gate
	// objects is why one of those that the hub keeps is missing.
	objects problem
}

// open takes the port, the keys and the storage, and builds the API server on them.
func (h *hub) open(ctx context.Context) (err error) {
	if h.address, err = h.findAddress(ctx); err != nil {
		return err
	}
	if h.shared() {
		// Before there is a port at which agents would wait for a process that cannot reach it.
		if h.storage, err = openExternal(ctx, h.Config.Etcd, h.Config.File); err != nil {
			return err
		}
	}
	if h.listener, err = h.listen(ctx, h.address); err != nil {
		return err
	}
	if err := h.openKeysAndStorage(ctx); err != nil {
		_ = h.listener.Close()
		return err
	}
	// Once it is built it has clients of the storage that only its own end closes.
	if err = ctx.Err(); err == nil {
		err = h.build(ctx)
	}
	if err != nil {
		_ = h.listener.Close()
		h.storage.close()
		return err
	}
	return nil
}

// openKeysAndStorage does both at the same time, unless the keys are in the storage: at the first start each takes a while.
func (h *hub) openKeysAndStorage(ctx context.Context) error {
	if h.shared() {
		return h.openShared(ctx)
	}
	if err := h.findKeys(ctx); err != nil {
		return err
	}
	openKeys := sync.OnceValues(func() (*pki.Store, error) { return h.openKeys(ctx, nil) })
	var both errgroup.Group
	both.Go(func() (err error) {
		h.keys, err = openKeys()
		return err
	})
	both.Go(func() (err error) {
		h.storage, err = h.openEmbedded(ctx, openKeys)
		return err
	})
	err := both.Wait()
	if err == nil {
		err = removeFile(newKeysFile(h.Config.DataDirectory))
	}
	if err != nil && h.storage != nil {
		h.storage.close()
	}
	return err
}

// removeFile removes a file that may not be there.
func removeFile(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// openShared opens the keys in an external etcd. All hubs on it, with the same prefix, are one, and have their keys there.
func (h *hub) openShared(ctx context.Context) error {
	client, err := newClient(ctx, h.Config.Etcd)
	if err != nil {
		return err
	}
	h.storage.close = func() { _ = client.Close() }
	if err := h.openSharedKeys(ctx, client); err != nil {
		h.storage.close()
		return err
	}
	return nil
}

func (h *hub) openSharedKeys(ctx context.Context, client *clientv3.Client) (err error) {
	shared := etcdkeys.New(client, h.Config.Etcd.Prefix, etcdkeys.Encryption{
		File: h.store.EncryptionProviderConfigFilepath, Reload: h.store.EncryptionProviderConfigAutomaticReload,
	})
	if err := h.findShared(ctx, client, shared); err != nil {
		return err
	}
	if h.keys, err = h.openKeys(ctx, shared); err != nil {
		return err
	}
	h.storage.fails = loss{read: shared.Read, readAnew: h.readAnew, readyElsewhere: h.readyElsewhere}.await
	return removeFile(newKeysFile(h.Config.DataDirectory))
}

// openKeys opens the keys, which the hub has in its storage if it is given that.
func (h *hub) openKeys(ctx context.Context, storage pki.Storage) (*pki.Store, error) {
	caFile, caKeyFile := h.Config.APIServer.CAFile, h.Config.APIServer.CAKeyFile
	if caFile == "" && h.Hosting != nil {
		var err error
		if caFile, caKeyFile, err = h.Hosting.copySigner(ctx, certDir(h.Config.DataDirectory)); err != nil {
			return nil, err
		}
	}
	return pki.Open(ctx, pki.Options{
		Dir:         certDir(h.Config.DataDirectory),
		CAFile:      caFile,
		CAKeyFile:   caKeyFile,
		ServerNames: h.serverNames(h.address),
		Storage:     storage,
		Clock:       h.Clock,
	})
}

func (h *hub) build(ctx context.Context) error {
	options, err := h.kubeOptions(h.keys, h.storage, h.listener, h.address)
	if err != nil {
		return err
	}
	if h.tokenKeys, err = serviceaccounttoken.Load(h.keys.ServiceAccountKeys()); err != nil { //nolint:contextcheck // keys in memory take no time that could be cut short
		return err
	}
	options.Authentication.ServiceAccounts.ExternalPublicKeysGetter = h.tokenKeys
	h.proxyCertFile, h.proxyKeyFile = options.ProxyClientCertFile, options.ProxyClientKeyFile
	if err := h.delegateAuthentication(ctx); err != nil {
		return err
	}
	completed, err := options.Complete(ctx, nil, nil)
	if err != nil {
		return fmt.Errorf("configure the API server: %w", err)
	}
	completed.ServiceAccountIssuer = h.tokenKeys.Generator(serviceAccountIssuer)
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("configure the API server: %w", errors.Join(errs...))
	}
	h.services = newServiceResolver(h.Options)
	embedded, err := h.storage.direct(completed.Etcd)
	if err != nil {
		return err
	}
	transport := &inmemory.Transport{}
	h.loopback = loopbackClient(transport)
	//nolint:contextcheck // its context ends when requests are drained, later than this one
	h.server, err = newServer(completed, surroundings{
		loopback: h.loopback, embedded: embedded, services: h.services, hosting: h.hostingUsers, refusals: h.refusals,
		extensions: h.Extensions, endpoints: slices.Collect(maps.Keys(h.Endpoints)), groups: h.APIGroups, servers: h.servers(),
	})
	if err != nil {
		return err
	}
	generic := h.server.GenericAPIServer
	// A connection takes a second to close in order.
	generic.ShutdownTimeout = 2 * drainTimeout
	apimetrics.Install(generic.Handler.NonGoRestfulMux)
	for path, endpoint := range h.Endpoints {
		generic.Handler.NonGoRestfulMux.HandlePrefix(path, endpoint)
	}
	generic.Handler.NonGoRestfulMux.Handle(backup.Path, backup.Handler(ctx, h.backupSource()))
	transport.SetHandler(generic.Handler)
	if h.client, err = kubernetes.NewForConfig(h.loopback); err != nil {
		return err
	}
	h.tokens = &tokenKeeper{client: h.client, clock: clock.RealClock{}}
	err = generic.AddReadyzChecks(h.bootstrapped.check("hub-bootstrap"), h.objects.check("hub-objects"),
		h.controlling.check("hub-controllers"))
	if err != nil {
		return err
	}
	return h.writeKubeconfigs(ctx, h.keys, h.address)
}

// ordinaryStart is how long agents wait at most for a hub that starts. Later they are to retry.
const ordinaryStart = 10 * time.Second

// work completes the API and runs all controllers until ctx ends or one of them fails.
func (h *hub) work(ctx context.Context) error {
	defer time.AfterFunc(ordinaryStart, h.refusals.wait.End).Stop()
	group, ctx := errgroup.WithContext(ctx)
	tried := make(chan struct{})
	group.Go(func() error {
		if err := h.complete(ctx, sync.OnceFunc(func() { close(tried) })); err != nil {
			return ignoreStop(ctx, err)
		}
		return h.runOnCompleteAPI(ctx)
	})
	group.Go(func() error { return h.maintain(ctx, tried) })
	return group.Wait()
}

// complete makes the API complete, and tries again until it is, or ctx ends: what keeps it from that, such as a webhook that is down, can
// be removed by who asks the API server meanwhile. It calls tried after each attempt.
func (h *hub) complete(ctx context.Context, tried func()) error {
	logger, started := klog.FromContext(ctx), h.Clock.Now()
	err := retry.Until(ctx, func(ctx context.Context) (bool, error) {
		err := h.tryToComplete(ctx)
		if err != nil && ctx.Err() == nil && h.bootstrapped.problem.report(err) {
			logger.Error(err, "The API is not complete; trying again")
		}
		if err != nil {
			h.refusals.wait.End()
		}
		tried()
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	logger.Info("The API is complete", "after", h.Clock.Since(started).Round(time.Millisecond))
	return nil
}

func (h *hub) tryToComplete(ctx context.Context) error {
	if err := h.bootstrap(ctx); err != nil {
		return err
	}
	if err := h.awaitDiscovery(ctx); err != nil {
		return err
	}
	return awaitServed(ctx, h.loopback, h.CRDs)
}

// maintain runs what also an API needs that is not complete: it removes what may be the cause of that, such as a namespace that is being
// deleted, or a full storage.
func (h *hub) maintain(ctx context.Context, tried <-chan struct{}) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := h.awaitKinds(ctx, tried); err != nil {
			return ignoreStop(ctx, err)
		}
		return h.runKubernetesControllers(ctx)
	})
	group.Go(func() error { return h.watchAggregatedAPIs(ctx) })
	group.Go(func() error {
		h.keys.Run(ctx, func() { h.republish(ctx) })
		return nil
	})
	group.Go(func() error {
		h.storage.keepSpace(ctx)
		return nil
	})
	return group.Wait()
}

// awaitKinds returns when clients find all kinds that there are after the first attempt to complete the API.
func (h *hub) awaitKinds(ctx context.Context, tried <-chan struct{}) error {
	select {
	case <-tried:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := h.awaitDiscovery(ctx); err != nil {
		return err
	}
	return awaitInstalled(ctx, h.loopback)
}

// runOnCompleteAPI runs what relies on all that bootstrap makes. Before it follows whom to refuse, agents wait or are to retry: a hub that
// was restored does not let them have works before it is known whether it holds these.
func (h *hub) runOnCompleteAPI(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return h.refusals.follow(ctx, h.loopback) })
	group.Go(func() error {
		h.tryObjects(ctx) // an ordinary start has them before all that may look for them
		h.bootstrapped.open()
		return h.runControllers(ctx)
	})
	return group.Wait()
}

// runControllers runs what acts on the objects of the API, also if some of the hub itself are missing: the namespace of these may be
// waiting for a controller.
func (h *hub) runControllers(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return h.runHubControllers(ctx) })
	group.Go(func() error { return h.keepObjects(ctx) })
	for _, extension := range h.Extensions {
		if extension.Run == nil {
			continue
		}
		group.Go(func() error { return ignoreStop(ctx, extension.Run(ctx, rest.CopyConfig(h.loopback))) })
	}
	group.Go(func() error {
		h.tokens.run(ctx)
		return nil
	})
	return group.Wait()
}

func ignoreStop(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // what fails because the hub ends is no failure
	}
	return err
}

// bootstrap makes the API complete: kinds, roles, and what a restored hub withholds. No agent or controller acts before. What they do
// without is no part of it: a webhook that refuses to have that written, or a namespace that is being deleted, would take all clusters off
// the hub.
func (h *hub) bootstrap(ctx context.Context) error {
	err := ensureNamespaces(ctx, h.client, metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic)
	if err != nil {
		return err
	}
	return inParallel([]func() error{
		func() error { return installCRDs(ctx, h.loopback, h.CRDs) },
		func() error { return rbac.Ensure(ctx, h.client, rbac.Kubernetes()) },
		func() error { return rbac.Ensure(ctx, h.client, hubPolicy(h.DelegatingAuthentication)) },
		func() error { return h.suspendWorks(ctx) },
	})
}

// awaitDiscovery returns when the API server knows all its paths. A request that comes earlier, for one that is not there yet,
// is to be retried in some seconds.
func (h *hub) awaitDiscovery(ctx context.Context) error {
	for _, complete := range h.server.GenericAPIServer.MuxAndDiscoveryCompleteSignals() {
		select {
		case <-complete:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// runHubControllers runs what the program handed in.
func (h *hub) runHubControllers(ctx context.Context) error {
	if h.Controllers == nil {
		h.controlling.open()
		return nil
	}
	err := h.Controllers(ctx, rest.CopyConfig(h.loopback), h.shared(), h.controlling.open)
	if ctx.Err() == nil {
		return fmt.Errorf("the hub controllers stopped: %w", orUnexpected(err))
	}
	return nil
}

// shared says whether other hubs may run on the same objects.
func (h *hub) shared() bool { return h.Config.Etcd.Mode == ocmconfig.EtcdExternal }

// servers is how many there may be of this hub. Nobody knows how many there are, and more than two make no difference.
func (h *hub) servers() int {
	if h.shared() {
		return 2
	}
	return 1
}

// republish brings what embeds certificates up to date after these were renewed.
func (h *hub) republish(ctx context.Context) {
	logger := klog.FromContext(ctx)
	if err := h.tokenKeys.Reload(); err != nil { //nolint:contextcheck // keys in memory take no time that could be cut short
		logger.Error(err, "Service account tokens are signed with the old key until the next renewal or restart")
	}
	if err := h.writeKubeconfigs(ctx, h.keys, h.address); err != nil {
		logger.Error(err, "The admin kubeconfig has old certificates until the next renewal or restart")
	}
	if err := h.publishAddress(ctx); err != nil {
		logger.Error(err, "The published CA is old until the next renewal or restart")
	}
}

// publishAddress publishes where the hub is, and the CA to trust, one call after the other: the last one publishes what is right then.
func (h *hub) publishAddress(ctx context.Context) error {
	h.publishing.Lock()
	defer h.publishing.Unlock()
	rootCA, err := os.ReadFile(h.keys.Bundle(pki.RootCA))
	if err != nil {
		return err
	}
	if h.Published != nil {
		h.Published(h.address.url(), rootCA)
	}
	return ensureClusterInfo(ctx, h.client, h.address.url(), rootCA)
}

func (h *hub) runKubernetesControllers(ctx context.Context) error {
	if h.shared() {
		return h.runElected(ctx, h.kubernetesControllers)
	}
	return h.kubernetesControllers(ctx)
}

func (h *hub) kubernetesControllers(ctx context.Context) error {
	certFile, keyFile := h.keys.CA(pki.ClientCA)
	controllers, err := kubecontrollers.New(ctx, kubecontrollers.Config{
		Client:             h.loopback,
		SigningCertFile:    certFile,
		SigningKeyFile:     keyFile,
		ServiceAccountKeys: h.tokenKeys,
		RootCAFile:         h.keys.Bundle(pki.RootCA),
	})
	if err != nil {
		return err
	}
	controllers.Run(ctx)
	return nil
}
