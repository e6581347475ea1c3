package controlplane

import (
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	authnuser "k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationmetrics "k8s.io/apiserver/pkg/authorization/metrics"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	kubeoptions "k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	"k8s.io/kubernetes/pkg/kubeapiserver"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/capstan-io/capstan/internal/controlplane/backup"
	"github.com/capstan-io/capstan/internal/controlplane/inmemory"
	"github.com/capstan-io/capstan/internal/controlplane/rbac"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// resync is the stock interval at which informers of the API server hand out what they have.
const resync = 10 * time.Minute

// loopbackClient is the API server's client of itself: all rights, no throttle, and neither socket nor TLS, so that a start
// makes no key for it and a watch has no connection.
func loopbackClient(transport *inmemory.Transport) *rest.Config {
	return &rest.Config{
		Host:        "http://in-memory",
		BearerToken: uuid.NewString(),
		Transport:   transport,
		QPS:         -1,
	}
}

// genericConfig is what the three servers have in common, and what it is made with.
type genericConfig struct {
	*genericapiserver.Config
	informers informers.SharedInformerFactory
	storage   *serverstorage.DefaultStorageFactory
}

// longRunningResource reports which requests for resources have no time limit. Aggregated APIs and extensions may have any of the
// subresources.
var longRunningResource = filters.BasicLongRunningRequestCheck(
	sets.NewString("watch", "proxy"),
	sets.NewString("attach", "exec", "proxy", "log", "portforward", fleet.SubresourceTunnel, fleet.SubresourceStream))

// longRunning reports which requests have no time limit.
func longRunning(r *http.Request, info *request.RequestInfo) bool {
	return longRunningResource(r, info) || !info.IsResourceRequest && info.Path == backup.Path
}

// newGenericConfig does what the Kubernetes API server does at this point, controlplaneapiserver.BuildGenericConfig, with the
// loopback client given instead of one that makes connections, and without the egress selector and the tracing, which a hub has
// no options for.
func newGenericConfig(options kubeoptions.CompletedOptions, loopback *rest.Config, schemes []*runtime.Scheme,
	groups []APIGroup) (*genericConfig, error) {
	c := &genericConfig{Config: genericapiserver.NewConfig(legacyscheme.Codecs)}
	c.MergedResourceConfig = servedGroups()
	c.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	c.LongRunningFunc = longRunning
	if err := options.GenericServerRunOptions.ApplyTo(c.Config); err != nil {
		return nil, err
	}
	if err := options.SecureServing.SecureServingOptions.ApplyTo(&c.SecureServing); err != nil {
		return nil, err
	}
	client, err := c.useLoopback(loopback)
	if err != nil {
		return nil, err
	}
	if err := options.Features.ApplyTo(c.Config, client, c.informers); err != nil {
		return nil, err
	}
	if err := options.APIEnablement.ApplyTo(c.Config, c.MergedResourceConfig, legacyscheme.Scheme); err != nil {
		return nil, err
	}
	c.describe(schemes, groups)
	if err := c.store(options); err != nil {
		return nil, err
	}
	if err := c.admitUsers(options, client); err != nil {
		return nil, err
	}
	return c, options.Audit.ApplyTo(c.Config)
}

// useLoopback has the server and its informers talk to it by this client.
func (c *genericConfig) useLoopback(loopback *rest.Config) (kubernetes.Interface, error) {
	c.LoopbackClientConfig = rest.CopyConfig(loopback)
	c.LoopbackClientConfig.ContentType = runtime.ContentTypeProtobuf
	c.LoopbackClientConfig.DisableCompression = true
	client, err := kubernetes.NewForConfig(c.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	c.informers = informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(cache.TransformStripManagedFields()))
	return client, nil
}

// describe says how the API is described, which authentication and the servers take over.
func (c *genericConfig) describe(schemes []*runtime.Scheme, groups []APIGroup) {
	for _, group := range groups {
		schemes = append(schemes, group.Scheme)
	}
	definitions := withGroups(openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(servedDefinitions), groups)
	namer := openapinamer.NewDefinitionNamer(schemes...)
	c.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	c.OpenAPIConfig.Info.Title = "Kubernetes"
	c.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	c.OpenAPIV3Config.Info.Title = "Kubernetes"
}

// withGroups adds the definitions of groups.
func withGroups(definitions openapicommon.GetOpenAPIDefinitions, groups []APIGroup) openapicommon.GetOpenAPIDefinitions {
	return func(ref openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
		all := definitions(ref)
		for _, group := range groups {
			maps.Copy(all, group.Definitions(ref))
		}
		return all
	}
}

func (c *genericConfig) store(options kubeoptions.CompletedOptions) (err error) {
	factory := kubeapiserver.NewStorageFactoryConfigEffectiveVersion(c.EffectiveVersion)
	factory.APIResourceConfig = c.MergedResourceConfig
	factory.DefaultResourceEncoding.SetEffectiveVersion(c.EffectiveVersion)
	if c.storage, err = factory.Complete(options.Etcd).New(); err != nil {
		return err
	}
	c.storage.StorageConfig.StorageObjectCountTracker = c.StorageObjectCountTracker
	return options.Etcd.ApplyWithStorageFactoryTo(c.storage, c.Config)
}

// admitUsers says who is who, and who may what.
func (c *genericConfig) admitUsers(options kubeoptions.CompletedOptions, client kubernetes.Interface) error {
	ctx := wait.ContextForChannel(c.DrainedNotify())
	err := options.Authentication.ApplyTo(ctx, &c.Authentication, c.SecureServing, nil, c.OpenAPIConfig, c.OpenAPIV3Config, client,
		c.informers, c.APIServerID)
	if err != nil {
		return err
	}
	return c.authorize()
}

// authorize lets administrators do everything, and others what RBAC says.
func (c *genericConfig) authorize() error {
	roles, err := rbac.NewAuthorizer(c.informers)
	if err != nil {
		return fmt.Errorf("configure authorization: %w", err)
	}
	c.RuleResolver = roles
	c.Authorization.Authorizer, err = union.New(
		union.NamedAuthorizer{AuthorizerName: "administrators", Authorizer: authorizerfactory.NewPrivilegedGroups(authnuser.SystemPrivilegedGroup)},
		union.NamedAuthorizer{AuthorizerName: "rbac", Authorizer: authorizationmetrics.InstrumentedAuthorizer("RBAC", "rbac", roles)},
	)
	return err
}
