// Package credentials gives gateways what they need for the clusters with the add-on cluster-gateway: the token of a ManagedServiceAccount,
// and the egress to the cluster. It grants nothing on the cluster.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	proxyv1alpha1 "github.com/capstan-io/capstan/api/proxy/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/repairclient"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/reach/accessprovider"
)

const (
	// AddOn is the name of the add-on, of its configuration and, unless that says otherwise, of the ManagedServiceAccounts.
	AddOn = fleet.AddOnClusterGateway
	// addOnTunnel is the add-on with the tunnels.
	addOnTunnel = fleet.AddOnClusterProxy

	// validity is that of tokens. The agent renews them long before it ends.
	validity = 24 * time.Hour
	// blockedInterval is how often it is checked whether a Secret that somebody else made has gone, for which there is no event.
	blockedInterval = time.Minute

	workers = 5
)

// Reasons of the condition Available.
const (
	reasonHealthy   = "SuccessfullyProbedHealthz" // True
	reasonUnhealthy = "FailedProbingHealthz"      // False
	reasonNotProbed = "WaitingForProbe"           // Unknown; our own
	reasonWaiting   = "WaitingForCredential"      // Unknown; our own
	reasonRefused   = "CredentialNotWritten"      // False; our own
)

// Options configure the controller.
type Options struct {
	// Namespace holds the Secrets that gateways read.
	Namespace string
	// Account is the name of all ManagedServiceAccounts whose tokens may be read, for a process that may read no other Secrets of clusters.
	// Empty means that the ClusterGatewayConfiguration chooses.
	Account string
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles the ManagedClusterAddOns of the add-on.
type Controller struct {
	Options
	client client.Client
	// secrets reads those of ManagedServiceAccounts, and reads and writes those for gateways.
	secrets client.Client
}

// New returns a Controller that works through the client, and for Secrets through another one, which has to see what it has written.
func New(c, secrets client.Client, o Options) *Controller {
	return &Controller{Options: o, client: c, secrets: secrets}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	// The cache of the manager has no Secrets, of which there may be many, with all kinds of content.
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{
			o.Namespace:         {LabelSelector: has(gatewayv1alpha1.LabelCredentialType)},
			cache.AllNamespaces: o.tokens(),
		}}},
	})
	if err != nil {
		return fmt.Errorf("make the cache of credentials: %w", err)
	}
	if err := mgr.Add(secrets); err != nil {
		return err
	}
	// A write through the client of the manager would have its cache fetch all Secrets.
	throughCache, err := repairclient.NewClient(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), Cache: &client.CacheOptions{Reader: secrets},
	})
	if err != nil {
		return fmt.Errorf("make the client for credentials: %w", err)
	}
	c := New(mgr.GetClient(), throughCache, o)
	toAddOn := func(namespace string) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: AddOn}}}
	}
	inNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return toAddOn(o.GetNamespace())
	})
	ofCluster := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return toAddOn(o.GetName())
	})
	bySecret := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, secret *corev1.Secret) []reconcile.Request {
		if secret.Namespace == o.Namespace {
			return toAddOn(secret.Name)
		}
		return toAddOn(secret.Namespace)
	})
	everywhere := handler.EnqueueRequestsFromMapFunc(c.everywhere)
	named := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == AddOn }))
	return ctrl.NewControllerManagedBy(mgr).Named("addon-clustergateway-credentials").
		For(&addonv1beta1.ManagedClusterAddOn{}, named).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, inNamespace, builder.WithPredicates(
			predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == addOnTunnel }),
			predicate.Or(predicates.Generation(), predicate.Predicate(predicate.AnnotationChangedPredicate{})))).
		Watches(&addonv1beta1.ClusterManagementAddOn{}, everywhere, named, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Watches(&proxyv1alpha1.ClusterGatewayConfiguration{}, everywhere, named).
		Watches(&authenticationv1beta1.ManagedServiceAccount{}, inNamespace).
		Watches(&clusterv1.ManagedCluster{}, ofCluster, builder.WithPredicates(predicate.Or(
			clusterMatters(), accessprovider.RegistrationChanged()))).
		WatchesRawSource(source.Kind(secrets, &corev1.Secret{}, bySecret)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// tokens selects the Secrets of ManagedServiceAccounts. With the name, RBAC allows the list to who may read Secrets of that name alone.
func (o Options) tokens() cache.Config {
	selected := cache.Config{LabelSelector: has(fleet.LabelManagedServiceAccount)}
	if o.Account != "" {
		selected.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, o.Account)
	}
	return selected
}

func has(label string) labels.Selector {
	selector, err := labels.Parse(label)
	if err != nil {
		panic(err) // the labels are constants
	}
	return selector
}

// clusterMatters matches clusters that are accepted or denied, or reached elsewhere, after the change.
func clusterMatters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*clusterv1.ManagedCluster)
		after, too := e.ObjectNew.(*clusterv1.ManagedCluster)
		return ok && too && (before.Generation != after.Generation || managedcluster.Accepted(before) != managedcluster.Accepted(after))
	}}
}

// everywhere maps to the add-on on all clusters.
func (c *Controller) everywhere(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
	list := &addonv1beta1.ManagedClusterAddOnList{}
	if err := c.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the clusters with the add-on", "addOn", AddOn)
		return nil
	}
	for i := range list.Items {
		if list.Items[i].Name == AddOn {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// Reconcile keeps the Secret of a cluster with the add-on, and reports how the gateway finds the cluster.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Name != AddOn {
		return ctrl.Result{}, nil
	}
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	err := c.client.Get(ctx, req.NamespacedName, addOn)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get ManagedClusterAddOn %s: %w", req, err)
	}
	builtIn, entryErr := c.isBuiltIn(ctx)
	if entryErr != nil {
		return ctrl.Result{}, entryErr
	}
	if err != nil || !addOn.DeletionTimestamp.IsZero() || !builtIn {
		return ctrl.Result{}, c.remove(ctx, req.Namespace)
	}
	secret, err := c.provide(ctx, addOn)
	var wait *waitError
	if err != nil && !errors.As(err, &wait) {
		return ctrl.Result{}, err
	}
	before, result := addOn.DeepCopy(), ctrl.Result{}
	if wait != nil {
		result.RequeueAfter = wait.after
	}
	addOn.Status.HealthCheck.Mode = addonv1beta1.HealthCheckModeCustomized
	condition := c.condition(addOn, secret, wait)
	if meta.SetStatusCondition(&addOn.Status.Conditions, condition) {
		_, err = patch.Status(ctx, c.client, addOn, before)
		return result, client.IgnoreNotFound(err)
	}
	return result, nil
}

// isBuiltIn reports whether this hub is the manager of the add-on.
func (c *Controller) isBuiltIn(ctx context.Context) (bool, error) {
	entry := &addonv1beta1.ClusterManagementAddOn{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: AddOn}, entry); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("get ClusterManagementAddOn %s: %w", AddOn, err)
	}
	return fleet.IsBuiltIn(entry), nil
}

// waitError is what somebody else has to do before there is a Secret.
type waitError struct {
	reason, message string
	// after is when it is looked at again; zero leaves it to events.
	after time.Duration
}

func (e *waitError) Error() string { return e.message }

func waits(format string, args ...any) error {
	return &waitError{reason: reasonWaiting, message: fmt.Sprintf(format, args...)}
}

func refused(format string, args ...any) error {
	return &waitError{reason: reasonRefused, message: fmt.Sprintf(format, args...)}
}

// condition says what the gateway has found, or why it has nothing to try.
func (c *Controller) condition(addOn *addonv1beta1.ManagedClusterAddOn, secret *corev1.Secret, wait *waitError) metav1.Condition {
	found := metav1.Condition{
		Type: fleet.ConditionAvailable, ObservedGeneration: addOn.Generation, LastTransitionTime: metav1.NewTime(c.Clock.Now()),
	}
	if wait != nil {
		found.Status, found.Reason, found.Message = metav1.ConditionUnknown, wait.reason, wait.message
		if wait.reason == reasonRefused {
			found.Status = metav1.ConditionFalse
		}
		return found
	}
	reason := secret.Annotations[gatewayv1alpha1.AnnotationHealthyReason]
	switch secret.Annotations[gatewayv1alpha1.AnnotationHealthy] {
	case "true":
		found.Status, found.Reason, found.Message = metav1.ConditionTrue, reasonHealthy, "The API server of the cluster answers the gateway"
		if reason != "" {
			found.Message += "; " + reason
		}
	case "false":
		found.Status, found.Reason, found.Message = metav1.ConditionFalse, reasonUnhealthy, reason
	default:
		found.Status, found.Reason, found.Message = metav1.ConditionUnknown, reasonNotProbed, "The gateway has not tried the cluster yet"
	}
	return found
}

// provide returns the Secret for the gateway.
func (c *Controller) provide(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (*corev1.Secret, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: addOn.Namespace}, cluster); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get ManagedCluster %s: %w", addOn.Namespace, err)
	} else if err != nil || !managedcluster.Accepted(cluster) {
		if err := c.remove(ctx, addOn.Namespace); err != nil {
			return nil, err
		}
		return nil, waits("ManagedCluster %s is not accepted; set its spec.hubAcceptsClient", addOn.Namespace)
	}
	configuration, err := c.configuration(ctx)
	if err != nil {
		return nil, err
	}
	if configuration.Spec.SecretManagement.Type == proxyv1alpha1.SecretManagementManual {
		secret, err := c.manual(ctx, cluster.Name)
		if failed := c.removeAccounts(ctx, addOn, ""); failed != nil {
			return nil, failed
		}
		return secret, err
	}
	token, err := c.token(ctx, addOn, configuration)
	if err != nil {
		return nil, err
	}
	want, err := c.desiredSecret(ctx, cluster, configuration, token)
	if err != nil {
		return nil, err
	}
	secret, err := c.apply(ctx, want)
	if err != nil {
		return nil, err
	}
	return secret, c.removeAccounts(ctx, addOn, accountOf(configuration))
}

// removeAccounts deletes the ManagedServiceAccounts that were made for the add-on, except one: they are of an earlier configuration.
func (c *Controller) removeAccounts(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, except string) error {
	list := &authenticationv1beta1.ManagedServiceAccountList{}
	if err := c.client.List(ctx, list, client.InNamespace(addOn.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the ManagedServiceAccounts in namespace %s: %w", addOn.Namespace, err)
	}
	for i := range list.Items {
		account := &list.Items[i]
		if account.Name == except || !account.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(account, addOn) {
			continue
		}
		former := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: *account.ObjectMeta.DeepCopy()}
		only := client.Preconditions{UID: &[]types.UID{account.UID}[0]}
		if err := c.client.Delete(ctx, former, only); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete ManagedServiceAccount %s: %w", client.ObjectKeyFromObject(account), err)
		}
	}
	return nil
}

// configuration returns the one that there is, or the default.
func (c *Controller) configuration(ctx context.Context) (*proxyv1alpha1.ClusterGatewayConfiguration, error) {
	found := &proxyv1alpha1.ClusterGatewayConfiguration{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: AddOn}, found); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get ClusterGatewayConfiguration %s: %w", AddOn, err)
	}
	if other := found.Spec.SecretNamespace; other != "" && other != c.Namespace {
		return nil, refused("ClusterGatewayConfiguration %s: spec.secretNamespace is %s, but the gateway of this hub reads the Secrets in %s; "+
			"leave it out, or have the gateway read those in %s", AddOn, other, c.Namespace, other)
	}
	if other := accountOf(found); c.Account != "" && other != c.Account {
		return nil, refused("ClusterGatewayConfiguration %s: spec.secretManagement.managedServiceAccount.name is %s, but this hub reads the tokens of "+
			"ManagedServiceAccounts called %s alone; set it to that, or leave it out", AddOn, other, c.Account)
	}
	return found, nil
}

// accountOf is the name of the ManagedServiceAccounts whose tokens the gateway gets.
func accountOf(configuration *proxyv1alpha1.ClusterGatewayConfiguration) string {
	if account := configuration.Spec.SecretManagement.ManagedServiceAccount; account != nil && account.Name != "" {
		return account.Name
	}
	return AddOn
}

// manual returns the Secret that a user has made, or that is left to users from now on.
func (c *Controller) manual(ctx context.Context, cluster string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: c.Namespace, Name: cluster}
	if err := c.secrets.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return nil, waits("ClusterGatewayConfiguration %s leaves the Secrets to users; create Secret %s with the label %s", AddOn, key,
			gatewayv1alpha1.LabelCredentialType)
	} else if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", key, err)
	}
	if !isOurs(secret) {
		return secret, nil
	}
	before := secret.DeepCopy()
	delete(secret.Labels, fleet.LabelAddOnName)
	_, err := patch.Object(ctx, c.secrets, secret, before)
	return secret, err
}

// token returns the Secret of the ManagedServiceAccount, which is made if there is none.
func (c *Controller) token(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn,
	configuration *proxyv1alpha1.ClusterGatewayConfiguration) (*corev1.Secret, error) {
	key := client.ObjectKey{Namespace: addOn.Namespace, Name: accountOf(configuration)}
	account := &authenticationv1beta1.ManagedServiceAccount{}
	err := c.client.Get(ctx, key, account)
	if apierrors.IsNotFound(err) {
		account.Namespace, account.Name = key.Namespace, key.Name
		account.Spec.Rotation = authenticationv1beta1.ManagedServiceAccountRotation{Enabled: true, Validity: metav1.Duration{Duration: validity}}
		if err := controllerutil.SetControllerReference(addOn, account, c.client.Scheme()); err != nil {
			return nil, err
		}
		err = c.client.Create(ctx, account)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("provide ManagedServiceAccount %s: %w", key, err)
	}
	// The status of the account is written by the cluster, which could name any Secret in it: only one that agents may write counts.
	secret := &corev1.Secret{}
	if err := c.secrets.Get(ctx, key, secret); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get Secret %s: %w", key, err)
	} else if err != nil || secret.Labels[fleet.LabelManagedServiceAccount] != fleet.LabelTrue ||
		len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
		return nil, waits("There is no token of ManagedServiceAccount %s yet; see whether the add-on managed-serviceaccount is available on the cluster",
			key)
	}
	return secret, nil
}

// desiredSecret is the Secret for the gateway.
func (c *Controller) desiredSecret(ctx context.Context, cluster *clusterv1.ManagedCluster,
	configuration *proxyv1alpha1.ClusterGatewayConfiguration, token *corev1.Secret) (*corev1.Secret, error) {
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: cluster.Name, Labels: map[string]string{
			gatewayv1alpha1.LabelCredentialType: string(gatewayv1alpha1.CredentialServiceAccountToken),
			fleet.LabelAddOnName:                AddOn,
		}},
		Data: map[string][]byte{
			gatewayv1alpha1.KeyToken: token.Data[corev1.ServiceAccountTokenKey], gatewayv1alpha1.KeyCA: token.Data[corev1.ServiceAccountRootCAKey],
		},
	}
	egress, err := c.egress(ctx, cluster, configuration)
	if err != nil {
		return nil, err
	}
	if egress == proxyv1alpha1.EgressClusterProxy {
		want.Labels[gatewayv1alpha1.LabelEndpointType] = string(gatewayv1alpha1.EndpointClusterProxy)
		return want, nil
	}
	want.Labels[gatewayv1alpha1.LabelEndpointType] = string(gatewayv1alpha1.EndpointConst)
	clients := cluster.Spec.ManagedClusterClientConfigs
	if len(clients) == 0 {
		return nil, waits("ManagedCluster %s does not say where its API server is; install the add-on %s there, or set its "+
			"spec.managedClusterClientConfigs to an address that the hub can dial", cluster.Name, addOnTunnel)
	}
	want.Data[gatewayv1alpha1.KeyEndpoint] = []byte(clients[0].URL)
	if len(clients[0].CABundle) > 0 {
		want.Data[gatewayv1alpha1.KeyCA] = clients[0].CABundle
	}
	return want, nil
}

// egress is how a cluster is reached.
func (c *Controller) egress(ctx context.Context, cluster *clusterv1.ManagedCluster,
	configuration *proxyv1alpha1.ClusterGatewayConfiguration) (proxyv1alpha1.EgressType, error) {
	if configuration.Spec.Egress != nil {
		return configuration.Spec.Egress.Type, nil
	}
	// The add-on may be that of another manager, whose tunnels the gateway has no part in.
	tunnel, err := accessprovider.IsReached(ctx, c.client, cluster)
	if err != nil || !tunnel {
		return proxyv1alpha1.EgressDirect, err
	}
	return proxyv1alpha1.EgressClusterProxy, nil
}

// apply writes what is different, and leaves the health to the gateway.
func (c *Controller) apply(ctx context.Context, want *corev1.Secret) (*corev1.Secret, error) {
	key := client.ObjectKeyFromObject(want)
	secret := &corev1.Secret{}
	if err := c.secrets.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return c.create(ctx, want)
	} else if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", key, err)
	}
	if !isOurs(secret) {
		return nil, refused("Secret %s is not of this add-on; delete it, or set spec.secretManagement.type of ClusterGatewayConfiguration %s to Manual",
			key, AddOn)
	}
	before := secret.DeepCopy()
	secret.Data = want.Data
	maps.Copy(secret.Labels, want.Labels)
	_, err := patch.Object(ctx, c.secrets, secret, before)
	return secret, err
}

func (c *Controller) create(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	err := c.secrets.Create(ctx, secret)
	if apierrors.IsNotFound(err) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}
		if err := c.client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create the namespace of Secrets for the gateway: %w", err)
		}
		err = c.secrets.Create(ctx, secret)
	}
	if apierrors.IsAlreadyExists(err) {
		return nil, &waitError{reason: reasonRefused, after: blockedInterval, message: fmt.Sprintf(
			"Secret %s/%s exists without the label %s; delete it", secret.Namespace, secret.Name, gatewayv1alpha1.LabelCredentialType)}
	}
	if err != nil {
		return nil, fmt.Errorf("create Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return secret, nil
}

func isOurs(secret *corev1.Secret) bool { return secret.Labels[fleet.LabelAddOnName] == AddOn }

// remove deletes what the gateway reaches a cluster with, which ends whatever is in flight to it.
func (c *Controller) remove(ctx context.Context, cluster string) error {
	key := client.ObjectKey{Namespace: c.Namespace, Name: cluster}
	secret := &corev1.Secret{}
	if err := c.secrets.Get(ctx, key, secret); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !isOurs(secret) {
		return nil
	}
	only := client.Preconditions{UID: &[]types.UID{secret.UID}[0]}
	if err := c.secrets.Delete(ctx, secret, only); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Secret %s: %w", key, err)
	}
	return nil
}
